"""The localisation report: how well devices that answer with waves are hidden, and what features and bandwidth cost.

It sets the paper's score (:mod:`mapveil.attacks.localisation_score`) beside servers with a prior
(:mod:`mapveil.attacks.bayesian_server`), for the same devices. It reads true places: it is for whoever may see them,
and is not private.
"""

from __future__ import annotations

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
    one_report,
    walking,
)
from mapveil.attacks.localisation_scene import Scene
from mapveil.attacks.localisation_score import PAPER_RATIO, Score, score_silence, score_waves
from mapveil.random_features.fourier_kde import FourierKde
from mapveil.random_features.map_points import inscribed_side
from mapveil.random_features.measured import hiding_facts, hiding_warnings
from mapveil.random_features.posterior import Hiding, Simulated, simulated_devices
from mapveil_client.errors import ParameterError
from mapveil_client.random_features.query import Query
from mapveil_client.randomness.random import Randomness

Progress = Callable[[str, float], None]

SCORED: Final = 100_000
"""Devices that are scored at most."""

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
    one: Verdict  # one report
    cellwise: Verdict  # the same, each phase read to a cell by itself
    again: Verdict  # a second set of frequencies
    walking: Verdict  # several places


@dataclass(frozen=True)
class LocalisationReport:
    """Result of a localisation report.

    Parameters
    ----------
    settings : dict
        What was asked, JSON-ready.
    unit : str
        Of lengths.
    score : tuple of float
        The paper's, as the text describes it and as equation 16 is printed, metres.
    maxima : float
        Of a surface, on average.
    silence_m : float
        The score of devices that say nothing, metres.
    servers : tuple of ServerFound
        Servers with a prior.
    costs : tuple of Cost
        Features and bandwidths.
    blind_m : float
        The error of the server that knows more without any report, metres.
    warnings : tuple of str
        What a person must hear.
    """

    settings: dict[str, Any]
    unit: str
    score: tuple[float, float]
    maxima: float
    silence_m: float
    servers: tuple[ServerFound, ...]
    costs: tuple[Cost, ...]
    blind_m: float
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The report as a JSON-ready record."""
        return {
            "settings": self.settings,
            "unit": self.unit,
            "score": {
                "expected_m": self.score[0],
                "literal_m": self.score[1],
                "maxima": self.maxima,
                "silence_m": self.silence_m,
            },
            "servers": [
                {"server": row.server, "knows": row.knows, **row.verdict._asdict()} for row in self.servers
            ],
            "costs": [
                {
                    "features": row.features,
                    "bandwidth_m": row.bandwidth_m,
                    "answered": row.answered,
                    "score_m": row.score_m,
                    "one_report": row.one._asdict(),
                    "cell_by_cell": row.cellwise._asdict(),
                    "second_set": row.again._asdict(),
                    "walking": row.walking._asdict(),
                }
                for row in self.costs
            ],
            "blind_m": self.blind_m,
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
    """Measure. Run by: whoever may see where the devices are.

    Parameters
    ----------
    mechanism : FourierKde
        What devices answer.
    bandwidth : float
        h, metres: as given, or as the mechanism's rule chose it.
    at : Scene
        Where.
    features, bandwidths : sequence
        Of the table of costs; the mechanism's own are always in it. Bandwidths are half, once and twice its own by
        default.
    devices : int
        Of each server (the score takes up to :data:`SCORED`).
    answers : int
        Reports of each walking device.
    step_m : float, optional
        How far they walk between two, metres along each axis; two of the prior's cells by default.
    ratio : float
        The paper's epsilon.
    seed : int
        The same seed gives the same report.
    progress : callable, optional
        Told the name and the done part of each step.
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
    score = _score(scored, query, at, ratio, lambda done: tell("score the maxima", done))
    some = _first_devices(scored, devices, rng.child("sample"))
    servers = _servers(some, query, at, walk, answers, jitter, rng.child("servers"), tell)
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
    return LocalisationReport(
        settings,
        at.unit,
        score.mean(),
        float(score.maxima.mean()),
        score_silence(scored.places[:, : 10 * devices], at.grid).mean()[0],
        tuple(servers),
        tuple(costs),
        servers[1].verdict.expected_m,
        _warnings(servers, at),
    )


def _scored_devices(at: Scene, query: Query, rng: Randomness, jitter: float) -> Simulated:
    if at.places is None:
        return simulated_devices(query, at.known, 10_000, rng, jitter_m=jitter)
    return devices_at(at.places[:, :SCORED], at.known, query, rng, jitter_m=jitter)


def _first_devices(drawn: Simulated, devices: int, rng: Randomness) -> Simulated:
    number = drawn.cell.size
    part = np.sort(rng.generator().choice(number, min(devices, number), replace=False))
    reports = drawn.reports
    return Simulated(
        drawn.cell[part],
        drawn.places[:, part],
        reports._replace(frequencies=reports.frequencies[:, part], projections=reports.projections[part]),
    )


def _score(
    drawn: Simulated, query: Query, at: Scene, ratio: float, tell: Callable[[float], None] | None = None
) -> Score:
    return score_waves(drawn.reports, drawn.places, query, grid=at.grid, ratio=ratio, progress=tell)


def _servers(
    some: Simulated,
    query: Query,
    at: Scene,
    walk: Walk,
    answers: int,
    jitter: float,
    rng: Randomness,
    tell: Progress,
) -> list[ServerFound]:
    region, number = "the region only", some.cell.size
    twice = dataclasses.replace(query, features=2 * query.features)
    both = devices_at(some.places, at.known, twice, rng.child("again"), jitter_m=jitter)
    listing = at.places if at.places is not None else some.places
    if at.places is None:
        listing = simulated_devices(query, at.known, _LISTED, rng.child("list")).places
    places = np.unique(listing[:, :_LISTED], axis=1)
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
            lambda: walking(query, walk, rng.child("walk"), places=answers, devices=number),
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
        _score(drawn, query, at, ratio).mean()[0],
        one_report(drawn, query, at.known, jitter_m=jitter),
        one_report(drawn, query, at.known, jitter_m=jitter, cellwise=True),
        one_report(both, twice, at.known, jitter_m=jitter),
        walking(query, walk, rng.child("walk"), places=answers, devices=devices),
    )


def _warnings(servers: Sequence[ServerFound], at: Scene) -> tuple[str, ...]:
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
    return tuple(said)
