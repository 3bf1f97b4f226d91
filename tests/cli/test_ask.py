"""``mapveil ask`` and ``mapveil change``: questions to released maps, and one line for bad input."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path

import geopandas
import pytest
import shapely

import mapveil as mv

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two maps of one city, and four zones, of which one is cut by the region and one outside."""
    path = tmp_path_factory.mktemp("asked")
    city = mv.synthetic.city(users=3000, seed=1, region=REGION)
    for seed in (1, 2):
        heat = mv.release(city, mv.Quadtree(REGION, depth=6), epsilon=1, account=None, rng=seed)
        heat.save(path / f"map{seed}.parquet")
    west, south, east, north = REGION.bbox
    middle = (west + east) / 2
    parts = [
        shapely.box(west, south, middle, north),
        shapely.box(middle, south, east, north),
        shapely.box(middle, south, east + (east - middle), north),
        shapely.box(5, 5, 6, 6),
    ]
    columns = {"name": ["west", "east", "beyond", "far"], "residents": [100, 200, 0, 400], "geometry": parts}
    frame = geopandas.GeoDataFrame(columns, crs="EPSG:4326")
    frame.to_file(path / "zones.geojson")
    frame.to_crs("EPSG:32618").to_file(path / "zones.gpkg")
    return path


def test_totals_are_listed_and_written(mapveil: Callable, folder: Path, tmp_path: Path) -> None:
    out = [tmp_path / f"answer{suffix}" for suffix in (".csv", ".parquet", ".geojson")]
    done = mapveil("ask", folder / "map1.parquet", "--zones", folder / "zones.geojson", *_outputs(out))
    assert done.code == 0, done.err
    assert "asking costs no privacy" in done.out
    head = next(line for line in done.out.splitlines() if line.startswith("zone"))
    assert head.split() == ["zone", "users", "low", "high", "placed", "inside", "touched"]
    assert "zones outside the map: far" in done.err
    assert "beyond (50 % of its area)" in done.err
    assert "overlap, so people count in both" in done.err
    with out[0].open() as file:
        rows = list(csv.DictReader(file))
    assert [row["zone"] for row in rows] == ["west", "east", "beyond"]
    east, beyond = rows[1], rows[2]
    assert float(east["low"]) < float(east["estimate"]) < float(east["high"])
    assert float(beyond["estimate"]) == pytest.approx(float(east["estimate"]), rel=1e-6)
    metadata = json.loads((tmp_path / "answer.csv-metadata.json").read_text())
    assert metadata["question"] == {"confidence": 95.0, "cost": "none", "zones": 3}
    assert metadata["map"]["method"] == "multiscale"
    for path in out[1:]:
        read = geopandas.read_parquet(path) if path.suffix == ".parquet" else geopandas.read_file(path)
        assert read.crs.to_epsg() in (4326, None) or "CRS84" in str(read.crs)
        assert read["estimate"].tolist() == pytest.approx([float(row["estimate"]) for row in rows])
        assert read.geometry.geom_type.tolist() == ["Polygon"] * 3


def _outputs(paths: list[Path]) -> list[object]:
    return [argument for path in paths for argument in ("-o", path)]


def test_ranks_and_comparisons(mapveil: Callable, folder: Path) -> None:
    asked = ("ask", folder / "map1.parquet", "--zones", folder / "zones.gpkg", "--json")
    ranked = json.loads(mapveil(*asked, "--top", "2").out)["answers"]
    assert sum(row["first_rank"] is not None for row in ranked) == 2
    listed = mapveil(*asked[:-1], "--top", "2").out
    assert listed.splitlines()[2].split()[:6] == ["rank", "zone", "users", "low", "high", "placed"]
    named = mapveil(*asked[:-1], "--above", "100").out
    assert named.count("%") == 5, "one placed fraction of each zone that is called above"
    above = json.loads(mapveil(*asked, "--above", "100").out)["answers"]
    assert [row["called_above"] for row in above] == [True, True, True]
    most = json.loads(mapveil(*asked, "--above", "1e6").out)["answers"]
    assert all(row["called_not_above"] for row in most)
    both = mapveil(*asked, "--above", "100", "--top", "2")
    assert both.code == 2
    assert both.errors == ["mapveil: error: --top and --above are two questions: ask one at a time"]


