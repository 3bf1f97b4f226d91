"""The ids of people: one person has one id in every format, and a keyed value that tells nothing."""

from __future__ import annotations

import hashlib
import hmac
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

import mapveil as mv
from mapveil.geo.points import id_text
from mapveil.privacy import population
from mapveil.privacy.ledger import Ledger
from mapveil.privacy.population import see
from mapveil_client.errors import CuratorWarning, InputError


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite")


def table(user: Any) -> mv.Points:
    users = list(user)
    place = np.linspace(0.0, 0.1, len(users))
    return mv.Points.from_arrays(users, -74 + place, 40.7 + place)


IDS = [7, 42, 123, 100_500]


@pytest.mark.parametrize(
    "write",
    [
        lambda frame, path: frame.to_parquet(path.with_suffix(".parquet")),
        lambda frame, path: frame.to_csv(path.with_suffix(".csv")),
        lambda frame, path: frame.astype({"user_id": str}).to_parquet(path.with_suffix(".parquet")),
        lambda frame, path: frame.astype({"user_id": float}).to_parquet(path.with_suffix(".parquet")),
        lambda frame, path: frame.astype({"user_id": float}).to_csv(path.with_suffix(".csv")),
        lambda frame, path: frame.assign(user_id=[f"{user:08}" for user in IDS]).to_csv(
            path.with_suffix(".csv")
        ),
    ],
    ids=["integers", "csv", "text", "floats", "csv of floats", "leading zeros"],
)
def test_a_person_has_one_id_in_every_format(
    ledger: Ledger, tmp_path: Path, write: Callable[[pd.DataFrame, Path], Any]
) -> None:
    known = ledger.recognise(table(IDS))
    write(pd.DataFrame({"user_id": IDS, "lon": -74.0, "lat": 40.7}), tmp_path / "again")
    (path,) = tmp_path.glob("again.*")
    assert ledger.recognise(mv.read_points(path)) == known


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_integers_are_not_parsed_as_text(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    frame = pd.DataFrame({"user_id": np.array([7, 42, 123], dtype=kind), "lon": -74.0, "lat": 40.7})
    with see(table([7, 42, 123]), b"key") as known:
        monkeypatch.setattr(population, "_TEXT_SQL", "error('an integer was parsed as text')")
        with see(mv.read_points(frame), b"key") as seen:
            assert seen.digest == known.digest


@pytest.mark.parametrize(
    "form",
    ["+{}", "{}\t", "{}\r", "{}\n", "\n{}", "\ufeff{}", "{}\u200b", "\u00a0{}", "{}\x00", "+0{}"],
    ids=ascii,
)
def test_signs_and_invisible_characters_make_no_other_person(ledger: Ledger, form: str) -> None:
    known = ledger.recognise(table([*map(str, IDS), "\u00c1nn"]))
    assert ledger.recognise(table([form.format(user) for user in IDS] + ["A\u0301nn"])) == known
    wide = [str(user).translate({48 + digit: 0xFF10 + digit for digit in range(10)}) for user in IDS]
    assert ledger.recognise(table([*wide, "\u00e1nn\u200d"])) == known


@pytest.mark.parametrize(
    ("written", "same"),
    [
        *[(f"a{mark}nn", "ann") for mark in "\x01\t\x00\x7f\u200d\u034f\u115f\u1160\u2800\u3164\ufe00\ufe0f"],
        *[(form, "ann0") for form in ("ann0\x7f", "\x7fann0", "\u200d ann0", "ann0 \u200b", "\x1fANN0\x1f")],
        ("e\u200d\u0301a", "\u00e9a"),
        ("H\u0331", "\u1e96"),
        ("STRASSE", "stra\u00dfe"),
        ("STRASSE", "STRA\u1e9eE"),
        ("\u039f\u0394\u039f\u03a3", "\u03bf\u03b4\u03bf\u03c2"),
        ("\x01007", "7"),
    ],
    ids=ascii,
)
def test_one_person_is_not_two(written: str, same: str) -> None:
    ids = np.array([written], dtype=object)  # which may hold U+0000
    points = mv.Points.from_arrays(ids, [-74.0], [40.7])
    with see(points, b"key") as one, see(table([same]), b"key") as other:
        assert one.digest == other.digest


def test_spaces_and_signs_inside_an_id_count() -> None:
    with see(table(["a nn", "ann", "a-nn", "a+nn", "a.0nn", "a.nn"]), b"key") as seen:
        assert np.unique(seen.sketch).size == 6


def test_values_of_whole_numbers_are_blocks_of_aes() -> None:
    ids = [0, -1, 7, 2**63 - 1, -(2**63), 123]
    key = bytes(range(32))
    cipher = Cipher(algorithms.AES(hmac.digest(key, b"numbers", "sha256")[:16]), modes.ECB())
    blocks = [cipher.encryptor().update(id.to_bytes(8, "little", signed=True) + bytes(8)) for id in ids]
    expected = sorted(int.from_bytes(block[:8], "little") for block in blocks)
    for users in (ids, [f" 0{id}" if id > 0 else str(id) for id in ids]):
        with see(table(users), key) as seen:
            assert seen.sketch.tolist() == expected


@pytest.mark.parametrize("id", ["1.5", "1e5", "0x10", "1_000", str(2**63), "-0.5", "ann"])
def test_texts_that_a_cast_would_take_for_numbers_are_texts(id: str) -> None:
    key = bytes(range(32))
    prefix = hmac.digest(key, b"people", "sha256")[:16].hex()
    with see(table([id]), key) as seen:
        digest = hashlib.sha256(f"{prefix}{id}".encode()).digest()
        assert seen.sketch.tolist() == [int.from_bytes(digest[:8], "big")]


WIDE = [9_007_199_254_740_991, 1_000_000_000_000_001, 12]


@pytest.mark.parametrize("kind", ["DOUBLE", "VARCHAR", "BLOB", "HUGEINT", "DECIMAL(18, 2)"])
def test_long_numbers_and_binary_texts_are_the_same_people(ledger: Ledger, kind: str) -> None:
    """Floats from 10^15 on, and texts that are not ASCII, as bytes."""
    known = ledger.recognise(table(WIDE))
    cast = f"CAST(CAST(user AS VARCHAR) AS {kind})" if kind == "BLOB" else f"CAST(user AS {kind})"
    rows = f"SELECT {cast} AS user_id, -74.0 AS lon, 40.7 AS lat FROM (SELECT unnest({WIDE[:2]}) AS user)"
    if kind == "DECIMAL(18, 2)":
        rows = rows.replace(str(WIDE[:2]), str(WIDE[1:2]))
    with pytest.raises(InputError, match="in common"), mv.read_points(rows).held_once() as copy:
        ledger.recognise(copy)
    texts = ["Åse", "Bjørn", "陳"]
    people = ledger.recognise(table(texts), dataset="named")
    blobs = mv.read_points(
        f"SELECT encode(user) AS user_id, -74.0 AS lon, 40.7 AS lat FROM (SELECT unnest({texts}) AS user)"
    )
    with blobs.held_once() as copy:
        assert ledger.recognise(copy) == ledger.recognise(blobs) == people != known


@pytest.mark.parametrize(
    "id",
    [
        "9007199254740994::DOUBLE",
        "-1e300::DOUBLE",
        "16777218::FLOAT",
        "'1.23457E+16'",
        "'9.007199254740994e+15'",
        *[
            f"'{id}'"
            for id in ("1.2e16", "1.2E16", "12e+15", " 1.2e+16", "1e+16 ", "+1e+16", "1.e+16", "1e+1\x016")
        ],
    ],
)
def test_ids_that_were_rounded_are_refused(ledger: Ledger, id: str) -> None:
    before = ledger.path.read_bytes()
    points = mv.read_points(f"SELECT {id} AS user_id, -74.0 AS lon, 40.7 AS lat")
    for held in (False, True):
        with (
            pytest.raises(InputError, match="an id is a rounded number such as"),
            points.held_once(check=False) if held else nullcontext(points) as given,
        ):
            ledger.recognise(given)
    assert ledger.path.read_bytes() == before
    assert ledger.recognise(table(["ann+1e+5@example.org", "1e5", "12e15", "1.5e-7", "inf"]))


def test_the_people_and_the_bad_rows_of_a_copy_are_found_in_one_pass(ledger: Ledger) -> None:
    lat = [40.7, float("nan"), 40.7]
    points = mv.read_points(pd.DataFrame({"user_id": ["ann", "ann", None], "lon": -74.0, "lat": lat}))
    before = ledger.path.read_bytes()
    with points.held_once(check=False) as copy, pytest.raises(InputError, match="row 2, column 'lat'"):
        ledger.recognise(copy)
    assert ledger.path.read_bytes() == before
    dropping = replace(points, on_bad_rows="drop")
    with dropping.held_once(check=False) as copy:
        with pytest.warns(CuratorWarning, match="dropped 2 of 3 rows"):
            known = ledger.recognise(copy)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            copy.check()
            assert ledger.recognise(copy) == known


def test_values_are_keyed_sha256_of_the_ids() -> None:
    ids = ["ann", "it's|é", "x" * 200]
    key = bytes(range(32))
    prefix = hmac.digest(key, b"people", "sha256")[:16].hex()
    digests = [hashlib.sha256(f"{prefix}{text}".encode()).digest() for text in ids]
    expected = sorted(int.from_bytes(digest[:8], "big") for digest in digests)
    with see(table(ids), key) as seen:
        assert seen.sketch.tolist() == expected


@pytest.mark.parametrize("kind", ["INTEGER", "BIGINT", "HUGEINT", "DOUBLE", "DECIMAL(9, 2)", "DECIMAL(9, 0)"])
def test_a_whole_number_is_one_id_of_every_type(kind: str) -> None:
    for number in (7, 100, 0, -20):
        ((found,),) = duckdb.sql(
            f"SELECT {id_text('id', kind.replace(' ', ''))} FROM (SELECT CAST({number} AS {kind}) AS id)"
        ).fetchall()
        assert found == str(number)


def test_a_fraction_is_one_id_of_every_type() -> None:
    for kind in ("DOUBLE", "DECIMAL(9,3)"):
        assert duckdb.sql(
            f"SELECT {id_text('id', kind)} FROM (SELECT CAST(7.5 AS {kind}) AS id)"
        ).fetchall() == [("7.5",)]
