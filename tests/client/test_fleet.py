"""Fleets and single devices against the collector itself, over HTTP on this machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import timedelta
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from mapveil.collector.fleet.fleet import Fleet
from mapveil.collector.fleet.fleet_table import whereabouts_of
from mapveil.collector.fleet.lapses import Lapses
from mapveil.collector.store.principals import Accounts
from mapveil.geo.points import Points
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil_client.connection import Connection, ServerRefusal
from mapveil_client.device_client import DeviceClient
from mapveil_client.device_locations import Whereabouts
from mapveil_client.errors import InputError, ParameterError, PromiseError
from mapveil_client.memory import DeviceMemory
from mapveil_client.policy import DevicePolicy
from mapveil_client.randomness.random import Randomness
from mapveil_client.vault import Vault
from tests.authority import NAMED

from .conduct import saved
from .live import BOX, Live, LiveLeader, live_collector, served

KEY = bytes(range(32))
POLICY = DevicePolicy(authority=NAMED)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_collector(tmp_path_factory.mktemp("collector")) as made:
        yield made


def crowd(count: int = 24) -> list[Whereabouts]:
    """Three quarters in one cell of the west, the rest in one of the east."""
    return [
        Whereabouts(np.array([-74.025 if index % 4 else -73.905]), np.array([40.70]))
        for index in range(count)
    ]


def run(live: Live, collection: str, count: int = 24, *, policy: DevicePolicy = POLICY, **given):
    fleet = Fleet(live.url, crowd(count), policy, look_s=0.05, **given)
    return fleet, asyncio.run(fleet.run(live.token, [collection]))


def east_and_west(live: Live, collection: str) -> tuple[float, float]:
    heat = live.engine.map(collection)
    lon = heat.tiling.centres().lon
    return float(heat.values[lon < -73.965].sum()), float(heat.values[lon >= -73.965].sum())


def test_a_distributed_collection_of_a_fleet_finds_where_people_are(live: Live) -> None:
    collection = live.open(epsilon="2", tiling="quadtree:1")
    steps: list[str] = []
    fleet, made = run(live, collection, progress=lambda step, done: steps.append(step))
    assert made.good
    assert (made.devices, made.joined, made.dropped, made.refused, made.left) == (24, 24, 0, {}, {})
    assert made.sent == 24 * 6  # joining, and five phases
    assert made.epsilon == 2
    assert {client.memory.account.spent for client in fleet.clients} == {Fraction(2)}
    record = live.engine.collection(collection)
    assert (record["state"], record["spent"], record["members"]) == ("done", "2", 24)
    west, east = east_and_west(live, collection)
    # Four noises, each a sum of 24/21 discrete Laplace variables of scale 1/2, at six standard errors.
    noise = 6 * (4 * 24 / 21 * 2 * 0.25) ** 0.5
    assert abs(west + east - 24) < noise
    assert west > east
    assert min(made.bytes_up[1], made.bytes_down[1]) > 1000
    assert [each for each in dict.fromkeys(steps) if each in ("join", "enrol")] == ["enrol", "join"]
    assert {f"round 1: {phase}" for phase in ("keys", "shares", "inputs", "consents", "answers")} <= set(
        steps
    )
    assert all(not client.memory.parts[collection].machine for client in fleet.clients)


def test_a_fleet_that_has_to_wait_says_why_once() -> None:
    said: list[str] = []
    fleet = Fleet("http://127.0.0.1:9", crowd(1), POLICY, note=said.append)
    for _ in range(2):
        fleet._wire["waiting"]("60 devices in 60 s")
    assert said == ["waiting, as the server asks: 60 devices in 60 s"]


def test_a_collection_of_rounds_stays_within_its_epsilon(live: Live) -> None:
    collection = live.open(method="adaptive-grid", active=False, tiling="quadtree:4", epsilon="1")
    fleet, made = run(live, collection, policy=DevicePolicy(authority=NAMED, active_only=False))
    record = live.engine.collection(collection)
    assert (made.states[collection], record["reason"]) == ("done", None)
    assert len(record["rounds"]) >= 2
    spent = {client.memory.account.spent for client in fleet.clients}
    assert spent == {Fraction(record["spent"])}
    assert max(spent) <= 1
    charges = fleet.clients[0].memory.account.entries[collection].charges
    assert charges == {each["number"]: Fraction(each["epsilon"]) for each in record["rounds"]}


def test_local_reports_of_a_fleet_become_a_map(live: Live) -> None:
    collection = live.open(
        trust="local", method="grr", epsilon="2", tiling="quadtree:1", devices=200, minimum=100
    )
    fleet, made = run(live, collection, 200)
    assert made.good
    assert (made.sent, made.epsilon) == (200, 2)
    west, east = east_and_west(live, collection)
    assert west + east == pytest.approx(200)
    assert west > east
    assert all(client.memory.account.spent == 2 for client in fleet.clients)


def test_projections_of_a_fleet_become_a_map(live: Live) -> None:
    collection = live.open(
        trust="random-features",
        method="fourier-kde",
        tiling="quadtree:4",
        devices=300,
        minimum=100,
        options={"least_signal": 0},
    )
    cells = Quadtree(Region.from_bbox(*BOX), 4)
    lon, lat = cells.centres(np.array([37]))
    crowded = [*([Whereabouts(lon, lat)] * 200), *crowd(100)]
    fleet = Fleet(live.url, crowded, POLICY, look_s=0.05)
    made = asyncio.run(fleet.run(live.token, [collection]))
    assert made.good
    assert (made.sent, made.epsilon) == (300, 0)
    # 200 kernels' tops, beside features of standard deviation (300 / 2)^(1/2) at the middle of every cell.
    assert int(np.argmax(live.engine.map(collection).values)) == 37
    assert all(client.memory.frequencies is not None for client in fleet.clients)


def test_devices_that_drop_out_and_are_slow_are_missed_and_waited_for(live: Live) -> None:
    collection = live.open(devices=40, minimum=20, phase_seconds=4, options={"tolerated_dropout": 0.25})
    lapses = Lapses(drop=0.1, slow=0.1, slow_s=0.3, seed=5)
    fleet, made = run(live, collection, 40, lapses=lapses)
    record = live.engine.collection(collection)
    assert made.dropped == 2  # the seed's
    assert (record["state"], record["rounds"][0]["included"]) == ("done", 38)
    gone = np.flatnonzero(fleet._plan.gone)
    spent = [client.memory.account.spent for client in fleet.clients]
    assert [spent[index] for index in gone] == [0] * 2
    assert sum(spent) == 38


def test_too_many_dropouts_abort_the_collection(live: Live) -> None:
    collection = live.open(devices=24, minimum=20, phase_seconds=2)
    _, made = run(live, collection, 24, lapses=Lapses(drop=0.6, seed=1))
    assert not made.good
    assert made.states[collection] == "aborted"
    assert live.engine.collection(collection)["spent"] == "0"


def test_a_fleet_whose_policy_refuses_says_why_and_sends_nothing(live: Live) -> None:
    collection = live.open(epsilon="3")
    fleet, made = run(live, collection)
    assert not made.good
    assert (made.joined, made.sent, made.epsilon) == (0, 0, 0)
    assert made.refused == {"epsilon must be at most 2, got 3": 24}
    assert all("refused" in [line.event for line in client.memory.log.lines] for client in fleet.clients)
    assert live.engine.collection(collection)["members"] == 0
    live.engine.abort(collection, live.actor, "refused by all")


def test_a_fleet_that_is_stopped_and_started_again_counts_everybody_once(live: Live, tmp_path: Path) -> None:
    collection = live.open(tiling="quadtree:1", epsilon="2")
    kept = {"folder": tmp_path / "fleet", "key": KEY}
    fleet = Fleet(live.url, crowd(), POLICY, look_s=0.05, **kept)

    async def stop_in(phase: str) -> None:
        """Run until some devices have answered in a phase, then be gone without a word."""
        running = asyncio.ensure_future(fleet.run(live.token, [collection]))
        until = time.monotonic() + 60
        while time.monotonic() < until:
            parts = [client.memory.parts.get(collection) for client in fleet.clients]
            if sum(part is not None and part.phase == phase for part in parts) > 3:
                break
            assert not running.done()
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    for phase in ("shares", "inputs", "consents"):
        asyncio.run(stop_in(phase))
        fleet = Fleet(live.url, crowd(), POLICY, look_s=0.05, **kept)
    made = asyncio.run(fleet.run(None, [collection]))  # enrolled before: no token
    assert made.good
    record = live.engine.collection(collection)
    assert (record["state"], record["rounds"][0]["included"], record["spent"]) == ("done", 24, "2")
    assert {client.memory.account.spent for client in fleet.clients} == {Fraction(2)}
    assert len({client.memory.identity.public for client in fleet.clients}) == 24
    with pytest.raises(InputError, match="another key"):
        asyncio.run(Fleet(live.url, crowd(), POLICY, folder=kept["folder"], key=bytes(32)).run())


def test_one_device_polls_enrols_once_and_answers(live: Live, tmp_path: Path) -> None:
    collection = live.open(trust="local", method="grr", devices=24, minimum=20)
    vault = Vault(tmp_path / "device.vault", KEY)

    async def one() -> tuple[int, bool, bool]:
        async with Connection(live.url) as connection:
            device = DeviceClient(connection, DeviceMemory.open(vault), POLICY, crowd(1)[0])
            number = await device.enrol(live.token)
            first = await device.poll()
            again = await device.poll()
            vault.close()
            return number, first, again

    first = asyncio.run(one())
    second = asyncio.run(one())
    assert first[0] == second[0]
    assert live.engine.collection(collection)["reports"] == 1
    memory = saved(vault.path, KEY)
    assert memory.account.spent == 1
    assert memory.parts[collection].state == "reported"
    live.engine.abort(collection, live.actor, "enough")
    time.sleep(0.3)  # what the server says of its progress is a tenth of a second old
    assert asyncio.run(one())[1] is False  # over: nothing is running
    assert saved(vault.path, KEY).parts[collection].state == "ended"


def test_requests_signed_by_another_device_or_token_are_refused(live: Live) -> None:
    collection = live.open(trust="local", method="grr")

    async def try_all() -> None:
        path = f"/v1/collections/{collection}/report"
        async with Connection(live.url) as connection:
            first, second = (DeviceMemory.open(rng=Randomness(seed)).identity for seed in (1, 2))
            number = await connection.enrol(live.token, first)
            with pytest.raises(ServerRefusal, match="401"):
                await connection.enrol("mve_" + "x" * 43, second)
            with pytest.raises(ServerRefusal, match="401"):
                await connection.request("PUT", path, b"x", media="application/cbor", signer=(second, number))

    asyncio.run(try_all())
    live.engine.abort(collection, live.actor, "enough")


def test_no_open_collection_no_token_and_no_devices_are_said(live: Live, tmp_path: Path) -> None:
    with pytest.raises(PromiseError, match="no collection is open"):
        asyncio.run(Fleet(live.url, crowd(3), POLICY).run(live.token))
    collection = live.open()
    with pytest.raises(InputError, match="3 devices are not enrolled"):
        asyncio.run(Fleet(live.url, crowd(3), POLICY).run())
    live.engine.abort(collection, live.actor, "enough")
    with pytest.raises(InputError, match="at least one"):
        Fleet(live.url, [], POLICY)
    with pytest.raises(InputError, match="go together"):
        Fleet(live.url, crowd(1), POLICY, folder=tmp_path)
    for wrong in ({"drop": 1.0}, {"slow": -0.1}, {"slow_s": float("nan")}):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            Lapses(**wrong)


def test_a_fleet_larger_than_its_token_lets_in_says_how_many_are_enrolled(live: Live) -> None:
    collection = live.open()
    token = Accounts(live.store).create_enrolment("two", 2, timedelta(days=1), None, live.actor).token
    fleet = Fleet(live.url, crowd(3), POLICY, connections=1)
    said = "2 of 3 devices are enrolled; .*the enrolment token is unknown, expired, revoked or used up"
    with pytest.raises(PromiseError, match=said):
        asyncio.run(fleet.run(token, [collection]))
    live.engine.abort(collection, live.actor, "enough")


def test_a_table_becomes_one_device_for_each_user() -> None:
    user = np.array(["b", "a", "b", "c", "a", "b"])
    lon = np.array([2.0, 1.0, 2.1, 3.0, 1.1, 2.2])
    points = Points.from_arrays(user, lon, lon + 40, weight=lon * 10)
    made = whereabouts_of(points)
    assert [sorted(each.lon.tolist()) for each in made] == [[1.0, 1.1], [2.0, 2.1, 2.2], [3.0]]
    for each in made:
        assert each.lat.tolist() == (each.lon + 40).tolist()
        assert each.weights is not None
        assert each.weights.tolist() == (each.lon * 10).tolist()


def test_a_round_that_loses_too_many_devices_early_is_run_again_with_the_others(live: Live) -> None:
    collection = live.open(devices=30, phase_seconds=3)
    fleet = Fleet(live.url, crowd(30), POLICY, look_s=0.05)
    fleet._plan.drops = lambda index, _, number, phase: index < 7 and phase == "shares"
    assert asyncio.run(fleet.run(live.token, [collection])).good
    first, again = live.engine.collection(collection)["rounds"]
    assert (first["state"], first["included"]) == ("restarted", None)
    assert (again["state"], again["asked"], again["included"]) == ("done", 23, 23)
    accounts = [client.memory.account.entries[collection].charges for client in fleet.clients]
    assert accounts == [{}] * 7 + [{2: Fraction(1)}] * 23
    assert [(line["number"], line["devices"]) for line in live.engine.ledger()][:1] == [(2, 23)]


def test_a_fleet_whose_policy_refuses_enrols_nobody(live: Live) -> None:
    collection = live.open()
    before = Accounts(live.store).device_count()
    made = asyncio.run(Fleet(live.url, crowd(3), DevicePolicy()).run(live.token, [collection]))
    assert (made.joined, Accounts(live.store).device_count() - before) == (0, 0)
    (reason,) = made.refused
    assert "names no enrolment authority" in reason
    live.engine.abort(collection, live.actor, "enough")


def test_a_fleet_reads_no_times_and_leaves_a_series(tmp_path: Path) -> None:
    windows = {"every": "1d", "start": "2026-01-05", "until": "2026-01-08"}
    with served(LiveLeader(tmp_path)) as live:
        collection = live.open(trust="operators", method="multiscale", windows=windows)
        fleet, made = run(live, collection, policy=DevicePolicy(helper=live.helper_key))
    assert (made.states[collection], made.sent) == ("open", 0)
    parts = [client.memory.parts[collection] for client in fleet.clients]
    assert {each.state for each in parts} == {"left"}
    assert {each.reason for each in parts} == {"a device's locations have no times, which these windows need"}
    assert {client.memory.account.spent for client in fleet.clients} == {0}
