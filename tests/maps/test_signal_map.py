"""Coverage maps: means and their deviations against cell-by-cell oracles, holes, exports that come back."""

from __future__ import annotations

import base64
import csv
import json
import re
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.formats.read_map import read_map
from mapveil.geo.grid import Grid
from mapveil.geo.hexagons import Hexagons
from mapveil.geo.measurements import Measurements
from mapveil.geo.region import Region
from mapveil.geo.web_mercator import WebMercatorTiles
from mapveil.maps.frame import raster_frame
from mapveil.maps.signal_map import SignalMap
from mapveil.pictures.colours import layer_scale
from mapveil.pictures.page import page_html
from mapveil.privacy.claim import Adversary, TrustModel, Unit
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.errors import InputError, ParameterError

REGION = Region.from_bbox(24.0, 35.5, 24.04, 35.53)
TILINGS: dict[str, Callable[[], Any]] = {
    "grid": lambda: Grid(REGION, rows=6, columns=8),
    "hexagons": lambda: Hexagons(REGION, resolution=8),
    "tiles": lambda: WebMercatorTiles(REGION, zoom=15),
}
PROMISE = Guarantee(model=TrustModel.OBFUSCATION, epsilon=None, unit=Unit.REPORT, adversary=Adversary.REPORTS)


def measured(count: int = 400, *, seed: int = 1, spread: float = 6.0) -> Measurements:
    draw = np.random.default_rng(seed)
    rows = np.stack(
        [
            draw.uniform(35.497, 35.52, count),  # some south of the region, and nobody in its north
            draw.uniform(24.0, 24.04, count),
            np.round(-95 + spread * draw.normal(size=count)),
        ],
        axis=1,
    )
    names = ("lat", "lon", "rss_dbm")
    return Measurements(rows, names, np.zeros(count, dtype=np.int64), ("a",), None, np.arange(count))


@pytest.fixture(params=list(TILINGS))
def signal(request) -> SignalMap:
    return SignalMap.from_measurements(measured(), TILINGS[request.param](), PROMISE, hole_dbm=-97)


def test_means_and_deviations_cell_by_cell() -> None:
    data, tiling = measured(), TILINGS["grid"]()
    found = SignalMap.from_measurements(data, tiling, PROMISE)
    cell = tiling.locate(data.rows[:, 1], data.rows[:, 0])
    groups = {c: data.rows[cell == c, 2] for c in range(tiling.size)}
    squares = sum(float(((x - x.mean()) ** 2).sum()) for x in groups.values() if len(x))
    pooled = squares / sum(len(x) - 1 for x in groups.values() if len(x))
    for c, x in groups.items():
        assert found.measurements[c] == len(x)
        if not len(x):
            assert np.isnan(found.mean_dbm[c])
            assert np.isnan(found.deviation_db[c])
            continue
        assert found.mean_dbm[c] == pytest.approx(x.mean())
        variance = (((x - x.mean()) ** 2).sum() + 4 * pooled) / (len(x) - 1 + 4)
        assert found.deviation_db[c] == pytest.approx((variance / len(x)) ** 0.5)
    outside = int((cell < 0).sum())
    assert outside > 0
    assert found.notes == (f"{outside} of 400 measurements lie outside the region",)


def test_the_deviation_is_that_of_the_mean() -> None:
    tiling = TILINGS["grid"]()
    means, deviations = [], []
    for seed in range(60):
        data = measured(300, seed=seed)
        # The same places each time: only the strengths differ.
        found = SignalMap.from_measurements(
            data.with_rows(np.column_stack([measured(300).rows[:, :2], data.rows[:, 2]])), tiling, PROMISE
        )
        means.append(found.mean_dbm)
        deviations.append(found.deviation_db)
    known = np.isfinite(means[0])
    ratio = np.std(means, axis=0)[known] / np.mean(deviations, axis=0)[known]
    assert ratio.mean() == pytest.approx(1, abs=0.1)


