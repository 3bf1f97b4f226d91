"""The metadata of a release come back from every file, and a broken file is named in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mapveil.formats.content_hash import CONTENT_KEY
from mapveil.formats.read_map import NotAMap
from mapveil.formats.read_record import read_record
from mapveil.maps.density_map import DensityMap
from mapveil_client.errors import InputError

MakeMap = Callable[..., DensityMap]
SUFFIXES = (".tif", ".parquet", ".geojson", ".gpkg", ".csv", ".png", ".html")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_it_is_the_record_of_the_map(suffix: str, make_map: MakeMap, tmp_path: Path) -> None:
    heat = replace(make_map("quadtree"), title="Läden <b> & Straßen")
    heat.save(tmp_path / f"map{suffix}")
    record = read_record(tmp_path / f"map{suffix}")
    record.pop("empty_cells_left_out", None)  # of GeoJSON
    record.pop(CONTENT_KEY, None)  # of formats that are read back
    assert record == json.loads(heat.metadata_json())


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_broken_files_end_in_one_line(suffix: str, make_map: MakeMap, tmp_path: Path) -> None:
    path = tmp_path / f"map{suffix}"
    make_map("quadtree").save(path)
    changed = tmp_path / "map.csv-metadata.json" if suffix == ".csv" else path
    whole, draw = changed.read_bytes(), np.random.default_rng(5)
    errors = []
    for turn in range(100):
        data = bytearray(whole[: draw.integers(1, (len(whole) if turn % 2 else 200) + 1)])
        for _ in range(draw.integers(0, 4)):
            data[draw.integers(len(data))] = draw.integers(256)
        changed.write_bytes(data)
        try:
            read_record(path)
        except InputError as error:
            errors.append(str(error))
    assert len(errors) > 10
    assert all(text.startswith(str(path)) and "\n" not in text for text in errors)


def test_others_files_are_no_maps(tmp_path: Path) -> None:
    with pytest.raises(NotAMap, match=r"suffix must be one of \.tif"):
        read_record(tmp_path / "map.doc")
    with pytest.raises(NotAMap, match="no such file"):
        read_record(tmp_path / "map.tif")
    for suffix, text in (
        (".geojson", '{"type":"FeatureCollection"}'),
        (".html", "<p>hello"),
        (".json", "[1]"),
    ):
        path = tmp_path / f"other{suffix}"
        path.write_text(text)
        with pytest.raises(NotAMap, match="metadata are missing"):
            read_record(path)


def test_nested_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text("[" * 200_000)
    with pytest.raises(InputError, match="not readable"):
        read_record(path)
