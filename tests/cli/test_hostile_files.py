"""Files made to mislead a reader, to steer a terminal or to break the command line: one line each, exit code 2."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely

import mapveil as mv
from mapveil.formats.read_map import read_map
from mapveil.geo.zones import Zones
from mapveil_client.errors import MapveilError

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
RING = [[-74.0, 40.72], [-73.98, 40.72], [-73.98, 40.74], [-74.0, 40.72]]
EVIL = "\x1b[2J\x9b31m\x00\r\u202eab\nwest  1 2 3"


@pytest.fixture(scope="module")
def city(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a map in three formats, and of another one."""
    folder = tmp_path_factory.mktemp("city")
    users = np.random.default_rng(1).poisson(3, 4**4)
    heat = mv.release(mv.Counts(users, mv.Quadtree(REGION, depth=4)), epsilon=1, account=None, rng=1)
    for suffix in ("parquet", "csv", "geojson"):
        heat.save(folder / f"map.{suffix}")
    mv.release(mv.Counts(users, heat.tiling), epsilon=1, account=None, rng=2).save(folder / "other.parquet")
    return folder


def zones(path: Path, *rings: Any, name: object = "a", kind: str = "Polygon") -> Path:
    geometry = None if not rings else {"type": kind, "coordinates": list(rings)}
    feature = {"type": "Feature", "properties": {"name": name}, "geometry": geometry}
    path.write_text(json.dumps({"type": "FeatureCollection", "features": [feature]}))
    return path


@pytest.mark.parametrize(
    ("rings", "words"),
    [
        ((), "feature 1 has no geometry"),
        ((RING[:3],), "a ring that is not closed"),
        (([[str(x), str(y)] for x, y in RING],), "coordinates that are not numbers"),
        (([RING[0], [float("nan"), 40.72], *RING[2:]],), "without a place on Earth"),
        (([[1e7 * x, y] for x, y in RING],), "zones without a place on Earth: a; longitudes are from -180"),
    ],
)
def test_zones_that_are_no_polygons_on_earth(
    rings: tuple[Any, ...], words: str, mapveil: Callable, city: Path, tmp_path: Path
) -> None:
    done = mapveil("ask", city / "map.parquet", "--zones", zones(tmp_path / "z.geojson", *rings))
    assert done.code == 2
    (line,) = done.errors
    assert words in line


@pytest.mark.parametrize(
    "content",
    [
        "[" * 100_000 + "]" * 100_000,
        "5",
        '{"type":"FeatureCollection","mapveil":' + "[" * 100_000 + "]" * 100_000,
    ],
)
def test_json_that_is_none(content: str, mapveil: Callable, city: Path, tmp_path: Path) -> None:
    path = tmp_path / "deep.geojson"
    path.write_text(content)
    asked = ("ask", city / "map.parquet", "--zones", path), ("ask", path, "--zones", path), ("verify", path)
    for each in asked:
        done = mapveil(*each)
        assert done.code == 2
        assert len(done.errors) == 1


def test_half_a_character_is_no_name(mapveil: Callable, city: Path, tmp_path: Path) -> None:
    path = zones(tmp_path / "z.geojson", RING, name="\ud800x")
    done = mapveil("ask", city / "map.parquet", "--zones", path, "-o", tmp_path / "out.csv")
    assert done.code == 2
    assert "names that are no text" in done.err
    assert not (tmp_path / "out.csv").exists()


def test_a_name_steers_no_terminal_and_is_cut(mapveil: Callable, city: Path, tmp_path: Path) -> None:
    path = zones(tmp_path / "z.geojson", RING, name=EVIL + 100_000 * "x")
    for arguments in ((), ("--top", "1"), ("--above", "0"), ("--json",)):
        done = mapveil("ask", city / "map.parquet", "--zones", path, *arguments)
        assert done.code == 0
        assert all(each.isprintable() or each == "\n" for each in done.out + done.err)
        if "--json" in arguments:
            assert json.loads(done.out)["answers"][0]["zone"].startswith(EVIL)
        else:
            assert max(map(len, done.out.splitlines())) < 400
            assert not any(line.startswith("west") for line in done.out.splitlines())


