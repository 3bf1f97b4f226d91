"""The constants of the default local estimator, one at a time: how much the error changes where each is varied.

Run: ``python -m benchmarks.estimator_constants docs/reference/estimator-constants.md`` (writes the page; 5 minutes of
one core).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple, cast

import numpy as np

import mapveil as mv
from benchmarks.tuning_sandbox import confine_to_tuning_data
from mapveil.evaluation.comparison import interval_of_mean
from mapveil.local.estimators import smoothed_likelihood, split_trees
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.local.randomizers.hadamard_response import HadamardResponse
from mapveil.local.randomizers.hierarchical_hashing import HierarchicalHashing
from mapveil.local.randomizers.local_hashing import LocalHashing
from mapveil.local.randomizers.randomizer import Randomizer, Tally
from mapveil.local.randomizers.subset_selection import SubsetSelection
from mapveil_client.arrays import FloatArray
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness

SEEDS: Final = range(8)
REGION: Final = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
VARIED: Final[dict[str, tuple[float, ...]]] = {
    "_TREES": (2, 8),
    "_PRIOR_DIVISIONS": (1.0, 16.0),
    "_MIN_UNEVENNESS": (0.005, 0.08),
    "_MAX_UNEVENNESS": (5.0, 20.0),
    "_STIFF_UNEVENNESS": (0.025, 0.4),
    "_PEAK_DEVIATIONS": (2.0, 4.0, 1e9),
    "_MAX_PEAK_FRACTION": (0.35, 0.9),
    "_PEAK_PENALTY": (0.25, 1.0),
    "_PROBES": (1, 9),
    "_EARLY_TOLERANCE": (1.0, 100.0),
    "_MAX_EXTRAPOLATION": (100.0, 10000.0),
    "_ROUNDS": (2, 6),
    "_TOLERANCE": (1e-6, 1e-4),
    "_MAX_STEPS": (100, 1600),
    "_FREEDOM": (0.0, 0.5, 1.0),
    "_DEVIATIONS": (-1e9, 0.0, 2.0),
    "a(m) of places, factor": (0.25, 1.0),
    "a(m) of places, power": (0.3, 0.9),
    "a(m) of rasters": (0.25, 1.0),
}


class Case(NamedTuple):
    """Reports of one seed, and the truth."""

    randomizer: Randomizer
    tally: Tally
    truth: FloatArray


def raster(side: int) -> Domain:
    return Domain(mv.Grid(REGION, side, side))


def sites(count: int, seed: int) -> Domain:
    drawn = np.random.default_rng(seed)
    return Domain(mv.Places(drawn.uniform(-74.0, -73.92, count), drawn.uniform(40.70, 40.82, count), REGION))


def city(domain: Domain, roughness: float, peak: float, seed: int) -> FloatArray:
    """Two centres, gamma noise of the given roughness from site to site, and one site with a fraction of all."""
    drawn = np.random.default_rng(seed)
    x, y = domain.plane
    p = np.zeros(domain.size)
    for spread, weight in ((1500.0, 1.0), (900.0, 0.5)):
        at = int(drawn.integers(domain.size))
        p += weight * np.exp(-np.hypot(x - x[at], y - y[at]) / spread)
    p *= drawn.gamma(1 / roughness, size=domain.size)
    p *= (1 - peak) / p.sum()
    p[int(drawn.integers(domain.size))] += peak
    return p


def cases() -> Iterator[Case]:
    scenes: tuple[tuple[Callable[[int], Domain], LocalMechanism, float, float, int], ...] = (
        (lambda seed: raster(24), LocalHashing(epsilon=1), 0.5, 0.0, 20_000),
        (lambda seed: raster(32), HierarchicalHashing(epsilon="0.5"), 1.0, 0.02, 50_000),
        (lambda seed: sites(400, seed), SubsetSelection(epsilon=2), 1.5, 0.0, 10_000),
        (lambda seed: sites(400, seed), HadamardResponse(epsilon=1), 1.5, 0.2, 20_000),
    )
    for domain_of, mechanism, roughness, peak, users in scenes:
        for seed in SEEDS:
            domain = domain_of(seed)
            p = city(domain, roughness, peak, seed)
            drawn = np.random.default_rng(100 + seed).choice(domain.size, users, p=p)
            randomizer = mechanism.on(domain)
            tally = randomizer.tally(randomizer.randomize(domain.cells[drawn], Randomness(seed)))
            yield Case(randomizer, tally, np.bincount(drawn, minlength=domain.size) / users)


def errors(made: list[Case], name: str = "", value: float = 0.0) -> FloatArray:
    """L1 error of each case, with one constant varied."""
    target: ModuleType = smoothed_likelihood
    attribute, varied = name, cast(Any, value)
    if name.startswith("a(m)"):
        target, attribute = split_trees, "_RASTER" if "rasters" in name else "_PLACES"
        factor, power = getattr(target, attribute)
        varied = (factor, value) if "power" in name else (value, power)
    before = getattr(target, attribute, None)
    if before is not None:
        setattr(target, attribute, varied)
    try:
        found = [smoothed_likelihood.smooth_likelihood(case.randomizer, case.tally) for case in made]
    finally:
        if before is not None:
            setattr(target, attribute, before)
    return np.array(
        [np.abs(each.distribution - case.truth).sum() for each, case in zip(found, made, strict=True)]
    )


def by_seed(changes: FloatArray) -> FloatArray:
    """Means over the scenes of each seed, whose draws depend on each other, shape (seeds,)."""
    return np.asarray(changes.reshape(-1, len(SEEDS)).mean(axis=0))


def default_of(name: str) -> Any:
    if name.startswith("a(m)"):
        return split_trees._RASTER[0] if "rasters" in name else split_trees._PLACES["power" in name]
    return getattr(smoothed_likelihood, name)


def page() -> str:
    made = list(cases())
    base = errors(made)
    rows = []
    for name, values in VARIED.items():
        cells = []
        for value in values:
            ratio = np.log(errors(made, name, value) / base)
            mean, _, high = interval_of_mean(by_seed(ratio))
            cells.append(f"{value:g}: {100 * np.expm1(mean):+.1f} % ± {100 * (high - mean):.1f}")
            print(name, cells[-1], flush=True)
        rows.append(f"| `{name}` | {default_of(name):g} | {'; '.join(cells)} |")
    return TEXT.format(cases=len(made), seeds=len(SEEDS), error=base.mean(), rows="\n".join(rows))


TEXT: Final = """# Constants of the default local estimator

