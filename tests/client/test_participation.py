"""A device in a collection: an honest server gets the sum, a lying one nothing, and a restart the same bytes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from mapveil.secure_sum.server import Server
from mapveil.trust.secure_aggregation.round_terms import RoundTerms
from mapveil_client.announcement import RoundAnnouncement
from mapveil_client.device_locations import Whereabouts
from mapveil_client.errors import MapveilError
from mapveil_client.local.message import read_reports
from mapveil_client.memory import DeviceMemory
from mapveil_client.participation import DeviceRefusal, Participation
from mapveil_client.policy import DevicePolicy
from mapveil_client.random_features import report as wave_message
from mapveil_client.random_features.parameters import Policy
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.messages import read_set, write_set
from mapveil_client.terms import CollectionTerms
from mapveil_client.vault import Vault

KEY = bytes(range(32))
BROWSED = Fraction(1, 4)


class Unseen(Whereabouts):
    """Places that nobody may look at: deciding comes first."""

    def __getattribute__(self, name):
        if name in ("devices", "cell", "visits", "lon", "lat"):
            raise AssertionError("the place was looked at before everything was decided")
        return super().__getattribute__(name)

    def __init__(self) -> None:
        pass


def spent(device: Participation) -> Fraction:
    return device.memory.account.spent


def refusing(device: Participation, call, match: str) -> None:
    """The device refuses, says why in its log, spends nothing more, and says nothing ever after."""
    before = spent(device)
    with pytest.raises(DeviceRefusal, match=match):
        call()
    assert spent(device) == before
    assert any(line.event == "refused" and line.text for line in device.memory.log.lines)
    assert not device.running
    with pytest.raises(DeviceRefusal):
        device.report()


# The honest server.


@pytest.mark.parametrize("active", [True, False])
def test_a_shard_of_devices_sums_to_their_places_and_noise(new_terms, new_shard, active: bool) -> None:
    shard = new_shard(new_terms(active=active))
    shard.until("inputs")
    assert all(spent(device) == 0 for device in shard.devices)
    shard.deliver()
    assert all(spent(device) == 1 for device in shard.devices)  # charged before it left
    shard.close()
    shard.until("answers").deliver()
    shard.close()
    asked = shard.announcement
    made = RoundTerms.of(asked.query, np.array(asked.sizes), asked.alpha, asked.scale, "largest-remainder")
    units = made.units([shard.server.total])
    # 24 devices of 1,024 units each, and noise of 24/21 discrete Laplace variables of scale 1,024 at 64 places.
    assert abs(int(units.sum()) - 24 * 1024) < 6.5 * 1024 * (2 * 64 * 24 / 21) ** 0.5
    assert int(units.sum()) != 24 * 1024


def test_without_noise_the_sum_is_exactly_the_devices_places(new_terms, new_shard, monkeypatch) -> None:
    # Against the table's own way: the same places put on devices there.
    from mapveil_client import participation

    def without_noise(devices, query, alpha, scale, rounding, rng):
        from mapveil_client.contribution import encode_places

        return encode_places(devices, query.encoding, scale, rounding, rng)

    monkeypatch.setattr(participation, "client_report", without_noise)
    terms = new_terms()
    shard = new_shard(terms)
    shard.until("answers").deliver()
    shard.close()
    cells = np.concatenate(
        [terms.cells.locate(device._whereabouts.lon, device._whereabouts.lat) for device in shard.devices]
    )
    assert shard.server.total.tolist() == (1024 * np.bincount(cells, minlength=64)).tolist()


def test_a_device_asked_again_sends_the_same_bytes(new_terms, new_shard) -> None:
    shard = new_shard(new_terms())
    for phase in ("keys", "shares", "inputs", "consents", "answers"):
        shard.until(phase)
        assert shard.message(3) == shard.message(3)
        assert spent(shard.devices[3]) == (1 if phase in ("inputs", "consents", "answers") else 0)


def test_no_log_names_a_place_a_key_or_a_message(
    new_terms, new_shard, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    shard = new_shard(new_terms())
    shard.until("answers").deliver()
    device = shard.devices[4]
    told = caplog.text + "".join(str(line) for line in device.memory.log.lines)
    lon, lat = device._whereabouts.lon[0], device._whereabouts.lat[0]
    cell = int(device.terms.cells.locate(device._whereabouts.lon, device._whereabouts.lat)[0])
    for secret in (
        f"{lon:.2f}",
        f"{lat:.2f}",
        f"cell {cell}",
        device.memory._seed.hex(),
        device.part.answer.hex()[:32],
    ):
        assert secret not in told
    assert "charged" in told


def test_a_device_left_out_after_its_input_waits_and_one_left_out_before_leaves(new_terms, new_shard) -> None:
    shard = new_shard(new_terms())
    shard.until("consents")
    assert shard.devices[0].answer(shard.announcement, "answers", b"") is None
    assert shard.devices[0].running
    other = new_shard(new_terms()).until("shares")
    refusing(
        other.devices[0],
        lambda: other.devices[0].answer(other.announcement, "inputs", b""),
        "without this device",
    )


def test_a_second_round_is_answered_and_charged_for_itself(new_terms, new_shard, new_announcement) -> None:
    terms = new_terms()
    shard = new_shard(terms, epsilon=Fraction(1, 4))
    shard.until("answers")
    shard.deliver()
    second = new_announcement(terms, epsilon=Fraction(3, 4), number=2, run="5b" * 16)
    again = type(shard)(terms, shard.devices, second)
    again.until("answers")
    assert {spent(device) for device in again.devices} == {Fraction(1)}
    assert again.devices[0].memory.account.entries[terms.identifier].charges == {
        1: Fraction(1, 4),
        2: Fraction(3, 4),
    }


# A server that lies. Everything here is decided before the place is looked at.

LIES = {
    "epsilon raised": ({"epsilon": Fraction(2)}, "epsilon 2 is asked"),
    "alpha too small": ({"alpha": Fraction(1, 22)}, "noise share"),
    "alpha of another shard": ({"alpha": Fraction(1, 21), "sizes": (20, 24)}, "noise share"),
    "shard too small": ({"sizes": (24, 19), "alpha": Fraction(1)}, "shard of 19 devices"),
    "too few devices": ({"terms_minimum": 23, "sizes": (21,), "alpha": Fraction(1)}, "21 devices are asked"),
    "graph for no corrupt": ({"corrupt": Fraction(0)}, "corrupt is 0; the terms promised 1/20"),
    "minimum lowered": ({"dropout": Fraction(1, 2)}, "tolerated_dropout is 1/2"),
    "no consistency check": ({"active": False}, "active is False"),
    "another scale": ({"scale": 1 << 20}, "scale is 1048576"),
    "another rounding": ({"rounding": "stochastic"}, "rounding is stochastic"),
    "another length": ({"length": 63}, "length must be the encoding.s, 64, got 63"),
    "too many coordinates": ({"length": 1 << 30}, "coordinates are asked for"),
    "another raster": ({"encoding": {"kind": "margins", "depth": 5}, "length": 64}, "raster of depth 5"),
    "labels": ({"encoding": {"kind": "labels"}}, "labels"),
    "an encoding of nonsense": ({"encoding": {"kind": "nodes", "depth": 3, "level": "x", "code": 0}}, "cannot be used"),
    "an encoding of nothing": ({"encoding": {}}, "cannot be used"),
    "another collection's terms": ({"terms": "ab" * 32}, "other terms"),
    "a later round": ({"number": 2}, "round 2 was announced after round 0"),
    "no such modulus": ({"bits": 65}, "cannot be used"),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_an_announcement_that_breaks_the_terms_is_refused_unlooked(
    new_terms, new_announcement, new_device, lie: str
) -> None:
    changes, match = LIES[lie]
    changes = dict(changes)
    terms = new_terms(minimum=changes.pop("terms_minimum", 20))
    honest = new_announcement(terms)
    announcement = replace(honest, **changes)
    device = new_device(terms, places=Unseen())
    refusing(device, lambda: device.begin(announcement, 0, 0), match)
    assert spent(device) == 0
    # The very same call with the honest announcement is answered: the lie alone is what was refused.
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
    refusing(device, lambda: device.begin(second, 0, 0), "the terms promised 1 in all")
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
    refusing(device, lambda: device.answer(one.announcement, "shares", forged), "not signed by its identity")


def test_changed_terms_are_refused(new_terms, new_device, tmp_path) -> None:
    vault = Vault(tmp_path / "v", KEY)
    device = new_device(new_terms(), memory=DeviceMemory.open(vault))
    changed = new_terms(minimum=21)
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
        from mapveil_client.secure_sum.graph import make_ring
        from mapveil_client.secure_sum.states import Message

        server: Server = self.shard.server
        ring = make_ring(self.parameters.clients, self.parameters.neighbours, server._graph_seed)
        signers = np.array([int(peer) not in (1,) for peer in ring.neighbours[client]])
        rows = b"".join(
            server._signatures[int(peer)].tobytes()
            for peer, told in zip(ring.neighbours[client], signers, strict=True)
            if told
        )
        return messages.encode(self.parameters, Message.CONFIRMATIONS, client, write_set(signers), rows)


def test_a_survivor_set_below_the_promise_is_refused(new_terms, new_shard) -> None:
    shard = new_shard(new_terms()).until("consents")
    promised = shard.announcement.parameters(0).minimum
    fewer = np.arange(24) < promised - 1
    lie = shard.outbox[0].replace(write_set(np.ones(24, dtype=np.bool_)), write_set(fewer))
    device = shard.devices[0]
    refusing(device, lambda: device.answer(shard.announcement, "consents", lie), f"{promised} are promised")


def test_a_survivor_set_without_the_device_is_refused(new_terms, new_shard) -> None:
    shard = new_shard(new_terms()).until("consents")
    others = np.arange(24) != 0
    lie = shard.outbox[0].replace(write_set(np.ones(24, dtype=np.bool_)), write_set(others))
    device = shard.devices[0]
    refusing(device, lambda: device.answer(shard.announcement, "consents", lie), "that this client is not in")


def test_mail_of_another_collection_another_device_or_another_phase_is_refused(new_terms, new_shard) -> None:
    terms, other = new_terms(), new_terms(identifier="f" * 32)
    elsewhere = new_shard(other).until("shares")
    for wrong in ("collection", "device", "phase", "garbled"):
        shard = new_shard(terms).until("shares")
        device = shard.devices[0]
        mail = {
            "collection": elsewhere.outbox[0],
            "device": shard.outbox[1],
            "phase": b"",
            "garbled": shard.outbox[0][:-1],
        }[wrong]
        if wrong == "phase":
            shard.deliver()
            mail = shard.outbox[0]
            refusing(
                device, lambda s=shard, d=device, m=mail: d.answer(s.announcement, "inputs", m), "message"
            )
        else:
            refusing(
                device, lambda s=shard, d=device, m=mail: d.answer(s.announcement, "shares", m), "message"
            )


def test_replayed_mail_changes_nothing(new_terms, new_shard) -> None:
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


def test_no_policy_and_no_lifetime_is_exceeded_whatever_is_asked(
    new_terms, new_device, new_announcement
) -> None:
    memory = DeviceMemory.open(rng=Randomness(1))
    policy = DevicePolicy(lifetime_epsilon=Fraction(3, 2))
    for index in range(6):
        terms = new_terms(identifier=f"{index:032x}", trust="local", method="grr", epsilon=Fraction(1, 2))
        device = new_device(terms, memory=memory, policy=policy, joined=False)
        if index < 3:
            device.join()
            assert device.report()
            continue
        with pytest.raises(DeviceRefusal, match=r"is left of 1\.5"):
            device.join()
    assert memory.account.spent == Fraction(3, 2)


def test_a_budget_that_was_lowered_since_is_kept(new_terms, new_shard) -> None:
    shard = new_shard(new_terms()).until("inputs")
    device = shard.devices[0]
    device.policy = DevicePolicy(lifetime_epsilon=Fraction(1, 2))
    refusing(device, lambda: shard.message(0), "lifetime")
    assert spent(device) == 0


def test_what_a_running_collection_was_granted_nobody_else_gets(new_terms, new_device) -> None:
    memory = DeviceMemory.open(rng=Randomness(1))
    policy = DevicePolicy(lifetime_epsilon=Fraction(2), most_per_collection=Fraction(2))
    first = new_device(new_terms(epsilon=Fraction(3, 2)), memory=memory, policy=policy)
    second = new_device(new_terms(identifier="b" * 32), memory=memory, policy=policy, joined=False)
    with pytest.raises(DeviceRefusal, match=r"0\.5 is left of 2"):
        second.join()
    first.end("done")
    third = new_device(new_terms(identifier="c" * 32), memory=memory, policy=policy, joined=False)
    third.join()
    assert third.running


def test_an_ended_collection_asks_in_vain(new_terms, new_device, new_announcement) -> None:
    terms = new_terms()
    device = new_device(terms)
    device.end("the server says that it is aborted")
    with pytest.raises(DeviceRefusal, match="aborted"):
        device.begin(new_announcement(terms), 0, 0)
    with pytest.raises(DeviceRefusal, match="aborted"):
        device.join()


# Restarts, at every moment of a round.


@pytest.mark.parametrize("phase", ["keys", "shares", "inputs", "consents", "answers"])
def test_a_restart_sends_the_same_bytes_and_goes_on(
    new_terms, new_device, new_shard, tmp_path, phase
) -> None:
    terms = new_terms()
    vault = Vault(tmp_path / "device.vault", KEY)
    first = new_device(terms, 7, memory=DeviceMemory.open(vault))
    shard = new_shard(terms, {7: first}).until(phase)
    said = shard.message(7)
    # The process is gone; a new one has other randomness, and even another place.
    second = new_device(terms, 99, memory=DeviceMemory.open(Vault(vault.path, KEY)), joined=False)
    second.join()
    shard.devices[7] = second
    assert shard.message(7) == said
    assert spent(second) == spent(first) == (1 if phase in ("inputs", "consents", "answers") else 0)
    shard.deliver()
    shard.close()
    if phase != "answers":
        shard.until("answers").deliver()
        shard.close()
    assert bool(shard.server.included.all())
    assert spent(second) == 1


def test_entering_again_after_a_restart_does_not_pass_for_an_answer(new_terms, new_device, new_shard) -> None:
    device = new_device(new_terms(), 0)
    device.entered()
    assert device.part.sent
    shard = new_shard(new_terms(), {0: device}).until("shares")
    assert shard.message(0)
    device.entered()
    assert not device.part.sent
    device.acknowledged()
    assert device.part.sent
    assert device.memory.log.lines[-1].text == "round 1, shares"


def test_what_cannot_be_saved_is_not_said_and_said_alike_later(
    new_terms, new_device, new_shard, tmp_path
) -> None:
    terms = new_terms()
    folder = tmp_path / "state"
    folder.mkdir()
    device = new_device(terms, 7, memory=DeviceMemory.open(Vault(folder / "v", KEY)))
    shard = new_shard(terms, {7: device}).until("inputs")
    hidden = folder.rename(tmp_path / "away")
    with pytest.raises(MapveilError, match="nothing is sent"):
        shard.message(7)
    hidden.rename(folder)
    assert DeviceMemory.open(Vault(folder / "v", KEY)).account.spent == 0
    said = shard.message(7)
    assert spent(device) == DeviceMemory.open(Vault(folder / "v", KEY)).account.spent == 1
    shard.deliver()
    shard.close()
    shard.until("answers").deliver()
    assert said


# Reports.


def test_a_local_report_is_made_once_and_charged_before_it_leaves(new_terms, new_device, tmp_path) -> None:
    terms = new_terms(trust="local", method="olh-h", options={})
    vault = Vault(tmp_path / "v", KEY)
    device = new_device(terms, memory=DeviceMemory.open(vault))
    body = device.report()
    assert body is not None
    assert read_reports([body], terms.randomizer).count == 1
    assert DeviceMemory.open(vault).account.spent == 1
    again = new_device(terms, 5, memory=DeviceMemory.open(vault), joined=False)
    again.join()
    assert again.report() == body == device.report()
    assert spent(again) == 1


def test_reports_of_devices_are_distributed_as_the_randomizer_says(new_terms, new_device) -> None:
    # One cell, many devices: the mechanism's own transition row, by a chi-squared distance with its own scale.
    terms = new_terms(trust="local", method="grr", epsilon=Fraction(2))
    place = Whereabouts(np.array([-73.97]), np.array([40.77]))
    count = 2000
    bodies = [new_device(terms, index, places=place).report() for index in range(count)]
    seen = np.bincount(read_reports(bodies, terms.randomizer).values, minlength=64)
    row = terms.randomizer.transition_matrix()[int(terms.cells.locate(place.lon, place.lat)[0])]
    score = float((np.square(seen - count * row) / (count * row)).sum())
    assert score < 63 + 6.5 * (2 * 63) ** 0.5
    flat = np.full(64, count / 64)
    assert float((np.square(seen - flat) / flat).sum()) > 63 + 6.5 * (2 * 63) ** 0.5


def test_a_device_outside_is_silent_and_spends_nothing(new_terms, new_device) -> None:
    terms = new_terms(trust="local", method="grr")
    away = new_device(terms, places=Whereabouts(np.array([2.35]), np.array([48.85])))
    assert away.report() is None
    assert spent(away) == 0
    assert "2.35" not in str([str(line) for line in away.memory.log.lines])
    near = new_device(
        new_terms(trust="local", method="grr", options={"outside": "nearest"}), places=away._whereabouts
    )
    assert near.report() is not None


WAVES = DevicePolicy(waves=Policy((150.0, 150.0)))


def test_a_projection_answers_with_the_same_waves_for_ever(new_terms, new_device, tmp_path) -> None:
    vault = Vault(tmp_path / "v", KEY)
    first = new_terms(
        trust="random-features", method="fourier-kde", identifier="1" * 32, options={"bandwidth_m": 100.0}
    )
    second = new_terms(
        trust="random-features",
        method="fourier-kde",
        identifier="2" * 32,
        options={"bandwidth_m": 500.0, "bands": 1},
    )
    narrow = DevicePolicy(waves=Policy((100.0, 100.0), bands=1))
    device = new_device(first, memory=DeviceMemory.open(vault), policy=narrow)
    made = wave_message.read_reports([device.report()], first.waves)
    again = new_device(second, 9, memory=DeviceMemory.open(vault), policy=narrow)
    later = wave_message.read_reports([again.report()], second.waves)
    # Lemma 4: five times the bandwidth is a fifth of the frequency, on the same wave vector.
    assert later.frequencies * 5 == pytest.approx(made.frequencies, rel=1e-12)
    assert abs(made.projections) == pytest.approx(1)
    assert DeviceMemory.open(vault).account.spent == 0


def test_projections_outside_the_policy_are_refused_unlooked(new_terms, new_device) -> None:
    def refused(policy: DevicePolicy, match: str, **changes) -> None:
        terms = new_terms(trust="random-features", method="fourier-kde", **changes)
        device = new_device(terms, places=Unseen(), policy=policy, joined=False)
        with pytest.raises(DeviceRefusal, match=match):
            device.join()

    refused(DevicePolicy(), "random Fourier features are not answered")
    refused(WAVES, "bandwidth 200 is asked", options={"bandwidth_m": 200.0})
    refused(WAVES, "3 features are asked", options={"features": 3})
    refused(WAVES, "kernel laplace", options={"kernel": "laplace"})


def test_waves_for_another_region_than_the_maps_are_refused(new_terms, new_device) -> None:
    honest = new_terms(trust="random-features", method="fourier-kde")
    query = replace(honest.waves, low=tuple(value - 20_000 for value in honest.waves.low), grid=None)
    lie = new_terms(trust="random-features", method="fourier-kde", query=wave_message.write_query(query))
    assert WAVES.refusal(honest) is None
    assert "another region" in str(WAVES.refusal(lie))


def test_an_offset_is_not_drawn_again(new_terms, new_device) -> None:
    memory = DeviceMemory.open(rng=Randomness(2))
    options = {"bandwidth_m": 150.0, "jitter_m": 25.0}
    first = new_terms(trust="random-features", method="fourier-kde", identifier="1" * 32, options=options)
    assert new_device(first, memory=memory, policy=WAVES).report()
    second = new_terms(trust="random-features", method="fourier-kde", identifier="2" * 32)
    device = new_device(second, memory=memory, policy=WAVES, joined=False)
    with pytest.raises(DeviceRefusal, match="of this device, drawn once"):
        device.join()


# What the wire can carry.


def test_terms_of_nonsense_are_refused_in_words(new_terms) -> None:
    record = new_terms().to_record()
    for changes in (
        {"options": {"shard_size": "many"}},
        {"options": {"corrupt": "x"}},
        {"options": {"corrupt": None}},
        {"trust": "local", "method": "none"},
        {"tiling": {"kind": "quadtree"}},
        {"tiling": {"kind": "quadtree", "region": {}, "depth": 3}},
        {"tiling": {**record["tiling"], "depth": "3"}},
        {"tiling": {"kind": "places", "region": record["tiling"]["region"], "lon": "ab", "lat": [1]}},
    ):
        terms = CollectionTerms.decode(CollectionTerms(**{**vars_of(new_terms()), **changes}).encode())
        refusal = DevicePolicy().refusal(terms)
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
