"""One run of the reproduction of Zong et al. (2023): people answer with random Fourier features, with noise,
exactly or not at all.

Every device's half and the server's are those of :mod:`mapveil.random_features`, as is the Bayesian server; the paper's
score is that of :mod:`mapveil.attacks`. Only the devices' policy is left out: it would refuse the paper's bandwidths.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.attacks.localisation_score import Score, score_features, score_silence
from mapveil.random_features.exact_density import kernel_density
from mapveil.random_features.geo_indistinguishability import planar_laplace
from mapveil.random_features.posterior import PriorCells, effective_places, expected_error, hiding
from mapveil.random_features.surface import evaluate_on_grid
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError
from mapveil_client.random_features.frequencies import unit_frequencies
from mapveil_client.random_features.kernels import Gaussian
from mapveil_client.random_features.query import EvenGrid, Query
from mapveil_client.random_features.report import Reports, Visits, client_reports
from mapveil_client.randomness.random import Randomness
from reproductions.results import Outcome
from reproductions.zong.data import CITIES, SYNTHETIC, Scene, city_scene, synthetic_scene, true_density
from reproductions.zong.sections import (
    AGAINST_EXACT,
    AGAINST_TRUTH,
    ERROR,
    EXACT,
    NOISE,
    PROJECTION,
    SILENCE,
    Found,
)

_PRIOR_SIDE: Final = 64
_BLOCK: Final = 1 << 21


class Job(NamedTuple):
    """People of one source, and everything they are asked; can be pickled."""

    source: str
    users: int | None  # all of a city without
    trial: int
    features: tuple[int, ...]  # ascending
    epsilons: tuple[float, ...]
    scored: int  # so many of the people; 0 for none
    shared: Path
    seed: int
    keep_maps: bool = False


class PriorJob(NamedTuple):
    """A server that knows how people are distributed, against one source; can be pickled."""

    source: str
    features: tuple[int, ...]
    epsilons: tuple[float, ...]
    devices: int
    shared: Path
    seed: int


def rank_correlation(first: FloatArray, second: FloatArray) -> float:
    """Spearman's, of two surfaces at the same points; 0 where one is flat."""
    from scipy.stats import rankdata

    ranks = [rankdata(values.ravel()) for values in (first, second)]
    if any(rank.max() == rank.min() for rank in ranks):
        return 0.0
    centred = [rank - rank.mean() for rank in ranks]
    return float(centred[0] @ centred[1] / math.sqrt((centred[0] @ centred[0]) * (centred[1] @ centred[1])))


def scene_of(source: str, users: int | None, shared: Path, seed: int, trial: int) -> Scene:
    """The people of a job: drawn anew in each trial, or a whole city."""
    if source in SYNTHETIC:
        rng = Randomness(seed).child(f"people/{source}/{users}/{trial}")
        return synthetic_scene(source, users or 1000, rng)
    for city in CITIES:
        if city.name == source:
            return city_scene(shared, city, seed)
    raise ParameterError(f"no people are called {source!r}")


def query_of(scene: Scene, features: int) -> Query:
    """What the server asks of everybody in a scene."""
    h = scene.bandwidth
    return Query((h, h), scene.low, scene.high, features, "gaussian", scene.grid)


def score_places(reported: FloatArray, places: FloatArray, grid: EvenGrid) -> Score:
    """The paper's score of devices at ``places`` whose surface is one falling kernel around ``reported``.

    Its one maximum is the point of the grid nearest to the kernel's centre; for a centre outside, at the edge.
    """
    away = np.zeros(places.shape[1])
    for axis in range(2):
        nearest = np.rint((reported[axis] - grid.start[axis]) / grid.step[axis])
        point = grid.start[axis] + np.clip(nearest, 0, grid.count[axis] - 1) * grid.step[axis]
        away += np.square(point - places[axis])
    away = np.sqrt(away)
    return Score(away, away, np.ones(away.size, dtype=np.int64))