def test_few_measurements_are_unknown_and_strange_places_are_outside() -> None:
    data, tiling = measured(60), TILINGS["grid"]()
    rows = np.vstack([data.rows, [[95.0, 24.01, -80.0], [35.51, 400.0, -80.0]]])
    strange = Measurements(
        rows, data.names, np.zeros(62, dtype=np.int64), ("a",), None, np.arange(62, dtype=np.int64)
    )
    found = SignalMap.from_measurements(strange, tiling, PROMISE, least=3)
    assert (found.known == (found.measurements >= 3)).all()
    assert found.measurements.sum() < 62
    with pytest.raises(ParameterError, match="least"):
        SignalMap.from_measurements(data, tiling, PROMISE, least=0)


def test_one_measurement_and_none() -> None:
    tiling = TILINGS["grid"]()
    one = SignalMap.from_measurements(measured().take(np.array([0])), tiling, PROMISE)
    assert one.coverage() == (
        int(one.mean_dbm[one.known][0] >= -110),
        int(one.mean_dbm[one.known][0] < -110),
        47,
    )
    none = SignalMap.from_measurements(measured().take(np.arange(0)), tiling, PROMISE)
    assert none.coverage() == (0, 0, 48)
    scale = layer_scale(none.columns()[0])
    assert scale.top > scale.low
    assert none.plot().get_title(loc="left")


@given(st.floats(-130, -60), st.integers(0, 1000))
def test_coverage_adds_up_and_holes_grow_with_the_limit(limit: float, seed: int) -> None:
    found = SignalMap.from_measurements(measured(80, seed=seed), TILINGS["grid"](), PROMISE, hole_dbm=limit)
    assert sum(found.coverage()) == found.tiling.size
    higher = replace(found, hole_dbm=limit + 3)
    assert (found.holes <= higher.holes).all()
    chance = found.hole_chance()
    assert (np.isnan(chance) == ~found.known).all()
    assert (chance[found.holes] >= 0.5).all()
    assert (chance[found.known & ~found.holes] <= 0.5).all()
    assert (higher.hole_chance()[found.known] >= chance[found.known]).all()


def test_a_certain_mean_is_a_hole_or_is_not() -> None:
    tiling = Grid(REGION, rows=1, columns=3)
    counts = np.array([5, 5, 0])
    mean, deviation = np.array([-111.0, -109.0, np.nan]), np.array([0.0, 0.0, np.nan])
    found = SignalMap(mean, deviation, counts, tiling, PROMISE, "by hand")
    np.testing.assert_array_equal(found.hole_chance(), [1, 0, np.nan])


def test_predictions_reach_as_far_as_measurements_do() -> None:
    tiling, data = TILINGS["grid"](), measured()
    mean, deviation = np.full(tiling.size, -90.0), np.full(tiling.size, 3.0)
    everywhere = SignalMap.from_prediction(mean, deviation, data, tiling, PROMISE, "model")
    assert everywhere.coverage().unknown == 0
    near = SignalMap.from_prediction(mean, deviation, data, tiling, PROMISE, "model", reach_m=400)
    centres = tiling.centres()
    from pyproj import Geod

    away = [
        Geod(ellps="WGS84")
        .inv(np.full(400, lon), np.full(400, lat), data.rows[:, 1], data.rows[:, 0])[2]
        .min()
        for lon, lat in zip(centres.lon, centres.lat, strict=True)
    ]
    expected = (np.array(away) <= 400) | (near.measurements > 0)
    assert 0 < expected.sum() < tiling.size
    clear = np.abs(np.array(away) - 400) > 4  # the map measures on a sphere
    np.testing.assert_array_equal(near.known[clear], expected[clear])
    assert near.parameters["reach_m"] == 400
    assert near.deviation_of == "one new measurement"
    with pytest.raises(ParameterError, match="reach_m"):
        SignalMap.from_prediction(mean, deviation, data, tiling, PROMISE, "model", reach_m=0)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.floats(-130, -60), st.floats(0.1, 20)), min_size=1, max_size=12))
