"""The unbiased estimates behind a map, as measurements: for bounds, supported blocks and totals of zones."""

from dataclasses import replace
from fractions import Fraction
from typing import Final

import numpy as np

from mapveil.local.randomizers.randomizer import NodeEstimates, Randomizer, Tally
from mapveil.maps.measurement import INTERVAL_ALPHA, EstimatedUsers
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import ParameterError

_UNIT: Final = 256
"""Estimates are rounded to this fraction of a user, far below their noise: a file holds them in fewer bytes."""


def estimated_users(
    randomizer: Randomizer, tally: Tally, distribution: FloatArray, epsilon: Fraction
) -> tuple[EstimatedUsers, ...]:
    """The number of users who reported, and the unbiased estimates of a tally, the coarsest nodes first.

    The noise is that at the estimated map ``distribution``, shape (sites,). Levels whose bounds say no more than that
    number are left out.
    """
    domain, n = randomizer.domain, tally.reports

    def of(node: IntArray, users: FloatArray, noise: NodeEstimates | None = None) -> EstimatedUsers:
        groups = np.full(domain.tiling.size, -1, dtype=np.int64)
        groups[domain.cells] = node
        rounded = np.rint(_UNIT * users) / _UNIT
        plain = EstimatedUsers(groups, rounded, epsilon, _UNIT, reports=n, independent=True)
        if noise is None:
            return plain
        fullest = float(np.bincount(node, distribution).max())
        variance = noise.variance + noise.slope * fullest
        return replace(plain, variance=variance, step=noise.step, slope=noise.slope)

    found = [of(np.zeros(domain.size, dtype=np.int64), np.array([float(n)]))]
    levels = randomizer.node_estimates(tally) if n else ()
    found += [of(each.node, n * each.estimates, each) for each in levels]
    if n and not levels:
        try:
            site, sites = randomizer.site_noise(distribution), np.arange(domain.size)
            alone = of(sites, n * randomizer.invert(tally))
        except ParameterError:
            return tuple(found)
        variance = float(site.variance.max())
        found.append(replace(alone, variance=variance, step=site.step, independent=False))
    return tuple(each for each in found if each.noisy.size == 1 or each.half_width(INTERVAL_ALPHA) < n)
