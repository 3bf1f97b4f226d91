"""Hashes name what they are for, and their parts cannot be shifted."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from mapveil.retrieval.digests import PROTOCOL, Purpose, digest

PARTS = st.lists(st.binary(max_size=9), max_size=4)


@given(st.sampled_from(Purpose), PARTS)
def test_it_is_the_formula(purpose, parts):
    written = PROTOCOL + b"\0\1\0" + bytes([purpose])
    for part in parts:
        written += len(part).to_bytes(8, "big") + part
    assert digest(purpose, *parts) == hashlib.sha256(written).digest()


@given(st.sampled_from(Purpose), PARTS, st.sampled_from(Purpose), PARTS)
def test_other_particulars_other_hash(purpose, parts, other, others):
    assert (digest(purpose, *parts) == digest(other, *others)) == ((purpose, parts) == (other, others))
