"""Whatever a person gives wrongly is refused before the charge: nothing is charged, and nothing is written.

Every option of every method and command takes wrong values in turn; those that are right after all must release.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from mapveil.mechanisms.methods import METHODS, Method
from mapveil.privacy.ledger import Ledger

BOX = "-74.03,40.69,-73.90,40.83"
WRONG = ("nan", "inf", "-1", "0", "1e-300", "1e-9", "1e400", "x", "none", "true", "99999999999999999999", "2")
NEEDED = {
    ("federated-kde", "random-features"): ("--option", "bandwidth_m=400"),
    ("planar-laplace", "random-features"): ("--option", "bandwidth_m=400", "--option", "radius_m=200"),
}


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty people with trips, a label, a weight and a venue."""
    path, draw = tmp_path_factory.mktemp("people") / "people.csv", np.random.default_rng(0)
    rows = ["user_id,lon,lat,dest_lon,dest_lat,label,visits,venue"]
    for at, ends in enumerate(draw.uniform([-74.03, 40.69] * 2, [-73.90, 40.83] * 2, (80, 4))):
        places = ",".join(f"{each:.5f}" for each in ends)
        rows.append(f"u{at // 2},{places},{at // 2 % 2},{1 + at % 2},v{at % 3}")
    path.write_text("\n".join(rows) + "\n")
    return path


def refuses_for_free(
    mapveil: Callable, tmp_path: Path, *arguments: object, outputs: tuple[str, ...] = ("m.parquet",)
) -> str:
    """Run a command; an error of the person's leaves neither a charge nor a file. What was said."""
    paths = [tmp_path / name for name in outputs]
    done = mapveil(*arguments, *(part for path in paths for part in ("-o", path)))
    ledger = tmp_path / "ledger.sqlite"
    charged = Ledger(ledger).entries() if ledger.exists() else ()
    assert "internal error" not in done.err, (arguments, done.err)
    if done.code and "no region can be found privately" not in done.err:  # an answer, which costs its tenth
        assert not charged, (arguments, done.err)
        assert not list(tmp_path.glob("m.*")), arguments
    for path in (*tmp_path.glob("m.*"), *tmp_path.glob("ledger.*")):
        path.unlink()
    return str(done.err)


def base(method: Method, people: Path) -> tuple[object, ...]:
    return (
        *("release", people, "--region", BOX, "--trust", method.trust, "--method", method.name),
        *(("--epsilon", "1") if method.has_budget else ()),
        *(("--label", "label") if method.labels else ()),
        *NEEDED.get((method.name, method.trust), ()),
    )


@pytest.mark.parametrize("method", METHODS, ids=lambda row: f"{row.trust} {row.name}")
def test_options_of_a_method(mapveil: Callable, people: Path, tmp_path: Path, method: Method) -> None:
    asked = (*base(method, people), "--tiling", "quadtree:3")
    assert "mapveil: error" not in refuses_for_free(mapveil, tmp_path, *asked)
    turns = itertools.cycle(WRONG)
    for option in method.options():
        for value in itertools.islice(
            turns, 2
        ):  # every option in the end meets every value, over the methods
            refuses_for_free(mapveil, tmp_path, *asked, "--option", f"{option}={value}")


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("multiscale", "first_share"),
        ("adaptive-grid", "alpha"),
        ("adaptive-grid", "c"),
        ("adaptive-grid", "c2"),
    ],
)
@pytest.mark.parametrize("value", ["1e-300", "1e-10", "1e-5"])
def test_shares_and_constants_that_were_refused_after_the_charge(
    mapveil: Callable, people: Path, tmp_path: Path, name: str, option: str, value: str
) -> None:
    asked = ("release", people, "--region", BOX, "--tiling", "quadtree:3", "--epsilon", "1", "--method", name)
    refuses_for_free(mapveil, tmp_path, *asked, "--option", f"{option}={value}")


@pytest.mark.parametrize("command", ["release", "flows", "neighbours"])
@pytest.mark.parametrize("title", ["a\udcffb", "two\nlines", "x" * 201, "bell\x07"])
def test_titles_that_cannot_be_written(
    mapveil: Callable, people: Path, tmp_path: Path, command: str, title: str
) -> None:
    asked = (command, people, "--region", BOX, "--tiling", "quadtree:3", "--epsilon", "1", "--title", title)
    assert "--title must be one line" in refuses_for_free(mapveil, tmp_path, *asked)


def test_subtitles_and_basemaps_are_checked_before_the_charge(
    mapveil: Callable, people: Path, tmp_path: Path
) -> None:
    asked = ("release", people, "--region", BOX, "--tiling", "quadtree:3", "--epsilon", "1")
    assert "--subtitle must be one line" in refuses_for_free(mapveil, tmp_path, *asked, "--subtitle", "a\nb")
    (tmp_path / "base.pmtiles").write_bytes(b"no tiles")
    said = refuses_for_free(mapveil, tmp_path, *asked, "--basemap", tmp_path / "base.pmtiles")
    assert "not a PMTiles file" in said