def run_job(job: Job) -> Outcome:
    """Ask the people of a job by every method, and measure the surface and the paper's score."""
    scene = scene_of(job.source, job.users, job.shared, job.seed, job.trial)
    stream = Randomness(job.seed).child(f"devices/{job.source}/{job.users}/{job.trial}")
    h = (scene.bandwidth, scene.bandwidth)
    some = np.ascontiguousarray(scene.places[:, _chosen(scene.users, job.scored, stream)])
    exact = kernel_density(scene.places, None, scene.grid, Gaussian(), h)
    rows = _Rows(job, scene, exact)
    below_noise = float(
        (exact < math.sqrt(scene.users / 2)).mean()
    )  # below the standard error of one feature each
    about = {
        "bandwidth": scene.bandwidth,
        "side": scene.side,
        "unit": scene.degree,
        "below noise": below_noise,
    }
    for metric, value in about.items():
        rows.add("scene", 0, metric, value)
    rows.surface(EXACT, 0, exact)
    if job.scored:
        rows.score(EXACT, 0, score_places(some, some, scene.grid))
        rows.score(SILENCE, 0, score_silence(some, scene.grid))
    for level, surface in _surfaces(scene, job.features, stream.child("waves")):
        rows.surface(PROJECTION, level, surface)
    if job.scored:
        _score_features(rows, scene, job.features, some, stream.child("scored waves"))
    for epsilon in job.epsilons:
        noise = planar_laplace(scene.users, epsilon / scene.degree, stream.child(f"noise {epsilon}"))
        moved = scene.places + noise
        rows.surface(NOISE, epsilon, kernel_density(moved, None, scene.grid, Gaussian(), h))
        if job.scored:
            again = planar_laplace(some.shape[1], epsilon / scene.degree, stream.child(f"scored {epsilon}"))
            rows.score(NOISE, epsilon, score_places(some + again, some, scene.grid))
    return Outcome(tuple(rows.found), rows.maps)


class _Rows:
    """What a job finds, as it finds it."""

    def __init__(self, job: Job, scene: Scene, exact: FloatArray) -> None:
        self.job, self.scene, self.exact = job, scene, exact
        self.found: list[Found] = []
        self.maps: dict[tuple[str, str], FloatArray] = {}
        if job.keep_maps and scene.truth is not None:
            self.maps[job.source, "truth"] = scene.on_map(scene.truth)

    def add(self, method: str, level: float, metric: str, value: float) -> None:
        job = self.job
        self.found.append(Found(job.source, self.scene.users, job.trial, method, level, metric, value))

    def surface(self, method: str, level: float, surface: FloatArray) -> None:
        if method != EXACT:
            self.add(method, level, AGAINST_EXACT, rank_correlation(surface, self.exact))
            off = math.sqrt(float(np.square(surface - self.exact).mean() / np.square(self.exact).mean()))
            self.add(method, level, ERROR, off)
        if self.scene.truth is not None:
            self.add(method, level, AGAINST_TRUTH, rank_correlation(surface, self.scene.truth))
        if self.job.keep_maps:
            label = method if method == EXACT else f"{method} {level:g}"
            self.maps[self.job.source, label] = self.scene.on_map(np.maximum(surface, 0.0))

    def score(self, method: str, level: float, score: Score) -> None:
        expected, literal = score.mean()
        self.add(method, level, "score", expected)
        self.add(method, level, "score as printed", literal)
        self.add(method, level, "maxima", float(score.maxima.mean()))
        error = float(score.expected_m.std()) / math.sqrt(score.expected_m.size)
        self.add(method, level, "standard error of the score", error)


def _chosen(users: int, wanted: int, rng: Randomness) -> npt.NDArray[np.int64]:
    """Distinct people, in a random order."""
    return rng.child("chosen").generator().permutation(users)[: min(users, wanted)]


def _surfaces(scene: Scene, features: Sequence[int], rng: Randomness) -> Iterable[tuple[int, FloatArray]]:
    """The surface for each number of features; as on a device, fewer are the first of more."""
    total, done = np.zeros(scene.grid.count), 0
    visits = Visits(scene.places)
    for level in sorted(features):
        query = query_of(scene, level - done)
        units = unit_frequencies(scene.users, level - done, query.law, 2, rng)
        total += evaluate_on_grid(client_reports(units, visits, query), query, scene.grid)
        done = level
        yield level, total / level


