"""Questions to a released map: coverage over the noise, placement kept apart, refusals."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import shapely

import mapveil as mv
from mapveil.analysis.zone_totals import totals
from mapveil.engines import UNIT, UserSums
from mapveil.formats.read_map import read_map
from mapveil.geo.zones import Zones
from mapveil.inference.nested_sums import NestedSums
from mapveil.inference.zone_overlay import ZoneOverlay
from mapveil.maps.density_map import DensityMap
from mapveil.maps.zone_fractions import zone_fractions
from mapveil.random_features.fourier_kde import FourierKde
from mapveil.trust.secure_aggregation.model import SecureAggregation
from mapveil_client.errors import InputError

REGION = mv.Region.from_bbox(0.0, 0.0, 0.64, 0.64)
TILING = mv.Quadtree(REGION, depth=6)


def people() -> UserSums:
    """A crowded corner, a gradient and an empty half: whole users in each cell."""
    rng = np.random.default_rng(6)
    lon, lat = TILING.centres()
    mean = 6 * np.exp(-((lon - 0.15) ** 2 + (lat - 0.2) ** 2) / 0.004) + 0.6 * (lon < 0.32)
    return UserSums(rng.poisson(mean).astype(np.int64) * UNIT, TILING)


def boxes(count: int, seed: int) -> list[shapely.Polygon]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        side = 0.01 * 2 ** rng.uniform(0, 6)
        x, y = rng.uniform(-side / 4, 0.64 - side / 2, 2)
        found.append(shapely.box(x, y, x + side, y + side))
    return found


METHODS: dict[str, Callable[[float], mv.mechanisms.SumMechanism]] = {
    "multiscale": lambda epsilon: mv.mechanisms.Multiscale(epsilon=epsilon),
    "laplace": lambda epsilon: mv.mechanisms.LaplaceHistogram(epsilon=epsilon),
    "spatial-decomposition": lambda epsilon: mv.mechanisms.SpatialDecomposition(epsilon=epsilon),
    "adaptive-grid": lambda epsilon: mv.mechanisms.AdaptiveGrid(epsilon=epsilon),
    "privtree": lambda epsilon: mv.mechanisms.PrivTree(epsilon=epsilon),
}


@pytest.mark.parametrize("name", list(METHODS))
@pytest.mark.parametrize("epsilon", [0.1, 5])
def test_intervals_have_their_coverage(name: str, epsilon: float) -> None:
    """Of 60 zones and 5 releases: 95 % within limits that allow for zones of one release being alike."""
    source, hits, wide = people(), [], []
    zones = Zones.read(boxes(60, 1))
    truth = zone_fractions(zones, TILING).fractions @ (source.sums / UNIT)
    for seed in range(5):
        heat = METHODS[name](epsilon).release(source, TILING, account=None, rng=seed)
        found = totals(heat, zones)
        # What the interval is of: every leaf's users, spread evenly over it.
        leaf, cells = _leaves(heat)
        even = np.bincount(leaf, source.sums / UNIT, cells.size) / cells
        weighted = zone_fractions(zones, TILING).fractions @ even[leaf]
        hits.append((found.low <= weighted) & (weighted <= found.high))
        wide.append(found.high - found.low)
        z = (found.estimate - weighted) / np.maximum(found.deviation, 1e-12)
        assert abs(z.mean()) < 1.5
        inside, touched = _bracket(zones, leaf, source.sums / UNIT)
        assert (inside <= truth + 1e-6).all()
        assert (truth <= touched + 1e-6).all()
    assert 0.9 <= float(np.mean(hits)) <= 0.995
    assert np.median(wide) > 0


def _leaves(heat: DensityMap) -> tuple[np.ndarray, np.ndarray]:
    groups = np.stack([each.groups for each in heat.measurements])
    _, leaf = np.unique(groups, axis=1, return_inverse=True)
    return leaf, np.bincount(leaf)


def _bracket(zones: Zones, leaf: np.ndarray, users: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    held = np.bincount(leaf, users)
    share = zone_fractions(zones, TILING).fractions.toarray()
    of_leaf = np.stack([np.bincount(leaf, row) for row in share]) / np.bincount(leaf)
    return (of_leaf > 1 - 1e-6) @ held, (of_leaf > 0) @ held


def test_a_block_s_noise_does_not_choose_its_weight() -> None:
    """On a sparse flat map, where the noise decides how deep a block is divided, totals have next to no bias.

    A bias of a tenth of a deviation costs intervals a thousandth of their coverage; weights from each block's own
    division have more.
    """
    flat = np.random.default_rng(0).multinomial(500, np.full(TILING.size, 1 / TILING.size))
    source, zones = UserSums(flat.astype(np.int64) * UNIT, TILING), Zones.read(boxes(40, 5))
    apart, naive = [], []
    for seed in range(24):
        heat = mv.mechanisms.Multiscale(epsilon=5).release(source, TILING, account=None, rng=seed)
        asked = ZoneOverlay.of(heat, zones)
        exact = asked.weights @ np.bincount(asked.sums.leaf, flat, asked.sums.cells.size)
        own = NestedSums(heat.measurements, np.ones(TILING.size, dtype=bool))
        for sums, found in ((asked.sums, apart), (own, naive)):
            deviation = np.sqrt([error.variance for error in sums.errors(asked.weights)])
            found.append(float(np.mean((asked.weights @ sums.estimate - exact) / deviation)))
    assert abs(np.mean(apart)) < 0.12 < np.mean(naive)


@pytest.mark.parametrize(("spots", "epsilon"), [(12, 1), (200, 0.25)])
def test_a_few_crowded_cells_do_not_widen_intervals(spots: int, epsilon: float) -> None:
    """Deviations are within 1.3 of the least-squares optimum where crowded blocks have empty neighbours."""
    rng = np.random.default_rng(3)
    users = np.zeros(TILING.size, dtype=np.int64)
    users[rng.choice(TILING.size, spots, replace=False)] = 2_000 // spots
    zones, ratios = Zones.read(boxes(40, 5)), []
    for seed in range(4):
        made = mv.mechanisms.Multiscale(epsilon=epsilon).release(
            UserSums(users * UNIT, TILING), TILING, account=None, rng=seed
        )
        asked = ZoneOverlay.of(made, zones)
        least = NestedSums(made.measurements, np.ones(TILING.size, dtype=bool))
        pairs = zip(asked.sums.errors(asked.weights), least.errors(asked.weights), strict=True)
        ratios += [math.sqrt(error.variance / optimum.variance) for error, optimum in pairs]
    assert 1 < np.mean(ratios) < 1.3


def test_secure_sums_cover_too() -> None:
    source = people()
    counts = source.sums // UNIT
    cells = np.repeat(np.arange(TILING.size), counts)
    trust = SecureAggregation(shard_size=2000)
    zones, hits = Zones.read(boxes(40, 2)), []
    lon, lat = TILING.centres()
    points = mv.Points.from_arrays(np.arange(cells.size), lon[cells], lat[cells])
    for seed in range(6):
        made = mv.mechanisms.Multiscale(epsilon=2, trust=trust).release(
            points, TILING, account=None, rng=seed
        )
        found = totals(made, zones)
        leaf, size = _leaves(made)
        even = (np.bincount(leaf, counts, size.size) / size)[leaf]
        weighted = zone_fractions(zones, TILING).fractions @ even
        hits.append((found.low <= weighted) & (weighted <= found.high))
    assert 0.9 <= float(np.mean(hits)) <= 1.0


def test_the_bracket_holds_wherever_people_are() -> None:
    source, zones = people(), Zones.read(boxes(25, 3))
    truth = zone_fractions(zones, TILING).fractions @ (source.sums / UNIT)
    heat = mv.mechanisms.Multiscale(epsilon=0.5).release(source, TILING, account=None, rng=1)
    missed = 0
    for polygon, exact in zip(zones.polygons, truth.tolist(), strict=True):
        low, high = heat.total(polygon).certain()
        missed += not low <= exact <= high
    assert missed <= 4


def test_a_zone_of_whole_leaves_is_measured_not_placed() -> None:
    heat = mv.mechanisms.LaplaceHistogram(epsilon=1).release(people(), TILING, account=None, rng=1)
    bounds = TILING.bounds(np.array([5]))
    cell = shapely.box(*(float(side[0]) for side in bounds))
    one = heat.total(cell)
    assert one.estimate == pytest.approx(float(heat.measurements[0].noisy[5]), abs=1e-3)
    low, high = one.interval()
    assert high - low == pytest.approx(2 * heat.measurements[0].half_width(0.05), rel=1e-3)
    east = shapely.box(*cell.bounds[:2], cell.bounds[2] - 0.005, cell.bounds[3])
    cut = heat.total(east)
    assert cut.placed == 1
    assert cut.inside.estimate == 0
    assert cut.touched.estimate == pytest.approx(one.estimate, abs=1e-3)


def test_wide_zones_are_far_narrower_than_summed_bounds() -> None:
    heat = mv.mechanisms.Multiscale(epsilon=1).release(people(), TILING, account=None, rng=1)
    zone = shapely.box(0, 0, 0.32, 0.32)
    fractions = zone_fractions(Zones.read(zone), TILING).fractions
    lower, upper = heat.error()
    summed = float((fractions @ (upper - lower))[0])
    low, high = heat.total(zone).interval()
    assert high - low < summed / 20


@pytest.mark.parametrize("suffix", [".parquet", ".tif", ".geojson", ".csv"])
def test_the_file_answers_as_the_map_did(suffix: str, tmp_path: Path) -> None:
    heat = mv.mechanisms.Multiscale(epsilon=1).release(people(), TILING, account=None, rng=1)
    heat.save(tmp_path / f"map{suffix}")
    zones = boxes(5, 4)
    before, after = heat.totals(zones), read_map(tmp_path / f"map{suffix}").totals(zones)
    np.testing.assert_allclose(after.shown, before.shown, rtol=1e-12)
    np.testing.assert_allclose(after.high - after.low, before.high - before.low, rtol=0.01)
    for name in ("estimate", "low", "high", "inside", "touched"):
        # The file rounds each sum by at most a 32nd of its noise's deviation.
        moved = np.abs(getattr(after, name) - getattr(before, name))
        assert (moved <= before.deviation / 16).all(), name


def test_zones_beyond_the_map_say_how_much_of_them_is_covered() -> None:
    heat = mv.mechanisms.LaplaceHistogram(epsilon=1).release(people(), TILING, account=None, rng=1)
    found = heat.totals([shapely.box(-0.32, 0, 0.32, 0.64), shapely.box(5, 5, 6, 6)])
    assert found.covered.tolist() == pytest.approx([0.5], abs=1e-3)
    assert "zones outside the map: 2" in found.zones.notes[-1]
    with pytest.raises(InputError, match="no zone lies in the map's region"):
        heat.total(shapely.box(5, 5, 6, 6))


def test_maps_that_cannot_be_asked_say_why() -> None:
    zone = shapely.box(0, 0, 0.3, 0.3)
    heat = mv.mechanisms.LaplaceHistogram(epsilon=1).release(people(), TILING, account=None, rng=1)
    with pytest.raises(
        InputError, match=r"\(laplace\) cannot be asked for totals: it carries no measurements"
    ):
        replace(heat, measurements=()).total(zone)
    everybody = replace(
        heat.measurements[0], groups=np.zeros(TILING.size, dtype=np.int64), noisy=np.array([3.0])
    )
    with pytest.raises(InputError, match=r"measured as one block.*more epsilon.*multiscale") as refused:
        replace(heat, measurements=(everybody,)).total(zone)
    assert refused.value.in_flags() == str(refused.value), "the command line says the same"
    city = mv.synthetic.city(users=200, seed=1)
    small = mv.Quadtree(city.region, depth=3)
    local = mv.mechanisms.HadamardResponse(epsilon=2).release(city, small, account=None, rng=1)
    with pytest.raises(InputError, match=r"olh-h, olh, subset and unary can be asked|one block"):
        local.total(zone)
    sketch = mv.mechanisms.CountMinHistogram(epsilon=4, width=8, rows=2).release(
        city, small, account=None, rng=1
    )
    with pytest.raises(InputError, match="not nested"):
        sketch.total(zone)
    features = FourierKde(bandwidth_m=200).release(city, small, rng=1)
    with pytest.raises(InputError, match="random Fourier features are no sums"):
        features.total(zone)


def test_two_zones_of_one_map_share_their_errors() -> None:
    heat = mv.mechanisms.Multiscale(epsilon=1).release(people(), TILING, account=None, rng=1)
    west, east = heat.total(shapely.box(0, 0, 0.3, 0.6)), heat.total(shapely.box(0.3, 0, 0.6, 0.6))
    both = heat.total(shapely.box(0, 0, 0.6, 0.6))
    assert (west + east).estimate == pytest.approx(both.estimate, abs=1e-2)
    assert (west + east).deviation == pytest.approx(both.deviation, rel=1e-3)
    assert math.isclose((west - west).deviation, 0, abs_tol=1e-9)


def test_a_release_that_is_held_twice_has_its_errors_once(tmp_path: Path) -> None:
    """A file that was read twice, a map beside its file, and a window that is taken twice."""
    heat = mv.mechanisms.Multiscale(epsilon=1).release(people(), TILING, account=None, rng=1)
    heat.save(tmp_path / "map.parquet")
    one, two = (read_map(tmp_path / "map.parquet") for _ in range(2))
    zone = shapely.box(0.05, 0.1, 0.3, 0.33)
    total = one.total(zone)
    for other in (two.total(zone), heat.total(zone)):
        assert (total + other).deviation == pytest.approx(2 * total.deviation, rel=1e-3)
        assert (total - other).deviation < 1e-3 * total.deviation
    assert (total / two.total(zone)).low == pytest.approx(1, rel=1e-3)
    assert (1e-12 * total).deviation == pytest.approx(1e-12 * total.deviation)
    low, high = (1e-12 * total).interval()
    assert high - low == pytest.approx(1e-12 * np.subtract(*total.interval()[::-1]), rel=1e-2)


def test_without_a_zone_the_whole_map_is_asked() -> None:
    heat = mv.mechanisms.Multiscale(epsilon=1).release(people(), TILING, account=None, rng=1)
    low, high = heat.total().interval()
    assert low <= people().sums.sum() / UNIT <= high
