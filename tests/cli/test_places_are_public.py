"""A list of places from the people's own table: refused, or an assumption of the guarantee that is stated expressly."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import mapveil as mv
from mapveil.privacy.claim import Assumes
from mapveil_client.errors import InputError

BOX = "-74.03,40.69,-73.90,40.83"
REGION = mv.Region.parse(BOX)


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    """Four hundred users at six venues, and one user alone at a seventh."""
    rows = [
        f"u{user},{-74.0 + 0.01 * (user % 6)},{40.72 + 0.01 * (user % 6)},v{user % 6}" for user in range(400)
    ]
    path = tmp_path / "visits.csv"
    path.write_text("\n".join(["user_id,lon,lat,venue", *rows, "alone,-73.92,40.81,home"]) + "\n")
    return path


COMMANDS = {
    **{trust: ("release", "--trust", trust, "--region", BOX, "--epsilon", "1")
       for trust in ("central", "distributed", "local")},
    "random-features": ("release", "--trust", "random-features", "--region", BOX),
    "no region": ("release", "--epsilon", "1"),
    "neighbours": ("neighbours", "--region", BOX, "--epsilon", "1"),
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_a_column_of_places_is_refused_before_anything_is_charged(
    mapveil: Callable, visits: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    name, *flags = command
    done = mapveil(name, visits, *flags, "--tiling", "places:venue", "-o", tmp_path / "m.parquet")
    assert done.code == 2, done.out
    assert "a place with one visitor reveals that visitor" in done.err
    assert "--places-are-public" in done.err
    assert not (tmp_path / "m.parquet").exists()
    assert "nothing was spent" in mapveil("ledger").out


@pytest.mark.parametrize("public", [(), ("--places-are-public",)], ids=str)
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_a_file_that_does_not_exist_is_named_as_one(
    mapveil: Callable, visits: Path, tmp_path: Path, command: tuple[str, ...], public: tuple[str, ...]
) -> None:
    name, *flags = command
    done = mapveil(
        name, visits, *flags, "--tiling", "places:/no/such.csv", *public, "-o", tmp_path / "m.parquet"
    )
    assert done.code == 2, done.out
    assert "places: /no/such.csv: no such file" in done.err
    assert "nothing was spent" in mapveil("ledger").out


@pytest.mark.parametrize("command", [("compare", "--trials", "1"), ("attack", "random-features")], ids=str)
def test_reports_of_the_truth_refuse_it_too(
    mapveil: Callable, visits: Path, command: tuple[str, ...]
) -> None:
    done = mapveil(*command, visits, "--region", BOX, "--tiling", "places:venue")
    assert done.code == 2, done.out
    assert "--places-are-public" in done.err


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_stated_to_be_public_it_is_an_assumption_of_the_guarantee(
    mapveil: Callable, visits: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    name, *flags = command
    if command == COMMANDS["no region"]:
        flags = ["--epsilon", "3"]
    path = tmp_path / "m.parquet"
    done = mapveil(
        name, visits, *flags, "--tiling", "places:venue", "--places-are-public", "-o", path, "--json"
    )
    assert done.code == 0, done.err
    assert {"kind": "places public"} in json.loads(done.out)["guarantee"]["assumptions"]
    heat = mv.read_map(path)
    assert Assumes.PLACES_PUBLIC() in heat.guarantee.assumptions
    assert "not protected: which places are on the map" in heat.guarantee.in_words()


def test_without_its_one_visitor_a_place_is_gone(visits: Path, tmp_path: Path) -> None:
    """The attack that the refusal is about: two neighbouring tables, two lists of places, whatever the noise."""
    less = tmp_path / "less.csv"
    less.write_text("".join(line for line in visits.read_text().splitlines(True) if "alone" not in line))
    sizes = []
    for table in map(mv.read_points, (visits, less)):
        with pytest.raises(InputError, match="places_are_public=True"):
            mv.release(table, "places:venue", region=REGION, epsilon=1)
        heat = mv.release(
            table, "places:venue", region=REGION, epsilon=1, places_are_public=True, account=None
        )
        assert Assumes.PLACES_PUBLIC() in heat.guarantee.assumptions
        sizes.append(heat.tiling.size)
    assert sizes == [7, 6]


def test_other_tilings_assume_no_list(visits: Path, tmp_path: Path) -> None:
    sites = tmp_path / "sites.csv"
    sites.write_text("lon,lat\n-74.0,40.7\n-73.95,40.8\n")
    for tiling in ("quadtree:3", f"places:{sites}"):
        heat = mv.release(mv.read_points(visits), tiling, region=REGION, epsilon=1, places_are_public=True)
        assert Assumes.PLACES_PUBLIC() not in heat.guarantee.assumptions
