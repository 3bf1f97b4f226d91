r"""Mapveil's estimator for every randomizer and size: expectation maximisation with smoothing at all scales.

Maximum likelihood alone follows the noise: of thousands of sites a few get everything. Here each step first asks how
many users the reports suggest at each site, given the distribution so far, and then smooths these numbers:

.. math:: p' = S(c), \qquad c(x) = n\, p(x) \sum_y q(y \mid x)\, \frac{\hat\pi(y)}{\sum_{x'} q(y \mid x')\, p(x')}

where: q is the channel, :math:`\hat\pi(y)` the part of the n reports that are y, and S the smoothing of
:mod:`mapveil.local.estimators.split_trees`. Of reports that are sets only the number of those that hold each
site is known,
:math:`h(x)`; with :math:`\pi(x)` its expected part, and :math:`q_1, q_0` the chance that a set holds a site where its
phone is, or is not,

.. math:: c(x) = p(x) \Big( q_1 \frac{h(x)}{\pi(x)} + (1 - q_1) \frac{n - h(x)}{1 - \pi(x)} \Big)

(sites as if independent); hashed nodes of many levels are taken alike
(:mod:`mapveil.local.estimators.hash_support`). How
unevenly people divide is learned level by level, from what the divisions found are
worth: a level of which the reports tell nothing stays as usual.

.. math:: \kappa_l = \frac{\nu + \sum_{l'} w_{l l'} \sum_b (\theta_b - r_b)^2 / s_b^2}{\nu + \sum_{l'} w_{l l'}
    \sum_b \gamma_b}, \qquad \gamma_b = \frac{I_b}{I_b + 1 / (\kappa_{l'} s_b^2)}

where: :math:`s_b^2` is the usual variance of division b, :math:`I_b` the Fisher information of the reports about it,
w falls by e with the distance of two levels, and :math:`\nu` is 4.

A site that far outdoes its neighbours, such as an airport, is no matter of division. Sites that stand out from a
stiffly smoothed map have a part of their own, :math:`s(x) = \max(c_s(x) - \lambda, 0) / n`, beside the smooth one,
with the users expected at them shared in proportion; :math:`\lambda = \tfrac12 \ln d` lets live what is more than
:math:`2 \sqrt\lambda = \sqrt{2 \ln d}` standard deviations, which the largest noise of d sites comes to.

The steps are extrapolated (SQUAREM, as :mod:`mapveil.local.estimators.maximum_likelihood`). It costs no privacy.

Source: Mapveil; after Silverman, Jones, Wilson, Nychka, "A Smoothed EM Approach to Indirect Estimation Problems"
(1990), and MacKay's effective number of parameters (1992).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from mapveil.local.estimators.hash_support import Supporting
from mapveil.local.estimators.split_trees import SplitTrees
from mapveil.local.randomizers.randomizer import Randomizer, SetRandomizer, SymbolRandomizer
from mapveil.local.randomizers.report import Tally
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness

_TREES: Final = 4
_FEWEST: Final = 2
_PLACES: Final = 1 << 18  # in all trees together
_ROUNDS: Final = 3
_MOST_STEPS: Final = 400  # a round
_TOLERANCE: Final = 1e-5
_COARSE: Final = 10.0
_FARTHEST: Final = 1000.0
_USUAL: Final = 4.0
_LEAST, _MOST = 0.02, 10.0
_TINY: Final = 1e-300
_SIGNS: Final = 9001
_PROBES: Final = 3
_STIFF: Final = 0.1
_STANDS_OUT: Final = 3.0
_MOST_OWN: Final = 0.7
_LEAST_OWN: Final = 0.5


class Smoothed(NamedTuple):
    """What the iteration came to."""

    distribution: FloatArray  # shape (sites,)
    unevenness: FloatArray  # kappa of each level
    outstanding: IntArray  # the sites with a part of their own
    steps: int
    converged: bool


def expected_users(randomizer: Randomizer, tally: Tally) -> Callable[[FloatArray], FloatArray]:
    """c of the module's header, as a function of p. Run by: the server.

    Raises
    ------
    ParameterError
        Reports are neither symbols nor sets.
    """
    n, counts = tally.reports, tally.counts
    if isinstance(randomizer, Supporting):
        return randomizer.support(tally).users
    if isinstance(randomizer, SymbolRandomizer):
        observed = counts.astype(np.float64)
        some = counts > 0

        def of_symbols(p: FloatArray) -> FloatArray:
            expected = np.maximum(randomizer.forward(p), _TINY)
            ratio = np.divide(observed, expected, out=np.zeros(observed.shape), where=some)
            return np.asarray(p * randomizer.backward(ratio))

        return of_symbols
    sets = _sets(randomizer)
    held, other = sets.holding(np.ones(sets.size)), sets.holding(np.zeros(sets.size))

    def of_sets(p: FloatArray) -> FloatArray:
        pi = other + (held - other) * p
        return np.asarray(p * (held * counts / pi + (1 - held) * (n - counts) / (1 - pi)))

    return of_sets


def information(randomizer: Randomizer, tally: Tally, p: FloatArray) -> Callable[[FloatArray], float]:
    """The Fisher information about a change of the distribution p, as a function of the change. Run by: the server.

    Raises
    ------
    ParameterError
        Reports are neither symbols nor sets.
    """
    reports = tally.reports
    if isinstance(randomizer, Supporting):
        support = randomizer.support(tally)
        return lambda change: support.information(p, change)
    if isinstance(randomizer, SymbolRandomizer):
        expected = np.maximum(randomizer.forward(p), _TINY)
        return lambda change: float(reports * (randomizer.forward(change) ** 2 / expected).sum())
    sets = _sets(randomizer)
    pi, slope = sets.holding(p), sets.holding(np.ones(sets.size)) - sets.holding(np.zeros(sets.size))
    return lambda change: float(reports * ((slope * change) ** 2 / (pi * (1 - pi))).sum())


def smooth_likelihood(
    randomizer: Randomizer,
    tally: Tally,
    *,
    trees: int | None = None,
    rounds: int = _ROUNDS,
    tolerance: float = _TOLERANCE,
    most_steps: int = _MOST_STEPS,
) -> Smoothed:
    """Run the iteration of the module's header. Run by: the server.

    Parameters
    ----------
    randomizer : Randomizer
        What randomized the reports.
    tally : Tally
        Of the reports, at least one.
    trees : int, optional
        Over how many trees to smooth; four, or as few as two for more than 65,536 sites, by default.
    rounds : int
        How often to run to the end; between two runs the unevenness of the levels is learned.
    tolerance : float
        Stop the last run when three steps change the distribution by less, in L1; the others at ten times that.
    most_steps : int
        Or after so many steps.

    Raises
    ------
    ParameterError
        Reports are neither symbols nor sets.
    """
    n, size = tally.reports, randomizer.size
    usual = min(_TREES, max(_FEWEST, _PLACES // size))
    smoother = SplitTrees(randomizer.domain, usual if trees is None else trees)
    users = expected_users(randomizer, tally)
    # What stands out does so against a map that is smoother than usual.
    smoother.unevenness = np.full(smoother.levels, _STIFF)
    p, steps, converged = _run(
        lambda p: smoother.smooth(users(p)), np.full(size, 1 / size), _COARSE * tolerance, most_steps
    )
    smoother.unevenness = np.ones(smoother.levels)
    own, least = np.zeros(size), _LEAST_OWN * math.log(size) / n

    def step(x: FloatArray) -> FloatArray:
        own = x[size:]
        p = x[:size].copy()
        p[lone] += own
        found = users(p) / n
        of_own = found[lone] * own / np.maximum(p[lone], _TINY)  # none where nobody is left
        kept = np.maximum(of_own - least, 0.0)
        # Of few reports the users expected may sum to more than all: the smooth map keeps one.
        kept *= min(1.0, n / (n + 1) / max(float(kept.sum()), _TINY))
        found[lone] -= of_own
        return np.concatenate([smoother.smooth(n * found) * (1 - kept.sum()), kept])

    for turn in range(rounds):
        told = information(randomizer, tally, p)
        new = np.where(own > 0, 0.0, outstanding_parts(users(p) / p - n, told, p))
        smooth = (p - own) * (1 - new.sum())
        own = own * (1 - new.sum()) + new
        lone = np.flatnonzero(own)
        smoother.unevenness = (
            _learned(told, n, smoother, smooth / smooth.sum()) if turn else np.ones(smoother.levels)
        )
        last = turn == rounds - 1
        x, taken, converged = _run(
            step, np.concatenate([smooth, own[lone]]), tolerance * (1 if last else _COARSE), most_steps
        )
        steps += taken
        own[lone] = x[size:]
        p = x[:size] + own
    return Smoothed(p / p.sum(), smoother.unevenness, np.flatnonzero(own), steps, converged)


def outstanding_parts(score: FloatArray, told: Callable[[FloatArray], float], p: FloatArray) -> FloatArray:
    r"""What sites may have beyond a smooth map, 0 for all that do not stand out, shape (sites,).

    A site stands out where its score, the slope of the log-likelihood as it grows at the cost of all, is more than
    three standard deviations; it starts with its score over the information about it.

    Parameters
    ----------
    score : ndarray of float64, shape (sites,)
        At the smooth map.
    told : callable
        The information about a change of it.
    p : ndarray of float64, shape (sites,)
        The smooth map.
    """
    signs = Randomness(_SIGNS).generator()
    probes = [np.where(signs.random(p.size) < 0.5, -1.0, 1.0) for _ in range(_PROBES)]
    # The mean over sites, by random signs: what else they measure cancels.
    of_each = sum(told(probe - probe.sum() * p) for probe in probes) / (_PROBES * p.size)
    if of_each <= 0:
        return np.zeros(p.size)
    found = np.where(score > _STANDS_OUT * math.sqrt(of_each), score / of_each, 0.0)
    return np.asarray(found * min(1.0, _MOST_OWN / max(float(found.sum()), _TINY)))


def _run(
    step: Callable[[FloatArray], FloatArray], x: FloatArray, tolerance: float, most_steps: int
) -> tuple[FloatArray, int, bool]:
    taken, before = 0, np.inf
    while taken < most_steps:
        once = step(x)
        moved = once - x
        change = float(np.abs(moved).sum())
        if change > 2 * before:  # extrapolated too far: go on from where a plain step led
            x, taken, before = once, taken + 1, change
            continue
        twice = step(once)
        bent = twice - once - moved
        # Not by BLAS: it would wake a thread for so little, and wait for it on a busy machine.
        length = float(np.einsum("i,i", bent, bent))
        far = math.sqrt(float(np.einsum("i,i", moved, moved)) / length) if length > 0 else 1.0
        far = min(max(far, 1.0), _FARTHEST)
        made = x + 2 * far * moved + far * far * bent
        made = np.where((made > 0) | (twice <= 0), np.maximum(made, 0.0), twice / 2)
        new = step(made / made.sum())
        taken += 3
        gone = float(np.abs(new - x).sum())
        x, before = new, change
        if gone < tolerance:
            return x, taken, True
    return x, taken, False


def _learned(
    told: Callable[[FloatArray], float], reports: int, trees: SplitTrees, p: FloatArray
) -> FloatArray:
    """kappa of every level."""
    # The signs are drawn to measure many boxes at once; they depend on nothing.
    signs = Randomness(_SIGNS).generator()
    found, worth = np.zeros(trees.levels), np.zeros(trees.levels)
    for level in range(trees.levels):
        at = trees.divisions(p, level)
        spread = np.maximum(at.half * (1 - at.half), 1e-9)
        of_places = reports * at.part / spread  # what it would be, were the places themselves reported
        drawn = np.where(signs.random(at.part.size) < 0.5, -1.0, 1.0)
        measured = told(trees.moved(p, level, drawn))
        told_of_each = of_places * min(measured / max(float(of_places.sum()), _TINY), 1.0)
        now = trees.variance(level, float(trees.unevenness[level]))
        found[level] = float((np.square(at.half - at.share) / trees.variance(level, 1.0)).sum())
        worth[level] = float((told_of_each / (told_of_each + 1 / now)).sum())
    number = np.arange(trees.levels)
    near = np.exp(-np.abs(number[:, None] - number))
    return np.asarray(np.clip((_USUAL + near @ found) / (_USUAL + near @ worth), _LEAST, _MOST))


def _sets(randomizer: Randomizer) -> SetRandomizer:
    if not isinstance(randomizer, SetRandomizer):
        raise ParameterError(
            "reports that are neither symbols nor sets of sites; those of local are accepted"
        )
    return randomizer
