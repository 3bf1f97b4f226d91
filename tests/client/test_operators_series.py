"""A series collected by two operators over HTTP, from devices in Python and in JavaScript."""

from __future__ import annotations

import asyncio
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mapveil.collector.rounds import collection as rows_of
from mapveil.maps.series_map import SeriesMap
from mapveil_client.connection import Connection
from mapveil_client.device_client import DeviceClient
from mapveil_client.device_locations import Whereabouts
from mapveil_client.memory import DeviceMemory
from mapveil_client.policy import DevicePolicy
from mapveil_client.two_operators import field_arithmetic, turbo_shake
from tests.node import run_in_node

from .live import LiveHelper, LiveLeader, served
from .test_npm_package import finished

DEVICES = 20
SCALE = 12
MONDAY = 1_767_571_200  # 2026-01-05, UTC
DAY = 86400
WINDOWS = {"every": "1d", "start": "2026-01-05", "until": "2026-01-08"}
SCRIPT = """
const { Device } = await load("device");
const { windowWords } = await load("words");
const storage = () => {
  const [kept, answers] = [new Map(), new Map()];
  const store = (map, key) => ({
    get: async (name) => map.get(name),
    all: async () => [...map.values()],
    put: (value, name = value[key]) => map.set(name, value),
  });
  const stores = { kept: store(kept, null), answers: store(answers, "collection") };
  return { keepsKeys: false, run: async (work) => work(stores) };
};
const said = [];
for (const record of given.records) {
  const device = await Device.open({ storage: storage(), address: given.url });
  await device.enrol(given.token);
  await device.trustHelper(given.helper);
  const [listed] = await device.collections();
  const terms = await device.terms(listed);
  const answer = await device.answer(terms, await device.plan(terms), () => record);
  await device.send(answer);
  said.push([answer.epsilon, windowWords(terms.windows, await device.window(terms))]);
}
console.log(JSON.stringify(said));
"""


def record_of(number: int) -> list[dict[str, float]]:
    """Two places of the first day, one of the second, and one of a day that no window holds."""
    lon = -74.025 if number % 4 else -73.905
    days = (0.2, 0.9, 1.5, 7.0)
    return [{"lon": lon, "lat": 40.7, "at": 1000.0 * (MONDAY + DAY * day)} for day in days]


async def answer_all(live: LiveLeader, numbers: range) -> list[Fraction]:
    """What Python's devices spend."""
    async with Connection(live.url) as connection:
        spent = []
        for number in numbers:
            record = record_of(number)
            lon, lat, at = (np.array([each[name] for each in record]) for name in ("lon", "lat", "at"))
            places = Whereabouts(lon, lat, times=at / 1000)
            memory = DeviceMemory.open()
            device = DeviceClient(connection, memory, DevicePolicy(helper=live.helper_key), places)
            await device.enrol(live.token)
            while not device.memory.account.spent:
                await device.poll()
            spent.append(memory.account.spent)
        return spent


def test_devices_of_both_languages_are_one_series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (field_arithmetic, turbo_shake):
        monkeypatch.setattr(module, "COMPILE_AFTER_S", math.inf)
    monkeypatch.setattr(rows_of, "forget_sums", lambda connection, identifier: None)  # to look at them
    folders = [tmp_path / name for name in ("leader", "helper")]
    for folder in folders:
        folder.mkdir()
    with served(LiveHelper(folders[1])) as helper, served(LiveLeader(folders[0], helper)) as live:
        spec: dict[str, Any] = {
            "trust": "operators",
            "method": "multiscale",
            "epsilon": "2",
            "windows": WINDOWS,
        }
        collection = live.open(**spec, devices=DEVICES, minimum=DEVICES, options={"scale": SCALE})
        half = DEVICES // 2
        assert asyncio.run(answer_all(live, range(half))) == [2] * half
        records = [record_of(number) for number in range(half, DEVICES)]
        given = {"url": live.url, "token": live.token, "helper": live.helper_key, "records": records}
        for epsilon, words in run_in_node(SCRIPT, given):
            assert epsilon == "2"
            assert "counts 1 in all of them together" in words
        assert finished(live, collection) == "done"
        sums = np.array(live.exact(collection)).reshape(64, 4)
        east, west = SCALE * DEVICES // 4, SCALE * 3 * DEVICES // 4
        assert sums.sum(axis=0).tolist() == [2 * (east + west) // 3, (east + west) // 3, 0, 0]
        assert sorted(sums.sum(axis=1))[-3:] == [0, east, west]
        made = live.engine.map(collection)
        assert isinstance(made, SeriesMap)
        assert (made.guarantee.model, made.guarantee.epsilon, made.guarantee.simulated) == (
            "operators",
            2,
            False,
        )
        assert made.windows.names == ("2026-01-05", "2026-01-06", "2026-01-07")
        told = [engine.account(collection) for engine in (live.engine, helper.engine)]
        assert [account.pop("operator") for account in told] == ["leader", "helper"]
        assert told[0] == told[1]
        assert (told[0]["accepted"], told[0]["epsilon"]) == (DEVICES, "2")
