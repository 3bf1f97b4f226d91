"""A device in a collection whose server is malicious: it learns nothing, and the device says why it left."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from mapveil.secure_sum.server import Server
from mapveil_client.announcement import RoundAnnouncement
from mapveil_client.memory import DeviceMemory
from mapveil_client.method_parameters import shard_boundaries
from mapveil_client.policy import DevicePolicy
from mapveil_client.secure_sum.messages import read_set, write_set
from mapveil_client.terms import CollectionTerms
from mapveil_client.vault import Vault
from tests.authority import NAMED, certificate_of

from .conduct import Unseen, refusing, spent
from .conftest import make_announcement

KEY = bytes(range(32))
BROWSED = Fraction(1, 4)


# A malicious server. Everything here is decided before the place is looked at.

CHANGES = {
    "epsilon raised": ({"epsilon": Fraction(2)}, "of which 0 is spent, got 2"),
    "alpha too small": ({"alpha": Fraction(1, 22)}, "noise share"),
    "alpha of another shard": (
        {"terms": {"devices": 45, "options": {"shard_size": 24}}, "alpha": Fraction(1, 20), "sizes": (22, 23)},
        "noise share must be 0.0526316 to 1 in a shard of 22",
    ),
    "shards smaller than the terms'": (
        {"terms": {"devices": 1000}, "sizes": (20,) * 50, "alpha": Fraction(1)}, "must have .1000,., got .20, 20, ",
    ),
    "shards larger than the terms'": (
        {"terms": {"devices": 60, "options": {"shard_size": 30}}, "sizes": (60,)}, r"must have .30, 30., got .60,",
    ),
    "uneven shards": (
        {"terms": {"devices": 60, "options": {"shard_size": 30}}, "sizes": (29, 31)}, "must have .30, 30., got .29, 31",
    ),
    "more devices than the terms'": ({"sizes": (25,)}, "number of devices must be at most 24, got 25"),
    "shard too small": ({"sizes": (24, 19), "alpha": Fraction(1)}, "shard must be at least 20, got 19"),
    "too few devices": ({"terms": {"minimum": 23}, "sizes": (21,), "alpha": Fraction(1)}, "at least 23, got 21"),
    "graph for no corrupt": ({"corrupt": Fraction(0)}, "corrupt must be 1/20, as the terms promised, got 0"),
    "minimum lowered": ({"dropout": Fraction(1, 2)}, "as the terms promised, got 1/2"),
    "no consistency check": ({"active": False}, "active must be True"),
    "another scale": ({"scale": 1 << 20}, "as the terms promised, got 1048576"),
    "another rounding": ({"rounding": "stochastic"}, "promised, got stochastic"),
    "another length": ({"length": 63}, "length must be the encoding.s, 64, got 63"),
    "too many coordinates": ({"length": 1 << 30}, "number of coordinates must be at most"),
    "another raster": ({"encoding": {"kind": "margins", "depth": 5}, "length": 64}, "depth of the raster must be"),
    "labels": ({"encoding": {"kind": "labels"}}, "labels"),
    "an encoding of nonsense": ({"encoding": {"kind": "nodes", "depth": 3, "level": "x", "code": 0}}, "cannot be used"),
    "an encoding of nothing": ({"encoding": {}}, "cannot be used"),
    "another collection's terms": ({"digest": "ab" * 32}, "other terms"),
    "a later round": ({"number": 2}, "round 2 was announced after round 0"),
    "no such modulus": ({"bits": 65}, "cannot be used"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_an_announcement_that_breaks_the_terms_is_refused_unlooked(
    new_terms, new_announcement, new_device, change: str
) -> None:
    changes, match = CHANGES[change]
    changes = dict(changes)
    terms = new_terms(**changes.pop("terms", {}))
    if "digest" in changes:
        changes["terms"] = changes.pop("digest")
    size = getattr(terms.parameters, "shard_size", terms.devices)
    sizes = np.diff(shard_boundaries(terms.devices, size)).tolist()
    honest = new_announcement(terms, sizes=sizes)
    announcement = replace(honest, **changes)
    device = new_device(terms, places=Unseen())
    refusing(device, lambda: device.begin(announcement, 0, 0), match)
    assert spent(device) == 0
    # The very same call with the honest announcement is answered: the change alone is what was refused.
    assert new_device(terms).begin(honest, 0, 0)


@pytest.mark.parametrize("fault", ["raises", "too far"])
def test_an_encoding_that_fails_at_one_place_is_refused_by_devices_anywhere(
    new_terms, new_announcement, new_device, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    # Otherwise the devices at that place, and they alone, would fall silent.
    from mapveil_client.encodings import NodeEncoding

    whole = NodeEncoding.positions

    def broken(self, sites, labels=None):
        made = whole(self, sites, labels)
        made[np.asarray(sites) == 5] = self.length
        if fault == "raises" and bool((np.asarray(sites) == 5).any()):
            raise IndexError("at one place")
        return made

    monkeypatch.setattr(NodeEncoding, "positions", broken)
    terms = new_terms()
    device = new_device(terms, places=Unseen())
    match = "IndexError" if fault == "raises" else "does not have"
    refusing(device, lambda: device.begin(new_announcement(terms), 0, 0), match)


def test_epsilon_raised_in_the_second_round_is_refused(new_terms, new_shard, new_announcement) -> None:
    terms = new_terms()
    shard = new_shard(terms, epsilon=Fraction(1, 2)).until("answers")
    shard.deliver()
    device = shard.devices[0]
    second = new_announcement(terms, epsilon=Fraction(3, 4), number=2, run="5b" * 16)
    refusing(device, lambda: device.begin(second, 0, 0), "epsilon must be at most 1, as the terms promised")
    assert spent(device) == Fraction(1, 2)


def test_a_round_announced_twice_differently_is_refused(new_terms, new_shard, new_announcement) -> None:
    terms = new_terms()
    shard = new_shard(terms).until("shares")
    other = new_announcement(terms, run="77" * 16)
    device = shard.devices[0]
    refusing(device, lambda: device.answer(other, "shares", shard.outbox[0]), "announced twice")
    again = new_shard(terms).until("keys")
    again.deliver()
    refusing(again.devices[1], lambda: again.devices[1].begin(other, 0, 1), "announced twice")
    seated = new_shard(terms).until("keys")
    seated.deliver()
    device = seated.devices[1]
    refusing(device, lambda: device.begin(seated.announcement, 0, 2), "announced twice")


def test_devices_that_were_announced_different_things_refuse_each_other(new_terms, new_shard) -> None:
    # The server runs two machines and gives device 0 the keys of devices that were told of another run.
    terms = new_terms()
    one, two = new_shard(terms), new_shard(terms, run="99" * 16)
    for shard in (one, two):
        shard.until("shares")
    here, there = one.announcement.parameters(0), two.announcement.parameters(0)
    forged = two.outbox[0].replace(there.digest, here.digest)
    device = one.devices[0]
    refusing(device, lambda: device.answer(one.announcement, "shares", forged), "lists other keys of client")


def test_changed_terms_are_refused(new_terms, new_device, tmp_path) -> None:
    vault = Vault(tmp_path / "v", KEY)
    device = new_device(new_terms(), memory=DeviceMemory.open(vault))
    changed = new_terms(minimum=21)
    vault.close()
    again = new_device(changed, memory=DeviceMemory.open(vault), joined=False)
    refusing(again, again.join, "terms of the collection were changed")
    assert device.terms.identifier == changed.identifier


def test_survivors_that_differ_between_devices_are_refused(new_terms, new_shard) -> None:
    # The server tells device 0 that its neighbour 1 dropped out, and everybody else that it did not: with the answers
    # of both groups it would have both secrets of 1.
    shard = new_shard(new_terms()).until("consents")
    truth = shard.outbox[0]
    whole = write_set(np.ones(24, dtype=np.bool_))
    fewer = np.ones(24, dtype=np.bool_)
    fewer[1] = False
    shard.outbox = {**dict(shard.outbox.items()), 0: truth.replace(whole, write_set(fewer))}
    lied_to = shard.devices[0]
    shard.server.receive(5, shard.message(5) or b"")
    consent = shard.message(0)
    assert consent  # it cannot know yet
    for client in set(range(24)) - {0, 5}:
        shard.server.receive(client, shard.message(client) or b"")
    shard.close()  # without device 0, whose consent names other survivors
    honest = shard.outbox[2]
    assert honest
    # Now the server passes on the others' signatures to device 0.
    confirmations = Forger(shard).confirmations(0)
    refusing(
        lied_to,
        lambda: lied_to.answer(shard.announcement, "answers", confirmations),
        "has not signed the survivors that this client was told",
    )
    assert spent(lied_to) == 1  # its masked input had left before


class Forger:
    """A server that knows every honest message of a shard and writes others."""

    def __init__(self, shard) -> None:
        self.shard, self.parameters = shard, shard.announcement.parameters(0)

    def confirmations(self, client: int) -> bytes:
        from mapveil_client.secure_sum import messages
        from mapveil_client.secure_sum.states import Message

        server: Server = self.shard.server
        committee = np.array(server._ring.committee(self.parameters.committee))
        signers = server._signatures[committee].any(axis=1) & (committee != 1)
        signers &= np.cumsum(signers) <= self.parameters.quorum
        rows = server._signatures[committee[signers]].tobytes()
        return messages.encode(self.parameters, Message.CONFIRMATIONS, client, write_set(signers), rows)


def test_a_survivor_set_below_the_promise_is_refused(new_terms, new_shard) -> None:
    shard = new_shard(new_terms()).until("consents")
    promised = shard.announcement.parameters(0).minimum
    fewer = np.arange(24) < promised - 1
    forged = shard.outbox[0].replace(write_set(np.ones(24, dtype=np.bool_)), write_set(fewer))
    device = shard.devices[0]
    refusing(
        device, lambda: device.answer(shard.announcement, "consents", forged), f"{promised} are promised"
    )


def test_a_survivor_set_without_the_device_is_refused(new_terms, new_shard) -> None:
    shard = new_shard(new_terms()).until("consents")
    others = np.arange(24) != 0
    forged = shard.outbox[0].replace(write_set(np.ones(24, dtype=np.bool_)), write_set(others))
    device = shard.devices[0]
    refusing(
        device, lambda: device.answer(shard.announcement, "consents", forged), "that this client is not in"
    )


def test_a_message_of_another_collection_another_device_or_another_phase_is_refused(
    new_terms, new_shard
) -> None:
    terms, other = new_terms(), new_terms(identifier="f" * 32)
    elsewhere = new_shard(other).until("shares")
    for wrong in ("collection", "device", "phase", "garbled"):
        shard = new_shard(terms).until("shares")
        device = shard.devices[0]
        message = {
            "collection": elsewhere.outbox[0],
            "device": shard.outbox[1],
            "phase": b"",
            "garbled": shard.outbox[0][:-1],
        }[wrong]
        if wrong == "phase":
            shard.deliver()
            message = shard.outbox[0]
            refusing(
                device, lambda s=shard, d=device, m=message: d.answer(s.announcement, "inputs", m), "message"
            )
        else:
            refusing(
                device, lambda s=shard, d=device, m=message: d.answer(s.announcement, "shares", m), "message"
            )


def test_a_replayed_message_changes_nothing(new_terms, new_shard) -> None:
    shard = new_shard(new_terms()).until("shares")
    roster = shard.outbox[0]
    shares = shard.message(0)
    shard.deliver()
    shard.close()
    inputs = shard.message(0)
    assert (
        shard.devices[0].answer(shard.announcement, "inputs", roster) == inputs
    )  # what was said, not what is asked
    assert shares != inputs
    assert spent(shard.devices[0]) == 1
    shard.deliver()
    shard.close()
    # An earlier phase again: the vector is in the sum, nothing is due.
    assert shard.devices[0].answer(shard.announcement, "shares", roster) is None


# What the wire can carry.


def test_a_certificate_that_expires_before_the_roster_drives_no_neighbour_away(new_terms, new_device) -> None:
    # One device admitted in its last seconds: its 32 neighbours left for good, and the round was aborted.
    terms, clock = new_terms(devices=100, minimum=80), [1.79e9]
    announced = make_announcement(terms)
    server = Server(announced.parameters(0), bytes(32), authority=NAMED)
    devices = [new_device(terms, index, now=lambda: clock[0]) for index in range(terms.devices)]
    devices[0].memory.certificate = certificate_of(devices[0].memory.identity, expires=int(clock[0]) + 20)
    for client, device in enumerate(devices):
        body = device.begin(announced, 0, client)
        server.check(client, body, clock[0])
        server.receive(client, body)
    rosters = server.close_phase()
    clock[0] += 30
    for client, device in enumerate(devices):
        server.receive(client, device.answer(announced, "shares", rosters[client]))
    # Of itself it knows better, and so does the server: it is not admitted again.
    late = new_device(terms, 200, now=lambda: clock[0])
    late.memory.certificate = certificate_of(late.memory.identity, expires=int(clock[0]) - 10)
    refusing(late, lambda: late.begin(announced, 0, 0), "must be valid at")


def test_terms_of_nonsense_are_refused_in_words(new_terms) -> None:
    record = new_terms().to_record()
    for changes in (
        {"options": {"shard_size": "many"}},
        {"options": {"corrupt": "x"}},
        {"options": {"corrupt": None}},
        {"trust": "local", "method": "none", "authority": None},
        {"tiling": {"kind": "quadtree"}},
        {"tiling": {"kind": "quadtree", "region": {}, "depth": 3}},
        {"tiling": {**record["tiling"], "depth": "3"}},
        {"tiling": {"kind": "places", "region": record["tiling"]["region"], "lon": "ab", "lat": [1]}},
    ):
        terms = CollectionTerms.decode(CollectionTerms(**{**vars_of(new_terms()), **changes}).encode())
        refusal = DevicePolicy(authority=NAMED).refusal(terms)
        assert refusal, changes
        assert "\n" not in refusal


def vars_of(terms: CollectionTerms) -> dict:
    return {name: getattr(terms, name) for name in terms.to_record() if name != "version"}


def test_numbers_that_would_fill_the_memory_are_refused(new_terms, new_announcement) -> None:
    from mapveil_client.errors import InputError
    from mapveil_client.terms import read_fraction

    for text in ("1e999999999", "1E9", "0x1", "1_000", " 1", "1/0", "-1", "0", "nan", "", 1, None, 0.5):
        with pytest.raises(InputError):
            read_fraction(text, "epsilon")
    assert read_fraction("1/3", "epsilon") == Fraction(1, 3)
    assert read_fraction("0.25", "epsilon") == BROWSED
    wire = new_announcement(new_terms()).encode()
    with pytest.raises(InputError):
        RoundAnnouncement.decode(wire.replace(b'"corrupt":"1/20"', b'"corrupt":"1e9999999"'))


def test_bit_maps_are_read_as_they_are_written() -> None:
    # The tests above forge them: a forgery that did not differ would show nothing.
    members = np.arange(24) != 1
    assert read_set(write_set(members), 24).tolist() == members.tolist()
