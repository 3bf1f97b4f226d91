"""Where a file comes from: the same after it was read back, in every format, and never a path or a user's id."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mapveil as mv
from mapveil.maps.provenance import Provenance
from mapveil.privacy.claim import AccountReference
from mapveil.privacy.file_hash import CSV_METADATA_SUFFIX

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
GRID = mv.Grid(REGION, rows=3, columns=3)
HEAT = mv.mechanisms.LaplaceHistogram(epsilon=1).release(
    mv.synthetic.city(users=20, seed=1, region=REGION), GRID, rng=1
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
amounts = st.none() | st.fractions(0, 100)


@settings(max_examples=30)
@given(
    made=st.builds(
        Provenance,
        date=st.dates().map(lambda day: day.isoformat()),
        function=texts,
        options=st.dictionaries(texts, st.booleans() | st.integers(-(2**50), 2**50) | texts, max_size=3),
        columns=st.dictionaries(texts, texts, max_size=3),
        where=st.none() | texts,
    ),
    account=st.none()
    | st.builds(AccountReference, st.lists(texts, max_size=2).map(tuple), st.none() | texts, *[amounts] * 3),
)
def test_a_file_that_is_read_back_has_the_same_provenance(
    made: Provenance, account: AccountReference | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    heat = replace(HEAT, provenance=made, guarantee=replace(HEAT.guarantee, account=account))
    for suffix in (".tif", ".parquet", ".geojson", ".csv"):
        path = tmp_path_factory.getbasetemp() / f"provenance{suffix}"
        heat.save(path)
        again = mv.read_map(path)
        assert again.provenance == made
        assert again.guarantee == heat.guarantee


def users() -> pa.Table:
    rows = 40
    return pa.table(
        {
            "rider_id": [f"rider-{number:04d}-secret" for number in range(rows)],
            "x": [-74.02 + 0.002 * number for number in range(rows)],
            "y": [40.70 + 0.003 * number for number in range(rows)],
            "hour": [number % 24 for number in range(rows)],
        }
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "very-private-folder"
    folder.mkdir()
    path = folder / "patients-of-ward-7.parquet"
    from pyarrow import parquet

    parquet.write_table(users(), path)
    return path


def record_of(path: Path) -> dict[str, Any]:
    """The metadata that a written file carries."""
    if path.suffix == ".csv":
        return json.loads(Path(f"{path}{CSV_METADATA_SUFFIX}").read_text())
    if path.suffix == ".html":
        found = re.search(
            r'<script type="application/json" id="scene">(.*?)</script>', path.read_text(), re.DOTALL
        )
        assert found is not None
        return json.loads(found[1])["metadata"]
    if path.suffix == ".geojson":
        return json.loads(path.read_text())["mapveil"]
    if path.suffix == ".png":
        images = pytest.importorskip("PIL.Image")
        with images.open(path) as image:
            return json.loads(image.text["mapveil"])
    return json.loads(mv.read_map(path).metadata_json())


FEW = {"release": (), "neighbours": ("-k", "2")}  # neighbours, where few users pass the filter
SUFFIXES = (".tif", ".parquet", ".geojson", ".csv", ".png", ".html")


@pytest.mark.parametrize("command", ["release", "neighbours"])
def test_every_file_says_where_it_comes_from_and_no_file_says_more(
    mapveil: Callable, source: Path, tmp_path: Path, command: str
) -> None:
    region = source.parent / "region-of-ward-7.geojson"
    corners = [[-74.03, 40.69], [-73.90, 40.69], [-73.90, 40.83], [-74.03, 40.83], [-74.03, 40.69]]
    region.write_text(json.dumps({"type": "Polygon", "coordinates": [corners]}))
    sites = source.parent / "sites-of-ward-7.csv"
    sites.write_text("lon,lat\n-74.0,40.7\n-73.95,40.8\n")
    tilings = {"grid:3x3": SUFFIXES, f"places:{sites}": SUFFIXES[1:]}
    spent = Fraction(0)
    for at, (tiling, suffixes) in enumerate(tilings.items()):
        paths = [tmp_path / f"map{at}{suffix}" for suffix in suffixes]
        flags = [part for path in paths for part in ("-o", path)]
        done = mapveil(
            command, source, "--region", region, "--tiling", tiling, "--epsilon", "1", "--user", "rider_id", "--lon",
            "x", "--lat", "y", "--dataset", "riders", "--where", "hour < 12", *FEW[command], *flags,
        )  # fmt: skip
        assert done.code == 0, done.err
        for path in paths:
            record = record_of(path)
            origin, account = record["provenance"], record["guarantee"]["account"]
            assert origin["date"] == datetime.now(UTC).date().isoformat()
            assert origin["function"] == command
            assert origin["columns"] == {"user": "rider_id", "lon": "x", "lat": "y"}
            assert origin["where"] == "hour < 12"
            assert record["version"] == mv.__version__
            assert len(account["entries"]) == 1
            assert account["name"] == "riders"
            assert Fraction(account["before"]) == spent
            assert Fraction(account["after"]) == spent + 1
            assert account["budget"] == "3"
        spent += 1
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as ledger:
        (key,) = ledger.execute("SELECT key FROM ledger").fetchone()
    secrets = [
        b"ward-7",
        b"very-private",
        b"rider-00",
        str(tmp_path).encode(),
        b"ledger.sqlite",
        key,
        key.hex().encode(),
    ]
    written = [path for path in tmp_path.iterdir() if path.name.startswith("map")]
    assert len(written) == 13  # eleven maps, and the metadata beside two
    for path in written:
        text = "" if path.suffix == ".json" else json.dumps(record_of(path))
        for secret in secrets:
            assert secret not in path.read_bytes() + text.encode(), (path.name, secret)


def test_no_file_names_the_population_of_a_server(mapveil: Callable, source: Path, tmp_path: Path) -> None:
    population = source.parent / "beds-of-ward-7.npz"
    sides = dict(zip(("west", "south", "east", "north"), REGION.bbox, strict=True))
    np.savez(population, values=np.ones((4, 4), dtype=np.int64), **sides)
    paths = [tmp_path / f"map{suffix}" for suffix in SUFFIXES]
    flags = [part for path in paths for part in ("-o", path)]
    done = mapveil(
        "release", source, "--tiling", "grid:16x16", "--region", "-74.03,40.69,-73.90,40.83", "--trust",
        "random-features", "--option", f"population={population}", "--user", "rider_id", "--lon", "x", "--lat", "y",
        "--json", *flags,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "ward-7" not in done.out
    for path in paths:
        text = json.dumps(record_of(path))
        assert "a server that knows an external population" in text
        assert b"ward-7" not in path.read_bytes() + text.encode(), path.name


@pytest.mark.parametrize("command", ["release", "neighbours"])
@pytest.mark.parametrize(
    "where",
    [
        "rider_id <> 'rider-0007-secret'",
        "hour < 12 AND \"RIDER_ID\" NOT IN ('rider-0007-secret')",
        "CASE WHEN hour < 30 THEN NOT contains(lower(Rider_Id), 'rider-0007-secret') END",
    ],
)
def test_a_filter_on_the_user_column_leaves_no_id_in_any_file(
    mapveil: Callable, source: Path, tmp_path: Path, command: str, where: str
) -> None:
    paths = [tmp_path / f"map{suffix}" for suffix in SUFFIXES]
    flags = [part for path in paths for part in ("-o", path)]
    done = mapveil(
        command, source, "--tiling", "grid:3x3", "--region", "-74.03,40.69,-73.90,40.83", "--epsilon", "1",
        "--user", "rider_id", "--lon", "x", "--lat", "y", "--where", where, *FEW[command],
        *flags,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "rider-0007" not in done.out
    for path in paths:
        assert record_of(path)["provenance"]["where"] == "a condition on the user column"
    for path in tmp_path.glob("map*"):
        text = "" if path.name.endswith(CSV_METADATA_SUFFIX) else json.dumps(record_of(path))
        assert b"rider-0007" not in path.read_bytes() + text.encode(), path.name


def test_post_processing_keeps_the_provenance() -> None:
    made = Provenance(function="release", where="hour < 12")
    heat = replace(HEAT, provenance=made)
    near = mv.neighbours(heat, k=2)
    assert heat.merge_below(1).provenance == near.provenance == made
