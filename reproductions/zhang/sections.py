"""Samples, contenders and comparisons of the reproduction of Zhang et al. (2022)."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from mapveil.attacks.signal_adversary import SignalAdversary
from mapveil.attacks.signal_attack import signal_adversaries
from mapveil.evaluation.comparison import interval_of_mean
from mapveil.evaluation.signal_tradeoff import TradeoffPoint, points_of
from mapveil.evaluation.signal_trials import SignalTask, SignalTrial
from mapveil.geo.measurements import MeasurementSplit
from mapveil_client.randomness.random import Randomness
from reproductions.zhang.beyond import CONTENDERS, Contender
from reproductions.zhang.data import read_signal

GAUSSIAN_DP: Final = Contender(
    "GLDP, the paper's", "local-gaussian", "epsilon", (1, 10, 30, 100, 300), {"calibration": "paper"}
)
"""The paper's local Gaussian mechanism, calibrated to half the sensitivity."""

_BATCH: Final = 100

PAPER_USER: Final = "network"
"""The paper's only kind of adversary."""


class Plan(NamedTuple):
    """How much of everything is run."""

    trials: int  # splits, samples, fits and attacks
    rows: int  # of a trial
    gap_steps: int
    gap_batch: int
    every: int  # of the values of a parameter, each so-many-th
    quick: bool  # weaker adversaries
    sequences: tuple[int, ...]

    @classmethod
    def full(cls) -> Plan:
        """Three trials of 6,000 rows."""
        return cls(3, 6_000, 1_000, 256, 1, False, (1, 5, 10, 20))

    @classmethod
    def quick_run(cls) -> Plan:
        """One trial of 3,000 rows, and half the values."""
        return cls(1, 3_000, 200, 256, 2, True, (1, 10))

    def adversaries(self) -> tuple[SignalAdversary, ...]:
        """Who attacks."""
        return signal_adversaries(quick=self.quick, as_reported=False)


@functools.cache
def split_of(
    dataset: str, plan: Plan, shared: Path, seed: int, trial: int, *, length: int = 1
) -> MeasurementSplit:
    """The sample of one trial, parted as the paper does (70 % and 30 % at random); the same object when asked again.

    With a longer ``length`` whole runs of one user are sampled and parted, so that both parts have them.
    """
    rng = Randomness(seed).child(f"zhang {dataset} {trial} {length}")
    found = read_signal(dataset, shared)
    runs = found.sequences(length)
    order = rng.generator().permutation(len(runs))[: max(plan.rows // length, 10)]
    cut = round(0.7 * len(order))
    parts = (np.sort(runs[order[:cut]].ravel()), np.sort(runs[order[cut:]].ravel()))
    return MeasurementSplit(*(found.take(part) for part in parts))


def contenders(plan: Plan) -> tuple[Contender, ...]:
    """Everybody in the plane, at the plan's values, trained and batched as a few thousand rows allow."""
    return tuple(
        each._replace(values=each.values[:: plan.every], fixed=_fitting(each, plan))
        for each in (*CONTENDERS, GAUSSIAN_DP)
    )


def _fitting(each: Contender, plan: Plan) -> dict[str, Any]:
    if each.privatizer == "gap":
        return {**each.fixed, "steps": plan.gap_steps, "batch": plan.gap_batch}
    if each.fixed.get("batch", 1) > _BATCH:
        # One code for 1,024 rows would decide the privacy of half a trial by a single draw.
        return {**each.fixed, "batch": _BATCH}
    return dict(each.fixed)


def plane_tasks(
    datasets: Sequence[str], plan: Plan, shared: Path, seed: int, chosen: Sequence[Contender] | None = None
) -> list[SignalTask]:
    """Every contender at every value on every set, in every trial."""
    tasks = []
    for dataset in datasets:
        for trial in range(plan.trials):
            split = split_of(dataset, plan, shared, seed, trial)
            for each in contenders(plan) if chosen is None else chosen:
                about = trial, seed, plan.adversaries()
                tasks += [
                    SignalTask(
                        dataset,
                        split,
                        each.make(value),
                        each.parameter,
                        float(value),
                        *about,
                        label=each.label,
                    )
                    for value in each.values
                ]
    return tasks


def trials_of(answers: Sequence[Any], dataset: str | None = None) -> list[SignalTrial]:
    """The trials among answers, of one set."""
    found = [each for each in answers if isinstance(each, SignalTrial)]
    return [each for each in found if dataset is None or each.group == dataset]


def at_level(
    trials: Sequence[SignalTrial], level: Callable[[TradeoffPoint], float], target: float
) -> Mapping[str, Mapping[str, float]]:
    """Means of each privatizer where one of its measures has a value, interpolated between two measured points.

    ``trials`` are of one set; a privatizer that has no two points around ``target`` is left out.
    """
    points = points_of(trials)
    found: dict[str, Mapping[str, float]] = {}
    for name in dict.fromkeys(point.privatizer for point in points):
        own = sorted((point for point in points if point.privatizer == name), key=lambda one: one.value)
        for first, second in itertools.pairwise(own):
            a, b = level(first), level(second)
            if min(a, b) <= target <= max(a, b):
                part = 0.5 if a == b else (target - a) / (b - a)
                mixed = {
                    key: first.means[key] + part * (second.means[key] - first.means[key])
                    for key in first.means
                }
                found[name] = {**mixed, "value": first.value + part * (second.value - first.value)}
                break
    return found


def shown(values: Sequence[float], digits: int = 2) -> str:
    """A mean and half its 95 % interval."""
    mean, _, high = interval_of_mean(values)
    half = high - mean
    return f"{mean:.{digits}f} ± {half:.1g}" if np.isfinite(half) and half > 0 else f"{mean:.{digits}f}"
