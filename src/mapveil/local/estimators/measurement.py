"""The unbiased estimates behind a map, as the measurement of its error bounds."""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from mapveil.local.randomizers.randomizer import Randomizer, Tally
from mapveil.maps.density_map import INTERVAL_ALPHA, Measurement
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError


@dataclass(frozen=True, eq=False)
class EstimatedUsers(Measurement):
    r"""Unbiased estimates of the users at each site. Bounds are Bernstein's, for any number of reports:

    .. math:: t = \sqrt{2 n v \ell} + \frac{2 s\, \ell}{3}, \qquad \ell = \ln \frac{2}{\alpha}

    where: n is ``reports``, v is ``variance``, the largest variance of one report's term of a site's estimate, given
    the users' places (taken at the estimated map), and s is ``step``, the largest term. They bound the users at a site
    around the unbiased estimate, not around the map: a map by an estimator that smooths may lie outside of them.
    """

    reports: int = 0
    variance: float = 0.0
    step: float = 0.0

    def deviation(self) -> float:
        """Standard deviation of the noise, users, at the noisiest site."""
        return math.sqrt(self.reports * self.variance)

    def half_width(self, alpha: float) -> float:
        """Half the width of a two-sided interval of coverage 1 - alpha around an estimate, users."""
        level = math.log(2 / alpha)
        return math.sqrt(2 * self.reports * self.variance * level) + 2 * self.step * level / 3


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
