"""Tilings as text and as records: what is accepted, and what is refused and how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mapveil.geo.grid import Grid
from mapveil.geo.hexagons import Hexagons
from mapveil.geo.parse_tiling import parse_tiling, tiling_from_dict
from mapveil.geo.places import Places
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.geo.web_mercator import WebMercatorTiles
from mapveil_client.errors import InputError

NEW_YORK = Region.from_bbox(-74.03, 40.69, -73.90, 40.83)


def test_every_kind_has_a_text() -> None:
    assert parse_tiling("quadtree:8", NEW_YORK) == Quadtree(NEW_YORK, 8)
    assert parse_tiling("grid:300x200", NEW_YORK) == Grid(NEW_YORK, rows=300, columns=200)
    assert parse_tiling("h3:8", NEW_YORK) == Hexagons(NEW_YORK, 8)
    assert parse_tiling("tiles:15", NEW_YORK) == WebMercatorTiles(NEW_YORK, 15)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "quadtree",
        "quadtree:",
        "quadtree:x",
        "quadtree:-1",
        "grid:3",
        "grid:3x",
        "grid:3x4x5",
        "hex:3",
        "8",
        "h3:8.5",
    ],
)
def test_unknown_texts_are_refused_with_the_accepted_ones(text: str) -> None:
    with pytest.raises(
        InputError, match=r"not known; expected quadtree:8, grid:ROWSxCOLUMNS, h3:8, tiles:15"
    ):
        parse_tiling(text, NEW_YORK)


@pytest.mark.parametrize("text", ["quadtree:24", "grid:0x3", "h3:16", "tiles:24"])
def test_numbers_out_of_range_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"must be|expected"):
        parse_tiling(text, NEW_YORK)


def test_places_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "sites.csv"
    file.write_text("name,lon,lat\na,-74.00,40.71\nb,-73.95,40.80\nfar,10,50\n")
    places = parse_tiling(f"places:{file}", NEW_YORK)
    assert isinstance(places, Places)
    np.testing.assert_array_equal(places.lon, [-74.00, -73.95])
    np.testing.assert_array_equal(places.lat, [40.71, 40.80])


def test_files_of_places_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        parse_tiling(f"places:{tmp_path / 'nothing.csv'}", NEW_YORK)
    text = tmp_path / "sites.txt"
    text.write_text("lon,lat\n-74,40.71\n")
    with pytest.raises(InputError, match=r"\.csv or \.parquet"):
        parse_tiling(f"places:{text}", NEW_YORK)
    broken = tmp_path / "sites.parquet"
    broken.write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"places: .* not a complete Parquet file"):
        parse_tiling(f"places:{broken}", NEW_YORK)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({}, "lacks 'kind'"),
        ({"kind": "grid"}, "lacks 'region'"),
        ({"kind": "grid", "region": NEW_YORK.to_dict(), "rows": 3}, "lacks 'columns'"),
        ({"kind": "cubes", "region": NEW_YORK.to_dict()}, "'cubes' is not known; expected grid, quadtree"),
        ({"kind": "grid", "region": {}}, "record needs crs"),
        ({"kind": "quadtree", "region": NEW_YORK.to_dict(), "depth": "8"}, "depth must be"),
    ],
)
def test_records_that_lack_something_are_refused(record: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        tiling_from_dict(record)
