"""A round's parameters: checked at once, and each of them is in the digest."""

from __future__ import annotations

import dataclasses

import pytest

from mapveil_client.errors import ParameterError
from mapveil_client.secure_sum.masks import Cipher


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"round_id": b""}, "round_id"),
        ({"round_id": bytes(256)}, "round_id"),
        ({"context": bytes(256)}, "context"),
        ({"clients": 2, "neighbours": 1, "threshold": 1}, "clients"),
        ({"clients": (1 << 24) + 1, "neighbours": 2, "threshold": 2}, "clients"),
        ({"neighbours": 3}, "neighbours"),
        ({"neighbours": 6}, "neighbours"),
        ({"neighbours": 0}, "neighbours"),
        ({"threshold": 1}, "threshold"),
        ({"threshold": 6}, "threshold"),
        ({"length": 0}, "length"),
        ({"bits": 0}, "bits"),
        ({"bits": 65}, "bits"),
        ({"minimum": 1}, "minimum"),
        ({"minimum": 7}, "minimum"),
        ({"active": True}, "signed"),
        ({"active": True, "signed": True, "committee": 0, "quorum": 0}, "committee"),
        ({"active": True, "signed": True, "committee": 7}, "committee"),
        ({"active": True, "signed": True, "quorum": 3}, "quorum"),
        ({"active": True, "signed": True, "quorum": 7}, "quorum"),
        ({"signed": True, "committee": 6}, "committee"),
        ({"signed": True, "quorum": 1}, "quorum"),
    ],
)
def test_what_is_outside_its_range_is_named(make_parameters, changes, name):
    with pytest.raises(ParameterError, match=f"^{name} must be .*"):
        make_parameters(**changes)


def test_every_parameter_is_in_the_digest(make_parameters):
    smaller = {"neighbours": 4, "threshold": 4}
    changes = [
        ({}, {"round_id": b"other"}),
        ({}, {"context": b"other"}),
        (smaller, {"clients": 7}),
        ({}, {"neighbours": 4}),
        ({}, {"threshold": 5}),
        ({}, {"length": 6}),
        ({}, {"bits": 17}),
        ({}, {"minimum": 3}),
        ({}, {"cipher": Cipher.CHACHA20}),
        ({}, {"signed": True}),
        ({"signed": True}, {"active": True}),
        ({"signed": True, "active": True}, {"committee": 5}),
        ({"signed": True, "active": True}, {"quorum": 5}),
    ]
    names = {name for _, changed in changes for name in changed}
    assert names == {field.name for field in dataclasses.fields(make_parameters())}
    for base, changed in changes:
        assert make_parameters(**base).digest == make_parameters(**base).digest
        assert make_parameters(**{**base, **changed}).digest != make_parameters(**base).digest
    # Names cannot run into each other.
    assert (
        make_parameters(round_id=b"ab", context=b"c").digest
        != make_parameters(round_id=b"a", context=b"bc").digest
    )
    assert len(make_parameters().digest) == 32
