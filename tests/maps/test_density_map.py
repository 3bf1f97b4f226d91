"""The density map: its bounds hold as often as they say, and post-processing loses nobody."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

import mapveil as mv
from mapveil.engines import UNIT
from mapveil.geo.grid import Grid
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.maps.density_map import DensityMap
from mapveil.maps.measurement import Measurement
from mapveil.privacy.claim import Adversary, Neighbouring, TrustModel
from mapveil.privacy.discrete_laplace import discrete_laplace
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness

MakeMap = Callable[..., DensityMap]

EPSILON = Fraction(1, 2)
SIDE = 150
NEVER = 1e-9


def plain_map(values: list[float]) -> DensityMap:
    region = Region.from_bbox(10.0, 50.0, 10.1, 50.1)
    guarantee = Guarantee(
        model=TrustModel.CURATOR,
        neighbours=Neighbouring.ADD_OR_REMOVE,
        epsilon=EPSILON,
        adversary=Adversary.RELEASE,
    )
    return DensityMap(np.array(values, dtype=float), Grid(region, len(values), 1), guarantee, "laplace")


def measured(sums: np.ndarray, groups: np.ndarray, epsilon: Fraction, seed: int) -> Measurement:
    totals = np.bincount(groups, sums).astype(np.int64)
    noise = discrete_laplace(totals.size, epsilon, UNIT, Randomness(seed))
    return Measurement(groups, (totals + noise) / UNIT, epsilon, UNIT)


@pytest.fixture(scope="module")
def truth() -> np.ndarray:
    return np.random.default_rng(3).integers(40, 400, SIDE * SIDE) * UNIT


def noisy_map(measurements: tuple[Measurement, ...]) -> DensityMap:
    tiling = Grid(Region.without_georeference(SIDE, SIDE), SIDE, SIDE)
    guarantee = Guarantee(
        model=TrustModel.CURATOR,
        neighbours=Neighbouring.ADD_OR_REMOVE,
        epsilon=Fraction(1),
        adversary=Adversary.RELEASE,
    )
    return DensityMap(np.zeros(tiling.size), tiling, guarantee, "test", measurements=measurements)


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_bounds_of_single_cells_hold_as_often_as_they_say(truth: np.ndarray, alpha: float) -> None:
    cells = np.arange(truth.size)
    made = measured(truth, cells, EPSILON, seed=11)

    def p_value(noise_factor: float) -> float:
        noisy = truth / UNIT + (made.noisy - truth / UNIT) * noise_factor
        bounds = noisy_map((replace(made, noisy=noisy),)).error(alpha)
        missed = int(((truth / UNIT < bounds.lower) | (truth / UNIT > bounds.upper)).sum())
        return float(binomtest(missed, truth.size, alpha).pvalue)

    assert p_value(1.0) > NEVER
    # The test has power: noise a third off its scale is seen, whichever way.
    assert p_value(1.3) < NEVER
    assert p_value(0.7) < NEVER


def test_bounds_from_several_measurements_hold_at_least_as_often(truth: np.ndarray) -> None:
    cells = np.arange(truth.size)
    row, col = np.divmod(cells, SIDE)
    blocks = (row // 2) * (SIDE // 2) + col // 2
    made = (measured(truth, cells, EPSILON, seed=12), measured(truth, blocks, EPSILON, seed=13))
    both = noisy_map(made).error(0.05)
    missed = int(((truth / UNIT < both.lower) | (truth / UNIT > both.upper)).sum())
    assert binomtest(missed, truth.size, 0.05, alternative="greater").pvalue > NEVER
    assert (both.lower <= both.upper).all()


def test_a_group_bounds_its_members_from_above_only(truth: np.ndarray) -> None:
    halves = (np.arange(truth.size) >= truth.size // 2).astype(np.int64)
    bounds = noisy_map((measured(truth, halves, EPSILON, seed=14),)).error(0.05)
    assert (bounds.lower == 0).all()
    assert np.isfinite(bounds.upper).all()


def test_a_cell_that_nothing_covers_has_no_upper_bound(make_map: MakeMap) -> None:
    bounds = make_map("grid", partial=True).error(0.1)
    assert bounds.upper[-1] == np.inf
    assert bounds.lower[-1] == 0
    assert np.isfinite(bounds.upper[:-1]).all()


def test_surer_bounds_are_wider(make_map: MakeMap) -> None:
    heat = make_map()
    sure, less_sure = heat.error(0.01), heat.error(0.2)
    assert (sure.lower <= less_sure.lower).all()
    assert (sure.upper >= less_sure.upper).all()


def test_bounds_are_refused_where_there_are_none(make_map: MakeMap) -> None:
    with pytest.raises(ParameterError, match="no measurements"):
        make_map(measured=False).error()
    assert make_map(measured=False).interval() is None
    for alpha in (0.0, 1.0, -0.1, float("nan")):
        with pytest.raises(ParameterError, match="alpha"):
            make_map().error(alpha)


@given(
    st.lists(st.floats(-100, 1e6), min_size=1, max_size=40),
    st.floats(0, 1e5),
    st.floats(0, 1e5),
)
def test_merging_moves_users_and_loses_none(values: list[float], first: float, second: float) -> None:
    heat = plain_map(values)
    merged = heat.merge_below(first).merge_below(second)
    assert merged.values.sum() + merged.outside == pytest.approx(sum(values), rel=1e-9, abs=1e-6)
    kept = merged.values[merged.values != 0]
    assert (kept >= max(first, second)).all()
    assert heat.outside == 0.0  # the map itself is left as it was
    assert len(merged.notes) == 2


@pytest.mark.parametrize("minimum", [-1.0, float("nan"), float("inf")])
def test_merging_below_nonsense_is_refused(minimum: float) -> None:
    with pytest.raises(ParameterError, match="minimum"):
        plain_map([1.0]).merge_below(minimum)


@pytest.mark.parametrize("kind", ["grid", "degrees", "tiles", "hexagons", "places"])
def test_density_times_area_is_users(kind: str, make_map: MakeMap) -> None:
    heat = make_map(kind)
    np.testing.assert_allclose(heat.per_km2() * heat.tiling.area_m2() / 1e6, heat.values)


def test_normalised_is_a_distribution(make_map: MakeMap) -> None:
    heat = make_map()
    assert heat.normalised().sum() == pytest.approx(1.0)
    assert (heat.normalised() >= 0).all()
    empty = replace(heat, values=np.zeros(heat.tiling.size))
    np.testing.assert_allclose(empty.normalised(), 1 / heat.tiling.size)


def test_the_metadata_is_json_and_remakes_the_guarantee(make_map: MakeMap) -> None:
    heat = make_map(seeded=True)
    record = json.loads(heat.metadata_json())
    assert record == heat.metadata()
    assert Guarantee.from_dict(record["guarantee"]) == heat.guarantee
    assert record["guarantee"]["seeded"] is True
    assert record["interval"]["alpha"] == 0.05
    assert json.loads(make_map(measured=False).metadata_json())["interval"] is None


def test_values_of_another_tiling_are_refused(make_map: MakeMap) -> None:
    with pytest.raises(ParameterError, match=r"shape \(65536,\)"):
        replace(make_map(), tiling=Quadtree(make_map().tiling.region, 8))


@pytest.mark.parametrize("suffix", DensityMap.suffixes)
def test_every_suffix_is_written(suffix: str, make_map: MakeMap, tmp_path: Path) -> None:
    path = tmp_path / f"map{suffix.upper()}"
    make_map().save(path)
    assert path.stat().st_size > 0


def test_another_suffix_is_refused_with_the_list(make_map: MakeMap, tmp_path: Path) -> None:
    with pytest.raises(
        InputError,
        match=r"\.tif, \.tiff, \.parquet, \.geojson, \.json, \.csv, \.gpkg, \.pmtiles, \.png, \.html",
    ):
        make_map().save(tmp_path / "map.shp")


def test_the_repr_shows_the_promise_and_no_data(make_map: MakeMap) -> None:
    text = repr(make_map())
    assert "user-level, add-or-remove, (1/3, 0)-DP" in text
    assert "123456" not in text


@pytest.mark.parametrize(
    ("trust", "scale", "said"),
    [
        ("local", None, "in the one cell that their device reported about"),
        ("central", None, "divided over the cells they were in"),
        ("operators", 1, "in the one cell they were in most often"),
        ("operators", 16, "divided over the cells they were in"),
    ],
)
def test_note_and_caption_state_what_a_user_counts_for(trust: str, scale: int | None, said: str) -> None:
    city = mv.synthetic.city(users=60, seed=1)
    options = {} if scale is None else {"scale": scale}
    heat = mv.release(city, "grid:2x2", region=city.region, epsilon=4, trust=trust, rng=1, options=options)
    scene = heat.scene()
    assert scene.notes[0] == f"Each user counts 1, {said}; an estimate may be a fraction."
    assert scene.reading.endswith(f"Each user counts 1, {said}.")
