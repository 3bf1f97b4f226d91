"""The localisation report: how well devices that send random Fourier features are hidden, by features and bandwidth.

The report sets the paper's score (:mod:`mapveil.attacks.localisation_score`) beside servers with a prior
(:mod:`mapveil.attacks.bayesian_server`), for the same devices. It reads true locations and is NOT private.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from mapveil.attacks.bayesian_server import (
    Verdict,
    Walk,
    blind,
    devices_at,
    first_features,
    listed,
    of_devices,
    one_report,
    walking,
)
from mapveil.attacks.localisation_scene import Scene
from mapveil.attacks.localisation_score import PAPER_RATIO, score_features, score_silence
from mapveil.attacks.pair_server import pairs_named
from mapveil.random_features.fourier_kde import FourierKde
from mapveil.random_features.map_points import inscribed_side
from mapveil.random_features.measured import hiding_facts, hiding_warnings
from mapveil.random_features.posterior import Hiding, Simulated, simulated_devices
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError
from mapveil_client.random_features.query import Query
from mapveil_client.randomness.random import Randomness

Progress = Callable[[str, float], None]

SCORED: Final = 100_000
"""Maximum number of devices that are scored."""

_LISTED: Final = 10_000


class ServerFound(NamedTuple):
    """One server of the report."""

    server: str
    knows: str
    verdict: Verdict


class Cost(NamedTuple):
    """Cost of one choice of features and bandwidth against the better-informed server."""

    features: int
    bandwidth_m: float
    answered: bool  # by devices with the default policy and so many features
    score_m: float
    one_report: Verdict
    cell_by_cell: Verdict  # of one report, each phase read to a cell by itself
    second_set: Verdict  # a second set of frequencies
    walking: Verdict  # several places

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record."""
        return {
            name: value._asdict() if isinstance(value, Verdict) else value
            for name, value in self._asdict().items()
        }


class PaperScore(NamedTuple):
    """The paper's score, averaged over the devices."""

    expected_m: float  # as the text describes it, metres
    literal_m: float  # as equation 16 is printed, metres
    maxima: float  # of a surface
    silence_m: float  # expected_m of devices that send nothing


