"""``mapveil serve`` before there is a store, and where there is none: what is made, and what is refused."""

from __future__ import annotations

import json
import os
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
    assert f"{store}.operator: is drawn at the first start" in checked.out
    shared.unlink()
    checked = mapveil("serve", "--store", store, "--port", 0, "--check", *leader)
    assert (checked.code, f"{shared}: " in checked.out) == (1, True)


@pytest.mark.parametrize("setting", ["authority-key", "operator-key", "head-key"])
def test_a_key_in_a_folder_that_is_not_there_fails_the_check_and_the_start_makes_nothing(
    mapveil: Call, store: Path, tmp_path: Path, setting: str
) -> None:
    shared = tmp_path / "peer.key"
    shared.write_text("07" * 32)
    shared.chmod(0o600)
    folder = tmp_path / "mistyped"
    given = ("serve", "--store", store, "--port", 0, f"--{setting}", folder / "a.key")
    given += ("--operator", "helper", "--peer-key", shared)
    told = f"there is no folder {folder}; make it, or give another path"
    checked = mapveil(*given, "--check", "--json")
    failed = [each for each in json.loads(checked.out) if each["state"] == "failed"]
    names = {"authority-key": "authority", "operator-key": "operator", "head-key": "head key"}
    assert (checked.code, [each["what"] for each in failed]) == (1, [names[setting]])
    assert failed[0]["detail"] == f"{folder / 'a.key'}: {told}"
    if setting != "head-key":  # of which serving has no need
        done = mapveil(*given)
        assert (done.code, told in done.err, f"--{setting} {folder}" in done.err) == (2, True, True)
    assert list(tmp_path.iterdir()) == [shared]


def test_exports_and_a_store_below_a_file_are_refused_before_anything_is_made(
    mapveil: Call, store: Path, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    told = f"{file} is a file, not a folder; give another path"
    done = mapveil("serve", "--store", store, "--port", 0, "--exports", file / "exports")
    assert (done.code, f"--exports {file / 'exports'} cannot be used: {told}" in done.err) == (2, True)
    folder, shared = tmp_path / "folder", tmp_path / "shared.key"
    folder.mkdir()
    shared.write_text("7" * 64)
    shared.chmod(0o644)
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(tmp_path / "nothing")
    os.mkfifo(pipe)
    for option, given, told_of in (
        ("--exports", file, "it is no folder"),
        ("--authority-key", folder, "it is no file"),
        ("--authority-key", shared, "run chmod 600"),
        ("--authority", "nobody", "authority"),
        ("--exports", link, "it is a link to nothing"),
        ("--authority-key", pipe, "it is no file"),
        ("--exports", tmp_path / ("x" * 300), "it cannot be reached"),
    ):
        done = mapveil("serve", "--store", store, "--port", 0, option, given)
        assert (done.code, told_of in done.err) == (2, True), done.err
        checked = mapveil("serve", "--store", store, "--port", 0, option, given, "--check")
        assert (checked.code, told_of in checked.out) == (1, True), checked.out
    assert not store.exists()
    done = mapveil("serve", "--store", folder, "--new-operator", "admin")
    assert (done.code, "it is no file" in done.err) == (2, True)
    for store in (folder, pipe):
        assert "it is no file" in mapveil("serve", "--store", store, "--port", 0, "--check").out
    done = mapveil("serve", "--store", file / "store.sqlite", "--new-operator", "admin")
    assert (done.code, told in done.err) == (2, True)


def test_a_check_draws_no_key_beside_a_store_that_nothing_can_make(mapveil: Call, tmp_path: Path) -> None:
    store = tmp_path / "mistyped" / "store.sqlite"
    checked = mapveil("serve", "--store", store, "--port", 0, "--check", "--json")
    states = {each["what"]: each["state"] for each in json.loads(checked.out)}
    assert (states["store"], states["authority"]) == ("failed", "failed")


def test_a_check_reads_the_key_that_signs_heads(mapveil: Call, store: Path, tmp_path: Path) -> None:
    key = tmp_path / "head.key"
    given = ("serve", "--store", store, "--port", 0, "--check", "--head-key", key)
    assert f"{key}: is drawn for the first head" in mapveil(*given).out
    key.write_text("7" * 64)
    key.chmod(0o644)
    assert mapveil(*given).code == 1
    key.chmod(0o600)
    assert mapveil(*given).code == 0


def test_a_quiet_command_says_too_that_it_made_a_store(mapveil: Call, store: Path, tmp_path: Path) -> None:
    command = ("serve", "--store", store, "--quiet", "--new-operator", "admin")
    said = mapveil(*command).err
    assert said == f"mapveil: warning: New store made at {store}\n"
    assert mapveil(*command).err == ""
    own = tmp_path / "own.sqlite"
    done = mapveil("enrol-authority", tmp_path / "a.key", "--new-enrolment", "5", "--store", own)
    assert f"New store made at {own}" in done.err


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
