"""Coverage and width of the noise intervals of zones' totals, by simulation: ``python -m benchmarks.zone_widths``.

Made-up users in New York's box, the default method, 128 x 128 cells, 1,000 random boxes of every size on each of seven
maps, 8 releases of each setting (seeds 0 to 7). A hit is an interval that holds the weighted sum it is of: every leaf's
users, spread evenly over its cells. Two standard errors are those over the releases, whose zones share their noise.
Widths are compared with those of least squares without regard to the choice of cells, the least of any unbiased
combination of the noisy sums; and, of a zone of 64 x 64 cells, with the sum of its cells' bounds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import shapely

import mapveil as mv
from benchmarks.zone_coverage import REGION, TILING, random_boxes
from mapveil.analysis.zone_totals import totals_of
from mapveil.engines import UNIT, UserSums
from mapveil.geo.zones import Zones
from mapveil.inference.linear_totals import half_widths
from mapveil.inference.nested_sums import NestedSums
from mapveil.inference.zone_overlay import ZoneOverlay
from mapveil_client.arrays import FloatArray, IntArray

EPSILONS = (0.1, 0.5, 1, 5)
RELEASES, ZONES = 8, 1000
SQUARE = 64  # cells, the side of the zone whose width is compared with summed bounds


class Measured(NamedTuple):
    """Figures of one setting."""

    coverage: float  # per cent
    error: float  # two standard errors
    optimum: float  # mean width over that of least squares
    bounds: float  # summed bounds of the square over its width


def main() -> None:
    """Print the tables."""
    rng = np.random.default_rng(0)
    zones = random_boxes(rng, ZONES)
    found = {name: [measure(users, zones, each) for each in EPSILONS] for name, users in cities(rng).items()}
    head = "| users | " + " | ".join(f"epsilon {epsilon:g}" for epsilon in EPSILONS) + " |"
    for title, cell in (
        ("Coverage of 95 % intervals", lambda each: f"{each.coverage:.1f} ± {each.error:.1f} %"),
        ("Mean width over the least-squares optimum", lambda each: f"{each.optimum:.2f}"),
        ("Summed bounds over the width, 64 x 64 cells", lambda each: f"{each.bounds:,.0f}"),
    ):
        print(f"\n{title}\n\n{head}\n|---|{'---|' * len(EPSILONS)}")
        for name, row in found.items():
            print(f"| {name} | {' | '.join(map(cell, row))} |")


def cities(rng: np.random.Generator) -> dict[str, IntArray]:
    """Users in each cell of seven maps."""
    flat = np.full(TILING.size, 1 / TILING.size)
    crowds = rng.choice(TILING.size, 12, replace=False)

    def skewed(deviation: float) -> FloatArray:
        weight = np.exp(rng.normal(0, deviation, TILING.size))
        return np.asarray(weight / weight.sum())

    slope = np.exp(TILING.lattice().col / 32)
    spots = np.zeros(TILING.size)
    spots[crowds] = 1 / crowds.size
    return {
        "500, flat": rng.multinomial(500, flat),
        "20,000, flat": rng.multinomial(20_000, flat),
        "5,000, skewed": rng.multinomial(5_000, skewed(2.0)),
        "100,000, skewed": rng.multinomial(100_000, skewed(2.0)),
        "5,000, in few cells": rng.multinomial(5_000, skewed(4.0)),
        "20,000, sloping": rng.multinomial(20_000, slope / slope.sum()),
        "2,000, at 12 cells": rng.multinomial(2_000, spots),
    }


def square() -> Zones:
    """A zone of 64 x 64 cells in the middle."""
    low, high = np.array(REGION.bbox[:2]), np.array(REGION.bbox[2:])
    quarter = (high - low) / 4
    return Zones.read([shapely.box(*(low + quarter), *(high - quarter))])


def measure(users: IntArray, zones: Zones, epsilon: float) -> Measured:
    """The figures of one setting."""
    source = UserSums(users.astype(np.int64) * UNIT, TILING)
    truth: FloatArray = source.sums / UNIT
    hits, over, bounds = [], [], []
    for seed in range(RELEASES):
        heat = mv.mechanisms.Multiscale(epsilon=epsilon).release(source, TILING, account=None, rng=seed)
        asked = ZoneOverlay.of(heat, zones)
        found = totals_of(asked)
        exact = asked.weights @ np.bincount(asked.sums.leaf, truth, asked.sums.cells.size)
        hits.append(float(((found.low <= exact) & (exact <= found.high)).mean()))
        least = NestedSums(heat.measurements, np.ones(TILING.size, dtype=np.bool_))
        width = half_widths([each.noise for each in least.errors(asked.weights)], 0.05)
        over.append(float(np.mean((found.high - found.low) / (2 * width))))
        cells, limits = ZoneOverlay.of(heat, square()), heat.error()
        middle = totals_of(cells)
        lattice = TILING.lattice()
        inside = (np.abs(lattice.row - 63.5) < SQUARE / 2) & (np.abs(lattice.col - 63.5) < SQUARE / 2)
        summed = float((limits.upper - limits.lower)[inside].sum())
        bounds.append(summed / float(middle.high[0] - middle.low[0]))
    error = 200 * float(np.std(hits)) / np.sqrt(RELEASES)
    return Measured(100 * float(np.mean(hits)), error, float(np.mean(over)), float(np.mean(bounds)))


if __name__ == "__main__":
    main()
