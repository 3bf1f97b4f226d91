"""read_counts: archives and GeoTIFF, whole users, where the raster lies, bad input in one line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mapveil.geo.counts import read_counts, whole_users
from mapveil.geo.region import Region
from mapveil_client.errors import InputError

VALUES = np.array([[1, 2, 3], [4, 5, 6]], dtype=np.uint8)
EDGES: dict[str, Any] = {"west": 103.0, "south": 1.0, "east": 106.0, "north": 3.0, "crs": "EPSG:4326"}
NORTH_UP = (1.0, 0.0, 103.0, 0.0, -1.0, 3.0)
SKEWED = (1.0, 0.5, 103.0, 0.5, -1.0, 3.0)


def archive(folder: Path, **arrays: Any) -> Path:
    np.savez(folder / "a.npz", **arrays)
    return folder / "a.npz"


def geotiff(
    folder: Path, values: np.ndarray = VALUES, transform: tuple[float, ...] = NORTH_UP, **profile: Any
) -> Path:
    rasterio = pytest.importorskip("rasterio")
    bands = values if values.ndim == 3 else values[None]
    placed = {"crs": "EPSG:4326", "transform": rasterio.Affine(*transform)}
    made = {"driver": "GTiff", "height": 2, "width": 3, "count": bands.shape[0], "dtype": values.dtype}
    with rasterio.open(folder / "a.tif", "w", **{**made, **placed, **profile}) as raster:
        raster.write(bands)
    return folder / "a.tif"


def test_an_archive_without_a_place(tmp_path: Path) -> None:
    counts = read_counts(archive(tmp_path, values=VALUES))
    assert counts.values.tolist() == [1, 2, 3, 4, 5, 6]
    assert counts.values.dtype == np.int64
    assert (counts.tiling.spec, counts.tiling.region.georeferenced) == ("grid:2x3", False)
    np.save(tmp_path / "a.npy", VALUES)
    assert read_counts(tmp_path / "a.npy").fingerprint() == counts.fingerprint()


def test_row_0_is_the_northmost(tmp_path: Path) -> None:
    for path in (archive(tmp_path, values=VALUES, **EDGES), geotiff(tmp_path)):
        counts = read_counts(path)
        cell = counts.tiling.locate(np.array([103.5, 105.5]), np.array([2.5, 1.5]))
        assert counts.values[cell].tolist() == [1, 6]
        assert counts.tiling.region.bbox == (103.0, 1.0, 106.0, 3.0)


def test_metres_stay_metres(tmp_path: Path) -> None:
    edges = {"west": 6e5, "south": 4.6e6, "east": 6.03e5, "north": 4.602e6}
    counts = read_counts(archive(tmp_path, values=VALUES, **edges, crs="EPSG:26918"))
    assert counts.tiling.region.bounds_m == (6e5, 4.6e6, 6.03e5, 4.602e6)
    assert read_counts(archive(tmp_path, values=VALUES, **edges), crs="EPSG:26918").tiling == counts.tiling


def test_the_array_is_chosen(tmp_path: Path) -> None:
    assert read_counts(archive(tmp_path, people=VALUES, note=np.arange(3))).values.sum() == 21
    both = archive(tmp_path, a=VALUES, b=VALUES * 2)
    assert read_counts(both, key="b").values.sum() == 42
    assert read_counts(archive(tmp_path, a=VALUES, values=VALUES * 3)).values.sum() == 63


def test_a_region_given_wins(tmp_path: Path) -> None:
    region = Region.from_bbox(0, 0, 3, 2)
    assert read_counts(archive(tmp_path, values=VALUES, **EDGES), region=region).tiling.region is region


def test_no_data_is_nobody(tmp_path: Path) -> None:
    real = np.array([[np.nan, 2, 3], [4, 5, 6]], dtype=np.float32)
    assert read_counts(archive(tmp_path, values=real)).values.tolist() == [0, 2, 3, 4, 5, 6]
    assert read_counts(geotiff(tmp_path, real)).values.tolist() == [0, 2, 3, 4, 5, 6]
    assert read_counts(geotiff(tmp_path, nodata=6)).values.tolist() == [1, 2, 3, 4, 5, 0]


reals = hnp.arrays(np.float64, hnp.array_shapes(max_dims=2, max_side=6), elements=st.floats(0, 1e6))


@given(reals)
def test_rounding_keeps_the_sum_and_moves_no_value_by_one(values: np.ndarray) -> None:
    whole = whole_users(values)
    assert whole.shape == values.shape
    assert np.all(np.abs(whole - values) < 1)
    assert abs(whole.sum() - values.sum()) <= 0.5 + 1e-6 * values.size
    np.testing.assert_array_equal(whole_users(np.round(values)), np.round(values))


@given(reals, st.data())
def test_one_user_more_is_exactly_one_more(values: np.ndarray, data: st.DataObject) -> None:
    values = np.round(
        values, data.draw(st.integers(1, 6))
    )  # as a file has them: 0.3 + 1 is not 1.3 in floats
    at = data.draw(st.integers(0, values.size - 1))
    more = values.copy()
    more.reshape(-1)[at] = round(more.reshape(-1)[at] + 1, 6)
    difference = whole_users(more) - whole_users(values)
    assert np.abs(difference).sum() == 1
    assert difference.reshape(-1)[at] == 1


def test_one_user_more_among_equal_remainders_moves_no_other_cell() -> None:
    values = np.full(11, 0.3)
    for at in range(values.size):
        more = values.copy()
        more[at] = 1.3
        assert np.abs(whole_users(more) - whole_users(values)).sum() == 1


def text(name: str, content: bytes = b"nothing") -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return make


def cut(make: Callable[[Path], Path]) -> Callable[[Path], Path]:
    def made(folder: Path) -> Path:
        path = make(folder)
        path.write_bytes(path.read_bytes()[:-100])
        return path

    return made


def values(*rows: Any, **more: Any) -> Callable[[Path], Path]:
    return lambda folder: archive(folder, values=np.array(rows), **more)


BAD: dict[str, tuple[Callable[[Path], Path], dict[str, Any], str]] = {
    "missing": (lambda folder: folder / "none.npz", {}, "no such file; expected a raster of counts"),
    "folder": (lambda folder: folder, {}, "is a folder"),
    "suffix": (text("a.png"), {}, r"\.png is not known; expected a raster of counts \(\.npz"),
    "no archive": (text("a.npz"), {}, "not a complete NumPy file"),
    "empty archive": (text("a.npz", b""), {}, "not a complete NumPy file"),
    "cut archive": (cut(values([1, 2])), {}, "not a complete NumPy file"),
    "objects": (values([None, {}]), {}, "not a complete NumPy file"),
    "no GeoTIFF": (text("a.tif"), {}, "not a complete GeoTIFF"),
    "negative": (
        values([1, 2], [3, -4]),
        {},
        r"row 1, column 1 \(from 0 in the north-west\) is -4; expected an amount",
    ),
    "infinite": (values([1.0, np.inf]), {}, "row 0, column 1 .* is inf"),
    "too large": (values([2.0**41]), {}, "row 0, column 0 .* 0 to 2"),
    "too many": (values([2.0**33] * 3), {}, "more than 2.34 users in all"),
    "text": (values(["a", "b"]), {}, "values of type <U1; expected numbers"),
    "one dimension": (
        lambda folder: archive(folder, values=np.arange(3)),
        {},
        r"shape \(3,\); expected two dimensions",
    ),
    "no cells": (lambda folder: archive(folder, values=np.zeros((0, 3))), {}, "two dimensions"),
    "no such key": (values([1]), {"key": "people"}, "no array 'people'; its arrays are 'values'"),
    "two arrays": (
        lambda folder: archive(folder, a=VALUES, b=VALUES),
        {},
        "2 arrays .* 'a', 'b'; expected one, or key=NAME",
    ),
    "no arrays": (archive, {}, "0 arrays of two dimensions among none"),
    "edges": (values([1], **{**EDGES, "west": [1, 2]}), {}, "west, south, east and north must be one number"),
    "empty box": (values([1], **{**EDGES, "west": 107}), {}, "west|antimeridian"),
    "unknown crs": (values([1], **{**EDGES, "crs": "EPSG:0"}), {}, "EPSG:0"),
    "two bands": (
        lambda folder: geotiff(folder, np.stack([VALUES, VALUES])),
        {},
        "2 bands; expected a raster of one",
    ),
    "turned": (
        lambda folder: geotiff(folder, transform=SKEWED),
        {},
        "turned or flipped; expected a north-up",
    ),
    "polygon": (
        values([1]),
        {
            "region": Region.from_polygon(
                {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [0, 1], [0, 0]]]}
            )
        },
        "a raster covers a box",
    ),
}


@pytest.mark.parametrize(("make", "options", "expected"), BAD.values(), ids=BAD.keys())
def test_a_bad_raster_is_one_line(
    make: Callable[[Path], Path], options: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        read_counts(make(tmp_path), **options)
    message = str(caught.value)
    assert "\n" not in message
    assert re.search(expected, message), message


def test_the_shared_rasters_agree_with_each_other() -> None:
    folder = Path(__file__).resolve().parents[2] / "../shared/data"
    if not (folder / "population_singapore_100m.npz").exists():
        pytest.skip("no ../shared/data beside the repository")
    first = read_counts(folder / "population_singapore_100m.npz")
    second = read_counts(folder / "population_singapore_100m.tif")
    np.testing.assert_array_equal(first.values, second.values)
    assert first.values.sum() == 5_399_000  # the national total
    np.testing.assert_allclose(first.tiling.region.bbox, second.tiling.region.bbox, atol=1e-7)
    assert read_counts(folder / "manhattan_luminosity_1024.npz").values.sum() == 54_565_579
