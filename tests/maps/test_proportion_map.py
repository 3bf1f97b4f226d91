from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
import rasterio
from matplotlib.collections import PathCollection

from mapveil.formats.read_map import read_map
from mapveil.geo.grid import Grid
from mapveil.geo.hexagons import Hexagons
from mapveil.geo.region import Region
from mapveil.geo.tiling import Tiling
from mapveil.inference.wilson import noisy_wilson, normal_quantile
from mapveil.maps.density_map import DensityMap
from mapveil.maps.measurement import Measurement
from mapveil.maps.proportion_map import LabelMeasurement, ProportionMap
from mapveil.privacy.claim import Adversary, Neighbouring, Share, TrustModel
from mapveil.privacy.discrete_laplace import laplace_quantile, laplace_variance
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError

MakeMap = Callable[..., DensityMap]

REGION = Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
GRID = Grid(REGION, rows=3, columns=2)
HALF = Fraction(1, 2)


def made(
    by_label: list[list[float]] | FloatArray,
    groups: list[int] | None = None,
    tiling: Tiling = GRID,
    **options: Any,
) -> ProportionMap:
    """Six cells in groups of three, two and one, unless told otherwise; nobody can be in a cell of group -1."""
    counts = np.asarray(by_label, dtype=np.float64)
    of_cell = np.array([0, 0, 0, 1, 1, 2] if groups is None else groups, dtype=np.int64)
    measured = LabelMeasurement(
        of_cell, counts.sum(axis=1), HALF, 1, terms=float(counts.shape[1]), by_label=counts
    )
    each = np.maximum(counts.sum(axis=1), 0) / np.maximum(
        np.bincount(of_cell[of_cell >= 0], minlength=len(counts)), 1
    )
    return ProportionMap(
        values=np.where(of_cell >= 0, each[of_cell], 0.0),
        tiling=tiling,
        guarantee=Guarantee(
            model=TrustModel.SECURE_AGGREGATION,
            neighbours=Neighbouring.ZERO_OUT,
            epsilon=HALF,
            adversary=Adversary.HONEST_SERVER,
            shares=(Share("all", HALF),),
        ),
        method="proportions",
        measurements=(measured,),
        **options,
    )


def test_a_cell_shows_the_proportion_of_its_group() -> None:
    heat = made([[60, 40], [10, 90], [5, 0]])
    np.testing.assert_allclose(heat.proportion(1), [0.4] * 3 + [0.9] * 2 + [0])
    np.testing.assert_allclose(heat.proportion(0) + heat.proportion(1), 1)
    assert (heat.proportion(1) * heat.values).sum() == pytest.approx(130)


def test_noise_below_zero_is_nobody_and_proportions_still_add_up() -> None:
    heat = made([[-3, 40, 10], [-5, -1, 2], [3, -9, 1]])
    np.testing.assert_allclose(heat.proportion(0)[[0, 3, 5]], [0, np.nan, np.nan])
    np.testing.assert_allclose(heat.proportion(1)[0], 0.8)
    assert np.isnan(heat.proportion(2)[3])  # four people fewer than nobody
    measured = heat.measured.proportions()
    np.testing.assert_allclose(measured.sum(axis=1), 1)
    assert measured.min() >= 0


def test_where_nobody_is_expected_there_is_no_proportion_but_honest_bounds() -> None:
    heat = made([[60, 40], [-10, -3]], [0, 0, 0, 1, 1, -1])
    assert np.isnan(heat.proportion()).tolist() == [False] * 3 + [True] * 3
    bounds = heat.proportion_interval()
    assert bounds.lower[3:].tolist() == [0, 0, 0]
    assert bounds.upper[3:].tolist() == [1, 1, 1]
    assert np.nansum(heat.proportion() * heat.values) == pytest.approx(40)


