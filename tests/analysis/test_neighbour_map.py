"""A map with its neighbours: layers, lists, exports and records."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mapveil as mv
from mapveil.analysis.nearest_users import nearest_users
from mapveil.analysis.neighbour_map import NeighbourMap, neighbour_cells
from mapveil.formats.read_map import read_map
from mapveil_client.errors import ParameterError


@pytest.fixture(scope="module")
def heat() -> mv.DensityMap:
    city = mv.synthetic.city(users=400, seed=1)
    return mv.mechanisms.Multiscale(epsilon=1).release(city, mv.Grid(city.region, rows=6, columns=7), rng=1)


def test_it_is_the_map_with_lists(heat: mv.DensityMap) -> None:
    near = NeighbourMap.of(heat, k=12)
    np.testing.assert_array_equal(near.lists.cell, nearest_users(heat.values, heat.tiling, 12).cell)
    np.testing.assert_array_equal(near.values, heat.values)
    assert near.guarantee == heat.guarantee
    (layer,) = near.layers()
    np.testing.assert_array_equal(layer.values, near.lists.radius_m)
    assert (layer.name, layer.unit) == ("radius_12_m", "m")
    assert near.metadata()["neighbours"] == {"k": 12}


@pytest.mark.parametrize(
    ("k", "ordinal"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (11, "11th"), (13, "13th"), (22, "22nd"), (112, "112th")],
)
def test_the_layer_is_named_in_words(heat: mv.DensityMap, k: int, ordinal: str) -> None:
    assert f"the {ordinal} nearest" in NeighbourMap.of(heat, k=k).layers()[0].title


def test_more_than_there_are_is_unknown(heat: mv.DensityMap) -> None:
    near = NeighbourMap.of(heat, k=int(heat.values.sum()) + 50)
    assert np.isnan(near.layers()[0].values).all()


def test_the_lists_are_written_with_the_promise(heat: mv.DensityMap, tmp_path: Path) -> None:
    near = NeighbourMap.of(heat, k=5)
    near.write_lists(tmp_path / "near.csv")
    with (tmp_path / "near.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == int((near.lists.cell >= 0).sum())
    for row in rows[::17]:
        cell, rank = int(row["cell"]), int(row["rank"])
        assert int(row["neighbour"]) == near.lists.cell[cell, rank - 1]
        assert float(row["distance_m"]) == pytest.approx(near.lists.distance_m[cell, rank - 1], abs=0.06)
    beside = json.loads((tmp_path / "near.csv-metadata.json").read_text())
    assert beside["guarantee"]["epsilon"] == "1"


def test_a_record_is_the_list_of_its_cell(heat: mv.DensityMap) -> None:
    near = NeighbourMap.of(heat, k=int(heat.values.sum()) - 1)
    base = near.database()
    for cell in (0, 20, 41):
        listed = near.lists.cell[cell]
        np.testing.assert_array_equal(neighbour_cells(base.record(cell)), listed[listed >= 0])


def test_exports_carry_the_distances(heat: mv.DensityMap, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    near = NeighbourMap.of(heat, k=8)
    near.save(tmp_path / "near.parquet")
    np.testing.assert_allclose(
        pq.read_table(tmp_path / "near.parquet")["radius_8_m"].to_numpy(), near.layers()[0].values
    )
    # What was written can be asked again, for another k.
    again = NeighbourMap.of(read_map(tmp_path / "near.parquet"), k=3)
    np.testing.assert_array_equal(again.lists.cell, NeighbourMap.of(heat, k=3).lists.cell)


def test_picture_and_page_show_the_distances_first(heat: mv.DensityMap, tmp_path: Path) -> None:
    near = NeighbourMap.of(heat, k=8)
    near.to_png(tmp_path / "near.png")
    assert (tmp_path / "near.png").read_bytes()[:4] == b"\x89PNG"
    assert "8th nearest user" in near.plot().child_axes[0].get_ylabel()
    near.to_html(tmp_path / "near.html")
    page = (tmp_path / "near.html").read_text()
    assert "<h1>How far the 8 nearest users are" in page
    record = json.loads(re.search(r'<script[^>]*id="scene"[^>]*>(.*?)</script>', page, re.S)[1])
    assert record["scene"]["layers"][0]["title"] == "Distance to the 8th nearest user"


def test_k_below_one_is_refused(heat: mv.DensityMap) -> None:
    with pytest.raises(ParameterError, match="k must be"):
        NeighbourMap.of(heat, k=0)


@pytest.mark.parametrize(
    "given",
    [
        {"tiling": "grid:4x4"},
        {"epsilon": 1},
        {"method": "hr"},
        {"options": {"outside": "drop"}},
        {"region": mv.Region.parse("10,50,10.1,50.1")},
        {"places_are_public": True},
        {"accept_large_epsilon": True},
        {"account": mv.Account("city")},
        {"account": None},
        {"rng": 1},
    ],
    ids=str,
)
def test_a_released_map_takes_no_parameter_of_a_release(heat: mv.DensityMap, given: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=f"brings its own .*; leave out {next(iter(given))}$"):
        mv.neighbours(heat, k=5, **given)