def _score_features(
    rows: _Rows, scene: Scene, features: Sequence[int], places: FloatArray, rng: Randomness
) -> None:
    most = query_of(scene, max(features))
    units = unit_frequencies(places.shape[1], most.features, most.law, 2, rng)
    reports = client_reports(units, Visits(places), most)
    for level in features:
        first = Reports(reports.frequencies[:, :, :level], reports.projections[:, :level])
        rows.score(PROJECTION, level, score_features(first, places, query_of(scene, level)))


def prior_of(scene: Scene) -> PriorCells:
    """The public prior over equal boxes of a scene: its true density, or the exact KDE of its people."""
    edges = [np.linspace(low, high, _PRIOR_SIDE + 1) for low, high in zip(scene.low, scene.high, strict=True)]
    size = tuple(float(edge[1] - edge[0]) for edge in edges)
    middles = np.meshgrid(*((edge[1:] + edge[:-1]) / 2 for edge in edges), indexing="ij")
    places = np.stack([part.ravel() for part in middles])
    if scene.truth is not None:
        density = true_density(scene.name, places)
    else:
        step = dataclasses.replace(
            scene.grid, start=tuple(places[:, 0].tolist()), step=size, count=(_PRIOR_SIDE, _PRIOR_SIDE)
        )
        density = kernel_density(scene.places, None, step, Gaussian(), (scene.bandwidth,) * 2).ravel()
    density = np.maximum(density, 0.0)
    return PriorCells(places, size, density / density.sum())


def noise_hiding(
    scene: Scene, prior: PriorCells, epsilon: float, devices: int, rng: Randomness
) -> tuple[float, float]:
    """A Bayesian server against planar Laplace noise: its expected error in metres, and the places left.

    The posterior over the prior's cells is :math:`\\pi_c e^{-\\epsilon \\lVert z - c \\rVert}`, normalised;
    epsilon is in the paper's unit, over ``devices`` simulated ones.
    """
    rate, chance = epsilon / scene.degree, rng.generator()
    at = chance.choice(prior.probability.size, devices, p=prior.probability)
    places = prior.places[:, at] + chance.uniform(-0.5, 0.5, (2, devices)) * np.asarray(prior.size)[:, None]
    reported = places + planar_laplace(devices, rate, rng)
    errors, left = np.empty(devices), np.empty(devices)
    block = max(1, _BLOCK // prior.probability.size)
    for start in range(0, devices, block):
        part = slice(start, start + block)
        apart = np.hypot(*(reported[axis, part, None] - prior.places[axis] for axis in range(2)))
        weights = prior.probability * np.exp(-rate * (apart - apart.min(axis=1, keepdims=True)))
        weights /= weights.sum(axis=1, keepdims=True)
        errors[part] = expected_error(weights, prior.spread, prior)
        left[part] = effective_places(weights)
    return float(errors.mean()), float(np.exp(np.log(left).mean()))


def run_prior_job(job: PriorJob) -> Outcome:
    """What a server with a public prior still does not know after one report, by every method."""
    scene = scene_of(job.source, None, job.shared, job.seed, 0)
    prior = prior_of(scene)
    found: list[Found] = []

    def add(method: str, level: float, error: float, places: float) -> None:
        for metric, value in (("posterior error", error), ("places left", places)):
            found.append(Found(job.source, scene.users, 0, method, level, metric, value))

    for level in job.features:
        hidden = hiding(query_of(scene, level), prior, devices=job.devices)
        add(PROJECTION, level, hidden.error_m, hidden.places)
        if level == job.features[0]:
            add(SILENCE, 0, hidden.prior_error_m, float(effective_places(prior.probability[None])[0]))
    for epsilon in job.epsilons:
        rng = Randomness(job.seed).child(f"prior/{job.source}")  # the same devices for every epsilon
        add(NOISE, epsilon, *noise_hiding(scene, prior, epsilon, job.devices, rng))
    add(EXACT, 0, 0.0, 1.0)
    return Outcome(tuple(found), {})
