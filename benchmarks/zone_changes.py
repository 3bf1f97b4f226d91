"""False discovery rate and power of ``mapveil change``, by simulation: ``python -m benchmarks.zone_changes``.

First table: 256 blocks, epsilon 1 for each of two maps; users come and go as Poisson variables; a quarter of the blocks
rise by a quarter, or none does. Second table: zones that share noisy sums, 256 cells and 64 squares of four of them; of
two maps, and of the first and last of 8 windows of a series at epsilon 2, of one user in every cell and window, where
four cells rise in the last window; with the null of people, exactly one. 200 pairs of each setting (seeds 0 to 399),
with two standard errors over the pairs, or, of pairs that are counted, the 95 % interval of Wilson. Power is that of
changed zones that are compared.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.stats import binomtest

import mapveil as mv
from mapveil.analysis.zone_changes import changes
from mapveil.engines import UNIT, UserSums
from mapveil.geo.zones import Zones
from mapveil.inference.zone_results import Null, ZoneChanges
from mapveil.maps.density_map import DensityMap
from mapveil.mechanisms.multiscale_series import MultiscaleSeries
from mapveil_client.arrays import BoolArray, FloatArray

TILING = mv.Quadtree(mv.Region.from_bbox(0.0, 0.0, 0.8, 0.8), depth=4)
COARSER = mv.Quadtree(TILING.region, depth=3)
WINDOWS = mv.Windows(every="1w", start="2026-01-05", until="2026-03-02")
USERS = (100, 200, 300, 400, 800)  # expected in each block
PAIRS = 200
RISEN = np.arange(TILING.size) % 4 == 0
SQUARES = np.arange(COARSER.size) % 4 == 0  # of four blocks each
NONE = np.zeros(TILING.size, dtype=np.bool_)


class Outcome(NamedTuple):
    """A comparison: fractions of the called zones that did not change, and of the changed ones that are called."""

    false: float
    power: float  # NaN where no zone that changed is compared
    compared: float  # zones


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zone_changes", description=__doc__)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    pairs = parser.parse_args().pairs
    zones = Zones.read(TILING.polygons().tolist())
    both = Zones.read([*TILING.polygons(), *COARSER.polygons()])
    print("| users in a block | false discovery rate | power | pairs with a call where nothing changed |")
    print("|---|---|---|---|")
    for users in USERS:
        false, power, _, none = _row(partial(_of_maps, users, zones), RISEN, pairs)
        print(f"| {users} | {false} | {power} | {none} |", flush=True)
    print(
        "\n| setting | zones compared | false discovery rate | power | pairs with a call where nothing changed |"
    )
    print("|---|---|---|---|---|")
    squares = np.repeat(SQUARES, 4)
    settings: tuple[tuple[str, Callable[[int, BoolArray], Outcome], BoolArray], ...] = (
        ("blocks of 300 users, and squares of four of them", partial(_of_maps, 300, both), squares),
        ("cells of one user, of which a quarter rise to 20, and squares", partial(_of_few, both), RISEN),
        ("windows: four cells rise to 100", partial(_of_windows, 100, both, "rate"), ~NONE),
        ("windows: four cells rise to 60", partial(_of_windows, 60, both, "rate"), ~NONE),
        (
            "windows: four cells rise to 100, `--null people`",
            partial(_of_windows, 100, both, "people"),
            ~NONE,
        ),
    )
    for name, outcome, risen in settings:
        false, power, number, none = _row(outcome, risen, pairs)
        print(f"| {name} | {number} | {false} | {power} | {none} |", flush=True)


def _row(
    outcome: Callable[[int, BoolArray], Outcome], risen: BoolArray, pairs: int
) -> tuple[str, str, str, str]:
    """False discovery rate, power, zones compared, and the pairs with a call where nothing changed."""
    found = [outcome(seed, risen) for seed in range(pairs)]
    none = sum(outcome(seed, NONE).false > 0 for seed in range(pairs))
    low, high = binomtest(none, pairs).proportion_ci(method="wilson")
    false = _with_error([100 * each.false for each in found])
    power = _with_error([100 * each.power for each in found if np.isfinite(each.power)])
    number = f"{np.mean([each.compared for each in found]):.0f}"
    return false, power, number, f"{none / pairs:.1%} ({low:.1%} to {high:.1%})"


def _of_maps(users: int, zones: Zones, seed: int, risen: BoolArray) -> Outcome:
    before = _release(np.full(TILING.size, float(users)), 2 * seed)
    after = _release(np.where(risen, 1.25, 1.0) * users, 2 * seed + 1)
    return _outcome(changes(before, after, zones), risen)


def _of_few(zones: Zones, seed: int, risen: BoolArray) -> Outcome:
    """Maps that measured different blocks of several cells, since most cells are next to empty."""
    before = _release(np.ones(TILING.size), 2 * seed)
    after = _release(np.where(risen, 20.0, 1.0), 2 * seed + 1)
    return _outcome(changes(before, after, zones), risen)


def _of_windows(rise: int, zones: Zones, null: Null, seed: int, some: BoolArray) -> Outcome:
    """The first and last window of a series; four cells rise where ``some`` is not all False."""
    rng = np.random.default_rng(1000 + seed)
    risen, mean = NONE.copy(), np.ones((WINDOWS.count, TILING.size))
    if some.any():
        risen[rng.choice(TILING.size, 4, replace=False)] = True
        mean[-1, risen] = rise
    users = mean.astype(np.int64) if null == "people" else rng.poisson(mean)
    made = MultiscaleSeries(epsilon=2, windows=WINDOWS)
    series = made.release(UserSums(users * UNIT, TILING), rng=seed, account=None)
    assert isinstance(series, mv.SeriesMap)
    return _outcome(changes(series.window(0), series.window(WINDOWS.count - 1), zones, null=null), risen)


def _outcome(found: ZoneChanges, cells: BoolArray) -> Outcome:
    """The outcome for cells that changed, and where the zones go on, for squares that hold one of them."""
    called, known = found.changed, found.compared
    risen = np.concatenate([cells, cells.reshape(-1, 4).any(axis=1)])[: called.size]
    false = (called & ~risen).sum() / max(called.sum(), 1)
    power = (called & risen).sum() / (known & risen).sum() if (known & risen).any() else np.nan
    return Outcome(float(false), float(power), float(known.sum()))


def _release(mean: FloatArray, seed: int) -> DensityMap:
    users = np.random.default_rng(1000 + seed).poisson(mean)
    sums = UserSums(users.astype(np.int64) * UNIT, TILING)
    return mv.mechanisms.Multiscale(epsilon=1).release(sums, TILING, account=None, rng=seed)


def _with_error(values: list[float]) -> str:
    return f"{np.mean(values):.1f} ± {2 * np.std(values) / np.sqrt(len(values)):.1f} %"


if __name__ == "__main__":
    main()
