"""GeoJSON: valid, complete, and readable by others."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import geopandas
import h3
import numpy as np
import pytest
from shapely.geometry import shape

from mapveil.formats.content_hash import file_record
from mapveil.formats.read_map import read_map
from mapveil.maps.density_map import DensityMap
from mapveil_client.errors import InputError

MakeMap = Callable[..., DensityMap]


def strict_json(path: Path) -> Any:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


@pytest.mark.parametrize("kind", ["grid", "quadtree", "tiles", "hexagons", "places"])
@pytest.mark.parametrize("suffix", [".geojson", ".json"])
def test_every_cell_is_a_feature(kind: str, suffix: str, make_map: MakeMap, tmp_path: Path) -> None:
    heat = make_map(kind)
    path = tmp_path / f"map{suffix}"
    heat.save(path)
    content = strict_json(path)
    assert content["type"] == "FeatureCollection"
    assert file_record(heat, empty_cells_left_out=False)[0] == content["mapveil"]
    properties = [feature["properties"] for feature in content["features"]]
    interval = read_map(path).error(0.05)  # of the noisy sums as the file keeps them
    np.testing.assert_array_equal([row["cell"] for row in properties], np.arange(heat.tiling.size))
    np.testing.assert_array_equal([row["users"] for row in properties], heat.values)
    np.testing.assert_array_equal([row["users_per_km2"] for row in properties], heat.per_km2())
    np.testing.assert_array_equal([row["lower"] for row in properties], interval.lower)
    np.testing.assert_array_equal([row["upper"] for row in properties], interval.upper)
    for feature, lon, lat in zip(content["features"], *heat.tiling.centres(), strict=True):
        outline = shape(feature["geometry"])
        assert outline.exterior.is_ccw
        assert outline.buffer(1e-7).contains(shape({"type": "Point", "coordinates": [lon, lat]}))
    assert len(geopandas.read_file(path)) == heat.tiling.size


def test_empty_cells_can_be_left_out(make_map: MakeMap, tmp_path: Path) -> None:
    heat = make_map("grid")
    heat.to_geojson(tmp_path / "map.geojson", skip_empty=True)
    content = strict_json(tmp_path / "map.geojson")
    assert [feature["id"] for feature in content["features"]] == np.flatnonzero(heat.values).tolist()
    assert content["mapveil"]["empty_cells_left_out"] is True


def test_bounds_that_are_not_there_are_null(make_map: MakeMap, tmp_path: Path) -> None:
    make_map("grid", partial=True).to_geojson(tmp_path / "some.geojson")
    make_map("grid", measured=False).to_geojson(tmp_path / "none.geojson")
    some, none = strict_json(tmp_path / "some.geojson"), strict_json(tmp_path / "none.geojson")
    assert [row["properties"]["upper"] is None for row in some["features"]] == [False] * 14 + [True]
    assert all(row["properties"]["lower"] is row["properties"]["upper"] is None for row in none["features"])


def test_names_cannot_break_the_file(make_map: MakeMap, tmp_path: Path) -> None:
    notes = ('a "quoted" note', "line\nbreak", "µ ☃ </script>")
    make_map("grid", notes=notes).to_geojson(tmp_path / "map.geojson")
    assert tuple(strict_json(tmp_path / "map.geojson")["mapveil"]["notes"]) == notes


def test_cells_keep_the_names_others_know_them_by(make_map: MakeMap, tmp_path: Path) -> None:
    for kind in ("hexagons", "tiles", "grid"):
        make_map(kind).to_geojson(tmp_path / f"{kind}.geojson")

    def names(kind: str) -> list[str | None]:
        features = strict_json(tmp_path / f"{kind}.geojson")["features"]
        return [feature["properties"].get("name") for feature in features]

    hexagons = make_map("hexagons").tiling
    assert [h3.str_to_int(name) for name in names("hexagons")] == hexagons.h3_ids.tolist()
    assert names("tiles") == make_map("tiles").tiling.quadkeys().tolist()
    assert set(names("grid")) == {None}


def test_no_place_on_earth_is_refused(make_map: MakeMap, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no georeference"):
        make_map("no georeference").to_geojson(tmp_path / "map.geojson")
    assert os.listdir(tmp_path) == []
