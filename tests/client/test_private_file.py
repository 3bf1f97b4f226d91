"""Private files: for their owner only whatever the umask, whole or not at all, and one of several that are made."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mapveil_client.private_file import create_private, new_private_file


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    """Files that are made without a mode of their own can be read by everybody."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_private_file_is_empty_new_and_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "key"
    create_private(path)
    assert (path.stat().st_mode & 0o777, path.read_bytes()) == (0o600, b"")
    with pytest.raises(FileExistsError):
        create_private(path)


def test_of_two_files_made_at_once_the_first_to_be_whole_counts(tmp_path: Path) -> None:
    path = tmp_path / "key"
    with new_private_file(path) as late:
        late.write_text("late")
        with new_private_file(path) as first:
            first.write_text("first")
            assert first.stat().st_mode & 0o777 == 0o600
            assert not path.exists()
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("first", 0o600)
    assert list(tmp_path.iterdir()) == [path]


def test_a_block_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError), new_private_file(tmp_path / "key") as draft:
        (draft / "..").resolve().write_text("a folder")
    assert list(tmp_path.iterdir()) == []