def test_at_most_one_in_twenty_of_the_holes_that_are_told_is_expected_to_be_covered(
    cells: list[tuple[float, float]],
) -> None:
    tiling = Grid(REGION, rows=1, columns=len(cells))
    mean, deviation = (np.array(column) for column in zip(*cells, strict=True))
    found = SignalMap(mean, deviation, np.ones(len(cells), dtype=np.int64), tiling, PROMISE, "by hand")
    told, wrong = found.holes_told(), 1 - found.hole_chance()
    assert not (told & ~found.holes).any()
    if told.any():
        assert wrong[told].mean() <= 0.05 + 1e-12
    rest = found.holes & ~told
    if rest.any():  # one more would be too many, and the surest are taken first
        assert (wrong[told].sum() + wrong[rest].min()) / (told.sum() + 1) > 0.05
        assert not told.any() or wrong[told].max() <= wrong[rest].min()


def test_what_nobody_measured_or_may_be_covered_has_a_mark_of_its_own() -> None:
    tiling = Grid(REGION, rows=1, columns=5)
    mean = np.array([-125.0, -111.0, -90.0, -90.0, np.nan])
    deviation, counts = np.array([2.0, 9.0, 2.0, 2.0, np.nan]), np.array([3, 3, 3, 0, 0])
    found = SignalMap(mean, deviation, counts, tiling, PROMISE, "by hand")
    scene = found.scene()
    assert found.holes_told().tolist() == [True, False, False, False, False]
    assert scene.hatched is not None
    assert scene.hatched.tolist() == [False, False, False, True, False]
    assert scene.unsure is not None
    assert scene.unsure.tolist() == [False, True, False, False, False]
    assert scene.doubt == "Hatched: extrapolated, nobody is known to have measured"
    assert scene.dotted == "Dotted: estimated to be a hole, not told from covered ground"
    assert found.unmeasured.sum() == 1
    named = {layer.name: layer.values for layer in found.columns()}
    np.testing.assert_allclose(named["high_dbm"] - named["low_dbm"], 2 * 1.959964 * deviation, rtol=1e-6)
    sums = replace(found, extrapolated=np.array([True, False, False, False, False]))
    assert sums.unmeasured.tolist() == [True, False, False, False, False]
    pytest.importorskip("matplotlib")
    axes = found.plot()
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == [scene.doubt, scene.dotted, "Orange: hole, below -110 dBm"]
    assert (
        "2 cells covered (40 %), 1 of them measured and 1 extrapolated; 2 holes (below -110 dBm), "
        in scene.reading
    )
    assert "1 of them told from covered ground (orange)" in scene.reading
    one = replace(found, mean_dbm=np.array([-125.0, -90.0, -90.0, -90.0, np.nan]))
    assert "; 1 hole (below " in one.scene().reading
    plain = SignalMap.from_measurements(measured(), tiling, PROMISE, hole_dbm=-300)
    assert plain.scene().hatched is None
    assert plain.scene().unsure is None


def test_geotiff_comes_back(tmp_path: Path) -> None:
    rasterio = pytest.importorskip("rasterio")
    signal = SignalMap.from_measurements(measured(), TILINGS["grid"](), PROMISE, hole_dbm=-97)
    signal.save(tmp_path / "a.tif")
    with rasterio.open(tmp_path / "a.tif") as file:
        frame = raster_frame(signal.tiling)
        assert frame is not None
        for band, layer in enumerate(signal.columns(), start=1):
            np.testing.assert_array_equal(frame.cells(file.read(band)), layer.values)
        assert file.descriptions[0] == "mean signal strength"
        assert file.units[0] == "dBm"
        assert file.count == 7
        tags = file.tags()
    metadata = json.loads(tags["MAPVEIL"])
    assert metadata == json.loads(signal.metadata_json())
    assert metadata["guarantee"]["model"] == "obfuscation"


