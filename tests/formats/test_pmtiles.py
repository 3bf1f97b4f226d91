"""PMTiles: a whole file by the format's third specification, whose tiles hold what pictures draw."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyogrio
import pytest

from mapveil.geo.quadtree import Quadtree
from mapveil.maps.density_map import DensityMap
from mapveil.maps.measurement import Measurement
from mapveil_client.errors import InputError

MakeMap = Callable[..., DensityMap]


def a_city(make_map: MakeMap) -> DensityMap:
    """A crowd in one corner, measured cell by cell."""
    heat = make_map("quadtree")
    values = np.where(np.arange(heat.tiling.size) < 16, 400.0, 0.0)
    seen = heat.measurements[0]
    measured = Measurement(seen.groups, values + np.linspace(-2, 2, values.size), seen.epsilon, seen.unit)
    return replace(heat, values=values, measurements=(measured,))


def test_the_header_says_where_everything_lies(make_map: MakeMap, tmp_path: Path) -> None:
    """Sections 3 and 4 of the specification: offsets within the file, tile entries ascending, JSON metadata."""
    a_city(make_map).save(tmp_path / "map.pmtiles")
    data = (tmp_path / "map.pmtiles").read_bytes()
    assert data[:8] == b"PMTiles\x03"
    numbers = struct.unpack("<11Q", data[8:96])
    for offset, length in zip(numbers[:8:2], numbers[1:8:2], strict=True):
        assert (offset >= 127 and offset + length <= len(data)) or length == 0
    clustered, inner, tile_packing, kind, least, most = data[96:102]
    assert (clustered, kind) == (1, 1)  # Mapbox vector tiles, in the order of their ids
    assert 0 <= least <= most <= 16
    root, metadata = (data[numbers[at] : numbers[at] + numbers[at + 1]] for at in (0, 2))
    assert inner == tile_packing == 2  # gzip
    assert "differ" not in json.loads(gzip.decompress(metadata))
    ids = list(_ids(gzip.decompress(root)))
    assert ids == sorted(set(ids))
    assert len(ids) == numbers[9] > 0


def _ids(directory: bytes) -> list[int]:
    """The ids of a directory's entries: a count, then their differences, as LEB128 numbers."""
    numbers, value, shift = [], 0, 0
    for byte in directory:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(value)
            value, shift = 0, 0
    return np.cumsum(numbers[1 : 1 + numbers[0]]).tolist()


def test_tiles_hold_the_blocks_that_pictures_draw(make_map: MakeMap, tmp_path: Path) -> None:
    heat = a_city(make_map)
    heat.to_pmtiles(tmp_path / "map.pmtiles")
    blocks = heat.scene().blocks
    assert blocks is not None
    table = pyogrio.read_dataframe(tmp_path / "map.pmtiles").drop_duplicates("block").set_index("block")
    assert sorted(table.index) == list(range(blocks.users.size))
    for name in ("users", "lower", "upper"):
        assert np.allclose(table[name].sort_index(), getattr(blocks, name))
    assert table.crs == "EPSG:3857"
    words = pyogrio.read_info(tmp_path / "map.pmtiles")["dataset_metadata"]["description"]
    assert words == heat.guarantee.in_words()


def test_no_block_is_one_region_without_a_number(make_map: MakeMap, tmp_path: Path) -> None:
    heat = a_city(make_map)
    (seen,) = heat.measurements
    nothing = Measurement(seen.groups, np.zeros(heat.tiling.size), seen.epsilon, seen.unit)
    replace(heat, measurements=(nothing,)).save(tmp_path / "map.pmtiles")
    table = pyogrio.read_dataframe(tmp_path / "map.pmtiles")
    assert isinstance(heat.tiling, Quadtree)
    assert len(table) >= 1
    assert "users" not in table or table["users"].isna().all()


def test_cells_without_noisy_sums_and_lines_without_a_place(make_map: MakeMap, tmp_path: Path) -> None:
    make_map("hexagons", measured=False).save(tmp_path / "cells.pmtiles")
    assert "cell" in pyogrio.read_info(tmp_path / "cells.pmtiles")["fields"]
    with pytest.raises(InputError, match="PMTiles holds places on Earth"):
        make_map("no georeference").save(tmp_path / "map.pmtiles")
