"""Bias, coverage and width of zones' totals by the band of alike blocks: ``python -m benchmarks.zone_bands``.

Six made-up maps apart from those of :mod:`benchmarks.zone_widths`, 128 x 128 cells, the default method at epsilon 1,
200 random boxes, 40 releases (seeds 0 to 39). The bias is that of the totals' error over its deviation, the coverage
that of 1.96 deviations, both with two standard errors over the releases; the width is the mean deviation over that of
least squares without regard to the choice of cells.
"""

from __future__ import annotations

import numpy as np

import mapveil as mv
from benchmarks.zone_coverage import TILING, random_boxes
from mapveil.engines import UNIT, UserSums
from mapveil.inference import nested_sums
from mapveil.inference.nested_sums import NestedSums
from mapveil.inference.zone_overlay import ZoneOverlay
from mapveil.maps.density_map import DensityMap
from mapveil_client.arrays import FloatArray, IntArray

BANDS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)  # 0: the block's own division
RELEASES, ZONES = 40, 200


def main() -> None:
    """Print the table."""
    rng = np.random.default_rng(77)
    zones = random_boxes(rng, ZONES)
    print(f"| users | {' | '.join(f'b {band:g}' for band in BANDS)} |\n|---|{'---|' * len(BANDS)}")
    for name, users in maps(rng).items():
        source = UserSums(users.astype(np.int64) * UNIT, TILING)
        found: dict[float, list[FloatArray]] = {band: [] for band in BANDS}
        for seed in range(RELEASES):
            heat = mv.mechanisms.Multiscale(epsilon=1).release(source, TILING, account=None, rng=seed)
            asked = ZoneOverlay.of(heat, zones)
            for band in BANDS:
                found[band].append(measure(heat, asked, users, band))
        cells = []
        for band in BANDS:
            bias, hits, deviation = np.array(found[band]).T
            error, ratio = 2 / np.sqrt(RELEASES), float(np.mean(deviation / np.array(found[0.0])[:, 2]))
            cells.append(
                f"{bias.mean():+.2f} ± {error * bias.std():.2f}; "
                f"{100 * hits.mean():.1f} ± {100 * error * hits.std():.1f} %; {ratio:.2f}"
            )
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def maps(rng: np.random.Generator) -> dict[str, IntArray]:
    """Users in each cell of six maps."""

    def drawn(users: int, weight: FloatArray) -> IntArray:
        return rng.multinomial(users, weight / weight.sum())

    def spots(weight: FloatArray) -> FloatArray:
        made = np.zeros(TILING.size)
        made[rng.choice(TILING.size, weight.size, replace=False)] = weight
        return made

    return {
        "3,000, flat": drawn(3_000, np.ones(TILING.size)),
        "3,000, at 4 cells": drawn(3_000, spots(np.ones(4))),
        "300, at 40 cells": drawn(300, spots(np.ones(40))),
        "500, at 200 cells": drawn(500, spots(1 / np.arange(1.0, 201.0))),
        "3,000, in few cells": drawn(3_000, np.exp(rng.normal(0, 5, TILING.size))),
        "3,000, on a line": drawn(3_000, (TILING.lattice().row == 40) + 1e-3),
    }


def measure(heat: DensityMap, asked: ZoneOverlay, users: IntArray, band: float) -> FloatArray:
    """Bias, fraction of hits and mean deviation of one release's totals."""
    vars(nested_sums)["_ALIKE"] = band
    sums = NestedSums(heat.measurements, np.ones(TILING.size, dtype=np.bool_), adaptive=band > 0)
    exact = np.bincount(sums.leaf, users, sums.cells.size)
    variances = np.zeros(len(asked.zones))
    for level, a in zip(sums.levels[1:], sums.coefficients(asked.weights), strict=True):
        variances += level.variance * (a**2).sum(axis=0)
    deviation = np.sqrt(variances)
    apart = asked.weights @ (sums.estimate - exact) / deviation
    return np.array([apart.mean(), (np.abs(apart) < 1.96).mean(), deviation.mean()])


if __name__ == "__main__":
    main()