def test_a_title_writes_no_line_of_its_own(mapveil: Callable, city: Path, tmp_path: Path) -> None:
    heat = read_map(city / "map.parquet")
    object.__setattr__(heat, "title", f"{EVIL}\nsignature  ok")
    heat.save(tmp_path / "map.parquet")
    done = mapveil("inspect", tmp_path / "map.parquet")
    assert done.code == 0
    assert all(each.isprintable() or each == "\n" for each in done.out)
    assert not any(line.startswith(("west", "signature")) for line in done.out.splitlines())


def test_changes_between_zones_of_endless_names_are_drawn(
    mapveil: Callable, city: Path, tmp_path: Path
) -> None:
    path = zones(tmp_path / "z.geojson", RING, name=EVIL + 100_000 * "x")
    outputs = [argument for suffix in ("html", "png") for argument in ("-o", tmp_path / f"c.{suffix}")]
    done = mapveil("change", city / "map.parquet", city / "other.parquet", "--zones", path, *outputs)
    assert done.code == 0, done.err
    assert "Glyph" not in done.err


def test_broken_files_of_maps_end_in_one_line(mapveil: Callable, city: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.tif").write_bytes(b"")
    (tmp_path / "head.csv").write_bytes(b"cell,us\x9eers\n0,1\n")
    beside = (city / "map.csv-metadata.json").read_bytes()
    (tmp_path / "head.csv-metadata.json").write_bytes(beside)
    record = json.loads((city / "map.geojson").read_bytes())
    record["mapveil"]["guarantee"]["epsilon"] = "9" * 400 + "/7"
    (tmp_path / "epsilon.geojson").write_text(json.dumps(record, separators=(",", ":")))
    for name in ("empty.tif", "head.csv", "epsilon.geojson"):
        done = mapveil("ask", tmp_path / name, "--zones", zones(tmp_path / "z.geojson", RING))
        assert done.code == 2, done.err
        assert len(done.errors) == 1


def test_no_rate_of_hardly_anybody(mapveil: Callable, city: Path, tmp_path: Path) -> None:
    path = zones(tmp_path / "z.geojson", RING)
    path.write_text(path.read_text().replace('"name": "a"', '"name": "a", "r": 1e-320'))
    done = mapveil("ask", city / "map.parquet", "--zones", path, "--per", "r")
    assert done.code == 2
    assert "at least 1e-09" in done.err


def test_measurements_that_unpack_to_more_than_their_map_holds(city: Path, tmp_path: Path) -> None:
    record = json.loads((city / "map.geojson").read_bytes())
    packed = io.BytesIO(base64.b64decode(record["mapveil_measurements"]))
    for claimed in (1 << 33, 0):  # in the head alone, and in the archive
        bomb = io.BytesIO()
        with zipfile.ZipFile(packed) as old, zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as new:
            for name in old.namelist():
                with new.open(name, "w") as file:
                    if name != "0.noisy.npy":
                        file.write(old.read(name))
                        continue
                    head = {"descr": "|u1", "fortran_order": False, "shape": (1, claimed or 1 << 20)}
                    np.lib.format.write_array_header_1_0(file, head)
                    file.write(bytes(1 << 20))
        record["mapveil_measurements"] = base64.b64encode(bomb.getvalue()).decode()
        path = tmp_path / "bomb.geojson"
        path.write_text(json.dumps(record, separators=(",", ":")))
        with pytest.raises(MapveilError, match=r"not those of their bytes|larger than those of 256 cells"):
            read_map(path)


def test_shapes_that_reach_a_rounding_beyond_the_meridian_stay() -> None:
    assert Zones.read(shapely.box(179, 0, 180 + 1e-9, 1)).names == ("1",)
