"""One trial of the reproduction of Bagdasaryan et al. (2022): the same people asked by every method, and measured.

The mechanisms run whole: every device's half, the ideal secure sum, the server's half. As in the paper nothing is
provisioned for corrupt devices, and for dropouts only where some are simulated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from mapveil.geo.counts import Counts
from mapveil.geo.tiling import Tiling
from mapveil.maps.density_map import DensityMap
from mapveil.maps.measurement import Measurement
from mapveil.maps.round_cost import RoundCost
from mapveil.mechanisms.methods import find_method
from mapveil.metrics.metrics import METRICS
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness
from reproductions.bagdasaryan.data import (
    MANHATTAN,
    TOKYO,
    Scene,
    evened,
    image_of,
    read_image,
    read_tokyo,
    sample_counts,
    sampled,
)
from reproductions.bagdasaryan.every_level import EveryLevel
from reproductions.bagdasaryan.modulo_clip import ClippedSum
from reproductions.bagdasaryan.sections import Plan
from reproductions.results import Outcome

if TYPE_CHECKING:
    from mapveil.mechanisms.sum_mechanism import SumMechanism


SHARD_SIZE: Final = 10_000
"""S_max of the paper."""

PLAIN: Final = "plain"
"""No mechanism: the sampled people's own map, at the level of the quadtree that comes out best."""

COLUMN_L1: Final = "column_l1"
"""What the paper's figures call L1: the largest sum of absolute errors along a column of the image."""

EPIDEMIC: Final = ("mse", "l1", COLUMN_L1, "floored_mape", "smape", "maape")
"""The measures of appendix A.1, between densities that sum to one."""

_WIDE: Final = 62  # bits; room for a clip of any width inside


class Asked(NamedTuple):
    """One row of a table: a method with its parameters."""

    label: str
    method: str  # of the distributed wing, or PLAIN
    options: tuple[tuple[str, Any], ...] = ()
    epsilon: Fraction = Fraction(1)
    dropout: float = 0.0  # part of each shard that leaves before it is heard
    clip_bits: int | None = None  # sums wrap around at so many bits, overflowing or not
    best_level: bool = False  # the truth picks the best of the map's measurements, as in the paper
    levels: tuple[int, ...] = ()  # or of these levels, where the mechanism can show each
    best_of_rounds: int = 0  # and of the maps after each of so many rounds of equal cost

    def mechanism(self, rounds: int | None = None) -> SumMechanism:
        """The mechanism, with the paper's shards and nothing tolerated that is not given."""
        options = {"shard_size": SHARD_SIZE, "tolerated_dropout": 0, "corrupt": 0, **dict(self.options)}
        if self.clip_bits is not None:
            options["bits"] = _WIDE
        epsilon = self.epsilon
        if rounds is not None:
            options["rounds"] = rounds
            epsilon *= Fraction(rounds, self.best_of_rounds)
        made: Any = find_method(self.method, "distributed").make(epsilon, options)
        return EveryLevel.of(made, self.levels) if self.levels else made


class Job(NamedTuple):
    """One trial's people and everything asked of them; picklable."""

    group: str  # the table or figure it belongs to
    image: str  # of bagdasaryan_data.IMAGES, or TOKYO
    users: int | None  # sampled, None for all
    trial: int
    asked: tuple[Asked, ...]
    shared: Path
    seed: int
    metrics: tuple[str, ...] = ("mse",)
    keep_maps: bool = False


class Crowd(NamedTuple):
    """People of one image, and everything they are asked in each trial."""

    group: str
    users: int | None
    asked: tuple[Asked, ...]
    image: str = MANHATTAN
    metrics: tuple[str, ...] = ("mse",)
    keep_maps: bool = False  # of the first trial


Jobs = Callable[[Plan, Path, int], Sequence[Job]]


def jobs_of(*crowds: Crowd) -> Jobs:
    """The jobs of a section: every trial of some crowds."""

    def jobs(plan: Plan, shared: Path, seed: int) -> Sequence[Job]:
        return [
            Job(each.group, each.image, each.users, trial, each.asked, shared, seed, each.metrics,
                each.keep_maps and trial == 0)
            for each in crowds
            for trial in range(plan.trials)
        ]  # fmt: skip

    return jobs


class Found(NamedTuple):
    """One metric of one release."""

    group: str
    image: str
    users: int
    trial: int
    label: str
    against: str  # the truth: "density", or for Tokyo "visits" and "users"
    metric: str
    value: float
    length: int  # coordinates a device sends, all rounds together
    bits: int  # the most that one coordinate takes
    rounds: int
    epsilons: str  # of the rounds
    seconds: float


class _Answer(NamedTuple):
    """A release, as candidates for the map of which the truth may pick the best."""

    maps: tuple[FloatArray, ...]
    length: int
    bits: int
    rounds: int
    epsilons: tuple[Fraction, ...]
    costs: tuple[RoundCost, ...] = ()


