r"""Error bars of flows: how far an unbiased estimate of each pair's trips strays by the randomization alone.

.. math:: \hat F = A \frac{N}{n} A^T, \qquad A = (Q Q^T)^{-1} Q, \qquad
    \mathrm{Var}\big(n \hat F_{x x'}\big) = n \big( (A \circ A)\, P\, (A \circ A)^T - F \big)_{x x'}

where: N holds how often each pair of reports came, n is their number, Q is the channel of one report (a row a site), P
the distribution of pairs of reports, for which that of the estimated flows stands, and F those flows. The trips are
taken as they are, not as drawn.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from mapveil.analysis.pair_channel import pair_channel
from mapveil.local.randomizers.randomizer import Randomizer
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError

_MOST_INVERTED: Final = 2048
_WORST_RESIDUAL: Final = 1e-4


def flow_deviation(randomizer: Randomizer, joint: FloatArray, reports: int) -> FloatArray | None:
    """Standard deviation of the module's estimate of each pair's trips, trips, shape (sites, sites).

    Run by: the server; costs no privacy.

    Parameters
    ----------
    randomizer : Randomizer
        Of each report.
    joint : ndarray of float64, shape (sites, sites)
        The estimated distribution over pairs.
    reports : int
        n.

    Returns
    -------
    ndarray or None
        None where there is no such estimate: reports that are sets of sites, a channel that cannot be inverted, or
        more than 2,048 sites.
    """
    if randomizer.size > _MOST_INVERTED:
        return None
    try:
        channel = pair_channel(randomizer)
    except ParameterError:
        return None
    matrix = channel.push(np.eye(channel.sites), 0).T  # Q
    square = matrix @ matrix.T
    try:
        inverse = np.linalg.solve(square, matrix)
    except np.linalg.LinAlgError:
        return None
    if not np.abs(inverse @ matrix.T - np.eye(channel.sites)).max() < _WORST_RESIDUAL:
        return None
    flows = channel.in_site_order(joint)
    squared = inverse * inverse
    variance = squared @ channel.forward(flows) @ squared.T - flows
    made: FloatArray = channel.out_of_site_order(np.sqrt(reports * np.maximum(variance, 0.0)))
    return made
