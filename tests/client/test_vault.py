"""The vault: what was written comes back, with the key only; anything else is an error, never an empty vault."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from mapveil_client.errors import InputError, MapveilError
from mapveil_client.vault import Vault, locked, read_key

KEY = bytes(range(32))


def opened(folder: Path) -> Vault:
    vault = Vault(folder / "v", KEY)
    assert vault.open() is None
    return vault


def test_what_is_written_comes_back_and_is_not_there_in_the_clear(tmp_path: Path) -> None:
    vault = Vault(tmp_path / "v", KEY)
    assert vault.open() is None
    for content in (b"", b"a secret", os.urandom(1 << 16)):
        vault.write(content)
        vault.close()
        assert vault.open() == content
        assert len(content) < 4 or content not in (tmp_path / "v").read_bytes()
    assert (tmp_path / "v").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == [".v.lock", "v"]


def test_two_writings_of_the_same_differ(tmp_path: Path) -> None:
    vault = opened(tmp_path)
    seen = set()
    for _ in range(50):
        vault.write(b"the same")
        seen.add((tmp_path / "v").read_bytes())
    assert len(seen) == 50


def test_every_damaged_byte_every_cut_and_every_other_key_is_an_error(tmp_path: Path) -> None:
    vault = opened(tmp_path)
    vault.write(b"secret")
    vault.close()
    whole = vault.path.read_bytes()
    for at in range(len(whole)):
        vault.path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(InputError, match="nothing is begun anew"):
            vault.open()
    for at in range(len(whole)):
        vault.path.write_bytes(whole[:at])
        with pytest.raises(InputError, match="nothing is begun anew"):
            vault.open()
    vault.path.write_bytes(whole)
    with pytest.raises(InputError, match="another key"):
        Vault(vault.path, bytes(32)).open()
    assert vault.open() == b"secret"


@pytest.mark.parametrize("content", [b"", b"12345678", b"a device's record"])
def test_a_vault_of_the_layout_before_is_refused_and_stays_as_it_was(tmp_path: Path, content: bytes) -> None:
    magic, nonce = b"mapveil vault 1\n", bytes(12)
    older = magic + nonce + AESGCM(KEY).encrypt(nonce, content, magic)
    vault = Vault(tmp_path / "v", KEY)
    vault.path.write_bytes(older)
    with pytest.raises(InputError, match="is a vault of layout 1; this Mapveil opens layout 2 only"):
        vault.open()
    assert vault.path.read_bytes() == older


def test_what_cannot_be_written_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = opened(tmp_path)
    vault.write(b"first")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mapveil_client.vault.os.fsync", full)
    with pytest.raises(MapveilError, match=r"No space left on device\); nothing is sent"):
        vault.write(b"second")
    monkeypatch.undo()
    vault.write(b"third")
    vault.close()
    assert vault.open() == b"third"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".v.lock", "v"]


def test_keys_are_read_in_either_form_and_nothing_else_is(tmp_path: Path) -> None:
    file = tmp_path / "key"
    for content in (KEY, KEY.hex().encode(), KEY.hex().upper().encode() + b"\n"):
        file.write_bytes(content)
        assert read_key(file) == KEY
    for content in (b"", KEY[:-1], KEY.hex().encode()[:-1], b"x" * 64, b"\xff" * 64):
        file.write_bytes(content)
        with pytest.raises(InputError, match="64 hexadecimal digits"):
            read_key(file)
    with pytest.raises(InputError, match="cannot be read"):
        read_key(tmp_path / "none")
    with pytest.raises(InputError, match="31 bytes"):
        Vault(file, KEY[:-1])


def test_no_key_is_shown_or_copied(tmp_path: Path) -> None:
    import pickle

    vault = Vault(tmp_path / "v", KEY)
    assert KEY.hex() not in repr(vault)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(vault)


def hold(folder: str, held: Event, go: Event) -> None:
    with locked(folder):
        held.set()
        go.wait(600)


def test_a_folder_is_held_by_one_process_at_a_time(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    held, go = context.Event(), context.Event()
    other = context.Process(target=hold, args=(str(tmp_path), held, go))
    other.start()
    assert held.wait(600)
    with pytest.raises(InputError, match="in use by another process"), locked(tmp_path):
        pass
    go.set()
    other.join()
    with locked(tmp_path):
        pass
    with pytest.raises(InputError, match="a folder"), locked(tmp_path / "none"):
        pass
