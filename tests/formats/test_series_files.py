"""Series in files: every format gives back windows and measurements, so that each answers as before."""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

import mapveil as mv
from mapveil.engines import UserSums
from mapveil.formats.check_fits import check_fits
from mapveil.mechanisms.multiscale_series import MultiscaleSeries
from mapveil_client.errors import InputError

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)


@pytest.fixture(scope="module")
def series() -> mv.SeriesMap:
    rng = np.random.default_rng(1)
    west, south, east, north = REGION.bbox
    lon, lat = rng.uniform(west, east, 900), rng.uniform(south, north, 900)
    day = np.datetime64("2026-01-05") + rng.integers(0, 21, 900)
    points = mv.Points.from_arrays(np.arange(900) // 3, lon, lat, time=day)
    weeks = mv.Windows(every="1w", start="2026-01-05", until="2026-01-26")
    return mv.release_series(points, weeks, mv.Quadtree(REGION, depth=4), epsilon=2, account=None, rng=1)


@pytest.mark.parametrize("suffix", [".parquet", ".tif", ".geojson", ".csv", ".gpkg"])
def test_a_series_comes_back_from_its_file(series: mv.SeriesMap, suffix: str, tmp_path: Path) -> None:
    if suffix in (".tif", ".gpkg"):
        pytest.importorskip("rasterio" if suffix == ".tif" else "pyogrio")
    path = tmp_path / f"series{suffix}"
    series.save(path)
    found = mv.read_map(path)
    assert isinstance(found, mv.SeriesMap)
    assert found.windows == series.windows
    np.testing.assert_allclose(found.by_window, series.by_window, rtol=1e-9)
    np.testing.assert_allclose(found.values, series.values, rtol=1e-9)
    assert found.guarantee == series.guarantee
    for at in range(3):
        before, after = (each.window(at).measurements[0] for each in (series, found))
        assert np.abs(before.noisy - after.noisy).max() <= before.deviation() / 32
        assert before.half_width(0.05) == after.half_width(0.05)
    assert len(found.measurements) == len(series.measurements)


NAMES = ('x"y', "a\\b", "work, {play}: \u00fc", "users x", "\u00c4", "\u00e4", "STRASSE", "stra\u00dfe")


@pytest.mark.parametrize("suffix", [".parquet", ".tif", ".geojson", ".csv", ".gpkg"])
def test_categories_of_any_text_come_back(suffix: str, tmp_path: Path) -> None:
    if suffix in (".tif", ".gpkg"):
        pytest.importorskip("rasterio" if suffix == ".tif" else "pyogrio")
    kinds = np.array(NAMES)[np.arange(40) % len(NAMES)]
    points = mv.Points.from_arrays(np.arange(40), np.full(40, -74.0), np.full(40, 40.7), time=kinds)
    windows = mv.Windows(by="time", values=NAMES)
    made = mv.release_series(points, windows, mv.Quadtree(REGION, depth=2), epsilon=2, account=None, rng=1)
    check_fits(tmp_path / f"kinds{suffix}", made.tiling, NAMES)
    made.save(tmp_path / f"kinds{suffix}")
    found = mv.read_map(tmp_path / f"kinds{suffix}")
    assert isinstance(found, mv.SeriesMap)
    for name in NAMES:
        np.testing.assert_allclose(found.window(name).values, made.window(name).values, rtol=1e-9)


@pytest.mark.parametrize(
    ("time", "windows", "message"),
    [
        (["Work", "work"], {"by": "time", "values": ("Work", "work")}, "takes Work, work for one name"),
        (
            ["2026-01-05 08:00"] * 2,
            {"every": "1h", "start": "2026-01-05", "until": "2026-04-05", "zone": "UTC"},
            "1900 windows at most, got 2160",
        ),
    ],
)
def test_windows_that_a_geopackage_cannot_hold_are_refused_before_the_charge(
    time: list[str], windows: dict, message: str, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger.sqlite"
    account = mv.Account("people", ledger, outputs=(tmp_path / "a.gpkg",))
    points = mv.Points.from_arrays([1, 2], [-74.0] * 2, [40.7] * 2, time=time)
    with pytest.raises(InputError, match=message):
        mv.release_series(
            points, mv.Windows(**windows), mv.Quadtree(REGION, depth=2), epsilon=1, account=account
        )
    assert not ledger.exists() or mv.Ledger(ledger).entries() == ()


def test_a_table_has_a_column_for_every_window(series: mv.SeriesMap, tmp_path: Path) -> None:
    series.save(tmp_path / "series.parquet")
    names = pyarrow.parquet.read_schema(tmp_path / "series.parquet").names
    assert [name for name in names if name.startswith("users ")] == [
        "users 2026-W02",
        "users 2026-W03",
        "users 2026-W04",
    ]


def test_a_raster_has_a_band_for_every_window(series: mv.SeriesMap, tmp_path: Path) -> None:
    rasterio = pytest.importorskip("rasterio")
    series.save(tmp_path / "series.tif")
    with rasterio.open(tmp_path / "series.tif") as opened:
        assert opened.descriptions[-3:] == ("Users, 2026-W02", "Users, 2026-W03", "Users, 2026-W04")
        assert opened.read(opened.count).sum() == pytest.approx(series.by_window[2].sum())


def test_a_dataset_has_a_dimension_of_windows_with_cf_time(series: mv.SeriesMap, tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    made = series.to_xarray()
    assert made["users_by_window"].dims == ("window", "y", "x")
    assert made["users_by_window"].sel(window="2026-W03").sum() == pytest.approx(series.by_window[1].sum())
    assert made["users"].sum() == pytest.approx(series.values.sum())
    made.to_netcdf(tmp_path / "series.nc", engine="scipy")
    with xarray.open_dataset(tmp_path / "series.nc", engine="scipy") as read:
        assert read["time"].dt.strftime("%Y-%m-%d").values.tolist() == [
            "2026-01-05",
            "2026-01-12",
            "2026-01-19",
        ]
        np.testing.assert_allclose(read["users_by_window"], made["users_by_window"])


def test_a_page_lets_choose_the_window(series: mv.SeriesMap, tmp_path: Path) -> None:
    series.save(tmp_path / "series.html")
    assert "Users, 2026-W03" in (tmp_path / "series.html").read_text()


def test_a_page_has_a_slider_over_windows_of_one_scale(series: mv.SeriesMap) -> None:
    from mapveil.pictures.packed import packed
    from mapveil.pictures.scene_record import scene_record

    scene = scene_record(series)["scene"]
    windows = scene["windows"]
    assert windows["names"] == list(series.windows.names)
    layers = scene["layers"][windows["first"] :][:3]
    assert [layer["title"] for layer in layers] == [f"Users, {name}" for name in series.windows.names]
    assert {json.dumps(layer["scale"]) for layer in layers} == {json.dumps(layers[0]["scale"])}
    assert layers[0]["scale"]["top"] == pytest.approx(series.by_window.max(), rel=0.01)
    assert "windows" not in scene_record(series.window(0))["scene"]
    # What the picture of each window shows, and nothing finer.
    shown, scenes = windows["shown"], [series.window(at).scene() for at in range(3)]
    assert shown["readings"] == [scene.reading for scene in scenes]
    assert shown["unit"] == scenes[0].layers[0].unit == "users per km²"
    blocks = [scene.blocks for scene in scenes if scene.blocks is not None]
    of_patch, patch = unpacked(shown["blocks"]["of_cell"]).reshape(3, -1), unpacked(shown["patch"])
    np.testing.assert_array_equal(of_patch[:, patch], [each.of_cell for each in blocks])
    assert of_patch.shape[1] <= series.measured[0].noisy.size
    assert shown["start"] == packed(np.cumsum([0, *(each.users.size for each in blocks)]))
    drawn = [scene.layers[0].values for scene in scenes]
    assert shown["scale"]["top"] == pytest.approx(np.nanmax(drawn))


def test_a_page_has_its_windows_however_many_cells_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    from mapveil.pictures.page import page_html
    from mapveil.pictures.scene_record import scene_record

    tiling, weeks = (
        mv.Quadtree(REGION, depth=8),
        mv.Windows(every="1w", start="2026-01-05", until="2026-05-25"),
    )
    people = np.zeros((weeks.count, tiling.size), dtype=np.int64)
    people[:, :99] = 1 << 28
    mechanism = MultiscaleSeries(epsilon=4, windows=weeks)
    series = mechanism.release(UserSums(people, tiling), account=None, rng=1)
    assert series.by_window.size > 1 << 20
    record = scene_record(series)
    assert record["scene"]["windows"]["first"] == len(record["scene"]["layers"])
    assert len(record["scene"]["windows"]["shown"]["readings"]) == weeks.count
    assert "The windows are left out" in record["left_out"]
    monkeypatch.setattr("mapveil.pictures.window_record.MOST_SHOWN", 19)
    with pytest.warns(
        UserWarning, match="the page has no windows.*'mapveil ask --window' makes a page of one"
    ):
        page = page_html(series)
    assert "The single windows do not fit this page" in page
    assert re.search(r"they are at least \d+ numbers, above 19\.", page)
    assert f"all windows together: {weeks}" in page


def unpacked(packed: dict[str, str]) -> np.ndarray:
    planes = np.frombuffer(zlib.decompress(base64.b64decode(packed["data"])), np.uint8)
    return planes.reshape(4, -1).T.copy().view("<i4").ravel()


def test_a_picture_shows_the_windows_side_by_side(series: mv.SeriesMap, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from mapveil.formats.read_record import read_record
    from mapveil.pictures.window_pictures import plot_windows

    series.save(tmp_path / "series.png")
    assert read_record(tmp_path / "series.png")["window_names"] == list(series.windows.names)
    figure = plot_windows(series, columns=2).figure
    shown = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert shown == list(series.windows.names)
    head = " ".join(figure.get_suptitle().split())
    assert "NOT FOR RELEASE" in head
    assert (
        "users per km²; over all windows together each user counts 1. Hatched: in each part, nobody or too few to tell."
        in head
    )
    assert f"multiscale-series, {series.guarantee.promise.label}" in head
    assert series.provenance.date in head
    titled = replace(series, title="Visits of $2026", subtitle="Three weeks")
    assert plot_windows(titled).figure.get_suptitle().startswith("Visits of $2026\nThree weeks\n")
    limits = {axes.images[0].norm.vmax for axes in figure.axes if axes.images}
    assert len(limits) <= 1, "panels have different scales"


@pytest.mark.parametrize("suffix", [".webp", ".gif"])
def test_an_animation_shows_every_window_and_carries_the_promise(
    series: mv.SeriesMap, suffix: str, tmp_path: Path
) -> None:
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("matplotlib")
    path = tmp_path / f"series{suffix}"
    series.save(path)
    with image.open(path) as found:
        assert (found.n_frames, found.is_animated) == (3, True)
        said = found.getexif()[0x010E] if suffix == ".webp" else found.info["comment"].decode()
        assert "NOT FOR RELEASE" in said
        shown = []
        for frame in range(3):
            found.seek(frame)
            shown.append(found.convert("RGB").tobytes())
    assert len(set(shown)) == 3


def test_no_picture_of_more_windows_than_it_can_show(series: mv.SeriesMap, tmp_path: Path) -> None:
    days = mv.Windows(every="1d", start="2026-01-05", until="2026-05-06")
    long = replace(series, windows=days, by_window=np.zeros((121, series.tiling.size)), measured=())
    with pytest.raises(InputError, match="at most 120 windows are drawn, got 121"):
        long.save(tmp_path / "days.png")
    with pytest.raises(InputError, match="at most 120 windows are drawn, got 121"):
        long.save(tmp_path / "days.webp")
    assert list(tmp_path.iterdir()) == []


def test_a_window_that_a_file_lost_is_an_error_and_no_crash(series: mv.SeriesMap, tmp_path: Path) -> None:
    path = tmp_path / "series.parquet"
    series.save(path)
    table = pyarrow.parquet.read_table(path)
    for changed in (
        table.drop_columns(["users 2026-W03"]),
        table.replace_schema_metadata(
            {**table.schema.metadata, b"mapveil": _more_windows(table.schema.metadata[b"mapveil"])}
        ),
    ):
        pyarrow.parquet.write_table(changed, path)
        with pytest.raises(InputError, match="metadata is not a map's"):
            mv.read_map(path)


def _more_windows(text: bytes) -> bytes:
    record = json.loads(text)
    record["windows"]["until"] = "2026-02-02"
    return json.dumps(record).encode()