def test_geoparquet_comes_back(signal: SignalMap, tmp_path: Path) -> None:
    from pyarrow import parquet

    signal.save(tmp_path / "a.parquet")
    table = parquet.read_table(tmp_path / "a.parquet")
    for layer in signal.columns():
        np.testing.assert_array_equal(table[layer.name].to_numpy(), layer.values)
    assert json.loads(table.schema.metadata[b"mapveil"]) == json.loads(signal.metadata_json())
    assert json.loads(table.schema.metadata[b"geo"])["version"] == "1.1.0"


def test_geojson_comes_back(signal: SignalMap, tmp_path: Path) -> None:
    signal.save(tmp_path / "a.geojson")
    read = json.loads((tmp_path / "a.geojson").read_text())
    assert read["mapveil"] == {**json.loads(signal.metadata_json()), "empty_cells_left_out": False}
    assert len(read["features"]) == signal.tiling.size
    for cell, feature in enumerate(read["features"]):
        strength = feature["properties"]["rss_dbm"]
        assert (strength is None) == (not signal.known[cell])
        if strength is not None:
            assert strength == pytest.approx(signal.mean_dbm[cell])
            assert feature["properties"]["hole"] == signal.holes[cell]


def test_csv_comes_back_with_its_metadata_beside_it(signal: SignalMap, tmp_path: Path) -> None:
    signal.save(tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    known = np.array([row["rss_dbm"] != "" for row in rows])
    np.testing.assert_array_equal(known, signal.known)
    strengths = [float(row["rss_dbm"]) for row in rows if row["rss_dbm"]]
    np.testing.assert_allclose(strengths, signal.mean_dbm[signal.known])
    assert json.loads((tmp_path / "a.csv-metadata.json").read_text()) == json.loads(signal.metadata_json())


def test_the_picture_says_what_it_shows(signal: SignalMap, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    signal = replace(signal, title="Coverage", deviation_db=signal.deviation_db / 100)  # every hole is told
    axes = signal.plot()
    words = " ".join(" ".join(text.get_text() for text in axes.texts).split())
    coverage = signal.coverage()
    assert f"{coverage.holes} hole{'' if coverage.holes == 1 else 's'} (below -97 dBm)" in words
    assert "told from covered ground (orange)" in words
    assert f"{coverage.unknown} unknown (left blank)" in words
    signal.save(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert b"mapveil" in (tmp_path / "a.png").read_bytes()


def unpacked(packed: dict[str, str]) -> np.ndarray:
    planes = np.frombuffer(zlib.decompress(base64.b64decode(packed["data"])), np.uint8).reshape(4, -1)
    return np.ascontiguousarray(planes.T).view(f"<{packed['type']}").ravel()


def test_the_page_holds_every_number(signal: SignalMap) -> None:
    signal = replace(signal, title="A <b>title</b>", deviation_db=signal.deviation_db / 100)
    text = page_html(signal)
    assert "A &lt;b&gt;title&lt;/b&gt;" in text
    found = re.search(r'<script type="application/json" id="scene">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    record = json.loads(found.group(1))
    scene = record["scene"]
    assert scene["bounds"] is None
    assert scene["layers"][0]["scale"]["under"].startswith("#")
    assert scene["layers"][0]["scale"]["low"] == -97
    for layer, shown in zip(signal.columns(), scene["layers"], strict=True):
        np.testing.assert_allclose(unpacked(shown["values"]), layer.values, rtol=2e-4, atol=1e-6)
    assert record["metadata"] == json.loads(signal.metadata_json())
    assert "{{" not in text.split("<script")[0]


def test_the_scale_spans_what_is_covered() -> None:
    signal = SignalMap.from_measurements(measured(), TILINGS["grid"](), PROMISE, hole_dbm=-97)
    scale = layer_scale(signal.columns()[0])
    assert scale.low == -97
    assert signal.mean_dbm[signal.known].max() <= scale.top + 0.5
    assert scale.fraction([scale.low, scale.top]).tolist() == [0, 1]
    ticks = scale.ticks()
    assert ticks[0] >= scale.low
    assert ticks[-1] <= scale.top
    assert len(ticks) >= 3
    assert layer_scale(replace(signal, hole_dbm=-130.0).columns()[0]).low > -130


def test_wrong_arrays_and_files_are_refused(tmp_path: Path) -> None:
    tiling = Grid(REGION, rows=1, columns=2)
    good = (np.array([-90.0, np.nan]), np.array([1.0, np.nan]), np.array([3, 0]))
    for at, bad, said in (
        (0, np.zeros(3), "mean_dbm must be an array of shape"),
        (1, np.array([1.0, 1.0]), "in the same cells"),
        (1, np.array([-1.0, np.nan]), "negative"),
        (0, np.array([np.inf, np.nan]), "in the same cells"),
    ):
        arrays = list(good)
        arrays[at] = bad
        with pytest.raises(ParameterError, match=said):
            SignalMap(*arrays, tiling, PROMISE, "by hand")
    signal = SignalMap(*good, tiling, PROMISE, "by hand")
    with pytest.raises(ParameterError, match="hole_dbm"):
        replace(signal, hole_dbm=np.nan)
    with pytest.raises(InputError, match="the suffix must be one of"):
        signal.save(tmp_path / "a.shp")
    hexagons = SignalMap.from_measurements(measured(), TILINGS["hexagons"](), PROMISE)
    with pytest.raises(InputError, match="GeoTIFF holds a raster"):
        hexagons.save(tmp_path / "a.tif")
    assert not list(tmp_path.iterdir())
    assert "SignalMap(by hand" in repr(signal)


@pytest.mark.parametrize("suffix", [".tif", ".parquet"])
def test_it_is_not_taken_for_a_map_of_users(tmp_path: Path, suffix: str) -> None:
    signal = SignalMap.from_measurements(measured(), TILINGS["grid"](), PROMISE)
    signal.save(tmp_path / f"a{suffix}")
    with pytest.raises(InputError, match="must be a map of users, got a map of signal strength"):
        read_map(tmp_path / f"a{suffix}")


def test_a_notebook_shows_picture_and_promise() -> None:
    shown = SignalMap.from_measurements(measured(), TILINGS["grid"](), PROMISE)._repr_html_()
    assert "<img" in shown
    assert "NOT differential privacy" in shown


def test_error_at_true_measurements() -> None:
    data, tiling = measured(), TILINGS["grid"]()
    signal = SignalMap.from_measurements(data, tiling, PROMISE, least=2)
    cell = tiling.locate(data.rows[:, 1], data.rows[:, 0])
    off = [
        signal.mean_dbm[c] - strength
        for c, strength in zip(cell, data.rows[:, 2], strict=True)
        if c >= 0 and signal.known[c]
    ]
    assert signal.rmse_dbm(data) == pytest.approx(np.sqrt(np.mean(np.square(off))))
    assert np.isnan(signal.rmse_dbm(data.take(np.arange(0))))


def test_no_hole_is_told_by_extrapolation_or_against_the_measurements_of_a_cell() -> None:
    tiling = Grid(REGION, rows=1, columns=3)
    centres = tiling.centres()
    rows = np.column_stack([centres.lat[:2], centres.lon[:2], [-120.0, -80.0]])
    data = Measurements(
        rows, ("lat", "lon", "rss"), np.zeros(2, dtype=np.int64), ("ann",), None, np.arange(2)
    )
    far_off, sure = np.full(3, -140.0), np.full(3, 2.0)
    found = SignalMap.from_prediction(far_off, sure, data, tiling, PROMISE, "path-loss")
    assert found.holes.all()
    assert found.holes_told().tolist() == [True, False, False]
