"""``mapveil serve --check`` refuses a store that serving refuses, and tells no more than was tried."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest

from mapveil.collector.clock import SystemClock
from mapveil.collector.http.examination import examine
from mapveil.collector.http.settings import Settings
from mapveil.collector.store.backends import FOREIGN
from mapveil_client.errors import InputError


def mark(path: Path, application: int) -> None:
    with contextlib.closing(sqlite3.connect(path)) as file:
        file.execute(f"PRAGMA application_id = {application}")
        file.execute("VACUUM")  # a file without tables is else left empty


def found(url: str) -> tuple[str, str]:
    (state,) = (each[1:] for each in examine(Settings(store=url, port=0)) if each.what == "store")
    return state


def test_a_file_of_another_program_is_refused(sqlite_store, new_store, tmp_path):
    path = tmp_path / "foreign.sqlite"
    mark(path, 7)
    with pytest.raises(InputError, match=FOREIGN):
        new_store(str(path)).create_tables()
    assert found(str(path)) == ("failed", f"{path} (sqlite); {FOREIGN}")
    mark(sqlite_store.path, 7)
    assert new_store(str(sqlite_store.path)).check().problems == [FOREIGN]


@pytest.mark.parametrize("content", [b"lon,lat\n" * 300, b"SQLite format 3\0" + b"\xff" * 4080])
def test_a_text_and_a_damaged_file_are_refused_and_left_as_they_are(new_store, tmp_path, content):
    path = tmp_path / "damaged.sqlite"
    path.write_bytes(content)
    with pytest.raises(
        InputError, match=r"damaged\.sqlite: no file of SQLite, or a damaged one \(.+restore a backup"
    ):
        new_store(str(path)).create_tables()
    state, told = found(str(path))
    assert state == "failed"
    assert "file is not a database" in told
    assert path.read_bytes() == content


@pytest.mark.parametrize("refused", ["file", "folder"])
def test_an_empty_file_that_cannot_be_written_is_refused(tmp_path, monkeypatch, refused):
    path = tmp_path / "empty.sqlite"
    path.touch()
    fault = "the file" if refused == "file" else f"the folder {tmp_path}"
    there = path if refused == "file" else tmp_path
    # The tests may run as root, who may write everything.
    monkeypatch.setattr(os, "access", lambda where, mode: where != there or not mode & os.W_OK)
    assert found(str(path)) == ("failed", f"{path} (sqlite); {fault} cannot be written")


def test_an_empty_database_beside_a_wrong_clock_is_empty_and_not_one_that_cannot_be_written(
    postgresql_url, monkeypatch
):
    now = SystemClock().now()
    monkeypatch.setattr(SystemClock, "now", lambda _: now + timedelta(hours=1))
    state, told = found(postgresql_url)
    assert state == "failed"
    assert " (postgresql, empty): this machine's clock is 3,600 s ahead" in told
