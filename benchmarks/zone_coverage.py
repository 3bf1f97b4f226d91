"""Coverage of the noise intervals of zones' totals, by simulation: ``python -m benchmarks.zone_coverage``.

Made-up users in New York's box, the default methods of a curator and of the local model, 128 x 128 cells, 120 random
boxes of every size, 24 releases of each setting by the curator and 8 in the local model (seeds from 0); with two
standard errors over the releases. The local maps are estimated by norm-clip, since an interval follows from the reports
and, a little, from the users that the map shows at a node.
A hit is an interval that holds the weighted sum it is of: every leaf's users, spread evenly over its cells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import shapely

import mapveil as mv
from mapveil.analysis.zone_totals import totals_of
from mapveil.geo.zones import Zones
from mapveil.inference.zone_overlay import ZoneOverlay
from mapveil.mechanisms.mechanism import AnyMechanism
from mapveil_client.arrays import IntArray

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
TILING = mv.Quadtree(REGION, depth=7)
EPSILONS = (0.1, 0.5, 1, 5)
LOCAL_EPSILONS = (1, 2, 4)
RELEASES, LOCAL_RELEASES, ZONES = 24, 8, 120
HOT = 0.15  # of the users in one cell


def main() -> None:
    """Print the table."""
    rng = np.random.default_rng(0)
    zones = random_boxes(rng)
    flat = np.full(TILING.size, 1 / TILING.size)
    skewed = np.exp(rng.normal(0, 2.0, TILING.size))
    cities = {
        "500 users, flat": rng.multinomial(500, flat),
        "20,000 users, flat": rng.multinomial(20_000, flat),
        "5,000 users, skewed": rng.multinomial(5_000, skewed / skewed.sum()),
    }
    hot = (1 - HOT) * skewed / skewed.sum()
    hot[777] += HOT
    table(cities, zones, EPSILONS, lambda epsilon: mv.mechanisms.Multiscale(epsilon=epsilon), RELEASES)
    print()
    cities["20,000 users, hot spot"] = rng.multinomial(20_000, hot)

    def local(epsilon: float) -> AnyMechanism:
        return mv.mechanisms.HierarchicalHashing(epsilon=epsilon, estimator="norm-clip")

    table(cities, zones, LOCAL_EPSILONS, local, LOCAL_RELEASES)


def table(
    cities: dict[str, IntArray],
    zones: Zones,
    epsilons: Sequence[float],
    mechanism: Callable[[float], AnyMechanism],
    releases: int,
) -> None:
    """Print the coverage of one mechanism."""
    print("| users | " + " | ".join(f"epsilon {epsilon:g}" for epsilon in epsilons) + " |")
    print("|---|" + "---|" * len(epsilons))
    for name, users in cities.items():
        cells = " | ".join(coverage(users, zones, mechanism(epsilon), releases) for epsilon in epsilons)
        print(f"| {name} | {cells} |", flush=True)


def random_boxes(rng: np.random.Generator, count: int = ZONES) -> Zones:
    """Boxes with a side from 1/64 of the region's to all of it."""
    low, high = np.array(REGION.bbox[:2]), np.array(REGION.bbox[2:])
    side = (high - low) * 2.0 ** rng.uniform(-6, 0, (count, 1))
    corner = low + (high - low - side / 2) * rng.random((count, 2)) - side / 4
    return Zones.read(shapely.box(*corner.T, *(corner + side).T).tolist())


def coverage(users: IntArray, zones: Zones, mechanism: AnyMechanism, releases: int) -> str:
    """The percentage of intervals that hold."""
    hits = []
    for seed in range(releases):
        heat = mechanism.release(mv.Counts(users, TILING), account=None, rng=seed)
        asked = ZoneOverlay.of(heat, zones)
        found = totals_of(asked)
        exact = asked.weights @ np.bincount(asked.sums.leaf, users, asked.sums.cells.size)
        hits.append(float(((found.low <= exact) & (exact <= found.high)).mean()))
    return f"{100 * np.mean(hits):.1f} ± {200 * np.std(hits) / np.sqrt(releases):.1f} %"


if __name__ == "__main__":
    main()
