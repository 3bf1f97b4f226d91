"""The unbiased estimates behind a map, as the measurement of its error bounds."""

from fractions import Fraction

import numpy as np

from mapveil.local.randomizers.randomizer import Randomizer, Tally
from mapveil.maps.measurement import INTERVAL_ALPHA, EstimatedUsers
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError


def estimated_users(
    randomizer: Randomizer, tally: Tally, distribution: FloatArray, epsilon: Fraction
) -> EstimatedUsers:
    """The unbiased estimates of a tally, with their noise at the estimated map ``distribution``, shape (sites,).

    Where none are known, or none says more, the number of users who reported.
    """
    domain = randomizer.domain
    groups = np.full(domain.tiling.size, -1, dtype=np.int64)
    n = tally.reports
    everybody = groups.copy()
    everybody[domain.cells] = 0
    bare = EstimatedUsers(everybody, np.array([float(n)]), epsilon, 1, reports=n)
    try:
        noise = randomizer.site_noise(distribution)
        noisy = n * randomizer.invert(tally)
    except ParameterError:
        return bare
    groups[domain.cells] = np.arange(domain.size)
    made = EstimatedUsers(
        groups, noisy, epsilon, 1, reports=n, variance=float(noise.variance.max()), step=noise.step
    )
    return bare if made.half_width(INTERVAL_ALPHA) >= n else made
