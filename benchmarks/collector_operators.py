"""Two operators over loopback HTTP beside a single server's secure sums of the same collection, whole.

Leader, helper and devices are processes of their own; one device in twenty never comes. Processor seconds are of each
operator alone, so that the devices and other work on the machine do not count; seconds by the clock do include them.
"""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any, Final, NamedTuple

from benchmarks.collector import CORRUPT, FLEETS, LOOK_S, LOST, SHARD, TOLERATED, start_fleet
from benchmarks.collector_service import Service
from benchmarks.record import Context, Result, line

SPEC: Final[dict[str, Any]] = {"method": "multiscale", "tiling": "quadtree:5", "join_seconds": 3600}
WHOLE_S: Final = 60.0
OPERATOR_S: Final = 30.0


class _Played(NamedTuple):
    whole_s: float
    map_s: float  # from the last message to the map
    reports: int
    up: float  # mean bytes of a device
    down: float
    cpu: tuple[float, ...]  # of each server
    enrolling: tuple[float, ...]  # of these, before the first report or member
    fleet_cpu: float  # of the devices


def run(context: Context) -> list[Result]:
    """Measure both trust models."""
    devices = 60 if context.quick else 10_000
    ours, single = _operators(context, devices), _single(context, devices, 4 if context.quick else 40)
    name = f"two operators, {devices:,} devices over HTTP, multiscale in two rounds, {LOST:.0%} never come"
    peer = f"a single server's secure sums, as many devices, {LOST:.0%} lost"
    made = [
        line(f"{name}: wall time", ours.whole_s, "s", f"{peer}: wall time", single.whole_s,
             f"<= {WHOLE_S:g} s", ours.whole_s <= WHOLE_S),
        line(f"{name}: from the last report to the map", ours.map_s, "s", peer, single.map_s),
        line(f"{name}: a device sends", ours.up / 1e3, "kB", peer, single.up / 1e3),
        line(f"{name}: a device receives, its terms included", ours.down / 1e3, "kB", peer, single.down / 1e3),
    ]  # fmt: skip
    per_device, per_peer = (1e3 * each.fleet_cpu / each.reports for each in (ours, single))
    made.append(line(f"{name}: processor time of a device, in a fleet", per_device, "ms", peer, per_peer))
    for operator, cpu, enrolling in zip(("leader", "helper"), ours.cpu, ours.enrolling, strict=True):
        what = f"{name}: processor seconds of the {operator}"
        beside = f"{peer}: of the server, for as many devices"
        same = single.cpu[0] / single.reports * ours.reports
        made.append(line(what, cpu, "s", beside, same, f"<= {OPERATOR_S:g} s", cpu <= OPERATOR_S))
        made.append(line(f"{what}, before the first report", enrolling, "s", peer, single.enrolling[0]))
        per = 1e3 * cpu / ours.reports
        made.append(line(f"{what}, of a report", per, "ms", peer, 1e3 * single.cpu[0] / single.reports))
    return made


def _operators(context: Context, devices: int) -> _Played:
    key = context.folder / "peer.key"
    key.touch(mode=0o600)
    key.write_text("5a" * 32, encoding="utf-8")
    stores = [str(context.folder / f"operators-{name}.sqlite") for name in ("leader", "helper")]
    shared = ("--peer-key", str(key))
    with (
        Service(stores[1], context.folder, 1, "--operator", "helper", *shared) as helper,
        Service(
            stores[0], context.folder, devices, "--operator", "leader", "--peer", helper.address, *shared
        ) as leader,
    ):
        least = round((1 - LOST) * devices)
        collection = leader.open(trust="operators", devices=devices, minimum=least, **SPEC)
        return _play((leader, helper), collection, least, 0.0, {"helper": helper.helper_key})


def _single(context: Context, devices: int, phase_seconds: int) -> _Played:
    with Service(str(context.folder / "single.sqlite"), context.folder, devices) as server:
        options = {"shard_size": SHARD, "tolerated_dropout": float(TOLERATED), "corrupt": float(CORRUPT)}
        collection = server.open(
            trust="distributed",
            active=False,
            devices=devices,
            phase_seconds=phase_seconds,
            options=options,
            **SPEC,
        )
        return _play((server,), collection, devices, LOST, {})


def _play(
    servers: tuple[Service, ...], collection: str, devices: int, drop: float, more: dict[str, Any]
) -> _Played:
    """Let devices come until the collection is over; no more than these are waited for."""
    server = servers[0]
    before, begun = [each.cpu for each in servers], time.perf_counter()
    share: dict[str, Any] = {"server": server.address, "token": server.enrolment, "collections": [collection]}
    share |= {"drop": drop, "active": False, **more}
    fleets = [
        start_fleet({**share, "devices": (devices + number) // FLEETS, "seed": number})
        for number in range(FLEETS)
    ]
    try:
        last, enrolled = _watch(servers, collection, devices, fleets)
        ended = time.perf_counter()
        cpu = tuple(each.cpu - idle for each, idle in zip(servers, before, strict=True))
        enrolling = tuple(each - idle for each, idle in zip(enrolled, before, strict=True))
        said = [json.loads(fleet.communicate(timeout=300)[0].splitlines()[-1]) for fleet in fleets]
    finally:
        for fleet in fleets:
            fleet.kill()
    up, down = (
        sum(each[way]["mean"] * each["devices"] for each in said) / devices
        for way in ("bytes_up", "bytes_down")
    )
    terms = len(
        server.text(f"/v1/collections/{collection}/terms")
    )  # a fleet reads them once for all its devices
    spent = sum(each["cpu"] for each in said)
    return _Played(ended - begun, ended - last, devices, up, down + terms, cpu, enrolling, spent)


def _watch(
    servers: tuple[Service, ...], collection: str, devices: int, fleets: list[subprocess.Popen[str]]
) -> tuple[float, list[float]]:
    """When the last message came, and each server's processor seconds when the first did.

    An operator begins as soon as everybody who comes is there.
    """
    server, enrolled = servers[0], [each.cpu for each in servers]
    at, grown, known = time.perf_counter(), time.perf_counter(), (0, "", 0)
    where = f"/v1/collections/{collection}"
    while True:
        now = server.ask("GET", f"{where}/progress")
        at = time.perf_counter()
        if now["state"] == "aborted":
            raise RuntimeError(f"the collection is aborted: {server.ask('GET', where)['reason']}")
        if now["state"] == "done":
            return grown, enrolled
        if any(fleet.poll() for fleet in fleets):
            raise RuntimeError("a part of the fleet failed")
        seen = (now.get("round") or 0, str(now.get("phase")), now.get("present") or 0)
        if not (seen[0] or seen[2]):
            enrolled = [each.cpu for each in servers]
        if now["state"] in ("open", "running") and seen != known:
            fresh = seen[:2] == known[:2] and seen[2] > known[2]
            known, grown = seen, at if fresh else grown
        if now["state"] == "open" and now["wanted"] > devices <= seen[2]:
            server.ask("POST", f"{where}/begin")
        time.sleep(LOOK_S)
