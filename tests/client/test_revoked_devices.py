"""Revoked devices in the roster of an active round, and servers that withhold, replace or forge the list of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mapveil.secure_sum.enrolment_authority import LIST_DAYS, EnrolmentAuthority
from mapveil_client.errors import InputError
from mapveil_client.participation import DeviceRefusal
from mapveil_client.secure_sum.certificate import CLOCKS_S, RevocationList
from mapveil_client.secure_sum.keys import Identity
from tests.authority import AUTHORITY, NAMED, revocations_of

from .conduct import refusing
from .conftest import Shard, make_announcement

NOW = 1.79e9
DAY = 86_400


def test_a_device_that_was_revoked_is_no_neighbour_and_its_certificate_is_not_over(
    new_terms, new_shard
) -> None:
    shard = new_shard(new_terms())
    listed = revocations_of(
        *(device.memory.identity.public for device in shard.devices[1:])
    )  # whoever is near
    for device in shard.devices:
        device.memory.revoked = listed if device is shard.devices[0] else revocations_of()
    shard.until("shares")
    knows, believes = shard.devices[0], shard.devices[1]
    refusing(knows, lambda: shard.message(0), r"keys of client \d+: its key was revoked by the enrolment")
    # The attack, as it went without a list: those certificates are good for weeks.
    assert believes.answer(shard.announcement, "shares", shard.outbox[1])


def test_a_revoked_device_takes_part_in_nothing(new_terms, new_device) -> None:
    device = new_device(new_terms(), joined=False)
    device.memory.revoked = revocations_of(device.memory.identity.public)
    with pytest.raises(DeviceRefusal, match="this device was revoked"):
        device.join()
    assert not device.memory.account.entries


def test_a_server_that_withholds_the_list_has_until_the_one_before_expires(new_terms, new_device) -> None:
    """And no second longer, whatever it says: a device without a valid list takes part in no active sum."""
    clock = [NOW]
    announced = make_announcement(terms := new_terms())

    def device(index: int, joined: bool = False):
        made = new_device(terms, index, joined=False, now=lambda: clock[0])
        made.memory.revoked = AUTHORITY.revoke((), NOW)
        if joined:
            made.join()
        return made

    early, late, begun = device(1), device(2), device(3, joined=True)
    clock[0] = NOW + LIST_DAYS * DAY - 1
    early.join()
    assert early.begin(announced, 0, 1)
    clock[0] += 1
    with pytest.raises(DeviceRefusal, match="the revocation list must be valid at"):
        late.join()
    refusing(begun, lambda: begun.begin(announced, 0, 3), "the revocation list must be valid at")
    without = device(4)
    without.memory.revoked = None
    with pytest.raises(DeviceRefusal, match="has no revocation list"):
        without.join()


def test_a_list_that_expires_on_the_way_ends_the_part_before_a_location_is_read(
    new_terms, new_device
) -> None:
    clock, terms = [NOW], new_terms()
    devices = [new_device(terms, index, now=lambda: clock[0]) for index in range(terms.devices)]
    for device in devices:
        device.memory.revoked = AUTHORITY.revoke((), NOW)
    shard = Shard(terms, devices, make_announcement(terms)).until("shares")
    clock[0] += LIST_DAYS * DAY
    refusing(devices[0], lambda: shard.message(0), "the revocation list must be valid at")


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: revocations_of(b"a" * 32, number=4), "must not be older than number 5"),
        (lambda: revocations_of(b"a" * 32, number=5, issued=99), "must not be older than number 5"),
        (lambda: revocations_of(b"b" * 32, number=6), "must hold every key"),
        (lambda: revocations_of(b"a" * 32, number=6, expires=int(NOW)), "must be valid at"),
        (lambda: revocations_of(b"a" * 32, number=6, issued=int(NOW) + CLOCKS_S + 1), "must be valid at"),
        (
            lambda: replace(revocations_of(b"a" * 32, number=6), keys=frozenset()),
            "not by the enrolment authority",
        ),
        (
            lambda: EnrolmentAuthority("tests", Identity(bytes([1] * 32))).revoke((), NOW),
            "not by the enrolment authority",
        ),
        (
            lambda: EnrolmentAuthority("bikes", Identity(bytes(range(32)))).revoke((), NOW),
            "of population tests",
        ),
    ],
    ids=[
        "older",
        "older by its time",
        "fewer keys",
        "expired",
        "of the future",
        "altered",
        "forged",
        "of others",
    ],
)
def test_an_older_or_forged_list_is_refused(made, says: str) -> None:
    held = revocations_of(b"a" * 32, number=5, issued=100)
    assert says in (made().fault(NAMED, NOW, held) or "nothing")
    newer = revocations_of(b"a" * 32, b"c" * 32, number=6, issued=50)
    assert newer.fault(NAMED, NOW, held) is None
    # What another authority once signed holds nothing back.
    foreign = EnrolmentAuthority("tests", Identity(bytes([1] * 32))).revoke((), NOW, number=1 << 40)
    assert newer.fault(NAMED, NOW, foreign) is None


def test_a_list_has_one_encoding() -> None:
    made = revocations_of(b"b" * 32, b"a" * 32, number=9, issued=3)
    data = made.encode()
    assert RevocationList.decode(data) == made
    backwards = data.replace(b"a" * 32 + b"b" * 32, b"b" * 32 + b"a" * 32)
    twice = data.replace(b"a" * 32 + b"b" * 32, b"a" * 64)
    for wrong in (backwards, twice, data[:-1], data + b"\0", b"", bytes([data[0], 2, *data[2:]])):
        with pytest.raises(InputError, match="revocation list"):
            RevocationList.decode(wrong)
