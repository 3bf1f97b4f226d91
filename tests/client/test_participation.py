"""A device in a collection with an honest server: the sum, its budget, the same bytes after a restart, reports."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.random_features.fourier_kde import FourierKde
from mapveil.random_features.map_points import map_points
from mapveil.trust.secure_aggregation.round_terms import RoundTerms
from mapveil_client.device_account import Budget
from mapveil_client.device_locations import Whereabouts
from mapveil_client.errors import MapveilError
from mapveil_client.local.message import read_reports
from mapveil_client.memory import DeviceMemory
from mapveil_client.participation import DeviceRefusal
from mapveil_client.policy import DevicePolicy
from mapveil_client.random_features import report as feature_message
from mapveil_client.random_features.feature_policy import Policy
from mapveil_client.randomness.random import Randomness
from mapveil_client.vault import Vault
from tests.authority import NAMED

from .conduct import Unseen, refusing, saved, spent

KEY = bytes(range(32))
BROWSED = Fraction(1, 4)


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


def test_no_policy_and_no_lifetime_is_exceeded_whatever_is_asked(
    new_terms, new_device, new_announcement
) -> None:
    memory = DeviceMemory.open(rng=Randomness(1))
    policy = DevicePolicy(authority=NAMED, budget=Budget(Fraction(3, 2)))
    for index in range(6):
        terms = new_terms(identifier=f"{index:032x}", trust="local", method="grr", epsilon=Fraction(1, 2))
        device = new_device(terms, memory=memory, policy=policy, joined=False)
        if index < 3:
            device.join()
            assert device.report()
            continue
        with pytest.raises(DeviceRefusal, match=r"left of 1\.5"):
            device.join()
    assert memory.account.spent == Fraction(3, 2)


def test_a_budget_that_was_lowered_since_is_kept(new_terms, new_shard) -> None:
    shard = new_shard(new_terms()).until("inputs")
    device = shard.devices[0]
    device.policy = DevicePolicy(authority=NAMED, budget=Budget(Fraction(1, 2)))
    refusing(device, lambda: shard.message(0), "lifetime")
    assert spent(device) == 0


def test_what_a_running_collection_was_granted_nobody_else_gets(new_terms, new_device) -> None:
    memory = DeviceMemory.open(rng=Randomness(1))
    policy = DevicePolicy(authority=NAMED, budget=Budget(Fraction(2)), most_per_collection=Fraction(2))
    first = new_device(new_terms(epsilon=Fraction(3, 2)), memory=memory, policy=policy)
    second = new_device(new_terms(identifier="b" * 32), memory=memory, policy=policy, joined=False)
    with pytest.raises(DeviceRefusal, match=r"0\.5 \(left of 2"):
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
    vault.close()
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
    assert saved(folder / "v").account.spent == 0
    said = shard.message(7)
    assert spent(device) == saved(folder / "v").account.spent == 1
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
    assert saved(vault.path).account.spent == 1
    vault.close()
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


FEATURES = DevicePolicy(authority=NAMED, random_features=Policy((150.0, 150.0)))


def test_a_projection_answers_with_the_same_frequencies_for_ever(new_terms, new_device, tmp_path) -> None:
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
    narrow = DevicePolicy(authority=NAMED, random_features=Policy((100.0, 100.0), bands=1, ladder=True))
    device = new_device(first, memory=DeviceMemory.open(vault), policy=narrow)
    made = feature_message.read_reports([device.report()], first.features_query)
    vault.close()
    again = new_device(second, 9, memory=DeviceMemory.open(vault), policy=narrow)
    later = feature_message.read_reports([again.report()], second.features_query)
    # Lemma 4: five times the bandwidth is a fifth of the frequency, on the same frequency vector.
    assert later.frequencies * 5 == pytest.approx(made.frequencies, rel=1e-12)
    assert abs(made.projections) == pytest.approx(1)
    kept = saved(vault.path)
    assert kept.account.spent == 0
    assert kept.frequencies is not None
    assert (kept.frequencies.answers, kept.frequencies.multiples) == (2, (1, 5))
    lines = [line.text for line in kept.log.lines if line.event == "charged"]
    assert [line.split(";")[0] for line in lines] == ["answer 1 of 8", "answer 2 of 8"]
    assert float(lines[0].split()[-2]) == pytest.approx(5 * float(lines[1].split()[-2]), rel=0.01)


def test_a_device_is_pinned_before_it_looks_where_it_is(new_terms, new_device) -> None:
    """Outside the region too: otherwise a row of regions would find it. Its silence is counted as an answer."""
    memory = DeviceMemory.open(rng=Randomness(2))
    terms = new_terms(trust="random-features", method="fourier-kde", options={"bandwidth_m": 150.0})
    device = new_device(terms, memory=memory, policy=FEATURES, places=Unseen())
    assert memory.frequencies is not None
    assert memory.frequencies.answers == 0
    device._whereabouts = Whereabouts(np.array([2.35]), np.array([48.86]))
    assert device.report() is None
    assert memory.frequencies.answers == 1
    paris = Quadtree(Region.from_bbox(2.2, 48.7, 2.5, 49.0), 8)
    other = new_terms(
        trust="random-features",
        method="fourier-kde",
        identifier="2" * 32,
        options={"bandwidth_m": 150.0},
        tiling=paris.to_dict(),
        query=feature_message.write_query(FourierKde().query(map_points(paris), 150.0)),
    )
    device = new_device(other, memory=memory, policy=FEATURES, places=Unseen(), joined=False)
    with pytest.raises(DeviceRefusal, match="region must be the one of this device's first query"):
        device.join()


def test_projections_outside_the_policy_are_refused_unlooked(new_terms, new_device) -> None:
    def refused(policy: DevicePolicy, match: str, **changes) -> None:
        terms = new_terms(trust="random-features", method="fourier-kde", **changes)
        device = new_device(terms, places=Unseen(), policy=policy, joined=False)
        with pytest.raises(DeviceRefusal, match=match):
            device.join()

    refused(DevicePolicy(authority=NAMED), "no bounds on random Fourier features")
    refused(FEATURES, "bandwidth must be 150 exactly", options={"bandwidth_m": 200.0})
    refused(FEATURES, "features must be at most 1, got 3", options={"features": 3})
    refused(FEATURES, "kernel must be gaussian, got laplace", options={"kernel": "laplace"})


def test_random_features_of_another_region_than_the_maps_are_refused(new_terms, new_device) -> None:
    honest = new_terms(trust="random-features", method="fourier-kde")
    query = replace(
        honest.features_query, low=tuple(value - 20_000 for value in honest.features_query.low), grid=None
    )
    forged = new_terms(
        trust="random-features", method="fourier-kde", query=feature_message.write_query(query)
    )
    assert FEATURES.refusal(honest) is None
    assert "another region" in str(FEATURES.refusal(forged))


def test_an_offset_is_not_drawn_again(new_terms, new_device) -> None:
    memory = DeviceMemory.open(rng=Randomness(2))
    options = {"bandwidth_m": 150.0, "jitter_m": 25.0}
    first = new_terms(trust="random-features", method="fourier-kde", identifier="1" * 32, options=options)
    assert new_device(first, memory=memory, policy=FEATURES).report()
    second = new_terms(trust="random-features", method="fourier-kde", identifier="2" * 32)
    device = new_device(second, memory=memory, policy=FEATURES, joined=False)
    with pytest.raises(DeviceRefusal, match="as in this device's first query"):
        device.join()
