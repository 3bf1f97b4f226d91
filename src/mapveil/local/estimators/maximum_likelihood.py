r"""The distribution under which the reports are likeliest, by accelerated expectation maximisation.

.. math:: p'(x) = p(x) \sum_y q(y \mid x)\, \frac{\hat\pi(y)}{\sum_{x'} q(y \mid x')\, p(x')}

where: q is the channel and :math:`\hat\pi(y)` the fraction of the reports that are y. A step never lowers the
likelihood. Three steps make one accelerated one (SQUAREM, scheme S3): an extrapolation along two steps, and a third
that corrects it; where the result is less likely than the two steps alone, these count. Every step is one product
with the channel and one with its adjoint.

Source: Dempster, Laird, Rubin (1977); Varadhan, Roland, "Simple and Globally Convergent Methods for Accelerating the
Convergence of Any EM Algorithm" (2008).
"""

import math
from typing import Final, NamedTuple

import numpy as np

from mapveil.local.randomizers.randomizer import SymbolRandomizer, Tally
from mapveil_client.arrays import FloatArray

_MAX_STEPS: Final = 3000  # bounds the time: where it ends the iteration, the map's notes say so
_TOLERANCE: Final = 1e-3  # nats of the log-likelihood of all reports, a step
_TINY: Final = 1e-300  # least divisor


class Likeliest(NamedTuple):
    """The result of the iteration."""

    distribution: FloatArray  # shape (sites,)
    log_likelihood: float  # nats, all reports together
    steps: int
    converged: bool


class _Step(NamedTuple):
    after: FloatArray
    before: float  # log-likelihood of the distribution that the step was taken from


def maximise_likelihood(
    randomizer: SymbolRandomizer, tally: Tally, *, tolerance: float = _TOLERANCE, max_steps: int = _MAX_STEPS
) -> Likeliest:
    """Run the iteration of the module's header. Run by: the server.

    Parameters
    ----------
    randomizer : SymbolRandomizer
        The channel.
    tally : Tally
        Counts of the reports, at least one.
    tolerance : float
        Least gain of the log-likelihood of all reports with which to go on, nats a step.
    max_steps : int
        Largest number of steps.
    """
    p = np.full(randomizer.size, 1 / randomizer.size)
    observed = tally.counts / tally.reports
    seen = np.flatnonzero(tally.counts)
    counts = tally.counts[seen].astype(np.float64)

    def step(before: FloatArray) -> _Step:
        expected = np.maximum(randomizer.forward(before), _TINY)
        ratio = np.divide(observed, expected, out=np.zeros(observed.shape), where=observed > 0)
        after = before * randomizer.backward(ratio)
        # einsum, here and below, because BLAS would wake a thread, and wait for it on a busy machine.
        likelihood = float(np.einsum("i,i", counts, np.log(expected[seen])))
        return _Step(after / after.sum(), likelihood)

    steps, reached = 0, -math.inf
    while steps < max_steps:
        first = step(p)
        gain, reached = first.before - reached, first.before
        if gain < 3 * tolerance:
            return Likeliest(p, reached, steps, True)
        second = step(first.after)
        p = extrapolated(p, first.after, second.after)
        third = step(p)
        steps += 3
        p = third.after if third.before >= second.before else second.after
    return Likeliest(p, reached, steps, False)


def extrapolated(
    p: FloatArray, once: FloatArray, twice: FloatArray, max_alpha: float = math.inf
) -> FloatArray:
    r"""The point of SQUAREM, :math:`p + 2 \alpha r + \alpha^2 v`, kept above 0; shape as given.

    Parameters
    ----------
    p, once, twice : ndarray of float64
        A point and the points after one and two steps: :math:`r` is the first step, :math:`v` the second less the
        first, and :math:`\alpha = \lVert r \rVert / \lVert v \rVert`, at least 1.
    max_alpha : float
        Largest :math:`\alpha`.
    """
    r = once - p
    v = twice - once - r
    length = float(np.einsum("i,i", v, v))
    alpha = max(math.sqrt(float(np.einsum("i,i", r, r)) / length), 1.0) if length > 0 else 1.0
    alpha = min(alpha, max_alpha)
    made = p + 2 * alpha * r + alpha * alpha * v
    # A site at 0 would stay at 0.
    made = np.where(made > 0, made, twice / 2)
    return np.asarray(made / made.sum())
