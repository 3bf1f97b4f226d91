"""The memory: whole after a restart, drawn once, and never begun anew where it cannot be read."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from mapveil_client.device_account import Budget
from mapveil_client.errors import InputError, PromiseError
from mapveil_client.memory import DeviceMemory, Part
from mapveil_client.random_features.feature_policy import Policy
from mapveil_client.random_features.frequencies import KeptFrequencies
from mapveil_client.random_features.query import Query
from mapveil_client.randomness.random import Randomness
from mapveil_client.vault import Vault

KEY = bytes(range(32))
POLICY = Policy((150.0, 150.0), features=3)
QUERY = Query((150.0, 150.0), (0.0, 0.0), (12_000.0, 12_000.0))


def filled(vault: Vault) -> DeviceMemory:
    memory = DeviceMemory.open(vault)
    memory.device = 17
    memory.account.grant("a" * 32, Fraction(1, 3), budget=Budget(Fraction(1)))
    memory.account.charge("a" * 32, 1, Fraction(1, 7), budget=Budget(Fraction(1)))
    memory.parts["a" * 32] = Part("b" * 64, round=1, phase="inputs", answer=b"\x00\xff", machine=b"machine")
    memory.frequencies = KeptFrequencies.draw(POLICY, QUERY, 25.0, Randomness(3))
    memory.refused["c" * 32] = "too dear"
    memory.log.add("refused", "too dear", "c" * 32)
    memory.save()
    vault.close()
    return memory


def test_everything_comes_back_after_a_restart(tmp_path: Path) -> None:
    first = filled(Vault(tmp_path / "v", KEY))
    again = DeviceMemory.open(Vault(tmp_path / "v", KEY))
    assert again.identity.public == first.identity.public
    assert (again.device, again.refused, again.log.lines) == (17, first.refused, first.log.lines)
    assert again.account.to_record() == first.account.to_record()
    assert again.parts == first.parts
    assert again.frequencies is not None
    assert first.frequencies is not None
    # Every digit: another frequency would narrow the place down.
    assert again.frequencies.units.tobytes() == first.frequencies.units.tobytes()
    assert again.frequencies.to_record() == first.frequencies.to_record()
    assert again.frequencies.pin == first.frequencies.pin


def test_identity_and_frequencies_are_drawn_once_and_differ_between_devices(tmp_path: Path) -> None:
    keys = {DeviceMemory.open(Vault(tmp_path / "v", KEY)).identity.public for _ in range(3)}
    assert len(keys) == 1
    assert keys != {DeviceMemory.open(Vault(tmp_path / "w", KEY)).identity.public}


def test_a_memory_that_does_not_open_is_never_begun_anew(tmp_path: Path) -> None:
    vault = Vault(tmp_path / "v", KEY)
    filled(vault)
    whole = vault.path.read_bytes()
    with pytest.raises(InputError, match="nothing is begun anew"):
        DeviceMemory.open(Vault(vault.path, bytes(32)))
    vault.path.write_bytes(whole[:-1])
    with pytest.raises(InputError, match="nothing is begun anew"):
        DeviceMemory.open(vault)
    assert vault.path.read_bytes() == whole[:-1]


@pytest.mark.parametrize(
    "name", ["version", "seed", "account", "parts", "frequencies", "refused", "log", "device"]
)
def test_a_record_that_lacks_something_is_an_error(tmp_path: Path, name: str) -> None:
    vault = Vault(tmp_path / "v", KEY)
    filled(vault)
    record = json.loads(vault.open() or b"")
    del record[name]
    vault.write(json.dumps(record).encode())
    vault.close()
    with pytest.raises(InputError, match="nothing is begun anew"):
        DeviceMemory.open(vault)


def test_a_record_of_another_version_is_refused_and_stays_as_it_was(tmp_path: Path) -> None:
    vault = Vault(tmp_path / "v", KEY)
    filled(vault)
    older = (vault.open() or b"").replace(b'"version":2', b'"version":1')
    vault.write(older)
    vault.close()
    with pytest.raises(InputError, match="version of the device's record must be 2, got 1"):
        DeviceMemory.open(vault)
    vault.close()
    assert vault.open() == older


def test_kept_frequencies_refuse_every_other_policy() -> None:
    kept = KeptFrequencies.draw(POLICY, QUERY, 25.0, Randomness(1))
    assert kept.refusal(POLICY, QUERY, 25.0) is None
    for change, jitter in (
        ({"features": 2}, 25.0),
        ({"kernel": "laplace"}, 25.0),
        ({"bandwidth": (140.0, 140.0)}, 25.0),
        ({}, 0.0),
    ):
        assert kept.refusal(replace(POLICY, **change), QUERY, jitter)
    for query in (replace(QUERY, crs="EPSG:32618"), replace(QUERY, high=(12_000.0, 12_001.0))):
        assert "region must be" in str(kept.refusal(POLICY, query, 25.0))
    assert np.array_equal(kept.take(1), kept.take(3)[:, :, :1])
    with pytest.raises(PromiseError, match="features must be 1 to 3 on this device, got 4"):
        kept.take(4)


def test_nothing_secret_is_shown_or_copied(tmp_path: Path) -> None:
    memory = filled(Vault(tmp_path / "v", KEY))
    shown = f"{memory!r} {memory.parts!r} {memory.frequencies!r}"
    assert memory._seed.hex() not in shown
    assert "machine" not in shown.replace("machine=", "")
    for each in (memory, memory.frequencies):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(each)


def test_forgetting_leaves_no_answer_and_no_machine() -> None:
    part = Part("b" * 64, answer=b"said", machine=b"secret")
    part.forget("left", "why")
    assert (part.answer, part.machine, part.running, part.reason) == (b"", b"", False, "why")


def test_what_a_server_had_a_part_in_is_kept_short_and_plain() -> None:
    """Whatever it lists and says, the memory of a device does not grow without end."""
    memory = DeviceMemory.open(rng=Randomness(1))
    for number in range(1200):
        memory.refuse(f"{number:032x}", "no method is called 'a\nb\x1b[31m'" + "x" * 10_000)
    assert len(memory.refused) == 1000
    assert f"{1199:032x}" in memory.refused
    assert f"{0:032x}" not in memory.refused
    texts = [*memory.refused.values(), *(line.text for line in memory.log.lines)]
    assert all(text.isprintable() and len(text) <= 300 for text in texts)