Generated by `python -m benchmarks.estimator_constants`; do not edit.

The table varies the constants of `smoothed-em` one at a time (`mapveil.local.estimators.smoothed_likelihood`, and
the prior of divisions a(m) in `split_trees`). It shows the change of the L1 error of the estimated distribution: the
geometric mean over {cases} synthetic collections, four scenes with {seeds} seeds each, and half its 95 % interval over
the seeds, whose four scenes count as one. The mean error with the defaults is {error:.3f}. No constant was tuned on
these scenes:

- a raster of 24 x 24 cells, `olh`, epsilon 1, 20,000 users;
- a raster of 32 x 32 cells with 2 % of the users in one, `olh-h`, epsilon 0.5, 50,000 users;
- 400 sites, `subset`, epsilon 2, 10,000 users;
- 400 sites with 20 % of the users at one, `hr`, epsilon 1, 20,000 users.

With `_PEAK_DEVIATIONS` at 1e+09 no site has a fraction of its own. With `_DEVIATIONS` at -1e+09 every estimate is
shown.

| constant | default | value: change of the error |
|---|---|---|
{rows}

`_MIN_TREES` and `_MAX_LEAVES` bound time and memory for many sites. `_TINY` is a least divisor. `_SEED` is the seed of
the random signs that measure information; they depend on no data.
"""


if __name__ == "__main__":
    confine_to_tuning_data(sys.argv[1:])
    Path(sys.argv[1]).write_text(page(), "utf-8")
