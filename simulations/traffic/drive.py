"""Traffic-aware routes, simulated: every device's half as it runs on a device, and the server's.

Every trip starts on the way that is fastest by prediction. A trip that is late by more than theta fetches the traffic
of the last window, and takes the way that is fastest with it. The traffic itself is given
(:class:`simulations.traffic.world.World`): compared are ways under the same traffic, chosen with an exact map of it,
with a private map, and without any.

The private map has one of two sources:

- ``"late"``, the paper's: a trip that queries also sends a randomized location, up to lambda times, lambda epsilon in
  all. The map then shows the late trips, and that a trip is late is not hidden.
- ``"probe"``: every trip sends one randomized location, at a moment drawn before it starts, and queries without
  sending any. Epsilon in all, whatever happens on the way, and a map of all trips. Deviation: not in the paper.

Source: Wang et al. (2022), section 4.2 and appendix C.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final, Literal, NamedTuple

import numpy as np

from mapveil.maps.density_map import DensityMap
from mapveil.navigation.road_graph import Routes
from mapveil.navigation.traffic_retrieval import TrafficClient, traffic_database
from mapveil.retrieval.pir_server import Server
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness
from simulations.traffic.fleet import Fleet
from simulations.traffic.location_updates import LocationUpdates, UpdateRule
from simulations.traffic.traffic_server import TrafficServer
from simulations.traffic.world import World, split_by_window

Reporting = Literal["late", "probe"]

REPORTING: Final[tuple[Reporting, ...]] = ("late", "probe")
"""When devices send randomized locations; see the module's header."""


class Drives(NamedTuple):
    """What became of every vehicle's trip."""

    routes: Routes  # as driven
    seconds: FloatArray  # as taken, shape (vehicles,)
    asked: IntArray  # how often traffic was fetched, shape (vehicles,)
    updates: IntArray  # randomized locations sent, shape (vehicles,)


class NoTraffic:
    """The traffic that devices learn: here none, so that ways are as predicted."""

    asks: ClassVar[bool] = False
    reporting: Reporting | None = None

    def delays(self, world: World, window: int, at: IntArray, towards: IntArray) -> FloatArray | None:
        """Expected further seconds of roads for devices at junctions, in a window that has begun.

        Shape (roads,) where all devices learn the same, (devices, roads) where not; None where nothing is known.
        """
        return None

    def report(self, window: int, devices: IntArray, cells: IntArray) -> None:
        """Take the reported cells of some devices."""

    def close(self, world: World, window: int, active: float) -> None:
        """End a window."""


class ExactTraffic(NoTraffic):
    """The true traffic of the last window, for comparison."""

    asks: ClassVar[bool] = True

    def delays(self, world: World, window: int, at: IntArray, towards: IntArray) -> FloatArray | None:
        """See :class:`NoTraffic`."""
        return world.delays_in(window) if window > 0 else None


class PrivateTraffic(NoTraffic):
    """Devices report randomized locations, the server estimates maps, devices fetch them.

    Parameters
    ----------
    server, updates : TrafficServer, LocationUpdates
        The server half, and the client half of all devices.
    rng : Randomness
        The devices' randomness.
    reporting : str
        When devices report: ``"late"`` or ``"probe"``, see the module's header.
    queries : int, optional
        Blocks of cells that a device fetches by private retrieval for each update; the whole map, openly, by default.
    """

    asks: ClassVar[bool] = True

    def __init__(
        self,
        server: TrafficServer,
        updates: LocationUpdates,
        rng: Randomness,
        *,
        reporting: Reporting = "late",
        queries: int | None = None,
    ) -> None:
        if reporting not in REPORTING:
            raise ParameterError(f"reporting must be {' or '.join(REPORTING)}, got {reporting!r}")
        self.server, self.updates, self.queries = server, updates, queries
        self.reporting: Reporting = reporting
        self.maps: dict[int, DensityMap] = {}
        self._rng = rng
        self._fetchers: dict[int, tuple[Server, TrafficClient]] = {}

    def report(self, window: int, devices: IntArray, cells: IntArray) -> None:
        """See :class:`NoTraffic`."""
        self.server.receive(window, self.updates.send(devices, cells, self._rng))

    def close(self, world: World, window: int, active: float) -> None:
        """See :class:`NoTraffic`."""
        made = self.server.map(window, active)
        if made is not None:
            self.maps[window] = made

    def delays(self, world: World, window: int, at: IntArray, towards: IntArray) -> FloatArray | None:
        """See :class:`NoTraffic`."""
        known = self.maps.get(window - 1)
        if known is None:
            return None
        if self.queries is None:
            return world.delays(known.values)
        if window - 1 not in self._fetchers:
            server = Server(traffic_database(known, queries=self.queries))
            self._fetchers = {
                window - 1: (server, TrafficClient.connect(server, world.tiling, queries=self.queries))
            }
        server, client = self._fetchers[window - 1]
        wanted = _blocks_between(client, world.cell[at], world.cell[towards])
        fetched = [client.fetch(blocks, server.answer) for blocks in wanted]
        # What was not fetched is taken to be free.
        return np.stack([world.delays(np.nan_to_num(users)) for users in fetched])


def _blocks_between(client: TrafficClient, origins: IntArray, destinations: IntArray) -> IntArray:
    """The blocks in order of their detour between two cells each, the least first, shape (routes, blocks)."""
    tiling, cells = client.tiling, client.blocks.cells
    plane = np.stack(tiling.region.metric_projection.project(*tiling.centres()), axis=1)
    inside = cells >= 0
    weight = inside / np.maximum(inside.sum(axis=1, keepdims=True), 1)
    middle = np.einsum("bc,bcx->bx", weight, plane[cells])
    ends = (plane[origins], plane[destinations])
    detour = sum(np.linalg.norm(middle[None] - end[:, None], axis=2) for end in ends)
    return np.argsort(np.asarray(detour), axis=1, kind="stable")


