"""Zones: every source, in any CRS, and one line for every bad input."""

from __future__ import annotations

import json
from pathlib import Path

import geopandas
import numpy as np
import pytest
import shapely

from mapveil.geo.zones import Zones, overlapping_pairs
from mapveil_client.errors import InputError

ONE, TWO = shapely.box(8.0, 47.0, 8.2, 47.1), shapely.box(8.2, 47.0, 8.5, 47.2)
BOW = shapely.Polygon([(8, 47), (8.1, 47.1), (8.1, 47), (8, 47.1)])


def frame(crs: str | None = "EPSG:4326") -> geopandas.GeoDataFrame:
    columns = {"district": ["a", "b"], "residents": [10, 20], "geometry": [ONE, TWO]}
    return geopandas.GeoDataFrame(columns, crs=crs)


@pytest.mark.parametrize("suffix", [".geojson", ".gpkg", ".shp", ".parquet", ".fgb"])
def test_files_say_the_same(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"zones{suffix}"
    if suffix == ".parquet":
        frame().to_parquet(path)
    else:
        frame().to_file(path)
    found = Zones.read(path)
    by_name = dict(zip(found.names, found.polygons, strict=True))
    assert set(by_name) == {"a", "b"}
    assert by_name["b"].equals_exact(TWO.normalize(), 1e-9) or by_name["b"].equals(TWO)
    assert sorted(found.column("residents").tolist()) == [10, 20]


def test_polygons_frames_and_geojson_say_the_same() -> None:
    sources = [[ONE, TWO], frame(), json.loads(frame().to_json()), frame().geometry]
    for source in sources:
        found = Zones.read(source)
        assert all(a.equals(b) for a, b in zip(found.polygons, (ONE, TWO), strict=True))
    assert Zones.read([ONE, TWO]).names == ("1", "2")
    assert Zones.read(frame(), name="residents").names == ("10", "20")
    assert Zones.read(found) is found
    assert len(Zones.read(ONE)) == 1


@pytest.mark.parametrize("crs", ["EPSG:25832", "EPSG:2056", "EPSG:3857"])
def test_other_crs_are_transformed(crs: str, tmp_path: Path) -> None:
    path = tmp_path / "zones.gpkg"
    # Their edges are cut first, so that what is straight in degrees stays so.
    cut = frame().assign(geometry=shapely.segmentize(frame().geometry, 0.01))
    cut.to_crs(crs).to_file(path)
    found = Zones.read(path)
    apart = shapely.area(shapely.symmetric_difference(found.polygons, np.array([ONE, TWO])))
    assert (apart < 1e-5 * shapely.area([ONE, TWO])).all()


def test_a_given_crs_is_that_of_a_geojson_without_one_and_no_other_ones(tmp_path: Path) -> None:
    path = tmp_path / "zones.geojson"
    there = shapely.geometry.mapping(shapely.box(500000, 4000000, 510000, 4010000))
    content = {
        "type": "FeatureCollection",
        "features": [{"type": "Feature", "properties": {}, "geometry": there}],
    }
    path.write_text(json.dumps(content))
    west, south, *_ = Zones.read(path, crs="EPSG:32634").polygons[0].bounds
    assert (west, south) == pytest.approx((21.0, 36.14), abs=0.01)
    named = {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::32635"}}
    path.write_text(json.dumps({**content, "crs": named}))
    with pytest.raises(InputError, match="states its own CRS"):
        Zones.read(path, crs="EPSG:32634")


def test_no_crs_is_refused_and_can_be_given() -> None:
    with pytest.raises(InputError, match="no CRS is stated"):
        Zones.read(frame(None))
    assert Zones.read(frame(None), crs="EPSG:4326").polygons[0].equals(ONE)
    with pytest.raises(InputError, match="CRS 'nowhere' is not known"):
        Zones.read(frame(None), crs="nowhere")


def test_invalid_polygons_are_named_and_repaired_on_request() -> None:
    columns = {"name": ["good", "bow"], "geometry": [TWO, BOW]}
    broken = geopandas.GeoDataFrame(columns, crs="EPSG:4326")
    with pytest.raises(InputError, match=r"invalid polygons: bow \(Self-intersection.*repair=True"):
        Zones.read(broken)
    found = Zones.read(broken, repair=True)
    assert shapely.is_valid(found.polygons).all()
    assert "1 invalid polygons were repaired: bow" in found.notes[0]


def test_overlaps_are_named_and_shared_borders_are_none() -> None:
    assert Zones.read([ONE, TWO]).notes == ()
    (note,) = Zones.read([ONE, shapely.box(8.1, 46.9, 8.3, 47.05)]).notes
    assert "Two zones overlap" in note
    assert "1 and 2" in note
    one, other = overlapping_pairs(np.array([ONE] * 80))
    assert one.size == 80 * 79 // 2
    assert (one < other).all()
    (note,) = Zones.read([ONE] * 80).notes
    assert "more than 1000 pairs of zones overlap" in note


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("{", "not readable as GeoJSON"),
        ('{"type": "FeatureCollection"}', "not GeoJSON of polygons"),
        ('{"type": "FeatureCollection", "features": []}', "no zones in it"),
        ('{"type": "Point", "coordinates": [8, 47]}', "must be polygons"),
        ('{"type": "Polygon", "coordinates": []}', "without a place on Earth"),
        ('{"type":"Feature","properties":null,"geometry":null}', "not GeoJSON of polygons"),
    ],
)
def test_bad_geojson_is_one_line(content: str, match: str, tmp_path: Path) -> None:
    path = tmp_path / "zones.geojson"
    path.write_text(content)
    with pytest.raises(InputError, match=match) as caught:
        Zones.read(path)
    assert "\n" not in str(caught.value)


def test_other_bad_sources_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        Zones.read(tmp_path / "none.gpkg")
    rubbish = tmp_path / "rubbish.gpkg"
    rubbish.write_bytes(b"rubbish")
    with pytest.raises(InputError, match="not readable as a vector file"):
        Zones.read(rubbish)
    with pytest.raises(InputError, match="zones must be polygons"):
        Zones.read(7)
    with pytest.raises(InputError, match="no column 'city'; its columns are district, residents"):
        Zones.read(frame(), name="city")
    with pytest.raises(InputError, match="have no column 'people'"):
        Zones.read(frame()).column("people")
    with pytest.raises(InputError, match="'district' must hold numbers"):
        Zones.read(frame()).column("district")
