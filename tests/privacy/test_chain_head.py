"""Signed heads of chains: their format in vectors, and what is refused."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import pytest

from mapveil.privacy.chain_head import START, ChainHead
from mapveil_client.errors import InputError
from mapveil_client.secure_sum.keys import Identity
from mapveil_client.terms import canonical_json

HERE = Path(__file__).parent
VECTORS = json.loads((HERE.parent / "vectors" / "heads" / "heads.json").read_text())
KEY = Identity(bytes.fromhex(VECTORS["private_key"]))
VALUES = [START, bytes([1] * 32), bytes([2] * 32), bytes([3] * 32)]


def head_of(count, chain="ledger", key=KEY):
    return ChainHead.sign(key, chain, count, VALUES[count], "2026-03-01T12:00:00+00:00")


@pytest.mark.parametrize(
    "record", VECTORS["valid"], ids=lambda record: f"{record['chain']} {record['count']}"
)
def test_heads_are_read_and_signed_as_the_vectors_say(record):
    head = ChainHead.decode(canonical_json(record))
    assert head.to_record() == record
    again = ChainHead.sign(KEY, head.chain, head.count, head.head, head.time)
    assert again.encode() == head.encode() == canonical_json(record)


@pytest.mark.parametrize("refused", VECTORS["refused"], ids=lambda refused: refused["why"])
def test_heads_that_are_none_are_refused(refused):
    with pytest.raises(InputError):
        ChainHead.decode(refused["text"].encode())


def test_the_vectors_are_what_the_code_makes():
    spec = importlib.util.spec_from_file_location("make_head_vectors", HERE / "make_vectors.py")
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    assert maker.vectors() == VECTORS, "run: python tests/privacy/make_vectors.py"


def test_every_value_is_signed():
    record = head_of(2).to_record()
    others = {
        "chain": "audit log",
        "count": 3,
        "head": VALUES[1].hex(),
        "time": "2026-03-01T12:00:01+00:00",
        "public_key": Identity(bytes([9] * 32)).public.hex(),
        "signature": head_of(3).signature.hex(),
    }
    assert others.keys() == record.keys() - {"version"}
    for name, value in others.items():
        with pytest.raises(InputError, match="signature"):
            ChainHead.decode(canonical_json(record | {name: value}))


def fault(head, count=3, chain="ledger", key=KEY):
    return head.fault(chain, count, VALUES.__getitem__, key)


def test_a_prefix_has_no_fault():
    for count in range(4):
        assert fault(head_of(count)) is None
        assert fault(head_of(count), key=None) is None


def test_what_is_no_prefix_is_told():
    assert "taken off the end" in fault(head_of(3), count=2)
    rewritten = ChainHead.sign(KEY, "ledger", 2, bytes([7] * 32), "t")
    assert "rewritten" in fault(rewritten)
    assert "another chain" in fault(head_of(3), chain="audit log")
    assert "another key" in fault(head_of(3, key=Identity(bytes([9] * 32))))
    assert fault(head_of(3, key=Identity(bytes([9] * 32))), key=None) is None


def test_a_head_is_read_from_a_file(tmp_path):
    path = tmp_path / "head.json"
    path.write_bytes(head_of(1).encode() + b"\n")
    assert ChainHead.read(path) == head_of(1)
    path.write_text("{}")
    with pytest.raises(InputError, match=os.fspath(path)):
        ChainHead.read(path)
    with pytest.raises(InputError, match="cannot be read"):
        ChainHead.read(tmp_path / "none")
