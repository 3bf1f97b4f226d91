"""Membership attack: power on raw counts, the bound of epsilon on private maps, planted faults, released maps."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import mapveil as mv
from mapveil.attacks.attack_membership import MembershipReport
from mapveil.attacks.roc import Estimate95, Roc, largest_auc, largest_tpr, roc
from mapveil.evaluation.membership_report import membership_text
from mapveil.maps.density_map import DensityMap
from mapveil.mechanisms.laplace_histogram import LaplaceHistogram
from mapveil_client.errors import InputError, ParameterError

SLACK = 4  # standard errors of an AUC: a sound mechanism exceeds its bound by as much once in 30,000 runs


@dataclass(frozen=True, kw_only=True)
class TenthOfTheNoise(LaplaceHistogram):
    """A planted fault: claims epsilon, and draws the noise of ten times as much."""

    def release(self, *arguments: Any, **named: Any) -> DensityMap:
        return LaplaceHistogram(epsilon=10 * self.budget, clip=self.clip).release(*arguments, **named)


def error(found: Roc) -> float:
    return (found.auc.high - found.auc.low) / (2 * 1.96)


def city(users: int = 300) -> tuple[mv.Points, mv.Quadtree]:
    made = mv.synthetic.city(users=users, seed=1)
    assert made.region is not None
    return made, mv.Quadtree(made.region, depth=6)


def hermits() -> tuple[mv.Points, mv.Quadtree]:
    """Sixty people alone in cells of their own: what an adversary finds easiest."""
    tiling = mv.Quadtree(mv.Region.from_bbox(0, 0, 1, 1), depth=4)
    lon, lat = tiling.centres(np.arange(0, 240, 4))
    return mv.Points.from_arrays(np.arange(60), lon, lat), tiling


def by_name(report: Any) -> dict[str, Roc]:
    return {row.published: row for row in report.memberships}


def test_raw_counts_give_people_away_and_private_maps_do_so_within_epsilon() -> None:
    points, tiling = city()
    found = by_name(mv.attack_membership(points, tiling, groups=32, windows=None))
    raw, suppressed = found["people per cell"], found["cells of 5 people or more"]
    private = [found["laplace, epsilon 1"], found["multiscale, epsilon 1"]]
    assert raw.auc.low > 0.9
    assert raw.auc.value > suppressed.auc.value + 0.1
    assert raw.tpr[1].low > 0.2
    assert raw.auc.bound is None
    for each in private:
        assert each.auc.bound is not None
        assert 0.5 - SLACK * error(each) < each.auc.value < each.auc.bound
        for rate in each.tpr:
            assert rate.bound is not None
            assert rate.low <= rate.bound


def test_the_strongest_case_reaches_its_bound_and_a_tenth_of_the_noise_exceeds_it() -> None:
    points, tiling = hermits()
    sound = LaplaceHistogram(epsilon=1, clip=False)
    faulty = TenthOfTheNoise(epsilon=1, clip=False)
    report = mv.attack_membership(points, tiling, methods=[sound, faulty], groups=128)
    honest, caught = report.memberships[2:]
    # Laplace(1) against the same plus one: AUC 1 - (1 + epsilon / 2) e^-epsilon / 2.
    best = 1 - 0.75 * math.exp(-1)
    assert honest.auc.value == pytest.approx(best, abs=SLACK * error(honest))
    assert honest.auc.bound == pytest.approx(math.e / (1 + math.e))
    assert honest.auc.value < honest.auc.bound + SLACK * error(honest)
    assert caught.auc.value > caught.auc.bound + SLACK * error(caught)
    assert caught.tpr[0].low > caught.tpr[0].bound


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.0), (1.0, 0.05), (3.0, 0.2), (0.0, 0.1)])
def test_the_bound_is_that_of_the_worst_mechanism(epsilon: float, delta: float) -> None:
    rates = np.linspace(0, 1, 200_001)
    most = largest_tpr(rates, epsilon, delta)
    area = float((most[1:] + most[:-1]).mean() / 2)
    assert largest_auc(epsilon, delta) == pytest.approx(area, abs=1e-8)
    assert (most <= np.exp(epsilon) * rates + delta + 1e-12).all()
    assert (1 - rates <= np.exp(epsilon) * (1 - most) + delta + 1e-12).all()


def test_rates_of_known_scores_and_their_interval() -> None:
    draw = np.random.default_rng(1)
    present = np.tile([True, False], 2000)
    scores = draw.normal(size=4000) + present
    found = roc("normal", scores, present, np.arange(4000), draw)
    assert found.auc.low < 0.7602 < found.auc.high  # Phi(1 / sqrt 2)
    assert found.auc.high - found.auc.low == pytest.approx(0.029, abs=0.005)
    assert found.tpr[0].low < 0.0924 < found.tpr[0].high  # 1 - Phi(2.326 - 1)
    equal = roc("equal", np.zeros(4000), present, np.arange(4000), draw)
    assert (equal.auc.value, equal.tpr[0].value) == (0.5, 0.0)


def test_a_released_map_is_judged_on_members_and_others() -> None:
    points, tiling = city(600)
    rows = points.arrays()
    inside = np.random.default_rng(1).permutation(600) < 300
    parts = [
        mv.Points.from_arrays(rows.users[held], rows.lon[held], rows.lat[held])
        for held in (inside[rows.users], ~inside[rows.users])
    ]
    loose, tight = (
        LaplaceHistogram(epsilon=epsilon).release(parts[0], tiling, rng=1)
        for epsilon in (50, Fraction(1, 10))
    )
    found = mv.attack_membership(loose, members=parts[0], others=parts[1]).memberships[0]
    assert found.published == "laplace, epsilon 50"
    assert found.auc.low > 0.7
    # Members and others changed about: what is higher for members is lower for others.
    swapped = mv.attack_membership(loose, members=parts[1], others=parts[0]).memberships[0]
    assert swapped.auc.high < 0.5
    report = mv.attack_membership(tight, members=parts[0], others=parts[1])
    assert report.memberships[0].auc.bound == pytest.approx(largest_auc(0.1), abs=1e-8)
    assert report.memberships[0].auc.low < report.memberships[0].auc.bound
    assert "coin" in report.notes[0]
    local = dataclasses.replace(loose, guarantee=mv.mechanisms.SubsetSelection(epsilon=1).guarantee())
    assert mv.attack_membership(local, members=parts[0], others=parts[1]).memberships[0].auc.bound is None


def test_the_same_seed_gives_the_same_report() -> None:
    points, tiling = city(60)
    first, again, other = (
        mv.attack_membership(points, tiling, methods=["laplace"], users=50, groups=8, seed=seed).to_dict()
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first["memberships"] != other["memberships"]
    assert first["settings"]["users"] == 50
    assert first["private"] is False


def test_bad_input_is_named() -> None:
    points, tiling = city(60)
    one = mv.Points.from_arrays(["ann"], [-40.0], [40.05])
    heat = LaplaceHistogram(epsilon=1).release(points, tiling, rng=1)
    for source, given, message in (
        (points, {"groups": 4}, "groups must be at least 8, got 4"),
        (points, {"users": 1}, "users must be at least 2, got 1"),
        (points, {"suppress": 1}, "suppress must be at least 2 people, got 1"),
        (points, {"methods": ["nothing"]}, "nothing"),
        (
            points,
            {"methods": [mv.mechanisms.SubsetSelection(epsilon=1)]},
            "methods must be a curator's, got 'subset'",
        ),
        (one, {}, "needs at least 2 users in the region, got 1"),
        (points, {"members": points}, "members and others are for a released map"),
    ):
        with pytest.raises(InputError, match=message):
            mv.attack_membership(source, tiling, **{"methods": ["laplace"], **given})
    with pytest.raises(ParameterError, match="brings its own cells"):
        mv.attack_membership(heat, tiling, members=points, others=points)
    with pytest.raises(InputError, match="needs members and others"):
        mv.attack_membership(heat, members=points)
    far = mv.Points.from_arrays(range(100, 109), [10.0] * 9, [10.0] * 9)
    with pytest.raises(InputError, match="no row lies inside the region"):
        mv.attack_membership(heat, members=points, others=far)
    some = mv.Points.from_arrays(range(50, 70), [10.0] * 20, [10.0] * 20)
    with pytest.raises(InputError, match="must be different people, got 10 user ids that are in both"):
        mv.attack_membership(heat, members=points, others=some)


@pytest.mark.parametrize(
    ("value", "low", "said"),
    [
        (
            0.76,
            0.695,
            "; no adversary can in more than 73%, which is within this estimate's error (0.695 .. 0.816).",
        ),
        (0.70, 0.66, "; no adversary can in more than 73%."),
        (0.80, 0.75, "; no adversary can in more than 73%."),
    ],
)
def test_a_figure_above_its_bound_states_its_error(value: float, low: float, said: str) -> None:
    found = Roc(
        "map", Estimate95(value, low, 0.816, largest_auc(1)), (Estimate95(0.1, 0.0, 0.2),) * 2, (), (1.0, 0.0)
    )
    assert said in membership_text(MembershipReport({}, (found,))).replace("\n", " ")
