r"""Flows from the marginals alone: the paper's Lasso over candidate pairs.

.. math:: \hat w = \arg\min_{w \ge 0}\; \tfrac12 \lVert y - M w \rVert_2^2 + \lambda \lVert w \rVert_1

where: y holds the estimated distribution of origins, then that of destinations (2d numbers), w one frequency a
candidate pair, and the column of M of the pair (x, x') is 1 at x among the origins and at x' among the destinations. M
is never written out: a product with it is a sum by origin and one by destination. The solution is found by accelerated
projected gradients with restarts (FISTA) to a stated duality gap.

What it cannot do: 2d equations do not tell which of up to d^2 pairs the mass belongs to. Frequencies that are not
negative and have given marginals all have one L1 norm, so not even the penalty prefers some of them; which minimiser
comes out is decided by where the iteration starts (here at zero, so that mass is spread over all candidates of an
origin and a destination). A list of candidates is what makes it useful.

Deviation: the paper does not give :math:`\lambda`; here it is a part of the smallest one at which w is zero.

Source: Wang et al. (2022), section 4.1; Beck, Teboulle (2009); O'Donoghue, Candes (2015) for the restarts.
"""

from typing import Final, NamedTuple

import numpy as np

from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import ParameterError, check

_GAP: Final = 1e-7
_MOST_STEPS: Final = 20_000
_CHECKED_EVERY: Final = 10


class LassoFlows(NamedTuple):
    """Result of the Lasso."""

    frequency: FloatArray  # of each candidate, shape (candidates,)
    gap: float  # how far the objective is above the smallest at most, as a part of that of w = 0
    steps: int


def estimate_lasso(
    origins: FloatArray,
    destinations: FloatArray,
    first: IntArray,
    second: IntArray,
    *,
    penalty: float = 0.01,
    gap: float = _GAP,
) -> LassoFlows:
    """Solve the module's problem. Run by: the server; costs no privacy.

    Parameters
    ----------
    origins, destinations : ndarray of float64, shape (sites,)
        The estimated marginal distributions; entries may be negative.
    first, second : ndarray of int64, shape (candidates,)
        Origin and destination of each candidate pair.
    penalty : float
        :math:`\\lambda` as a part of the smallest one at which w is zero, between 0 and 1.
    gap : float
        Stop at this duality gap, as a part of the objective at w = 0.

    Raises
    ------
    ParameterError
        The penalty is outside its range, or there is no candidate.
    """
    check(0 < penalty < 1, "penalty", "a number between 0 and 1", penalty)
    if first.size == 0:
        raise ParameterError("there is no candidate pair; expected at least one")
    size = origins.size

    def sums(w: FloatArray) -> tuple[FloatArray, ...]:
        return tuple(np.bincount(end, w, size).astype(np.float64) for end in (first, second))

    def gap_of(w: FloatArray) -> float:
        """Objective less the dual's at the residual, scaled until it is feasible."""
        out, into = sums(w)
        left_out, left_into = origins - out, destinations - into
        steepest = float((left_out[first] + left_into[second]).max())
        scale = min(1.0, weight / steepest) if steepest > 0 else 1.0
        objective = 0.5 * float(left_out @ left_out + left_into @ left_into) + weight * float(w.sum())
        dual = whole
        for every, left in ((origins, left_out), (destinations, left_into)):
            short = every - scale * left
            dual -= 0.5 * float(short @ short)
        return objective - dual

    # The largest eigenvalue of M M^T is at most the largest sum of the degrees of a pair's two ends.
    degree = np.bincount(first, minlength=size)[first] + np.bincount(second, minlength=size)[second]
    step = 1.0 / float(degree.max())
    whole = 0.5 * float(origins @ origins + destinations @ destinations)
    weight = penalty * max(float((origins[first] + destinations[second]).max()), 0.0)
    w = np.zeros(first.size)
    ahead, momentum = w, 1.0
    reached = np.inf
    for number in range(1, _MOST_STEPS + 1):
        out, into = sums(ahead)
        slope = (out - origins)[first] + (into - destinations)[second] + weight
        after = np.maximum(ahead - step * slope, 0.0)
        moved = after - w
        if float(slope @ moved) > 0:  # momentum points uphill
            momentum = 1.0
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = after + ((momentum - 1) / following) * moved
        w, momentum = after, following
        if number % _CHECKED_EVERY == 0:
            reached = gap_of(w) / max(whole, 1e-300)
            if reached <= gap:
                break
    return LassoFlows(w, float(reached), number)
