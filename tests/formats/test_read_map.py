"""Reading back: a release says the same after it was written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from mapveil.formats.read_map import read_map
from mapveil.maps.density_map import DensityMap
from mapveil_client.errors import InputError

MakeMap = Callable[..., DensityMap]

RASTERS = ("grid", "quadtree", "polygon", "utm", "degrees", "tiles", "no georeference")


@pytest.mark.parametrize(
    ("kind", "suffix"),
    [(kind, ".tif") for kind in RASTERS] + [(kind, ".parquet") for kind in (*RASTERS, "hexagons", "places")],
)
def test_it_says_the_same(kind: str, suffix: str, make_map: MakeMap, tmp_path: Path) -> None:
    heat = make_map(kind, seeded=True)
    heat.save(tmp_path / f"map{suffix}")
    again = read_map(tmp_path / f"map{suffix}")
    np.testing.assert_array_equal(again.values, heat.values)
    assert again.guarantee == heat.guarantee
    assert again.tiling.to_dict() == heat.tiling.to_dict()
    for name in ("method", "parameters", "notes", "outside", "version"):
        assert getattr(again, name) == getattr(heat, name)


def test_an_unknown_suffix_a_missing_file_and_rubbish_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_map(tmp_path / "map.tif")
    with pytest.raises(InputError, match=r"\.parquet"):
        read_map(tmp_path / "map.png")
    for suffix in (".tif", ".parquet"):
        path = tmp_path / f"map{suffix}"
        path.write_bytes(b"rubbish")
        with pytest.raises(InputError, match="not readable") as caught:
            read_map(path)
        assert "\n" not in str(caught.value)


def test_somebody_elses_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "map.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"cell": [0], "users": [1.0]}), path)
    with pytest.raises(InputError, match="not a map that Mapveil wrote"):
        read_map(path)


def test_metadata_that_is_no_maps_is_refused(make_map: MakeMap, tmp_path: Path) -> None:
    path = tmp_path / "map.parquet"
    make_map().save(path)
    table = pyarrow.parquet.read_table(path)
    pyarrow.parquet.write_table(table.replace_schema_metadata({b"mapveil": b'{"method": "laplace"}'}), path)
    with pytest.raises(InputError, match="its metadata is not a map's"):
        read_map(path)
