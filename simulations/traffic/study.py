"""What privacy costs traffic-aware routes: one fleet under exact and under private traffic, for several settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mapveil.local.local_mechanism import LocalMechanism
from mapveil.maps.density_map import DensityMap
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness
from simulations.traffic.drive import ExactTraffic, NoTraffic, PrivateTraffic, Reporting, drive
from simulations.traffic.fleet import Fleet
from simulations.traffic.location_updates import LocationUpdates, UpdateRule
from simulations.traffic.quality import RouteQuality, route_quality
from simulations.traffic.traffic_server import TrafficServer
from simulations.traffic.world import World


class StudyRow(NamedTuple):
    """One setting."""

    epsilon: Fraction
    theta_s: float
    quality: RouteQuality
    minutes: float  # a mean trip under private traffic
    minutes_exact: float  # under an exact map
    minutes_free: float  # without any

    def in_words(self) -> str:
        """One line for a reader of the map."""
        quality = self.quality
        return (
            f"ε = {float(self.epsilon):g}, θ = {self.theta_s:g} s: total ε {quality.total_epsilon:.3g}, relative "
            f"Levenshtein {quality.relative_levenshtein:.3g}, trip time off by {quality.time_deviation_min:.3g} min"
        )

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record."""
        return {
            "epsilon": float(self.epsilon),
            "theta_s": self.theta_s,
            **self.quality._asdict(),
            "minutes": self.minutes,
            "minutes_exact": self.minutes_exact,
            "minutes_without_traffic": self.minutes_free,
        }


@dataclass(frozen=True, eq=False)
class RouteStudy:
    """All settings, and the traffic map of the busiest window under the first."""

    rows: tuple[StudyRow, ...]
    traffic: DensityMap | None


def study_routes(
    world: World,
    fleet: Fleet,
    mechanism: LocalMechanism,
    epsilons: Sequence[Fraction],
    thetas_s: Sequence[float],
    *,
    most: int = 3,
    reporting: Reporting = "late",
    queries: int | None = None,
    rng: Randomness,
    progress: Callable[[str, float], None] | None = None,
) -> RouteStudy:
    """Let a fleet drive once for each epsilon (of a randomized location) and theta (seconds). Not private.

    A trip queries at most ``most`` times, and sends as many locations when late; see :mod:`simulations.traffic.drive`.
    With ``queries`` so many blocks are fetched by private retrieval, otherwise the whole map openly.
    """
    tell = progress or (lambda step, done: None)
    domain = Domain(world.tiling)
    free = drive(world, fleet, NoTraffic(), UpdateRule(1.0, 1))
    rows: list[StudyRow] = []
    shown: DensityMap | None = None
    total = len(thetas_s) * len(epsilons)

    def driven(done: int, part: float) -> None:
        tell("drive", (done + part) / total)

    for theta in thetas_s:
        rule = UpdateRule(theta, most)
        exact = drive(world, fleet, ExactTraffic(), rule)
        for epsilon in epsilons:
            done = len(rows)
            tell("drive", done / total)
            asked = replace(mechanism, epsilon=epsilon)
            randomizer = asked.on(domain)
            sent = 1 if reporting == "probe" else most
            timed = reporting == "late"
            server = TrafficServer(asked, randomizer, sent, timed, world.window_s, rng.seeded)
            devices = LocationUpdates(randomizer, sent, fleet.size)
            own = rng.child(f"theta {theta:g}, epsilon {epsilon}")  # a row does not hang on the others
            traffic = PrivateTraffic(server, devices, own, reporting=reporting, queries=queries)
            private = drive(world, fleet, traffic, rule, progress=partial(driven, done))
            if shown is None and traffic.maps:
                shown = traffic.maps[max(traffic.maps, key=server.reports)]
                shown = replace(shown, guarantee=shown.guarantee.as_simulation())
            minutes = (float(np.mean(each.seconds)) / 60 for each in (private, exact, free))
            rows.append(
                StudyRow(epsilon, float(theta), route_quality(exact, private, float(epsilon)), *minutes)
            )
    return RouteStudy(tuple(rows), shown)
