"""Errors speak the terms of the door they came through: flags on the command line, arguments in Python."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import geopandas
import pytest
import shapely

import mapveil as mv
from mapveil_client.errors import InputError, MapveilError

SOURCES = Path(__file__).parents[2] / "src"
MODULES = sorted(
    path
    for room in ("mapveil", "mapveil_client")
    for path in (SOURCES / room).rglob("*.py")
    # Not of the command line's own door, nor of a service that has no other.
    if not {"cli", "collector"} & set(path.relative_to(SOURCES).parts)
    and re.search(r"--[a-z]", path.read_text(encoding="utf-8"))
)
BOX = "-74.03,40.69,-73.90,40.83"
REGION = mv.Region.from_bbox(*map(float, BOX.split(",")))
FLAG = re.compile(r"--[a-z]")
ARGUMENT = re.compile(r"\b[a-z]+_[a-z_]+\b|\(in Python")


class Case(NamedTuple):
    """One mistake, made through both doors."""

    flag: str  # that the command line names
    argument: str  # that Python names
    arguments: str  # of the command
    python: Callable[[Path], Any]


def release(folder: Path, *, table: str = "t.csv", **given: Any) -> Any:
    points = mv.read_points(folder / table)
    return mv.release(points, **{"account": None, "region": REGION, "epsilon": 1, **given})


def totals(folder: Path, zones: str) -> Any:
    return mv.read_map(folder / "map.parquet").totals(folder / zones)


CASES = {
    "large epsilon": Case(
        "--accept-large-epsilon",
        "accept_large_epsilon=True",
        f"release t.csv --epsilon 30 --region {BOX} -o out.csv",
        lambda at: release(at, epsilon=30),
    ),
    "no epsilon to take": Case(
        "leave --epsilon out",
        "leave epsilon out",
        f"release t.csv --trust random-features --epsilon 1 --region {BOX} -o out.csv",
        lambda at: release(at, trust="random-features"),
    ),
    "no region": Case(
        "--region is required",
        "region is required",
        "release t.csv --trust local --epsilon 1 -o out.csv",
        lambda at: release(at, trust="local", region=None),
    ),
    "no ids": Case(
        "--user NAME",
        "user=NAME",
        f"release nobody.csv --epsilon 1 --region {BOX} -o out.csv",
        lambda at: release(at, table="nobody.csv"),
    ),
    "no degrees": Case(
        "--crs EPSG:...",
        "crs='EPSG:...'",
        f"release metres.csv --epsilon 1 --region {BOX} -o out.csv",
        lambda at: release(at, table="metres.csv"),
    ),
    "a row without a place": Case(
        "--on-bad-rows drop",
        "on_bad_rows='drop'",
        f"release gaps.csv --epsilon 1 --region {BOX} -o out.csv",
        lambda at: release(at, table="gaps.csv"),
    ),
    "places of visitors": Case(
        "--places-are-public",
        "places_are_public=True",
        f"release t.csv --tiling places:shop --epsilon 1 --region {BOX} -o out.csv",
        lambda at: release(at, tiling="places:shop"),
    ),
    "invalid zones": Case(
        "--repair",
        "repair=True",
        "ask map.parquet --zones bow.geojson",
        lambda at: totals(at, "bow.geojson"),
    ),
    "zones somewhere": Case(
        "give --zones-crs",
        "give crs",
        "ask map.parquet --zones bare.shp",
        lambda at: totals(at, "bare.shp"),
    ),
    "statement without a name": Case(
        "--dataset NAME is required with --other-people",
        "dataset is required with other_people",
        f"release t.csv --other-people because --epsilon 1 --region {BOX} -o out.csv",
        lambda at: release(at, account=mv.Account(other_people="because")),
    ),
    "windows without times": Case(
        "--time NAME",
        "time=NAME",
        f"release t.csv --every 1w --from 2026-01-05 --until 2026-02-02 --epsilon 1 --region {BOX} -o out.csv",
        lambda at: mv.release_series(
            mv.read_points(at / "t.csv"),
            mv.Windows(every="1w", start="2026-01-05", until="2026-02-02"),
            mv.Quadtree(REGION, depth=2),
            epsilon=1,
            account=None,
        ),
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A map, tables and zones, each with one fault."""
    at = tmp_path_factory.mktemp("doors")
    (at / "t.csv").write_text("user_id,lon,lat,shop\na,-73.95,40.75,x\nb,-73.96,40.76,y\n", encoding="utf-8")
    (at / "nobody.csv").write_text("lon,lat\n-73.95,40.75\n", encoding="utf-8")
    (at / "metres.csv").write_text("user_id,lon,lat\na,585000,4511000\n", encoding="utf-8")
    (at / "gaps.csv").write_text("user_id,lon,lat\na,-73.95,40.75\nb,,40.76\n", encoding="utf-8")
    bow = shapely.Polygon([(-74, 40.7), (-73.9, 40.8), (-73.9, 40.7), (-74, 40.8)])
    geopandas.GeoDataFrame({"name": ["bow"]}, geometry=[bow], crs="EPSG:4326").to_file(at / "bow.geojson")
    box = shapely.box(-74, 40.7, -73.95, 40.75)
    with pytest.warns(UserWarning, match="'crs' was not provided"):
        geopandas.GeoDataFrame({"name": ["box"]}, geometry=[box]).to_file(at / "bare.shp")
    city = mv.synthetic.city(users=100, seed=1, region=REGION)
    mv.release(city, mv.Quadtree(REGION, depth=3), epsilon=1, account=None, rng=1).save(at / "map.parquet")
    return at


