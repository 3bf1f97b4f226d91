"""One collection of the reproduction of Wang et al. (2022): everybody reports, the server estimates, and is measured.

Both halves are Mapveil's own (:mod:`mapveil.local`), and one tally serves all estimators of a randomizer.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.analysis.quality import neighbour_quality
from mapveil.geo.tiling import as_tiling
from mapveil.local.estimators.estimators import estimate_distribution
from mapveil.local.randomizers.randomizer import Randomizer, Tally
from mapveil.metrics.emd_bounds import emd_within
from mapveil.metrics.metrics import kl
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness
from reproductions.results import Outcome
from reproductions.wang.data import DataSet, Scene, merged_scene, read_scene
from reproductions.wang.sections import Found, Scheme

L1: Final = "L1"
KL: Final = "KL, nats"
EMD: Final = "EMD (city-block), m"
NOISE: Final = "noise of a site over its mean part"
UNIFORM: Final = "uniform baseline"
K: Final = 25
"""Neighbours of a list, section 6.3."""

_CELL_M: Final = 500.0
_TOLERANCE: Final = 0.005
_CHUNK: Final = 1 << 16


class Collection(NamedTuple):
    """One trial on one data set, or on several merged; can be pickled."""

    sets: tuple[DataSet, ...]
    trial: int
    schemes: tuple[Scheme, ...]
    epsilons: tuple[float, ...]
    neighbours_at: tuple[float, ...]  # of the epsilons
    distances: bool  # whether the earth mover's distance is measured
    shared: Path
    seed: int
    group: str = ""


def scene_of(sets: tuple[DataSet, ...], shared: Path) -> Scene:
    """One data set, or several as one domain."""
    return read_scene(shared, sets[0]) if len(sets) == 1 else merged_scene(shared, sets)


def run_collection(job: Collection) -> Outcome:
    """Ask everybody with every scheme at every epsilon."""
    scene = scene_of(job.sets, job.shared)
    made: list[Found] = []
    truth = scene.visits / scene.people

    def note(scheme: str, epsilon: float, values: dict[str, float]) -> None:
        made.extend(
            Found(scene.name, scheme, epsilon, job.trial, metric, value, job.group)
            for metric, value in values.items()
        )

    for epsilon in job.epsilons:
        if job.distances:
            even = np.full(truth.size, 1 / truth.size)
            note(UNIFORM, epsilon, _measured(scene, truth, even, True))
        asked: dict[str, tuple[Randomizer, Tally]] = {}
        for scheme in job.schemes:
            kind = f"{scheme.method} {scheme.options}"
            if kind not in asked:
                rng = Randomness(job.seed).child(f"{scene.name}/{kind}/{epsilon:g}/{job.trial}")
                randomizer = scheme.mechanism(epsilon, scene.domain).on(scene.domain)
                asked[kind] = randomizer, _tally(randomizer, scene, rng)
                if job.neighbours_at:
                    note(scheme.label, epsilon, _noise(randomizer, truth, scene.people))
            randomizer, tally = asked[kind]
            try:
                estimate = estimate_distribution(randomizer, tally, scheme.estimator).distribution
            except ParameterError:
                continue  # an estimator that does not serve this randomizer: no row
            note(scheme.label, epsilon, _measured(scene, truth, estimate, job.distances))
            if epsilon in job.neighbours_at:
                found = neighbour_quality(
                    scene.visits,
                    estimate * scene.people,
                    as_tiling(scene.domain.tiling),
                    min(K, scene.people - 1),
                )
                note(
                    scheme.label,
                    epsilon,
                    {
                        "neighbours' NMSE": found.normalised_mse,
                        "precision": found.precision,
                        "recall": found.recall,
                    },
                )
    return Outcome(tuple(made))


def _tally(randomizer: Randomizer, scene: Scene, rng: Randomness) -> Tally:
    cells = scene.cells
    tally = randomizer.tally(randomizer.randomize(cells[:0], rng))
    for start in range(0, cells.size, _CHUNK):
        tally += randomizer.tally(randomizer.randomize(cells[start : start + _CHUNK], rng))
    return tally


def _measured(scene: Scene, truth: FloatArray, estimate: FloatArray, distances: bool) -> dict[str, float]:
    found = {L1: float(np.abs(truth - estimate).sum()), KL: kl(truth, estimate)}
    if distances:
        found[EMD] = emd_m(scene.domain, truth, estimate)
    return found


def _noise(randomizer: Randomizer, truth: FloatArray, people: int) -> dict[str, float]:
    """Root mean square deviation of the unbiased estimates, over the mean part of a site; what no projection mends."""
    try:
        variance = np.asarray(randomizer.site_noise(truth).variance)
    except ParameterError:
        return {}
    return {NOISE: math.sqrt(float(variance.mean()) / people) * truth.size}


@functools.lru_cache(maxsize=8)
def _raster(domain: Domain) -> tuple[npt.NDArray[np.int64], tuple[int, int]]:
    """The square of each site."""
    column, row = np.floor(domain.plane / _CELL_M).astype(np.int64)
    column, row = column - column.min(), row - row.min()
    shape = (int(row.max()) + 1, int(column.max()) + 1)
    return row * shape[1] + column, shape


def emd_m(domain: Domain, truth: FloatArray, estimate: FloatArray) -> float:
    """Earth mover's distance of two distributions over the sites in metres, of the sites' squares of 500 m.

    Within 0.25 % of itself by certified bounds; squares of 100 m change it by 1 to 2 % on the maps here.
    """
    place, shape = _raster(domain)
    images: Sequence[FloatArray] = [
        np.bincount(place, values, shape[0] * shape[1]).astype(np.float64).reshape(shape)
        for values in (truth, estimate)
    ]
    return emd_within(*images, cell=(_CELL_M, _CELL_M), tolerance=_TOLERANCE)
