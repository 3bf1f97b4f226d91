"""False discovery rate and power of ``mapveil change``, by simulation: ``python -m benchmarks.zone_changes``.

256 blocks, epsilon 1 for each of two maps; users come and go as Poisson variables; a quarter of the blocks rise by a
quarter, or none does. 200 pairs of each setting (seeds 0 to 399), with two standard errors over the pairs, or, of pairs
that are counted, the 95 % interval of Wilson.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import binomtest

import mapveil as mv
from mapveil.analysis.zone_changes import changes
from mapveil.engines import UNIT, UserSums
from mapveil.geo.zones import Zones
from mapveil.maps.density_map import DensityMap
from mapveil_client.arrays import BoolArray, FloatArray

TILING = mv.Quadtree(mv.Region.from_bbox(0.0, 0.0, 0.8, 0.8), depth=4)
USERS = (100, 200, 300, 400, 800)  # expected in each block
PAIRS = 200
RISEN = np.arange(TILING.size) % 4 == 0


def main() -> None:
    """Print the table."""
    zones = Zones.read(TILING.polygons().tolist())
    print("| users in a block | false discovery rate | power | pairs with a call where nothing changed |")
    print("|---|---|---|---|")
    for users in USERS:
        risen = [_outcome(users, zones, seed, RISEN) for seed in range(PAIRS)]
        false, power = (_with_error([100 * pair[at] for pair in risen]) for at in (0, 1))
        none = sum(_outcome(users, zones, seed, ~RISEN & RISEN)[0] > 0 for seed in range(PAIRS))
        low, high = binomtest(none, PAIRS).proportion_ci(method="wilson")
        print(f"| {users} | {false} | {power} | {none / PAIRS:.1%} ({low:.1%} to {high:.1%}) |", flush=True)


def _outcome(users: int, zones: Zones, seed: int, risen: BoolArray) -> tuple[float, float]:
    """Fractions: of the called blocks those that did not change, and of the changed ones those called."""
    before = _release(np.full(TILING.size, float(users)), 2 * seed)
    after = _release(np.where(risen, 1.25, 1.0) * users, 2 * seed + 1)
    called = changes(before, after, zones).changed
    return (called & ~risen).sum() / max(called.sum(), 1), (called & risen).sum() / max(risen.sum(), 1)


def _release(mean: FloatArray, seed: int) -> DensityMap:
    users = np.random.default_rng(1000 + seed).poisson(mean)
    sums = UserSums(users.astype(np.int64) * UNIT, TILING)
    return mv.mechanisms.Multiscale(epsilon=1).release(sums, TILING, account=None, rng=seed)


def _with_error(values: list[float]) -> str:
    return f"{np.mean(values):.1f} ± {2 * np.std(values) / np.sqrt(len(values)):.1f} %"


if __name__ == "__main__":
    main()