def drive(
    world: World,
    fleet: Fleet,
    traffic: NoTraffic,
    rule: UpdateRule,
    *,
    seed: int = 1,
    progress: Callable[[float], None] | None = None,
) -> Drives:
    """Let a fleet drive; ``seed`` draws the moments of probes before a trip starts."""
    graph, tell = world.graph, progress or (lambda done: None)
    plans = _Plans(world, graph.routes(fleet.origin, fleet.destination, world.predicted))
    clock, late = fleet.departure.copy(), np.zeros(fleet.size)
    asked = np.zeros(fleet.size, dtype=np.int64)
    sent = np.zeros(fleet.size, dtype=np.int64)
    probe = np.full(fleet.size, np.inf)
    if traffic.reporting == "probe":
        drawn = np.random.default_rng(seed).random(fleet.size)
        probe = fleet.departure + drawn * plans.predicted_seconds()
    passed: list[tuple[IntArray, IntArray]] = [(np.arange(fleet.size), fleet.origin)]
    driving = np.ones(fleet.size, dtype=np.bool_)
    active: dict[int, float] = {}
    window = 0
    while driving.any():
        end = (window + 1) * world.window_s
        real = world.delays_in(window)
        while (now := np.flatnonzero(driving & (clock < end))).size:
            due = now[rule.due(late[now], asked[now])] if traffic.asks else now[:0]
            tells = due if traffic.reporting == "late" else now[clock[now] >= probe[now]]
            if tells.size:
                traffic.report(window, tells, world.cell[plans.at(tells)])
                sent[tells] += 1
                probe[tells] = np.inf
            if due.size:
                _ask(world, fleet, traffic, window, due, plans)
                asked[due] += 1
                late[due] = 0.0
            at, following, expected = plans.step(now)
            road = graph.road_between(at, following)
            took = world.predicted[road] + real[road]
            stays = split_by_window(clock[now], clock[now] + took, world.window_s)
            for passed_in, spent in enumerate(np.bincount(stays.window - window, stays.seconds)):
                active[window + passed_in] = active.get(window + passed_in, 0.0) + spent / world.window_s
            clock[now] += took
            late[now] += took - expected
            passed.append((now, following))
            driving[now[following == fleet.destination[now]]] = False
        traffic.close(world, window, active.pop(window, 0.0))
        window += 1
        tell(1 - float(driving.mean()))
    vehicle, node = (np.concatenate(part) for part in zip(*passed, strict=True))
    order = np.argsort(vehicle, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(vehicle, minlength=fleet.size))])
    return Drives(Routes(start, node[order]), clock - fleet.departure, asked, sent)


def _ask(world: World, fleet: Fleet, traffic: NoTraffic, window: int, due: IntArray, plans: _Plans) -> None:
    """Some devices learn of the traffic, and plan anew."""
    at, towards = plans.at(due), fleet.destination[due]
    delays = traffic.delays(world, window, at, towards)
    if delays is None:
        return
    if delays.ndim == 1:
        seconds = world.predicted + delays
        plans.replace(due, world.graph.routes(at, towards, seconds), seconds)
        return
    for number, device in enumerate(due.tolist()):
        seconds = world.predicted + delays[number]
        ends = at[number : number + 1], towards[number : number + 1]
        plans.replace(np.array([device]), world.graph.routes(*ends, seconds), seconds)


class _Plans:
    """The way that each device means to take from where it is, and how long it expects each road to take."""

    def __init__(self, world: World, routes: Routes) -> None:
        self._graph = world.graph
        vehicles = routes.lengths.size
        self._node = np.full((vehicles, int(routes.lengths.max())), -1, dtype=np.int64)
        self._expected = np.zeros(self._node.shape)
        self._position = np.zeros(vehicles, dtype=np.int64)
        self.replace(np.arange(vehicles), routes, world.predicted)

    def replace(self, devices: IntArray, routes: Routes, seconds: FloatArray) -> None:
        """New ways, and what every road is expected to take."""
        lengths = routes.lengths
        wider = int(lengths.max()) - self._node.shape[1]
        if wider > 0:
            self._node = np.pad(self._node, ((0, 0), (0, wider)), constant_values=-1)
            self._expected = np.pad(self._expected, ((0, 0), (0, wider)))
        row = np.repeat(devices, lengths)
        column = np.arange(routes.node.size) - np.repeat(routes.start[:-1], lengths)
        self._node[row, column] = routes.node
        inner = np.flatnonzero(column > 0)
        road = self._graph.road_between(routes.node[inner - 1], routes.node[inner])
        self._expected[row[inner], column[inner] - 1] = seconds[road]
        self._position[devices] = 0

    def predicted_seconds(self) -> FloatArray:
        """What each plan is expected to take in all, shape (devices,)."""
        return np.asarray(self._expected.sum(axis=1))

    def at(self, devices: IntArray) -> IntArray:
        """The junction where each device is."""
        return self._node[devices, self._position[devices]]

    def step(self, devices: IntArray) -> tuple[IntArray, IntArray, FloatArray]:
        """Go on to the next junction: the one left, the one reached, the seconds expected."""
        position = self._position[devices]
        self._position[devices] = position + 1
        return (
            self._node[devices, position],
            self._node[devices, position + 1],
            self._expected[devices, position],
        )
