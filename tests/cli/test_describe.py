"""``mapveil describe``: exact facts, marked as not private, at no charge."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

BOX = "-74.03,40.69,-73.90,40.83"


def test_a_table_is_described_for_its_curator(mapveil: Callable, table: Path) -> None:
    done = mapveil("describe", table, "--region", BOX, "--where", "lat::DOUBLE < 40.75")
    assert done.code == 0, done.err
    assert done.out.splitlines()[0].startswith("NOT PRIVATE")
    record = json.loads(mapveil("describe", table, "--region", BOX, "--json").out)
    assert record["private"] is False
    assert record["users"] == 300
    assert 0 < record["inside"] <= record["rows"]
    assert "nothing was spent" in mapveil("ledger").out


def test_a_table_with_bad_rows_is_described(mapveil: Callable, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("user_id,lon,lat\nu,40.7,-173.9\nv,40.8,-173.8\nw,40.8,-73.8\n")
    done = mapveil("describe", path)
    assert done.code == 0, done.err
    assert "bad rows: 2; first" in done.out
    assert "are lat and lon swapped?" in done.out
