"""A device under test: its locations must stay unseen, and a refusal must cost and say nothing more."""

from __future__ import annotations

import time
from fractions import Fraction
from pathlib import Path

import pytest

from mapveil_client.device_locations import Whereabouts
from mapveil_client.memory import DeviceMemory
from mapveil_client.participation import DeviceRefusal, Participation
from mapveil_client.vault import Vault


class Unseen(Whereabouts):
    """Places that nobody may look at: deciding comes first."""

    def __getattribute__(self, name):
        if name in ("devices", "cell", "visits", "lon", "lat"):
            raise AssertionError("the place was looked at before everything was decided")
        return super().__getattribute__(name)

    def __init__(self) -> None:
        pass


def spent(device: Participation) -> Fraction:
    return device.memory.account.spent


def saved(path: Path, key: bytes = bytes(range(32))) -> DeviceMemory:
    """The content of a vault, whoever has it open."""
    found = Vault(path, key)._read()
    assert found is not None
    return DeviceMemory._read(found[1], None, time.time)


def refusing(device: Participation, call, match: str) -> None:
    """The device refuses, says why in its log, spends nothing more, and says nothing ever after."""
    before = spent(device)
    with pytest.raises(DeviceRefusal, match=match):
        call()
    assert spent(device) == before
    assert any(line.event == "refused" and line.text for line in device.memory.log.lines)
    assert not device.running
    with pytest.raises(DeviceRefusal):
        device.report()
