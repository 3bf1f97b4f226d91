"""``mapveil inspect``: a privacy officer reads somebody else's release, at no charge."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

BOX = "-74.03,40.69,-73.90,40.83"


def test_a_release_is_read_from_its_picture(mapveil: Callable, table: Path, tmp_path: Path) -> None:
    made = mapveil(
        "release", table, "--region", BOX, "--epsilon", "1", "--dataset", "shops", "-o", tmp_path / "map.png"
    )
    assert made.code == 0, made.err
    done = mapveil("inspect", tmp_path / "map.png", "-o", tmp_path / "sheet.html")
    assert done.code == 0, done.err
    assert "account        shops" in done.out
    assert "budget         3" in done.out
    assert (tmp_path / "sheet.html").is_file()
    record = json.loads(mapveil("inspect", tmp_path / "map.png", "--json").out)
    assert record["metadata"]["provenance"]["function"] == "release"
    assert str(table.parent) not in json.dumps(record)


def test_bad_input_is_one_line(mapveil: Callable, tmp_path: Path) -> None:
    (tmp_path / "map.png").write_bytes(b"rubbish")
    for name in ("map.png", "none.tif", "map.txt", "map.pmtiles"):
        done = mapveil("inspect", tmp_path / name)
        assert done.code == 2
        assert done.err.startswith("mapveil: error: ")
        assert done.err.count("\n") == 1
