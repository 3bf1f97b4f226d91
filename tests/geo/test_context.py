"""Layers of one's own: what is read of which file, and what is refused."""

from __future__ import annotations

import json

import geopandas
import numpy as np
import pytest
import shapely

from mapveil.geo.context import read_context
from mapveil_client.errors import InputError

STREET = shapely.LineString([(-73.99, 40.75), (-73.97, 40.76)])
DISTRICT = shapely.box(-74.0, 40.74, -73.98, 40.76)
STATION = shapely.Point(-73.977, 40.753)
NAMES = ["42nd Street", None, "Grand Central"]


def features() -> dict[str, object]:
    return {
        "type": "FeatureCollection",
        "features": [
            {
                "type": "Feature",
                "properties": {"name": name},
                "geometry": json.loads(shapely.to_geojson(shape)),
            }
            for shape, name in zip((STREET, DISTRICT, STATION), NAMES, strict=True)
        ],
    }


@pytest.mark.parametrize("form", ["context.geojson", "context.gpkg"])
def test_lines_outlines_and_names_are_read(tmp_path, form):
    path = tmp_path / form
    if form.endswith("gpkg"):
        plane = geopandas.GeoDataFrame(
            {"name": NAMES}, geometry=[STREET, DISTRICT, STATION], crs="EPSG:4326"
        ).to_crs("EPSG:32618")
        plane.iloc[:2].to_file(path, layer="lines")
        plane.iloc[2:].to_file(path, layer="labels")
    else:
        path.write_text(json.dumps(features()), encoding="utf-8")
    read = read_context(path)
    assert sorted(np.diff(read.lines.start).tolist()) == [2, 5]
    assert np.isclose(read.lines.lon, -73.99, atol=1e-6).any()
    assert read.names.name == ("42nd Street", "Grand Central")
    assert np.allclose((read.names.lon[1], read.names.lat[1]), (-73.977, 40.753), atol=1e-6)


def test_one_geometry_alone_is_read(tmp_path):
    path = tmp_path / "line.json"
    path.write_text(shapely.to_geojson(STREET), encoding="utf-8")
    assert read_context(path).lines.start.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not readable as GeoJSON"),
        ('{"type": "FeatureCollection"}', "not readable as GeoJSON"),
        ('{"type": "FeatureCollection", "features": []}', "no lines, polygons or features with a name"),
        ('{"type": "Feature", "properties": null, "geometry": null}', "no lines, polygons"),
        ('{"type": "Point", "coordinates": [1, 2]}', "no lines, polygons or features with a name"),
        ('{"type": "LineString", "coordinates": [[0, 1], [NaN, 2]]}', "not a finite number"),
    ],
)
def test_what_cannot_be_drawn_is_refused(tmp_path, text, said):
    path = tmp_path / "bad.geojson"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=said):
        read_context(path)


def test_files_that_are_none_are_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_context(tmp_path / "nowhere.gpkg")
    path = tmp_path / "text.gpkg"
    path.write_text("no database", encoding="utf-8")
    with pytest.raises(InputError, match="not readable as a vector file"):
        read_context(path)
    with pytest.warns(UserWarning, match="crs"):
        geopandas.GeoDataFrame(geometry=[STREET]).to_file(tmp_path / "bare.gpkg")
    with pytest.raises(InputError, match="no CRS"):
        read_context(tmp_path / "bare.gpkg")