def test_cells_that_were_merged_away_show_none() -> None:
    heat = made([[60, 40], [10, 90], [5, 0]]).merge_below(10)
    assert isinstance(heat, ProportionMap)
    assert np.isnan(heat.proportion()).tolist() == [False] * 5 + [True]


@pytest.mark.parametrize("alpha", [0.5, 0.05, 1e-3])
@pytest.mark.parametrize("sampling", [True, False])
def test_bounds_are_those_of_wilson_with_the_noise_of_one_label(alpha: float, sampling: bool) -> None:
    heat = made([[600, 400], [100, 900], [50, 100]])
    z = normal_quantile(alpha)
    noise = max(z * laplace_variance(HALF, 1) ** 0.5, laplace_quantile(alpha, HALF, 1))
    wanted = noisy_wilson(
        np.array([400.0, 900, 100]), np.array([1000.0, 1000, 150]), z, noise, sampling=sampling
    )
    bounds = heat.proportion_interval(alpha, sampling=sampling)
    np.testing.assert_allclose(bounds.lower, wanted.lower[[0, 0, 0, 1, 1, 2]])
    np.testing.assert_allclose(bounds.upper, wanted.upper[[0, 0, 0, 1, 1, 2]])
    assert (bounds.lower <= heat.proportion()).all()
    assert (heat.proportion() <= bounds.upper).all()


def test_noise_of_many_shards_widens() -> None:
    few, many = (
        LabelMeasurement(
            np.arange(1), np.array([1000.0]), HALF, 1, terms=terms, by_label=np.array([[600.0, 400.0]])
        )
        for terms in (2.0, 200.0)
    )
    assert many.of_one_label.terms == 100
    assert many.of_one_label.deviation() == pytest.approx(10 * few.of_one_label.deviation())
    narrow, wide = few.bounds(0.05, 1), many.bounds(0.05, 1)
    assert wide.upper - wide.lower > 1.5 * (narrow.upper - narrow.lower)


def test_densities_and_their_bounds_are_of_everybody() -> None:
    heat = made([[60, 40], [10, 90], [5, 0]])
    assert heat.values.sum() == 205
    total = Measurement(heat.measured.groups, heat.measured.noisy, HALF, 1, terms=2.0)
    bounds = heat.error(0.1)
    np.testing.assert_allclose(bounds.upper[:3], 100 + total.half_width(0.1))
    assert bounds.lower[5] == max(0, 5 - total.half_width(0.1))


def test_a_label_that_is_none_is_refused() -> None:
    with pytest.raises(ParameterError, match="from 0 to 1, got"):
        made([[1, 2], [3, 4], [5, 6]]).proportion(2)
    with pytest.raises(ParameterError, match="between 0 and 1"):
        made([[1, 2], [3, 4], [5, 6]]).proportion_interval(2)


def test_a_map_without_labels_is_refused(make_map: MakeMap) -> None:
    with pytest.raises(ParameterError, match="one measurement by label, got 0"):
        ProportionMap.of(make_map())