@dataclass(frozen=True)
class LocalisationReport:
    """Result of a localisation report.

    Parameters
    ----------
    settings : dict
        The parameters, JSON-ready.
    unit : str
        The unit of lengths.
    score : PaperScore
        The paper's score.
    servers : tuple of ServerFound
        Servers with a prior.
    costs : tuple of Cost
        Features and bandwidths.
    blind_m : float
        The error of the server that knows more without any report, metres.
    pairs_named : float
        Fraction of the devices whose two places a list of exact places names from the difference of two phases.
    warnings : tuple of str
        Warnings for a reader.
    """

    settings: dict[str, Any]
    unit: str
    score: PaperScore
    servers: tuple[ServerFound, ...]
    costs: tuple[Cost, ...]
    blind_m: float
    pairs_named: float
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The report as a JSON-ready record."""
        return {
            "settings": self.settings,
            "unit": self.unit,
            "score": self.score._asdict(),
            "servers": [
                {"server": row.server, "knows": row.knows, **row.verdict._asdict()} for row in self.servers
            ],
            "costs": [row.to_dict() for row in self.costs],
            "blind_m": self.blind_m,
            "pairs_named": self.pairs_named,
            "warnings": list(self.warnings),
            "private": False,
        }


def localisation_report(
    mechanism: FourierKde,
    bandwidth: float,
    at: Scene,
    *,
    features: Sequence[int] = (1, 2, 3),
    bandwidths: Sequence[float] = (),
    devices: int = 200,
    answers: int = 8,
    step_m: float | None = None,
    ratio: float = PAPER_RATIO,
    seed: int = 0,
    progress: Progress | None = None,
) -> LocalisationReport:
    """Measure how well devices are hidden. Run by: a party that may see their locations.

    Parameters
    ----------
    mechanism : FourierKde
        The mechanism of the devices.
    bandwidth : float
        h, metres: as given, or as the mechanism's rule chose it.
    at : Scene
        Region, priors and devices.
    features, bandwidths : sequence
        Of the table of costs, beside the mechanism's own; half and twice its bandwidth by default.
    devices : int
        Devices against each server (the score takes up to :data:`SCORED`).
    answers : int
        Reports of each walking device.
    step_m : float, optional
        Deviation of a step between two reports, metres along each axis; two of the prior's cells by default.
    ratio : float
        The paper's epsilon.
    seed : int
        The same seed gives the same report.
    progress : callable, optional
        Called with a step's name and its finished fraction.
    """
    tell = progress or (lambda step, done: None)
    rng, jitter = Randomness(seed), mechanism.jitter_m
    if devices < 1 or answers < 1:
        raise ParameterError(f"{devices} devices, {answers} answers; expected at least 1 of each")
    chosen = sorted({*features, mechanism.features})
    widths = sorted({*(bandwidths or (bandwidth / 2, 2 * bandwidth)), bandwidth})
    if not all(each >= 1 for each in chosen) or not all(math.isfinite(each) and each > 0 for each in widths):
        raise ParameterError("features must be at least 1 and bandwidths above 0")
    query = at.query(mechanism.features, bandwidth, mechanism.kernel)
    step = 2 * max(at.known.size) if step_m is None else step_m
    walk = Walk(at.known, step)
    scored = _scored_devices(at, query, rng.child("score"), jitter)
    tell("score the maxima", 0.0)
    score = score_features(
        scored.reports,
        scored.places,
        query,
        grid=at.grid,
        ratio=ratio,
        progress=lambda done: tell("score the maxima", done),
    )
    some = _first_devices(scored, devices, rng.child("sample"))
    exact = _exact_places(query, at, rng.child("servers"))
    servers = _servers(some, query, at, walk, answers, jitter, exact, rng.child("servers"), tell)
    pairs = 0.0
    if exact.shape[1] > 1:
        pairs = pairs_named(exact, query, rng.child("pairs"), devices=int(some.cell.size), jitter_m=jitter)
    costs: list[Cost] = []
    for number, h in enumerate(widths):
        for place, wanted in enumerate(chosen):
            tell("vary features and bandwidth", (number + place / len(chosen)) / len(widths))
            child = rng.child(f"cost {wanted} {h!r}")
            asked = at.query(wanted, h, mechanism.kernel)
            changed = dataclasses.replace(mechanism, features=wanted, bandwidth_m=h)
            costs.append(_cost(changed, asked, at, walk, answers, devices, ratio, child))
    tell("vary features and bandwidth", 1.0)
    settings = {
        **mechanism.parameters(),
        "bandwidth_m": bandwidth,
        "region": str(at.tiling.region),
        "tiling": at.tiling.spec,
        "known prior": at.knows,
        "devices scored": int(scored.cell.size),
        "devices of each server": int(some.cell.size),
        "devices are": "drawn from the known prior" if at.places is None else "where the data say",
        "grid": list(at.grid.count),
        "cell": at.known.size[0],
        "answers": answers,
        "step_m": step,
        "ratio": ratio,
        "seed": seed,
    }
    silence = score_silence(scored.places[:, : 10 * devices], at.grid)
    return LocalisationReport(
        settings,
        at.unit,
        PaperScore(*score.mean(), float(score.maxima.mean()), silence.mean()[0]),
        tuple(servers),
        tuple(costs),
        servers[1].verdict.expected_m,
        pairs,
        _warnings(servers, pairs, at),
    )


def _scored_devices(at: Scene, query: Query, rng: Randomness, jitter: float) -> Simulated:
    if at.places is None:
        return simulated_devices(query, at.known, 10_000, rng, jitter_m=jitter)
    return devices_at(at.places[:, :SCORED], at.known, query, rng, jitter_m=jitter)


def _first_devices(drawn: Simulated, devices: int, rng: Randomness) -> Simulated:
    number = drawn.cell.size
    return of_devices(drawn, np.sort(rng.generator().choice(number, min(devices, number), replace=False)))


def _exact_places(query: Query, at: Scene, rng: Randomness) -> FloatArray:
    """The list of exact places of a server: the devices' own, or as many drawn from the known prior."""
    listing = at.places
    if listing is None:
        listing = simulated_devices(query, at.known, _LISTED, rng.child("list")).places
    return np.unique(listing[:, :_LISTED], axis=1)


