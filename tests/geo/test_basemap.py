"""Basemaps: lines of vector tiles in the box of a map, whatever tiles they were cut into."""

from __future__ import annotations

from pathlib import Path

import geopandas
import numpy as np
import pytest
import shapely

from mapveil.geo.basemap import joined, open_basemap
from mapveil.geo.context import Context
from mapveil.geo.zones import Zones
from mapveil_client.errors import InputError

BOX = (-74.03, 40.69, -73.90, 40.83)


def tiles(path: Path, layer: str, shapes: list[shapely.Geometry], **columns: list[str]) -> Path:
    """Vector tiles of zooms 8 to 13, made by GDAL."""
    frame = geopandas.GeoDataFrame(columns, geometry=shapes, crs="EPSG:4326")
    frame.to_file(path, layer=layer, driver="PMTiles", MINZOOM="8", MAXZOOM="13")
    return path


def test_roads_are_cut_to_the_box(tmp_path: Path) -> None:
    street = shapely.LineString([(-74.2, 40.75), (-73.7, 40.76)])
    found = open_basemap(tiles(tmp_path / "base.pmtiles", "roads", [street], name=["A"])).within(BOX)
    lon, lat = found.lines.lon, found.lines.lat
    assert lon.min() == pytest.approx(BOX[0])
    assert lon.max() == pytest.approx(BOX[2])
    assert np.allclose(lat, 40.75 + (lon + 74.2) / 50, atol=2e-4)
    assert len(found.zones) == 0


def test_a_shore_has_no_border_of_tiles(tmp_path: Path) -> None:
    """A lake over many tiles comes back as its shore alone."""
    lake = shapely.Point(-73.96, 40.76).buffer(0.04)
    found = open_basemap(tiles(tmp_path / "base.pmtiles", "water", [lake])).within(BOX)
    corners = shapely.points(found.lines.lon, found.lines.lat)
    assert found.lines.lon.size > 20
    assert shapely.distance(lake.boundary, corners).max() < 1e-3


def test_names_of_places_come_after_one_s_own(tmp_path: Path) -> None:
    town = shapely.Point(-73.95, 40.75)
    below = open_basemap(tiles(tmp_path / "base.pmtiles", "places", [town], name=["Town"])).within(BOX)
    own = Context.of_zones(Zones.read([shapely.box(-74, 40.7, -73.95, 40.75)]))
    both = joined(own, below)
    assert both.names.name == ("1", "Town")
    assert both.zones is own.zones
    assert both.lines.start.tolist() == own.lines.start.tolist()
    assert joined(None, below) is below


@pytest.mark.parametrize(
    "content", [b"", b"PMTiles\x02" + bytes(200), b"PMTiles\x03" + bytes(200), b"SQLite"]
)
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "base.pmtiles"
    path.write_bytes(content)
    with pytest.raises(InputError, match="not a PMTiles file of vector tiles"):
        open_basemap(path)


def test_a_file_without_roads_or_waters_is_refused_by_its_layers(tmp_path: Path) -> None:
    path = tiles(tmp_path / "base.pmtiles", "trees", [shapely.Point(-73.95, 40.75)])
    with pytest.raises(InputError, match=r"no layer of roads, water or places; its layers are trees"):
        open_basemap(path)
    with pytest.raises(InputError, match="no such file"):
        open_basemap(tmp_path / "none.pmtiles")
