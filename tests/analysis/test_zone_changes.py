"""Changes between maps: the false discovery rate under both nulls, power, and refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import shapely
from scipy.stats import binom

import mapveil as mv
from mapveil.analysis.zone_changes import _NoiseTail, _rate_p, _sign_tail, changes, compared
from mapveil.engines import UNIT, UserSums
from mapveil.geo.zones import Zones
from mapveil.inference.false_discovery import adjusted
from mapveil.inference.zone_results import Null, ZoneChanges
from mapveil.maps.density_map import DensityMap
from mapveil.maps.provenance import Provenance
from mapveil.mechanisms.multiscale_series import MultiscaleSeries
from mapveil.privacy.weighted_noise import WeightedNoise
from mapveil_client.arrays import BoolArray, FloatArray
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


def drawn(rates: FloatArray, pairs: int, epsilon: float, *, null: Null, same: bool = False) -> FloatArray:
    """p-values of pairs of exact numbers of users with the noise of one sum each, shape (pairs, zones).

    Both numbers are Poisson's at the rates, or with ``same`` equal to them.
    """
    rng = np.random.default_rng(7)
    zones, noise = ZONES.take(np.arange(256) < rates.size, ""), _noise(epsilon)
    found = []
    for _ in range(pairs):
        users = np.tile(rates, (2, 1)) if same else rng.poisson(rates, (2, rates.size))
        first, second = users + np.subtract(*rng.geometric(1 - np.exp(-epsilon), (2, 2, rates.size)))
        noises = [noise] * rates.size
        found.append(compared(zones, first, second, noises, fdr=0.05, null=null).p)
    return np.array(found)


def _noise(epsilon: float) -> WeightedNoise:
    """The law of the difference of two sums of whole users."""
    return WeightedNoise(np.ones(1), np.array([epsilon]), np.array([2.0]))


def test_nothing_is_called_where_only_chance_differs() -> None:
    """With the same rates a zone may be called in 5 % of the pairs; the null of people calls chance a change.

    Of 400 pairs at most 34 may have a call (99.9 % at a rate of 5 %): a rate of 12 % is found with probability .99.
    """
    p = drawn(RATES[:32], 400, 1.0, null="rate")
    assert sum(bool((adjusted(each) <= 0.05).any()) for each in p) <= binom.ppf(0.999, 400, 0.05)
    p = drawn(RATES[:32], 20, 1.0, null="people")
    assert sum(bool((adjusted(each) <= 0.05).any()) for each in p) == 20


@pytest.mark.parametrize("null", ["rate", "people"])
def test_the_same_people_are_seldom_called_changed(null: Null) -> None:
    """At most 34 of 400 pairs, as above; noise alone is far from what chance may do, so the rate calls none."""
    p = drawn(np.rint(RATES[:32]), 400, 1.0, null=null, same=True)
    called = sum(bool((adjusted(each) <= 0.05).any()) for each in p)
    assert called <= (binom.ppf(0.999, 400, 0.05) if null == "people" else 2)


@pytest.mark.parametrize(("null", "mean", "epsilon"), [("people", 40, 0.5), ("rate", 3, 1), ("rate", 400, 2)])
def test_p_values_are_no_smaller_than_uniform(null: Null, mean: float, epsilon: float) -> None:
    """Of 12,800 p-values: at the level 1 % a rate of 1.36 % is allowed, and 1.7 % found with probability .999."""
    p = drawn(np.full(32, float(mean)), 400, epsilon, null=null, same=null == "people")
    for level in (0.01, 0.05, 0.2):
        assert (p <= level).sum() <= binom.ppf(1 - 3e-5, p.size, level)
    assert (p <= 0.5).mean() > 0.1  # and not useless


def test_maps_have_the_p_values_of_their_sums() -> None:
    """What the tests above say of exact sums holds of maps: p-values of 2,304 zones with next to no users each."""
    found = [
        changes(release(np.full(256, 3.0), seed), release(np.full(256, 3.0), 50 + seed), ZONES).p
        for seed in range(9)
    ]
    p = np.concatenate(found)
    assert 0.1 * p.size < (p <= 0.5).sum() <= binom.ppf(1 - 3e-5, p.size, 0.5)
    assert (p <= 0.05).sum() <= binom.ppf(1 - 3e-5, p.size, 0.05)


@pytest.mark.parametrize(("apart", "fdr"), [(30.5, 0.5), (30.5, 0.05), (40.5, 0.5), (40.5, 0.05)])
def test_the_hidden_number_of_users_is_maximised_over(apart: float, fdr: float) -> None:
    """Rate 3 and epsilon .1: the noise, of deviation 20, hides the 6 users of both maps.

    p is gamma and the largest tail over every number up to the estimate and the noise's quantile (Berger and Boos), by
    exact convolution, and at most 5 % more: tails are rounded outward by half a unit. Without gamma (of fdr .5), or
    without the quantile (of fdr .05), it would be smaller than that.
    """
    users, gamma = 6.0, 0.05 * fdr  # of one zone
    first = (users - apart) / 2
    found = compared(
        ZONES.take(np.arange(256) < 1, ""), np.array([first]), np.array([first + apart]), [_noise(0.1)],
        fdr=fdr, null="rate",
    ).p[0]  # fmt: skip
    at = np.arange(-2000, 2001)
    one = np.exp(-0.1 * np.abs(at))
    law = np.convolve(one / one.sum(), one / one.sum(), "same")
    quantile = at[np.searchsorted(np.cumsum(law), 1 - gamma)]

    def largest(most: int) -> float:
        tails = []
        for s in range(most + 1):
            signs = np.zeros(at.size)
            signs[at.size // 2 - s : at.size // 2 + s + 1 : 2] = binom.pmf(np.arange(s + 1), s, 0.5)
            beyond = np.abs(at) > apart
            tails.append(float(np.convolve(law, signs, "same")[beyond].sum()))
        return max(tails)

    exact = gamma + largest(int(users + quantile))
    assert exact <= found <= 1.05 * exact
    if fdr == 0.5:
        assert 1.05 * exact - gamma < exact
    else:
        assert 1.05 * (gamma + largest(int(users))) < exact


WINDOWS = mv.Windows(every="1w", start="2026-01-05", until="2026-03-02")


def _windows(rise: float, seed: int) -> tuple[DensityMap, DensityMap, BoolArray]:
    """The first and last window of 8, each of one user in each cell; in the last, four cells rise."""
    sums, risen = np.ones((8, 256)), np.zeros(256, dtype=np.bool_)
    risen[np.random.default_rng(seed).choice(256, 4, replace=False)] = True
    sums[7, risen] = rise
    made = MultiscaleSeries(epsilon=2, windows=WINDOWS).release(
        UserSums((sums * UNIT).astype(np.int64), TILING), rng=seed, account=None
    )
    assert isinstance(made, mv.SeriesMap)
    return made.window(0), made.window(7), risen


@pytest.mark.parametrize("rise", [60, 100])
def test_a_changed_cell_calls_no_other_zone_of_its_block(rise: float) -> None:
    """Four cells rise inside blocks of 4 cells or more: with area weights .73 of the calls were false (rise 60)."""
    false, called, alone, found_alone = [], 0, 0, 0
    for seed in range(20):
        before, after, risen = _windows(rise, seed)
        found = changes(before, after, ZONES)
        false.append((found.changed & ~risen).sum() / max(found.changed.sum(), 1))
        called += int(found.changed.sum())
        alone += int((found.compared & risen).sum())
        found_alone += int((found.changed & risen).sum())
        left = np.count_nonzero(~found.compared)
        assert f"{left} of 256 zones are not compared" in found.zones.notes[-1]
        assert not found.changed[~found.compared].any()
        assert np.isnan(found.low[~found.compared]).all()
        assert (found.p[~found.compared] == 1).all()
    assert np.mean(false) <= 0.05
    assert called >= 4
    assert found_alone >= 0.95 * alone  # every change that was measured by itself is found


@pytest.mark.parametrize("rise", [None, 60])
def test_blocks_are_compared_where_no_zones_are_given(rise: float | None) -> None:
    """Two windows of 8, users by chance, of one expected user in each cell: in the last, four cells rise or none.

    Where none does, at most 7 of 40 pairs may have a call (99.9 % at a rate of 5 %).
    """
    false, found_of, risen_of = [], 0, 0
    for seed in range(40 if rise is None else 20):
        rng = np.random.default_rng(300 + seed)
        rates, risen = np.ones((8, 256)), rng.choice(256, 4, replace=False)
        rates[7, risen] = 1 if rise is None else rise
        series = MultiscaleSeries(epsilon=2, windows=WINDOWS).release(
            UserSums(rng.poisson(rates).astype(np.int64) * UNIT, TILING), rng=seed, account=None
        )
        assert isinstance(series, mv.SeriesMap)
        found = changes(series.window(0), series.window(7))
        assert found.compared.all()
        assert shapely.area(found.zones.polygons).sum() == pytest.approx(0.64)
        truly = np.zeros(len(found.zones), dtype=np.bool_)
        if rise is not None:
            points = shapely.points(np.stack(TILING.centres(), axis=1)[risen])
            truly = shapely.contains(found.zones.polygons[:, None], points).any(axis=1)
        false.append((found.changed & ~truly).sum() / max(found.changed.sum(), 1))
        found_of, risen_of = found_of + (found.changed & truly).sum(), risen_of + truly.sum()
    if rise is None:
        assert np.sum(false) <= binom.ppf(0.999, len(false), 0.05)
    else:
        assert np.mean(false) <= 0.05 + 2 * np.std(false) / np.sqrt(len(false))
        assert found_of >= 0.9 * risen_of > 0


@pytest.mark.parametrize("depth", [4, 3])
def test_blocks_are_zones_of_their_outlines(depth: int) -> None:
    """Also of maps with cells of two sizes: the outlines as zones hold the same users."""
    before, other = release(RATES, 1), mv.Quadtree(TILING.region, depth=depth)
    sums = UserSums(np.full(other.size, 90 * UNIT, dtype=np.int64), other)
    after = mv.mechanisms.LaplaceHistogram(epsilon=1).release(sums, other, account=None, rng=5)
    for pair in ((before, after), (after, before)):
        blocks = changes(*pair)
        assert len(blocks.zones) == other.size
        as_zones = changes(*pair, list(shapely.buffer(blocks.zones.polygons, 1e-7)))  # outlines are rounded
        assert as_zones.compared.all()
        np.testing.assert_allclose(blocks.before, as_zones.before)
        np.testing.assert_allclose(blocks.difference, as_zones.difference)


def test_zones_that_cut_measured_cells_say_so() -> None:
    """Always, also where both maps have the same leaves; the sums are those of the cells wholly inside."""
    before, after, _ = _windows(100, 1)
    west = [shapely.box(0, 0, 0.43, 0.8), shapely.box(0, 0, 0.4, 0.8)]
    found = changes(before, after, west)
    note = found.zones.notes[-1]
    assert note.startswith("1 of 2 zones cut measured cells, such as 1 (")
    assert found.placed[1] == 0 < found.placed[0]
    assert (found.before[0], found.after[0]) == (found.before[1], found.after[1])
    assert found.after[1] == pytest.approx(after.total(west[1]).estimate)


def test_columns_and_adjusted_p_values() -> None:
    found: ZoneChanges = changes(release(RATES, 1), release(3 * RATES, 2), ZONES)
    number = len(found.p)
    passed = np.flatnonzero(np.sort(found.p) <= 0.05 * np.arange(1, number + 1) / number)
    called = found.p <= np.sort(found.p)[passed.max()]  # the procedure as published, step by step
    assert 0 < called.sum() < number
    assert found.changed.tolist() == called.tolist()
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
    assert not changes(one, two, ZONES, fdr=1e-12).changed.any()


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
