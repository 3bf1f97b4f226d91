"""Changes between maps: the false discovery rate under both nulls, power, and refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import shapely

import mapveil as mv
from mapveil.analysis.zone_changes import _NoiseTail, _rate_p, _sign_tail, changes
from mapveil.engines import UNIT, UserSums
from mapveil.geo.zones import Zones
from mapveil.inference.zone_results import ZoneChanges
from mapveil.maps.density_map import DensityMap
from mapveil.maps.provenance import Provenance
from mapveil.privacy.weighted_noise import WeightedNoise
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import InputError, ParameterError

TILING = mv.Quadtree(mv.Region.from_bbox(0.0, 0.0, 0.8, 0.8), depth=4)
ZONES = Zones.read(
    [shapely.box(*(float(side[0]) for side in TILING.bounds(np.array([cell])))) for cell in range(256)]
)
RATES = np.exp(np.random.default_rng(12).normal(4.6, 1.0, 256))


def release(mean: FloatArray, seed: int, epsilon: float = 1.0, *, whole: bool = False) -> DensityMap:
    rng = np.random.default_rng(1000 + seed)
    users = np.rint(mean) if whole else rng.poisson(mean)
    sums = UserSums(users.astype(np.int64) * UNIT, TILING)
    return mv.mechanisms.LaplaceHistogram(epsilon=epsilon).release(sums, TILING, account=None, rng=seed)


def test_the_false_discovery_rate_is_held_with_power() -> None:
    """A quarter of 256 zones of 300 users rise by a quarter: how many of the called are false, of the risen called."""
    risen = np.arange(256) % 4 == 0
    false, power = [], []
    for seed in range(8):
        before = release(np.full(256, 300.0), 2 * seed)
        after = release(np.where(risen, 1.25, 1.0) * 300, 2 * seed + 1)
        found = changes(before, after, ZONES)
        false.append((found.changed & ~risen).sum() / max(found.changed.sum(), 1))
        power.append((found.changed & risen).sum() / risen.sum())
        assert (found.difference[found.changed & risen] > 0).mean() > 0.95
    assert np.mean(false) <= 0.05 + 2 * np.std(false) / np.sqrt(len(false))
    assert np.mean(power) >= 0.55


def test_the_test_given_the_total_is_that_of_signs() -> None:
    """Without noise it is the exact two-sample test of Przyborowski and Wilenski, with the next parity tried too."""
    from scipy.stats import binomtest

    silent = _NoiseTail(WeightedNoise(*(np.empty(0),) * 3))
    for users, apart in ((7, 3), (40, 12), (1001, 99)):
        # Of ties half the probability lies beyond: the tail at d is of more than d.
        exact = [
            binomtest(-(-(each + apart) // 2), each, 0.5, "greater").pvalue for each in (users, users - 1)
        ]
        assert _sign_tail(silent, apart - 1e-6, users) == pytest.approx(exact[0], rel=1e-6)
        assert _rate_p(silent, apart - 1e-6, users, 0.0) >= 2 * exact[0] * (1 - 1e-9)


def test_nothing_is_called_where_only_chance_differs() -> None:
    """With the same rates no zone may be called in 95 of 100 pairs; the null of people calls chance a change."""
    called = {"rate": 0, "people": 0}
    for seed in range(4):
        before, after = release(8 * RATES, 2 * seed), release(8 * RATES, 2 * seed + 1)
        for null in ("rate", "people"):
            called[null] += int(changes(before, after, ZONES, null=null).changed.any())
    assert called["rate"] <= 1
    assert called["people"] == 4


def test_the_same_people_are_never_called_changed() -> None:
    for null in ("rate", "people"):
        runs = [
            changes(
                release(RATES, seed, whole=True), release(RATES, seed + 100, whole=True), ZONES, null=null
            )
            for seed in range(3)
        ]
        assert sum(bool(found.changed.any()) for found in runs) <= 1


def _p_values(null: str, mean: float, epsilon: float) -> FloatArray:
    found = [
        changes(
            release(np.full(256, mean), seed, epsilon, whole=null == "people"),
            release(np.full(256, mean), 50 + seed, epsilon, whole=null == "people"),
            ZONES,
            null=null,
        ).p
        for seed in range(3)
    ]
    return np.concatenate(found)


@pytest.mark.parametrize(("null", "mean", "epsilon"), [("people", 40, 0.5), ("rate", 3, 1), ("rate", 400, 2)])
def test_p_values_are_no_smaller_than_uniform(null: str, mean: float, epsilon: float) -> None:
    p = _p_values(null, mean, epsilon)
    for level in (0.01, 0.05, 0.2):
        limit = level + 4 * np.sqrt(level / p.size)
        assert (p <= level).mean() <= limit
    assert (p <= 0.5).mean() > 0.1  # and not useless


def test_columns_and_adjusted_p_values() -> None:
    found: ZoneChanges = changes(release(RATES, 1), release(3 * RATES, 2), ZONES)
    assert (found.q >= found.p).all()
    assert (found.changed == (found.q <= 0.05)).all()
    assert ((found.low <= found.difference) & (found.difference <= found.high)).all()
    assert next(iter(found.columns())) == "zone"


def test_maps_that_cannot_be_compared_are_refused_in_one_line() -> None:
    one, two = release(RATES, 1), release(RATES, 2)
    other = mv.Quadtree(mv.Region.from_bbox(0.0, 0.0, 0.8, 0.9), depth=4)
    elsewhere = mv.mechanisms.LaplaceHistogram(epsilon=1).release(
        UserSums(np.zeros(256, dtype=np.int64), other), other, account=None, rng=1
    )
    cases = [
        (elsewhere, "different regions"),
        (
            replace(two, guarantee=replace(two.guarantee, unit="user-week")),
            "different units: user and user-week",
        ),
        (replace(two, method="emd"), "different methods: laplace and emd"),
        (one, "both maps are one release"),
    ]
    for changed, match in cases:
        with pytest.raises(InputError, match=match) as caught:
            changes(one, changed, ZONES)
        assert "\n" not in str(caught.value)
    with pytest.raises(ParameterError, match="null must be one of rate, people"):
        changes(one, two, ZONES, null="none")
    with pytest.raises(ParameterError, match="fdr must be above 0"):
        changes(one, two, ZONES, fdr=0)


def test_what_two_releases_counted_differently_is_named() -> None:
    before, after = release(RATES, 1), release(RATES, 2)
    assert changes(before, after, ZONES).zones.notes == ()
    columns = {"user": "card", "lon": "x", "lat": "y"}
    unlike = [
        replace(each, provenance=Provenance(function="release", columns=columns | more, where=where))
        for each, more, where in ((before, {}, "age > 3"), (after, {"weight": "visits"}, None))
    ]
    (note,) = changes(*unlike, ZONES).zones.notes
    assert "counted unlike things" in note
    assert note.endswith("filter (age > 3 and none), column of weight (none and visits)")
