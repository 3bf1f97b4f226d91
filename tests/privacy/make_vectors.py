"""Writes the vectors of signed heads, tests/vectors/heads: python tests/privacy/make_vectors.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mapveil.privacy.chain_head import START, ChainHead
from mapveil_client.secure_sum.keys import Identity
from mapveil_client.terms import canonical_json

PATH = Path(__file__).resolve().parent.parent / "vectors" / "heads" / "heads.json"
PRIVATE = bytes(range(32))


def vectors() -> dict[str, Any]:
    """Heads that are valid, and texts that hold none."""
    key, time = Identity(PRIVATE), "2026-03-01T12:00:00.000000+00:00"
    valid = [
        ChainHead.sign(key, "audit log", 0, START, time),
        ChainHead.sign(key, "audit log", 12, bytes(range(32, 64)), time),
        ChainHead.sign(key, "ledger", (1 << 53) - 1, bytes(range(64, 96)), "2026-03-01T12:00:00+00:00"),
    ]
    record = valid[1].to_record()
    changes: dict[str, dict[str, Any]] = {
        "a later count": {"count": 13},
        "another chain": {"chain": "ledger"},
        "no chain of ours": {"chain": "log"},
        "a negative count": {"count": -1},
        "a count as text": {"count": "12"},
        "a count of 2**53": {"count": 1 << 53},
        "a fraction": {"count": 12.0},
        "true": {"count": True},
        "zeros after lines": {"head": bytes(32).hex()},
        "capitals": {"head": record["head"].upper().replace("2", "A")},
        "a short value": {"head": record["head"][:-2]},
        "spaces": {"head": record["head"][:-2] + "  "},
        "another time": {"time": "2026-03-01T12:00:00.000001+00:00"},
        "no time": {"time": None},
        "another key": {"public_key": Identity(bytes([9] * 32)).public.hex()},
        "a key of no large order": {"public_key": bytes(32).hex()},
        "a signature of zeros": {"signature": bytes(64).hex()},
        "another head's signature": {"signature": valid[0].signature.hex()},
        "a signature plus the group's order": {"signature": _same_modulo_order(valid[1].signature).hex()},
        "another version": {"version": 2},
        "one value more": {"note": ""},
    }
    refused = [
        {"why": why, "text": canonical_json(record | change).decode()} for why, change in changes.items()
    ]
    refused += [
        {
            "why": f"no {name}",
            "text": canonical_json({key: each for key, each in record.items() if key != name}).decode(),
        }
        for name in record
    ]
    refused += [
        {"why": "lines with no line", "text": canonical_json(record | {"count": 0}).decode()},
        {"why": "a list", "text": "[]"},
        {"why": "nothing", "text": ""},
    ]
    return {
        "private_key": PRIVATE.hex(),
        "valid": [each.to_record() for each in valid],
        "refused": refused,
    }


def _same_modulo_order(signature: bytes) -> bytes:
    """The signature whose scalar is larger by the order of Ed25519's group: equal to a verifier that does not look."""
    order = (1 << 252) + 27742317777372353535851937790883648493
    scalar = int.from_bytes(signature[32:], "little") + order
    return signature[:32] + scalar.to_bytes(32, "little")


if __name__ == "__main__":
    PATH.write_text(json.dumps(vectors(), indent=1) + "\n")
