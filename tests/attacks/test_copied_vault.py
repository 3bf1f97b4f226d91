"""One device's budget spent several times: two handles on its vault, and an older copy put back.

As the vault stood, two handles and one restored copy spent epsilon 3 of a lifetime budget of epsilon 1.
"""

from __future__ import annotations

import shutil
from fractions import Fraction
from pathlib import Path

import pytest

from mapveil_client.device_account import Budget
from mapveil_client.errors import BudgetExceeded, InputError
from mapveil_client.memory import DeviceMemory
from mapveil_client.vault import Vault

KEY, LIFETIME = bytes(range(32)), Budget(Fraction(1))


class SecureElement:
    """A counter that outlives whatever is copied or deleted; one increment at a time may be cut off."""

    def __init__(self) -> None:
        self.count, self.fails = 0, False

    def value(self) -> int:
        return self.count

    def increment(self) -> None:
        if self.fails:
            raise KeyboardInterrupt
        self.count += 1


def spend(memory: DeviceMemory, name: str) -> None:
    memory.account.grant(name * 32, Fraction(1), budget=LIFETIME)
    memory.account.charge(name * 32, 1, Fraction(1), budget=LIFETIME)
    memory.save()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "device.vault"


def test_a_second_handle_is_refused_until_the_first_is_closed(path: Path) -> None:
    vault = Vault(path, KEY)
    spend(DeviceMemory.open(vault), "a")
    for other in (Vault(path, KEY), Vault(path, KEY, counter=SecureElement())):
        with pytest.raises(InputError, match="in use by another process or handle"):
            DeviceMemory.open(other)
    with pytest.raises(InputError, match="is open already"):
        DeviceMemory.open(vault)
    vault.close()
    with pytest.raises(BudgetExceeded):
        spend(DeviceMemory.open(Vault(path, KEY)), "b")


def test_a_handle_that_was_closed_writes_no_more(path: Path) -> None:
    vault = Vault(path, KEY)
    first = DeviceMemory.open(vault)
    vault.close()
    second = DeviceMemory.open(Vault(path, KEY))
    with pytest.raises(InputError, match="not open in this handle; nothing is sent"):
        spend(first, "a")
    spend(second, "b")


def test_where_the_folder_is_held_the_generation_tells_two_handles_apart(path: Path) -> None:
    """As in a fleet, whose vaults have no lock of their own."""
    first = DeviceMemory.open(Vault(path, KEY, held=True))
    second = DeviceMemory.open(Vault(path, KEY, held=True))
    with pytest.raises(InputError, match="was replaced meanwhile"):
        spend(first, "a")
    spend(second, "b")


def test_a_copy_put_back_while_the_vault_is_open_is_not_written_over(path: Path, tmp_path: Path) -> None:
    memory = DeviceMemory.open(Vault(path, KEY))
    shutil.copy(path, tmp_path / "backup")
    memory.save()
    shutil.copy(tmp_path / "backup", path)
    with pytest.raises(InputError, match="was replaced meanwhile"):
        spend(memory, "a")


def test_with_a_counter_an_older_copy_a_copy_elsewhere_and_a_deleted_file_are_refused(
    path: Path, tmp_path: Path
) -> None:
    counter, backup = SecureElement(), tmp_path / "backup"
    vault = Vault(path, KEY, counter=counter)
    memory = DeviceMemory.open(vault)
    vault.close()
    shutil.copy(path, backup)
    vault.open()  # as a device's next start does
    vault.close()
    with pytest.raises(InputError, match="is a copy of generation 1, and its counter stands at 2"):
        Vault(backup, KEY, counter=counter).open()
    memory = DeviceMemory.open(vault)
    spend(memory, "a")
    vault.close()
    latest = path.read_bytes()
    shutil.copy(backup, path)
    with pytest.raises(InputError, match="is a copy of generation 1"):
        vault.open()
    path.unlink()
    with pytest.raises(InputError, match="is gone, and its counter stands at 4; nothing is begun anew"):
        DeviceMemory.open(vault)
    path.write_bytes(latest)
    with pytest.raises(BudgetExceeded):
        spend(DeviceMemory.open(vault), "b")


def test_a_process_that_ends_between_a_writing_and_its_count_goes_on(path: Path) -> None:
    counter = SecureElement()
    vault = Vault(path, KEY, counter=counter)
    memory = DeviceMemory.open(vault)
    counter.fails = True
    with pytest.raises(KeyboardInterrupt):
        spend(memory, "a")  # nothing was sent
    counter.fails = False
    vault.close()
    again = DeviceMemory.open(vault)
    assert again.account.spent == 1
    assert counter.count == 3
    again.save()


def test_without_a_counter_a_copy_that_is_put_back_is_not_noticed(path: Path, tmp_path: Path) -> None:
    """The limit that the documentation names."""
    vault = Vault(path, KEY)
    memory = DeviceMemory.open(vault)
    shutil.copy(path, tmp_path / "backup")
    spend(memory, "a")
    vault.close()
    shutil.copy(tmp_path / "backup", path)
    spend(DeviceMemory.open(vault), "b")