def _servers(
    some: Simulated,
    query: Query,
    at: Scene,
    walk: Walk,
    answers: int,
    jitter: float,
    places: FloatArray,
    rng: Randomness,
    tell: Progress,
) -> list[ServerFound]:
    region, number = "the region only", some.cell.size
    twice = dataclasses.replace(query, features=2 * query.features)
    both = devices_at(some.places, at.known, twice, rng.child("again"), jitter_m=jitter)
    chosen = rng.child("listed").generator().choice(places.shape[1], number)
    count = f"{places.shape[1]:,} exact places"
    steps: list[tuple[str, str, Callable[[], Verdict]]] = [
        ("no report", region, lambda: blind(some, at.even)),
        ("no report", at.knows, lambda: blind(some, at.known)),
        ("one report", region, lambda: one_report(some, query, at.even, jitter_m=jitter)),
        ("one report", at.knows, lambda: one_report(some, query, at.known, jitter_m=jitter)),
        ("a second set of frequencies", at.knows, lambda: one_report(both, twice, at.known, jitter_m=jitter)),
        (
            f"{answers} reports from places on its way",
            at.knows,
            lambda: walking(query, walk, rng.child("walk"), places=answers, devices=number, jitter_m=jitter),
        ),
        (
            "one report",
            f"a list of {count}",
            lambda: listed(
                places, chosen, query, rng.child("phases"), cell_m=at.known.size[0], jitter_m=jitter
            ),
        ),
    ]
    found = []
    for done, (server, knows, run) in enumerate(steps):
        tell("servers with a prior", done / len(steps))
        found.append(ServerFound(server, knows, run()))
    tell("servers with a prior", 1.0)
    return found


def _cost(
    mechanism: FourierKde,
    query: Query,
    at: Scene,
    walk: Walk,
    answers: int,
    devices: int,
    ratio: float,
    rng: Randomness,
) -> Cost:
    jitter = mechanism.jitter_m
    twice = dataclasses.replace(query, features=2 * query.features)
    both = simulated_devices(twice, at.known, devices, rng.child("devices"), jitter_m=jitter)
    drawn = first_features(both, query.features)
    h = query.bandwidth[0]
    refusal = mechanism.policy(h, smallest_side=0.0).refusal(query, side=inscribed_side(at.tiling, at.where))
    return Cost(
        query.features,
        h,
        refusal is None,
        score_features(drawn.reports, drawn.places, query, grid=at.grid, ratio=ratio).mean()[0],
        one_report(drawn, query, at.known, jitter_m=jitter),
        one_report(drawn, query, at.known, jitter_m=jitter, cellwise=True),
        one_report(both, twice, at.known, jitter_m=jitter),
        walking(query, walk, rng.child("walk"), places=answers, devices=devices, jitter_m=jitter),
    )


def _warnings(servers: Sequence[ServerFound], pairs: float, at: Scene) -> tuple[str, ...]:
    said: list[str] = []
    for without, row in ((servers[0], servers[2]), (servers[1], servers[3])):
        verdict = row.verdict
        found = Hiding(verdict.expected_m, verdict.twentieth_m, verdict.places, without.verdict.expected_m)
        facts = hiding_facts(found, f"a server that knows {row.knows}", unit=at.unit, cell=at.known.size[0])
        said += [note.text for note in hiding_warnings(facts)]
    exact = servers[-1]
    if exact.verdict.right > 0.5:
        said.append(
            f"a server that has {exact.knows} names the place of {exact.verdict.right:.0%} of the devices right: "
            "exact phases tell exact places apart (see jitter_m)"
        )
    if pairs > 0.5:
        said.append(
            f"a server that has {exact.knows} names both places of {pairs:.0%} of the devices right, from the "
            "difference of two phases"
        )
    return tuple(said)
