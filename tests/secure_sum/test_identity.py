"""Identities: what they sign is bound to round, client, keys, graph and survivors, and to nothing less."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.keys import Identity, key_statement, signed_by, survivor_statement


def test_a_signature_is_of_one_statement_by_one_identity():
    one, other = Identity.draw(Randomness(1)), Identity.draw(Randomness(2))
    signature = one.sign(b"statement")
    assert signed_by(one.public, signature, b"statement")
    assert not signed_by(one.public, signature, b"statemenu")
    assert not signed_by(other.public, signature, b"statement")
    assert not signed_by(one.public, bytes([signature[0] ^ 1]) + signature[1:], b"statement")
    assert not signed_by(b"\xff" * 32, signature, b"statement")
    assert not signed_by(bytes(31), signature, b"statement")


def test_rfc_8032_test_1():
    key = Identity(bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"))
    assert key.public.hex() == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    assert key.sign(b"").hex().startswith("e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155")


def test_statements_differ_wherever_what_they_say_differs(make_parameters):
    p, q = make_parameters(), make_parameters(round_id=b"other")
    some = np.array([1, 1, 1, 0, 1, 1], dtype=np.bool_)
    others = np.array([1, 1, 1, 1, 1, 0], dtype=np.bool_)
    made = [
        *(key_statement(x, i, keys) for x in (p, q) for i in (1, 2) for keys in (b"a" * 64, b"b" * 64)),
        *(
            survivor_statement(x, s, a)
            for x in (p, q)
            for s in (bytes(32), b"1" * 32)
            for a in (some, others)
        ),
    ]
    assert len(set(made)) == len(made) == 16


def test_the_private_key_never_shows_and_never_travels():
    private = bytes(range(32))
    identity = Identity(private)
    assert private.hex() not in repr(identity)
    assert repr(identity) == f"Identity({identity.public.hex()})"
    for carry in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled"):
            carry(identity)