@pytest.mark.parametrize("name", CASES)
def test_errors_speak_the_terms_of_their_door(
    name: str, folder: Path, mapveil: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    monkeypatch.chdir(folder)
    done = mapveil(*case.arguments.split())
    said = done.errors[-1]
    assert done.code == 2, said
    assert case.flag in said
    assert not ARGUMENT.search(re.sub("user_id|device_id", "", said)), said
    with pytest.raises(MapveilError) as caught:
        case.python(folder)
    assert case.argument in str(caught.value)
    assert not FLAG.search(str(caught.value))


@pytest.mark.parametrize("module", MODULES, ids=lambda path: "/".join(path.parts[-2:]))
def test_a_flag_in_an_error_stands_behind_its_argument(module: Path) -> None:
    """So that each door can leave out the other's: ``region (--region) is required``."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    for raised in (node for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc):
        for text in _texts(raised.exc):
            said = re.sub(
                r"mapveil [a-z][^;,:]*", "", str(InputError(text))
            )  # a command to run, from either door
            assert not FLAG.search(said), said


def _texts(raised: ast.expr) -> Iterator[str]:
    """The texts of an expression, with a word for what is filled in."""
    if isinstance(raised, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in raised.values)
    elif isinstance(raised, ast.Constant) and isinstance(raised.value, str):
        yield raised.value
    else:
        for part in ast.iter_child_nodes(raised):
            if isinstance(part, ast.expr | ast.keyword):
                yield from _texts(part.value if isinstance(part, ast.keyword) else part)


@pytest.mark.parametrize(
    ("text", "python", "flags"),
    [
        ("region (--region) is required", "region is required", "--region is required"),
        ("a and b (--a and --b) are", "a and b are", "--a and --b are"),
        ("a (--a), b (--b x) and c (--c)", "a, b and c", "--a, --b x and --c"),
        ("x='y z' (--x 'y z') helps", "x='y z' helps", "--x 'y z' helps"),
        ("day 2026-01-05 (--from)", "day 2026-01-05", "day 2026-01-05 (--from)"),
        ("none declared (--option users=3)", "none declared", "none declared (--option users=3)"),
    ],
)
def test_each_door_leaves_out_the_other(text: str, python: str, flags: str) -> None:
    error = InputError(text)
    assert (str(error), error.in_flags()) == (python, flags)
