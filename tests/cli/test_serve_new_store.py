"""``mapveil serve`` before there is a store, and where there is none: what is made, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


def test_a_check_before_the_first_start_of_a_leader_finds_nothing_wrong(
    mapveil: Call, store: Path, tmp_path: Path
) -> None:
    shared = tmp_path / "peer.key"
    shared.write_text("07" * 32)
    shared.chmod(0o600)
    leader = ("--operator", "leader", "--peer", "https://helper.example", "--peer-key", shared)
    checked = mapveil("serve", "--store", store, "--port", 0, "--check", *leader)
    assert checked.code == 0, checked.out
    assert "its key is kept at the first start" in checked.out


@pytest.mark.parametrize(
    "words", [(), ("--check",), ("--new-operator", "admin"), ("--new-enrolment", "5")], ids=" ".join
)
def test_a_store_in_a_folder_that_is_not_there_is_refused_and_no_folder_is_made(
    mapveil: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr("mapveil.collector.http.serving.serve", lambda *_, **__: None)
    folder = tmp_path / "mistyped"
    done = mapveil("serve", "--store", folder / "store.sqlite", "--port", 0, *words)
    assert done.code == (1 if words == ("--check",) else 2)
    assert f"there is no folder {folder}; make it, or give another path" in done.out + done.err
    assert not folder.exists()


def test_a_check_says_whether_serving_can_make_the_folder_of_exports(
    mapveil: Call, store: Path, tmp_path: Path
) -> None:
    def checked(folder: Path) -> Any:
        return mapveil("serve", "--store", store, "--port", 0, "--check", "--exports", folder)

    done = checked(tmp_path / "exports")
    assert (done.code, "exports: mapveil serve makes it" in done.out) == (0, True)
    done = checked(tmp_path / "mistyped" / "exports")
    assert (done.code, f"there is no folder {tmp_path / 'mistyped'};" in done.out) == (1, True)
    assert list(tmp_path.iterdir()) == []


def test_a_backup_makes_one_folder_and_only_of_a_store_that_is_there(
    mapveil: Call, store: Path, tmp_path: Path
) -> None:
    done = mapveil("serve", "--store", store, "--backup", tmp_path / "backup")
    assert (done.code, f"there is no store at {store}" in done.err) == (2, True)
    assert mapveil("serve", "--store", store, "--new-operator", "admin").code == 0
    done = mapveil("serve", "--store", store, "--backup", tmp_path / "mistyped" / "backup")
    assert (done.code, f"there is no folder {tmp_path / 'mistyped'};" in done.err) == (2, True)
    assert not any((tmp_path / name).exists() for name in ("backup", "mistyped"))
    assert mapveil("serve", "--store", store, "--backup", tmp_path / "backup").code == 0
