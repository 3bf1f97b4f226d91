"""``mapveil signal map``: privatized and raw files, models, and input that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import mapveil as mv
from mapveil.maps.signal_map import SignalMap

BOX = "24.0,35.5,24.04,35.53"


@pytest.fixture(scope="module")
def phones(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Measurements of four users, stronger in the east."""
    import pandas as pd

    draw = np.random.default_rng(1)
    lat, lon = draw.uniform(35.5, 35.53, 800), draw.uniform(24.0, 24.04, 800)
    strength = np.round(-100 + 1000 * (lon - 24.0) + draw.normal(0, 3, 800)).astype(int)
    path = tmp_path_factory.mktemp("phones") / "phones.parquet"
    table = {
        "user_id": np.arange(800) % 4,
        "lat": lat,
        "lon": lon,
        "rss_dbm": strength,
        "tower": (lon > 24.02) + 5,
    }
    pd.DataFrame(table).to_parquet(path)
    return path


@pytest.mark.parametrize("model", ["cells", "linear", "path-loss"])
def test_a_map_of_raw_measurements_promises_nothing(
    mapveil, phones: Path, tmp_path: Path, model: str
) -> None:
    out = tmp_path / "map.csv"
    done = mapveil(
        "signal", "map", phones, "--region", BOX, "--tiling", "grid:6x8", "--model", model, "--hole", -90,
        "--truth", phones, "-o", out, "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert record["guarantee"]["disclosure"] == {"kind": "undocumented"}
    assert record["guarantee"]["epsilon"] is None
    plain = mapveil(
        "signal", "map", phones, "--region", BOX, "--tiling", "grid:6x8", "-o", tmp_path / "a.csv"
    )
    assert "is privatized before it is sent" not in plain.out
    assert "unknown: the server may hold every measurement as it was" in plain.out
    assert record["coverage"]["holes"] > 5
    assert record["rmse_db"] < 6
    assert "NOT KNOWN TO BE PRIVATE: nothing says that the measurements were privatized" in done.err
    assert "taken from true measurements: it is NOT private" in done.err
    assert record["provenance"]["function"] == "signal map"
    assert record["provenance"]["columns"].keys() == {"lat", "lon", "rss"}
    beside = Path(f"{out}-metadata.json")
    assert record["outputs"] == [str(out), str(beside)]
    assert str(phones.parent) not in beside.read_text()


def test_a_map_of_privatized_measurements_carries_their_guarantee(
    mapveil, phones: Path, tmp_path: Path
) -> None:
    fitted, private = tmp_path / "noise.mapveil", tmp_path / "private.parquet"
    done = mapveil(
        "signal", "fit", phones, "--privatizer", "local-gaussian", "--option", "epsilon=8", "--option", "delta=1e-5",
        "-o", fitted,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert mapveil("signal", "privatize", fitted, phones, "-o", private).code == 0
    outputs = [tmp_path / f"map{suffix}" for suffix in SignalMap.suffixes if suffix not in (".tiff", ".json")]
    named = [part for output in outputs for part in ("-o", output)]
    done = mapveil("signal", "map", private, "--region", BOX, "--tiling", "quadtree:4", *named)
    assert done.code == 0, done.err
    assert "8" in done.out
    assert "lie outside the region" in done.out
    metadata = json.loads((tmp_path / "map.csv-metadata.json").read_text())
    assert metadata["guarantee"]["model"] == "obfuscation"
    assert metadata["guarantee"]["epsilon"] is not None
    assert all(output.stat().st_size > 100 for output in outputs)


def test_reports_may_set_the_region_and_raw_rows_may_not(mapveil, phones: Path, tmp_path: Path) -> None:
    fitted, private = tmp_path / "noise.mapveil", tmp_path / "private.parquet"
    options = ("--privatizer", "gaussian-noise", "--option", "sigma=0.1", "-o", fitted)
    assert mapveil("signal", "fit", phones, *options).code == 0
    assert mapveil("signal", "privatize", fitted, phones, "-o", private, "-o", tmp_path / "p.csv").code == 0
    out = tmp_path / "map.csv"
    done = mapveil("signal", "map", private, "--tiling", "grid:5x5", "-o", out, "--json")
    assert done.code == 0, done.err
    assert "NOT private" not in done.err
    west, south, east, north = json.loads(done.out)["tiling"]["region"]["bbox"]
    assert west == pytest.approx(24.0, abs=0.005)
    assert east == pytest.approx(24.04, abs=0.005)
    assert south == pytest.approx(35.5, abs=0.005)
    assert north == pytest.approx(35.53, abs=0.005)
    out.unlink()
    # A CSV file says that it was privatized in the file beside it; raw rows would tell where the outermost of them lie.
    assert mapveil("signal", "map", tmp_path / "p.csv", "--tiling", "grid:5x5", "-o", out).code == 0
    out.unlink()
    (tmp_path / "p.csv-metadata.json").unlink()
    for source in (phones, tmp_path / "p.csv"):
        done = mapveil("signal", "map", source, "-o", out)
        assert done.code == 2
        assert "must not be taken from measurements that were not privatized" in done.err
        assert not out.exists()


def test_reports_of_one_place_set_no_region(mapveil, phones: Path, tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    from mapveil.obfuscation.privatized_file import METADATA_KEY, ROWS_KEY

    fitted, private = tmp_path / "noise.mapveil", tmp_path / "private.parquet"
    options = ("--privatizer", "gaussian-noise", "--option", "sigma=0.1", "-o", fitted)
    assert mapveil("signal", "fit", phones, *options).code == 0
    assert mapveil("signal", "privatize", fitted, phones, "-o", private).code == 0
    table = parquet.read_table(private)
    record = json.loads(table.schema.metadata[METADATA_KEY])
    del record[ROWS_KEY]  # an earlier version wrote none
    one = table.set_column(1, "lat", pyarrow.array([35.5] * len(table)))
    parquet.write_table(one.replace_schema_metadata({METADATA_KEY: json.dumps(record)}), private)
    done = mapveil("signal", "map", private, "-o", tmp_path / "map.csv")
    assert done.code == 2
    assert "all reports are at one location" in done.err


def test_the_same_map_in_python(mapveil, phones: Path, tmp_path: Path) -> None:
    out = tmp_path / "map.geojson"
    assert mapveil("signal", "map", phones, "--region", BOX, "--tiling", "grid:4x4", "-o", out).code == 0
    data = mv.read_measurements(phones, features=())
    tiling = mv.Grid(mv.Region.from_bbox(24.0, 35.5, 24.04, 35.53), rows=4, columns=4)
    cell = tiling.locate(data.rows[:, 1], data.rows[:, 0])
    features = json.loads(out.read_text())["features"]
    for at in range(16):
        assert features[at]["properties"]["rss_dbm"] == pytest.approx(data.rows[cell == at, 2].mean())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-o", "map.shp"], "the suffix must be one of"),
        (["-o", "map.tif", "--least", "0"], "least must be"),
        (["-o", "map.tif", "--reach", "100"], "reach_m is for other models"),
        (["-o", "map.tif", "--model", "kriging", "--least", "3"], "least is for the model cells"),
        (["-o", "map.tif", "--model", "kriging", "--option", "width=3"], "kriging has no option 'width'"),
        (["-o", "map.tif", "--model", "path-loss", "--option", "by=mast"], "no column 'mast'"),
        (["-o", "map.tif", "--model", "linear", "--reach", "-5"], "reach_m must be"),
        (["-o", "map.tif", "--rss", "tower"], "a signal strength from"),
        (["-o", "map.tif", "--tiling", "h3:9"], "GeoTIFF holds a raster"),
    ],
)
def test_bad_input_is_one_line_and_nothing_written(
    mapveil, phones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    done = mapveil("signal", "map", phones, "--region", BOX, *arguments)
    assert done.code == 2
    assert said in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert set(tmp_path.iterdir()) == before


def test_a_file_without_strength_is_named(mapveil, tmp_path: Path) -> None:
    path = tmp_path / "places.csv"
    path.write_text("user_id,lat,lon\na,35.51,24.01\n")
    done = mapveil("signal", "map", path, "--region", BOX, "-o", tmp_path / "map.tif")
    assert done.code == 2
    assert f"{path}: no column of signal strength among 'user_id', 'lat', 'lon';" in done.err


def test_sums_correct_a_pilot_s_map(mapveil, tmp_path: Path) -> None:
    import pandas as pd

    draw = np.random.default_rng(1)
    files = {}
    for name, users in (("pilot", 4), ("reports", 40)):
        lat, lon = 35.50 + 0.02 * draw.random(20 * users), 24.00 + 0.02 * draw.random(20 * users)
        table = {"user_id": np.repeat(np.arange(users), 20), "lat": lat, "lon": lon}
        files[name] = tmp_path / f"{name}.parquet"
        pd.DataFrame({**table, "rss_dbm": -90 + 400 * (lat - 35.51)}).to_parquet(files[name], index=False)
    asked = ("--pilot", files["pilot"], "--region", "24.0,35.5,24.02,35.52", "--tiling", "quadtree:3")
    out = tmp_path / "coverage.parquet"
    done = mapveil(
        "signal", "sums", files["reports"], *asked, "--epsilon", 1, "--seed", 1, "-o", out, "--json"
    )
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert record["guarantee"]["epsilon"] == "1"
    assert record["guarantee"]["unit"] == "user"
    done = mapveil(
        "signal",
        "sums",
        files["reports"],
        *asked,
        "--epsilon",
        1,
        "--unit",
        "trace",
        "--no-ledger",
        "-o",
        out,
    )
    assert done.code == 0, done.err
    assert "a user of ten has ten times the epsilon" in done.err
    done = mapveil(
        "signal", "sums", files["reports"], *asked, "--epsilon", 1, "--option", "levels=0", "-o", out
    )
    assert done.code == 2
    assert "levels must be" in done.err