def column_l1(truth: FloatArray, estimate: FloatArray) -> float:
    r"""The paper's L1: the matrix norm of the error, :math:`\max_x \sum_y |t_{yx} - e_{yx}|`.

    where: t, e are ``truth`` and ``estimate``, of rows y and columns x. It is the worst column and not the map's
    error; kept to stand beside the paper's figures, and found by the size of those.
    """
    return float(np.abs(truth - estimate).sum(axis=0).max())


def densities(values: FloatArray) -> FloatArray:
    """Values that sum to one, negative ones taken as zero; uniform where nothing is left."""
    kept = np.maximum(values, 0.0)
    total = kept.sum()
    return np.asarray(kept / total if total > 0 else np.full(kept.shape, 1 / kept.size))


def spread(measured: Measurement, tiling: Tiling) -> FloatArray:
    """The map of one measurement alone: each group's noisy sum, evenly over its cells."""
    covered = measured.groups >= 0
    group = np.where(covered, measured.groups, 0)
    cells = np.bincount(measured.groups[covered], minlength=measured.noisy.size)
    return np.asarray(np.where(covered, measured.noisy[group] / np.maximum(cells[group], 1), 0.0))


def run_job(job: Job) -> Outcome:
    """Ask and measure; a release's noise depends on seed, group, image, users, trial and label only."""
    scene, truths = _scene(job)
    stream = Randomness(job.seed).child(f"noise/{job.group}/{job.image}/{job.users}/{job.trial}")
    rows: list[Found] = []
    maps: dict[tuple[str, str], FloatArray] = {}
    costs: dict[tuple[str, str], tuple[RoundCost, ...]] = {}
    for asked in job.asked:
        start = time.perf_counter()
        answer = _answer(asked, scene, stream.child(asked.label))
        seconds = time.perf_counter() - start
        epsilons = " ".join(f"{float(epsilon):.4g}" for epsilon in answer.epsilons)
        costed = answer.length, answer.bits, answer.rounds, epsilons
        images = [image_of(densities(values), scene.tiling) for values in answer.maps]
        for against, truth in truths.items():
            errors = [METRICS["mse"](truth, image) for image in images]
            best = images[int(np.argmin(errors))]
            for metric in job.metrics:
                value = column_l1(truth, best) if metric == COLUMN_L1 else METRICS[metric](truth, best)
                about = job.group, job.image, _asked_users(job, scene), job.trial, asked.label, against
                rows.append(Found(*about, metric, value, *costed, seconds))
            if job.keep_maps:
                maps.setdefault((job.image, asked.label), best)
                costs[job.image, asked.label] = answer.costs
    if job.keep_maps:
        maps[job.image, "truth"] = next(iter(truths.values()))
    return Outcome(tuple(rows), maps, costs)


def _scene(job: Job) -> tuple[Scene, dict[str, FloatArray]]:
    if job.image == TOKYO:
        tokyo = read_tokyo(job.shared)
        scene = Scene(tokyo.devices, tokyo.tiling, tokyo.users)
        truths = {"visits": tokyo.visits, "users": tokyo.users}
    else:
        scene = sampled(job.shared, job.image, job.users, job.seed, job.trial)
        truths = {"density": read_image(job.shared, job.image).values.astype(np.float64)}
    return scene, {name: image_of(densities(values), scene.tiling) for name, values in truths.items()}


def _asked_users(job: Job, scene: Scene) -> int:
    if job.users is not None:
        return job.users
    return int(scene.people.values.sum()) if isinstance(scene.people, Counts) else scene.people.count


def _answer(asked: Asked, scene: Scene, rng: Randomness) -> _Answer:
    if asked.method == PLAIN:
        return _plain(asked, scene, rng)
    clipped = None if asked.clip_bits is None else ClippedSum(asked.clip_bits)

    def release(rounds: int | None = None) -> DensityMap:
        stream = rng if rounds is None else rng.child(f"{rounds} rounds")
        return asked.mechanism(rounds).release(
            scene.people, scene.tiling, rng=stream, dropout=asked.dropout, secure_sum=clipped
        )

    released = [release(rounds) for rounds in range(1, asked.best_of_rounds)] + [
        release(asked.best_of_rounds or None)
    ]
    made = released[-1]
    maps = [each.values for each in released]
    if asked.best_level or asked.levels:
        maps += [spread(measured, scene.tiling) for measured in made.measurements]
    return _Answer(
        tuple(maps),
        RoundCost.total_length(made.rounds),
        asked.clip_bits or max((each.bits for each in made.rounds), default=0),
        len(made.rounds),
        tuple(share.epsilon for share in made.guarantee.shares),
        made.rounds,
    )


def _plain(asked: Asked, scene: Scene, rng: Randomness) -> _Answer:
    """Two integers from each device, in the clear."""
    values = scene.plain
    if asked.dropout > 0:
        if not isinstance(scene.people, Counts):
            raise ParameterError("dropouts without a mechanism need people at one place each")
        kept = round((1 - asked.dropout) * int(scene.people.values.sum()))
        values = sample_counts(scene.people, kept, rng.generator()).values.astype(np.float64)
    depth = scene.tiling.lattice().depth
    levels = range(depth + 1) if asked.best_level else (depth,)
    return _Answer(tuple(evened(values, scene.tiling, level) for level in levels), 2, 0, 0, ())
