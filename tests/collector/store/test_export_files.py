"""Files of maps are kept whole, read in chunks, and bounded in bytes; in a folder or where fsspec reaches."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from mapveil.collector.refusals import StoreUnavailable
from mapveil.collector.store.export_files import ExportFiles
from mapveil_client.errors import InputError


@pytest.fixture(params=["folder", "url", "temporary"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> ExportFiles:
    if request.param == "url":
        pytest.importorskip("fsspec")
        return ExportFiles(f"memory://{tmp_path}")
    return ExportFiles(str(tmp_path / "exports") if request.param == "folder" else None)


def made(folder: Path, size: int, letter: bytes = b"x") -> Path:
    path = folder / "made"
    path.write_bytes(letter * size)
    return path


def test_a_file_is_kept_and_read(files: ExportFiles, tmp_path: Path) -> None:
    assert files.size("a.png") is None
    files.keep("a.png", made(tmp_path, 3_000_000))
    assert files.size("a.png") == 3_000_000
    chunks = list(files.read("a.png"))
    assert b"".join(chunks) == b"x" * 3_000_000
    assert max(map(len, chunks)) <= 1 << 20
    files.keep("a.png", made(tmp_path, 5, b"y"))
    assert b"".join(files.read("a.png")) == b"yyyyy"


def test_the_files_used_longest_ago_are_deleted(tmp_path: Path) -> None:
    files = ExportFiles(str(tmp_path / "exports"), most=25)
    for age, name in enumerate("cba"):
        files.keep(name, made(tmp_path, 10))
        os.utime(tmp_path / "exports" / name, (age, age))
    assert [files.size(name) for name in "abc"] == [10, 10, None]
    os.utime(tmp_path / "exports" / "a", (0, 0))
    os.utime(tmp_path / "exports" / "b", (1, 1))
    assert files.size("a") == 10  # used now
    files.keep("d", made(tmp_path, 10))
    assert [files.size(name) for name in "abd"] == [10, None, 10]
    files.keep("large", made(tmp_path, 100))  # is needed now, however large
    assert [files.size(name) for name in ("a", "d", "large")] == [None, None, 100]


def test_two_workers_keep_one_file_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease of the first ran out while it copied: whatever is there under the name is whole."""
    folder, copy, others = tmp_path / "exports", shutil.copyfile, [b"z", b"y"]

    def interrupted(source: Path, target: Path) -> None:
        target.touch()
        if others:
            path = made(tmp_path / others[-1].decode(), 10, others.pop())
            ExportFiles(str(folder), most=1).keep("a", path)
            assert (folder / "a").read_bytes() == path.read_bytes()
        copy(source, target)

    for name in ("y", "z"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(shutil, "copyfile", interrupted)
    files = ExportFiles(str(folder))
    files.keep("a", made(tmp_path, 10))
    assert b"".join(files.read("a")) == b"x" * 10
    assert [path.name for path in folder.iterdir()] == ["a"]


def test_a_folder_is_one_place_under_every_name_and_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (ExportFiles(str(tmp_path / name)).place for name in ("one", "other"))
    assert one != other
    (tmp_path / "mounted").symlink_to(tmp_path / "one")
    monkeypatch.setattr("socket.gethostname", lambda: "another")  # every container has a name of its own
    assert ExportFiles(str(tmp_path / "mounted")).place == one
    files = ExportFiles(str(tmp_path / "one"), most=1)
    files.keep("a", made(tmp_path, 10))  # the folder is tidied
    assert ExportFiles(str(tmp_path / "one")).place == one


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    ExportFiles(str(tmp_path / "new")).check()
    (tmp_path / "file").touch()
    mistyped = tmp_path / "mistyped" / "folder"
    for where in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nosuch"), mistyped):
        with pytest.raises(InputError, match=f"{where}: files of maps cannot be kept there") as refused:
            ExportFiles(str(where)).check()
        told = (
            "; expected for --exports a folder that the service may write, or can make in one that is there"
        )
        assert refused.value.in_flags().endswith(told)
    assert not mistyped.parent.exists()


def test_an_url_that_nothing_reads_is_refused() -> None:
    with pytest.raises(InputError, match="exports at cats:// need fsspec"):
        ExportFiles("cats://bucket")


def test_a_folder_that_is_gone_is_told_to_who_waits(tmp_path: Path) -> None:
    files = ExportFiles(str(tmp_path / "exports"))
    files.keep("a", made(tmp_path, 10))
    shutil.rmtree(tmp_path / "exports")
    assert files.size("a") is None
    with pytest.raises(StoreUnavailable, match="exported files"):
        files.keep("b", made(tmp_path, 10))