class TestExports:
    def test_geoparquet_has_a_column_for_each(self, tmp_path: Path) -> None:
        heat = made([[60, 40], [-10, -3]], [0, 0, 0, 1, 1, -1])
        heat.save(tmp_path / "map.parquet")
        table = pyarrow.parquet.read_table(tmp_path / "map.parquet")
        found = table["proportion_1"].to_pylist()
        assert found == [0.4, 0.4, 0.4, None, None, None]
        bounds = heat.proportion_interval()
        np.testing.assert_array_equal(table["proportion_1_lower"], bounds.lower)
        np.testing.assert_array_equal(table["proportion_1_upper"], bounds.upper)
        np.testing.assert_array_equal(table["users"], heat.values)
        metadata = json.loads(table.schema.metadata[b"mapveil"])
        assert metadata["labels"] == 2
        assert metadata["proportion_interval"]["alpha"] == 0.05

    def test_geojson_has_a_property_for_each(self, tmp_path: Path) -> None:
        heat = made([[1, 2, 3], [4, 4, 4], [-1, -1, -1]])
        heat.save(tmp_path / "map.geojson")
        features = json.loads((tmp_path / "map.geojson").read_text())["features"]
        for label in range(3):
            found = [feature["properties"][f"proportion_{label}"] for feature in features]
            assert found[:5] == pytest.approx(heat.proportion(label)[:5].tolist())
            assert found[5] is None
            assert features[0]["properties"][f"proportion_{label}_upper"] <= 1

    def test_geotiff_has_a_band_for_each_after_those_of_any_map(self, tmp_path: Path) -> None:
        heat = made([[60, 40], [10, 90], [5, 0]])
        heat.save(tmp_path / "map.tif")
        with rasterio.open(tmp_path / "map.tif") as file:
            assert file.count == 6
            assert file.descriptions[0] == "users, estimate"
            assert file.descriptions[3:] == (
                "proportion of label 1, estimate",
                "proportion of label 1, lower bound of the 95 % interval",
                "proportion of label 1, upper bound of the 95 % interval",
            )
            assert file.units == ("users per cell",) * 3 + ("1",) * 3
            np.testing.assert_allclose(file.read(4).reshape(-1), heat.proportion())
            np.testing.assert_allclose(file.read(6).reshape(-1), heat.proportion_interval().upper)

    def test_xarray_has_a_variable_for_each(self) -> None:
        heat = made([[60, 40], [10, 90], [5, 0]])
        dataset = heat.to_xarray()
        np.testing.assert_allclose(dataset["proportion_1"].to_numpy().reshape(-1), heat.proportion())
        assert dataset["proportion_1"].attrs["units"] == "1"
        assert dataset["users"].attrs["units"] == "users per cell"

    @pytest.mark.parametrize("suffix", [".tif", ".parquet"])
    def test_a_file_reads_back_as_a_map_of_everybody(self, suffix: str, tmp_path: Path) -> None:
        heat = made([[60, 40], [10, 90], [5, 0]])
        heat.save(tmp_path / f"map{suffix}")
        np.testing.assert_allclose(read_map(tmp_path / f"map{suffix}").values, heat.values)

    def test_the_picture_is_of_the_proportion(self, tmp_path: Path) -> None:
        heat = made([[60, 40], [10, 90], [-5, 0]])
        image = heat.plot(detail="cells").images[0]
        shown = np.ma.filled(image.get_array().astype(float), np.nan)
        np.testing.assert_allclose(shown.reshape(-1), heat.proportion())
        assert image.norm.vmax == pytest.approx(0.9)
        heat.save(tmp_path / "map.png")
        assert (tmp_path / "map.png").stat().st_size > 1000
        assert "ProportionMap" in heat._repr_html_()

    def test_where_nobody_can_be_told_from_zero_no_proportion_is_drawn(self) -> None:
        heat = made([[60, 40], [10, 90], [-5, 0]], [0, 0, 0, 0, 1, 2])
        shown = heat.plot().images[0].get_array()
        assert np.ma.getmaskarray(shown).reshape(-1).tolist() == [False] * 5 + [True]

    def test_other_labels_and_cells_of_any_shape_can_be_drawn(self) -> None:
        tiling = Hexagons(REGION, resolution=6)
        heat = made([[10, 20, 30]], [0] * tiling.size, tiling)
        axes = replace(heat, title="Part three").plot(label=2)
        cells = next(each for each in axes.collections if isinstance(each, PathCollection))
        np.testing.assert_allclose(cells.get_array(), 0.5)
        assert axes.get_title(loc="left").startswith("Part three")

    def test_other_maps_have_no_layers(self, make_map: MakeMap) -> None:
        assert make_map().layers() == ()


def test_the_repr_says_what_it_is() -> None:
    assert repr(made([[60, 40], [10, 90], [5, 0]])).startswith("ProportionMap(proportions, ")