def test_a_name_that_is_no_text_is_refused(mapveil: Callable, people: Path, tmp_path: Path) -> None:
    asked = ("release", people, "--region", BOX, "--tiling", "quadtree:3", "--epsilon", "1")
    assert "printable text" in refuses_for_free(mapveil, tmp_path, *asked, outputs=("m.\udcff.html",))


def wrong_flags(command: str) -> Iterator[tuple[str, ...]]:
    """Options of a command with wrong values, alone and in pairs."""
    named = {
        "release": ("--smooth-m", "--merge-below", "--shard-size", "--dropout", "--epsilon"),
        "flows": ("--most", "--least", "--epsilon"),
        "neighbours": ("-k", "--epsilon"),
    }[command]
    yield from itertools.product(named, ("nan", "inf", "-1", "0", "1e9", "x"))
    yield from (("--weight", "nope"), ("--user", "nope"), ("--where", "nope > 1"), ("--where", "visits > 9"))
    yield from (("--where", "1/0 = 1"), ("--region", "1,2,3"), ("--region", "10,50,11,51"))
    for cells in (
        "grid:1x1",
        "h3:5" if command == "flows" else "h3:9",
        "places:venue",
        "places:nope.csv",
        "quadtree:99",
        "x",
    ):
        yield "--tiling", cells
        if command == "release":
            yield "--tiling", cells, "--smooth-m", "100"
            yield "--tiling", cells, "--places-are-public", "--smooth-m", "100"
        if command != "flows":
            yield "--tiling", cells, "--places-are-public", "--epsilon", "1e-9"
    if command == "flows":
        yield from (
            ("--candidates", "nope.csv"),
            ("--origin", "lon"),
            ("--destination", "a,b"),
            ("--trip", "nope"),
        )
        yield from (("--unit", "trip", "--epsilon", "0"), ("--method", "subset"), ("--estimator", "lasso"))
        yield "--region", "10,50,11,51", "--evaluate"
    if command == "neighbours":
        yield from (("--at", "10,50"), ("--at", "x"), ("-k", "999999999"))
        yield "--region", "10,50,11,51", "--at", "10.5,50.5", "--evaluate"


TRUSTS = ("central", "distributed", "local", "random-features")


@pytest.mark.parametrize("trust", TRUSTS)
def test_flags_of_release(mapveil: Callable, people: Path, tmp_path: Path, trust: str) -> None:
    """The curator meets every one, the others take turns: most are read before the trust model is asked."""
    turn = TRUSTS.index(trust)
    mine = itertools.islice(wrong_flags("release"), max(0, turn - 1), None, 3 if turn else 1)
    budget = () if trust == "random-features" else ("--epsilon", "1")
    for flags in mine:
        given = () if "--region" in flags else ("--region", BOX)
        cells = () if "--tiling" in flags else ("--tiling", "quadtree:3")
        asked = ("release", people, "--trust", trust, *given, *cells, *budget, *flags)
        refuses_for_free(mapveil, tmp_path, *asked)
    for cells, output in (("h3:6", "m.tif"), ("places:venue", "m.tif"), ("quadtree:3", "m.txt")):
        for region in ((), ("--region", BOX)):
            asked = ("release", people, "--trust", trust, *region, "--tiling", cells, *budget)
            refuses_for_free(mapveil, tmp_path, *asked, "--places-are-public", outputs=("m.csv", output))


@pytest.mark.parametrize("command", ["flows", "neighbours"])
def test_flags_of_flows_and_neighbours(mapveil: Callable, people: Path, tmp_path: Path, command: str) -> None:
    for flags in wrong_flags(command):
        given = () if "--region" in flags else ("--region", BOX)
        cells = () if "--tiling" in flags else ("--tiling", "grid:4x4")
        few = ("-k", "3") if command == "neighbours" and "-k" not in flags else ()
        asked = (command, people, *given, *cells, "--epsilon", "2", *few, *flags)
        refuses_for_free(mapveil, tmp_path, *asked, outputs=("m.csv", "m.parquet"))


@pytest.mark.parametrize(
    ("suffix", "package", "extra"),
    [(".tif", "rasterio", "geo"), (".gpkg", "pyogrio", "geo"), (".png", "matplotlib", "viz")],
)
def test_a_format_whose_package_is_not_installed(
    mapveil: Callable,
    people: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    suffix: str,
    package: str,
    extra: str,
) -> None:
    installed = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == package else installed(name, *rest)
    )
    asked = ("release", people, "--region", BOX, "--tiling", "quadtree:3", "--epsilon", "1")
    said = refuses_for_free(mapveil, tmp_path, *asked, outputs=(f"m{suffix}",))
    assert f"{package} is not installed; it comes with the extra {extra}, as by" in said
