"""GeoPackage and GeoDataFrame: what other programs read is what was released."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import geopandas
import numpy as np
import pytest
import shapely

from mapveil.formats import table
from mapveil.formats.read_map import read_map
from mapveil.maps.density_map import DensityMap
from mapveil_client.errors import InputError

MakeMap = Callable[..., DensityMap]


@pytest.mark.parametrize("kind", ["grid", "polygon", "utm", "hexagons", "places"])
def test_geopandas_reads_every_cell(
    kind: str, make_map: MakeMap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "ROWS_AT_ONCE", 7)
    heat = make_map(kind)
    heat.save(tmp_path / "map.gpkg")
    frame = geopandas.read_file(tmp_path / "map.gpkg", layer="map")
    made = heat.to_geodataframe()
    assert frame.crs == made.crs == "EPSG:4326"
    np.testing.assert_array_equal(frame["cell"], np.arange(heat.tiling.size))
    kept = read_map(tmp_path / "map.gpkg")  # with the noisy sums as the file keeps them
    for one, source in ((frame, kept), (made, heat)):
        np.testing.assert_array_equal(one["users"], heat.values)
        np.testing.assert_array_equal(one["lower"], source.error(0.05).lower)
    assert frame.geometry.geom_equals(made.geometry).all()
    assert made.attrs["mapveil"] == heat.metadata()


def test_sqlite_reads_the_metadata_and_finds_a_whole_geopackage(make_map: MakeMap, tmp_path: Path) -> None:
    heat = make_map("quadtree")
    heat.to_geopackage(tmp_path / "map.gpkg")
    with sqlite3.connect(tmp_path / "map.gpkg") as opened:
        assert opened.execute("PRAGMA application_id").fetchone() == (0x47504B47,)
        assert opened.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        found = [text for (text,) in opened.execute("SELECT metadata FROM gpkg_metadata")]
    opened.close()
    assert any(json.dumps(heat.guarantee.in_words())[1:-1] in text.replace("&quot;", '"') for text in found)


def test_a_map_without_georeference_is_refused(make_map: MakeMap, tmp_path: Path) -> None:
    heat = make_map("no georeference")
    with pytest.raises(InputError, match="GeoPackage holds places on Earth"):
        heat.save(tmp_path / "map.gpkg")
    with pytest.raises(InputError, match="GeoDataFrame holds places on Earth"):
        heat.to_geodataframe()
    assert not list(tmp_path.iterdir())


def test_blocks_told_from_zero_have_a_layer_and_both_layers_a_style(
    make_map: MakeMap, tmp_path: Path
) -> None:
    heat = make_map("quadtree")
    heat.save(tmp_path / "map.gpkg")
    drawn = read_map(tmp_path / "map.gpkg").scene().blocks
    assert drawn is not None
    cells, blocks = (geopandas.read_file(tmp_path / "map.gpkg", layer=name) for name in ("map", "blocks"))
    np.testing.assert_array_equal(cells["told_from_zero"], drawn.of_cell >= 0)
    np.testing.assert_allclose(blocks["users"], drawn.users)
    np.testing.assert_allclose(blocks["significance"], drawn.noisy / drawn.deviation)
    told = cells[cells["told_from_zero"]]
    drawn_area, told_area = (shapely.area(frame.geometry.to_numpy()).sum() for frame in (blocks, told))
    np.testing.assert_allclose(drawn_area, told_area)
    with sqlite3.connect(tmp_path / "map.gpkg") as opened:
        described = dict(opened.execute("SELECT table_name, description FROM gpkg_contents").fetchall())
        styles = opened.execute(
            "SELECT f_table_name, f_geometry_column, f_table_schema, useAsDefault, styleQML FROM layer_styles"
        ).fetchall()
    opened.close()
    assert described["map"] == described["blocks"] == heat.guarantee.in_words()
    assert [row[:4] for row in styles] == [("map", "geometry", "", 1), ("blocks", "geometry", "", 1)]
    for *_, text in styles:
        renderer = ElementTree.fromstring(text).find("renderer-v2")
        assert renderer is not None
        ranges = [
            (float(each.get("lower", "")), float(each.get("upper", ""))) for each in renderer.iter("range")
        ]
        density = blocks["users_per_km2"][blocks["users_per_km2"] > 0]
        assert all(any(low <= value <= high for low, high in ranges) for value in density)
        assert [each.get("symbol") for each in renderer.iter("range")] == [
            each.get("name") for each in renderer.iter("symbol")
        ]