def test_rates_per_residents(mapveil: Callable, folder: Path) -> None:
    asked = ("ask", folder / "map1.parquet", "--zones", folder / "zones.geojson")
    rows = json.loads(mapveil(*asked, "--per", "residents", "--json").out)["answers"]
    assert rows[1]["estimate_per_1000"] == pytest.approx(rows[1]["estimate"] * 5)
    assert rows[2]["estimate_per_1000"] is None
    shown = mapveil(*asked, "--per", "residents")
    assert "no rate of 1 zone where residents is 0, such as beyond" in shown.err
    assert "nan" not in shown.out
    assert "rates per 1,000 of residents" in shown.out
    assert shown.out.splitlines()[2].split()[-4:] == ["denominator", "per", "1000", "low", "high"][1:]
    east = next(line.split() for line in shown.out.splitlines() if line.startswith("east"))
    assert float(east[7]) == 200
    wrong = mapveil(*asked, "--per", "people")
    assert wrong.code == 2
    assert "the zones have no column 'people'; their columns are name, residents" in wrong.err


def test_a_wider_confidence_widens(mapveil: Callable, folder: Path) -> None:
    asked = ("ask", folder / "map1.parquet", "--zones", folder / "zones.geojson", "--json")
    usual, wide = (
        json.loads(mapveil(*asked, "--confidence", level).out)["answers"][0] for level in ("95", "99.9")
    )
    assert wide["high"] - wide["low"] > 1.5 * (usual["high"] - usual["low"])
    assert math.isclose(wide["estimate"], usual["estimate"])
    refused = mapveil(*asked, "--confidence", "100")
    assert refused.code == 2
    assert "--confidence must be from 50 to below 100 per cent" in refused.err


def test_changes_between_maps(mapveil: Callable, folder: Path, tmp_path: Path) -> None:
    maps = (folder / "map1.parquet", folder / "map2.parquet")
    done = mapveil("change", *maps, "--zones", folder / "zones.geojson", "-o", tmp_path / "change.csv")
    assert done.code == 0, done.err
    assert "0 of 3 zones changed" in done.out
    assert done.out.count("no call") == 3
    assert "tested against the noise and the chance of who was there (--null rate)" in done.out
    people = mapveil("change", *maps, "--zones", folder / "zones.geojson", "--null", "people", "--json")
    record = json.loads(people.out)
    assert record["null"] == "people"
    assert not any(row["changed"] for row in record["zones"])
    same = mapveil(
        "change", folder / "map1.parquet", tmp_path / "none.parquet", "--zones", folder / "zones.gpkg"
    )
    assert same.code == 2
    assert "no such file" in same.err
    twice = mapveil("change", maps[0], maps[0], "--zones", folder / "zones.gpkg")
    assert (twice.code, "both maps are one release" in twice.err) == (2, True)


@pytest.mark.parametrize("command", ["ask", "change"])
def test_bad_input_is_one_line(command: str, mapveil: Callable, folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("user,lon,lat\n1,2,3\n")
    maps = (
        (folder / "map1.parquet",) if command == "ask" else (folder / "map1.parquet", folder / "map2.parquet")
    )
    cases = [
        ((table, *maps[1:], "--zones", folder / "zones.gpkg"), "not a map that Mapveil wrote"),
        ((*maps, "--zones", tmp_path / "none.gpkg"), "no such file"),
        ((*maps,), "--zones is required")
        if command == "ask"
        else ((*maps, "--name", "id"), "give --zones too"),
        ((*maps, "--zones", folder / "zones.gpkg", "-o", tmp_path / "a.txt"), "the suffix must be one of"),
        ((*maps, "--zones", folder / "zones.gpkg", "--name", "city"), "no column 'city'"),
    ]
    for arguments, match in cases:
        done = mapveil(command, *arguments)
        assert done.code == 2, (arguments, done)
        assert match in done.err
        assert len(done.errors) == 1
