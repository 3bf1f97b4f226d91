"""Derivations: both sides agree, and no two purposes, rounds, pairs or directions share a key."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from mapveil_client.secure_sum.boxes import sealing_key, tag_key
from mapveil_client.secure_sum.keys import (
    pair_key,
    pair_mask_sign,
    seed_commitment,
    self_mask_seed,
)
from mapveil_client.secure_sum.masks import Purpose, info
from mapveil_client.secure_sum.states import PeerFault

A, B = (X25519PrivateKey.from_private_bytes(bytes([i]) * 32) for i in (1, 2))
PAIRS = (Purpose.PAIR_MASK, Purpose.SEALING)
SEED = bytes(32)
SMALL_ORDERS = [
    *(number.to_bytes(32, "little") for number in (0, 1, 2**255 - 20, 2**255 - 19, 2**255 - 18)),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
]
PUBLIC_A, PUBLIC_B = (key.public_key().public_bytes_raw() for key in (A, B))
SAME_AS_B = PUBLIC_B[:31] + bytes([PUBLIC_B[31] | 128])  # X25519 ignores the highest bit: the same secret


def test_both_ends_derive_the_same(make_parameters):
    p = make_parameters()
    for purpose in PAIRS:
        assert pair_key(p, purpose, SEED, A, PUBLIC_B, 3, 5) == pair_key(p, purpose, SEED, B, PUBLIC_A, 5, 3)


def test_a_known_answer_made_without_this_code(make_parameters):
    p = make_parameters()
    shared = A.exchange(X25519PrivateKey.from_private_bytes(bytes([2]) * 32).public_key())
    name = b"mapveil secure sum\x00\x01\x00\x01" + b"\x00\x00\x00\x05round" + b"\x00\x00\x00\x20" + p.digest
    name += b"\x00\x00\x00\x20" + SEED
    name += b"\x00\x00\x00\x04\x00\x00\x00\x03" + b"\x00\x00\x00\x20" + PUBLIC_A
    name += b"\x00\x00\x00\x04\x00\x00\x00\x05" + b"\x00\x00\x00\x20" + PUBLIC_B
    ends = bytes([0, 0, 0, 3]), PUBLIC_A, bytes([0, 0, 0, 5]), PUBLIC_B
    assert name == info(Purpose.PAIR_MASK, b"round", p.digest, SEED, *ends)
    wanted = HKDF(algorithm=SHA256(), length=32, salt=None, info=name).derive(shared)
    assert pair_key(p, Purpose.PAIR_MASK, SEED, A, PUBLIC_B, 3, 5) == wanted


def test_everything_derived_differs(make_parameters):
    seed = bytes(range(32))
    made = []
    for p in (make_parameters(), make_parameters(round_id=b"other"), make_parameters(context=b"other")):
        for client in (3, 4):
            made += [
                *(
                    pair_key(p, purpose, graph, A, public, client, 5)
                    for purpose in PAIRS
                    for graph in (SEED, seed)
                    for public in (PUBLIC_B, SAME_AS_B)
                ),
                *(
                    made
                    for graph in (SEED, seed)
                    for made in (
                        self_mask_seed(p, graph, client, seed),
                        seed_commitment(p, graph, client, seed),
                    )
                ),
            ]
        pair = pair_key(p, Purpose.SEALING, SEED, A, PUBLIC_B, 1, 2)
        sealing = [sealing_key(pair, 1, 2), sealing_key(pair, 2, 1)]
        made += [pair, *sealing, *(tag_key(p, key) for key in sealing)]
    assert len(set(made)) == len(made)
    assert {len(key) for key in made} == {32}


def test_the_self_mask_and_its_commitment_are_hmac_and_hash(make_parameters):
    p, seed = make_parameters(), bytes(range(32))
    name = info(Purpose.SELF_MASK, p.round_id, p.digest, SEED, bytes([0, 0, 0, 3]))
    assert self_mask_seed(p, SEED, 3, seed) == hmac.new(seed, name, hashlib.sha256).digest()
    name = info(Purpose.SEED_COMMITMENT, p.round_id, p.digest, SEED, bytes([0, 0, 0, 3]), seed)
    assert seed_commitment(p, SEED, 3, seed) == hashlib.sha256(name).digest()


def test_one_of_a_pair_adds_and_the_other_subtracts():
    assert pair_mask_sign(3, 5) == 1
    assert pair_mask_sign(5, 3) == -1


@pytest.mark.parametrize("public", SMALL_ORDERS, ids=lambda public: public.hex()[:8])
def test_keys_of_small_order_are_refused(make_parameters, public):
    for purpose in PAIRS:
        with pytest.raises(PeerFault, match="no shared secret"):
            pair_key(make_parameters(), purpose, SEED, A, public, 1, 2)
        with pytest.raises(PeerFault, match="no shared secret"):
            pair_key(make_parameters(), purpose, SEED, A, public[:31] + bytes([public[31] | 128]), 1, 2)
