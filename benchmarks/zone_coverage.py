"""Coverage of the noise intervals of zones' totals, by simulation: ``python -m benchmarks.zone_coverage``.

Made-up users in New York's box, the default method, 128 x 128 cells, 120 random boxes of every size, 24 releases of
each setting (seeds 0 to 23); with two standard errors over the releases.
A hit is an interval that holds the weighted sum it is of: every leaf's users, spread evenly over its cells.
"""

from __future__ import annotations

import numpy as np
import shapely

import mapveil as mv
from mapveil.analysis.zone_totals import totals_of
from mapveil.engines import UNIT, UserSums
from mapveil.geo.zones import Zones
from mapveil.inference.zone_overlay import ZoneOverlay
from mapveil_client.arrays import FloatArray

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
TILING = mv.Quadtree(REGION, depth=7)
EPSILONS = (0.1, 0.5, 1, 5)
RELEASES, ZONES = 24, 120


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
    print("| users | " + " | ".join(f"epsilon {epsilon:g}" for epsilon in EPSILONS) + " |")
    print("|---|" + "---|" * len(EPSILONS))
    for name, users in cities.items():
        source = UserSums(users.astype(np.int64) * UNIT, TILING)
        cells = " | ".join(coverage(source, zones, epsilon) for epsilon in EPSILONS)
        print(f"| {name} | {cells} |")


def random_boxes(rng: np.random.Generator) -> Zones:
    """Boxes with a side from 1/64 of the region's to all of it."""
    low, high = np.array(REGION.bbox[:2]), np.array(REGION.bbox[2:])
    side = (high - low) * 2.0 ** rng.uniform(-6, 0, (ZONES, 1))
    corner = low + (high - low - side / 2) * rng.random((ZONES, 2)) - side / 4
    return Zones.read(shapely.box(*corner.T, *(corner + side).T).tolist())


def coverage(source: UserSums, zones: Zones, epsilon: float) -> str:
    """The percentage of intervals that hold."""
    truth: FloatArray = source.sums / UNIT
    hits = []
    for seed in range(RELEASES):
        heat = mv.mechanisms.Multiscale(epsilon=epsilon).release(source, TILING, account=None, rng=seed)
        asked = ZoneOverlay.of(heat, zones)
        found = totals_of(asked)
        exact = asked.weights @ np.bincount(asked.sums.leaf, truth, asked.sums.cells.size)
        hits.append(float(((found.low <= exact) & (exact <= found.high)).mean()))
    return f"{100 * np.mean(hits):.1f} ± {200 * np.std(hits) / np.sqrt(RELEASES):.1f} %"


if __name__ == "__main__":
    main()
