r"""Flows from pairs of reports: likelihood, started where people usually go, stopped before it fits the noise.

Three steps, each of them post-processing of the reports:

1. *Gravity* (:mod:`mapveil.inference.gravity`). Trips get rarer with distance, with the two estimated marginal
   distributions. The length L and the weight s of staying are those under which the pairs of reports are likeliest: two
   numbers, which few reports suffice for.
2. *Expectation maximisation* of the whole matrix from there,

   .. math:: F'_{x x'} = F_{x x'} \sum_{y, y'} q(y \mid x)\, q(y' \mid x')\, \frac{N_{y y'} / n}{(Q^T F Q)_{y y'}}

   where: :math:`N_{y y'}` is how many pairs of reports were y, y', and n how many there were: in Kronecker form
   (:mod:`mapveil.analysis.pair_channel`).
3. *Stopping.* A matrix of d^2 numbers fits noise: the number of steps is the one whose matrices, made without a part of
   the reports, gave that part the largest likelihood, over all parts in turn.

Source: Dempster, Laird, Rubin (1977) for the iteration; Wilson (1971) for the gravity model. The paper of the staircase
(Wang et al., 2022) estimates the marginals only, which leave the correlation unknown.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.analysis.pair_channel import PairChannel
from mapveil.inference.gravity import Gravity, fit_gravity
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.randomness.random import Randomness, uniform_below

_TINY: Final = 1e-300
_FOLDS: Final = 3  # parts of the reports that are set aside in turn
_MOST_STEPS: Final = 200
_PATIENCE: Final = 5  # further steps without a better one


class PairTally(NamedTuple):
    """Counts of the pairs of symbols that occurred, in the channel's order."""

    first: IntArray  # symbol of the origin, shape (pairs,)
    second: IntArray  # symbol of the destination
    times: FloatArray
    reports: int

    @classmethod
    def of(cls, channel: PairChannel, first: IntArray, second: IntArray) -> PairTally:
        """Add up pairs of reports."""
        key = channel.symbol_rank[first] * channel.symbols + channel.symbol_rank[second]
        pair, count = np.unique(key, return_counts=True)
        return cls(pair // channel.symbols, pair % channel.symbols, count.astype(np.float64), first.size)

    def likelihood(self, expected: FloatArray) -> float:
        """Log-likelihood of the pairs under a distribution over pairs of symbols, nats."""
        return float(self.times @ np.log(np.maximum(expected[self.first, self.second], _TINY)))

    def split(self, parts: int, rng: Randomness) -> list[tuple[PairTally, PairTally]]:
        """Each part of the reports, drawn evenly, and the rest of them without it."""
        whole = self.times.astype(np.int64)
        owner = np.repeat(np.arange(whole.size), whole)
        part = uniform_below(owner.size, parts, rng)
        made = []
        for number in range(parts):
            held = np.bincount(owner[part == number], minlength=whole.size)
            made.append((self._with(held), self._with(whole - held)))
        return made

    def _with(self, times: IntArray) -> PairTally:
        kept = np.flatnonzero(times)
        return PairTally(
            self.first[kept], self.second[kept], times[kept].astype(np.float64), int(times.sum())
        )


class JointFlows(NamedTuple):
    """Result of the three steps of the estimator."""

    joint: FloatArray  # over pairs of sites, summing to 1, in the plain order, shape (sites, sites)
    length_m: float
    staying: float
    steps: int


def estimate_joint(
    channel: PairChannel,
    tally: PairTally,
    origins: FloatArray,
    destinations: FloatArray,
    plane: FloatArray,
    spacing_m: float,
    rng: Randomness,
    *,
    allowed: npt.NDArray[np.bool_] | None = None,
    gravity: bool = True,
    steps: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> JointFlows:
    """Run the three steps of the module's header. Run by: the server; costs no privacy.

    Parameters
    ----------
    channel : PairChannel
        The channel of one pair of reports.
    tally : PairTally
        Counts of the reports, at least one.
    origins, destinations : ndarray of float64, shape (sites,)
        Estimated marginal distributions, plain order.
    plane : ndarray of float64, shape (2, sites)
        The sites in metres, plain order.
    spacing_m : float
        About how far sites lie apart.
    rng : Randomness
        Which reports are set aside in turn.
    allowed : ndarray of bool, shape (sites, sites), optional
        The pairs that are possible, where that is public; all by default.
    gravity : bool
        Whether the first step may prefer short trips; otherwise it is the independent model.
    steps : int, optional
        Steps of the second; found by the third by default.
    progress : callable, optional
        Called with the finished fraction.
    """
    tell = progress or (lambda done: None)
    order = channel.site_order
    start = np.outer(origins[order], destinations[order])
    if allowed is not None:
        start *= channel.in_site_order(allowed.astype(np.float64))
        start /= max(start.sum(), _TINY)
    fitted = Gravity(math.inf, 1.0, start)
    if gravity:

        def likelihood(joint: FloatArray) -> float:
            return tally.likelihood(channel.forward(joint))

        fitted = fit_gravity(
            start, origins[order], destinations[order], plane[:, order], spacing_m, likelihood
        )
    tell(0.3)
    if steps is None:
        parts = tally.split(_FOLDS, rng) if tally.reports >= 2 * _FOLDS else []
        steps = _best_steps(channel, parts, fitted.joint, tell)
    joint = fitted.joint
    for _ in range(steps):
        joint = _step(channel, tally, joint, channel.forward(joint))
    tell(1.0)
    return JointFlows(channel.out_of_site_order(joint), fitted.length_m, fitted.staying, steps)


def _step(channel: PairChannel, tally: PairTally, joint: FloatArray, expected: FloatArray) -> FloatArray:
    ratio = np.zeros_like(expected)
    ratio[tally.first, tally.second] = tally.times / np.maximum(expected[tally.first, tally.second], _TINY)
    made = joint * channel.backward(ratio)
    return np.asarray(made / made.sum())


def _best_steps(
    channel: PairChannel,
    parts: list[tuple[PairTally, PairTally]],
    start: FloatArray,
    tell: Callable[[float], None],
) -> int:
    """The number of steps after which the parts set aside were likeliest together."""
    joints = [start for _ in parts]
    best, reached = 0, -math.inf
    for number in itertools.count():
        total = 0.0
        for at, (held, rest) in enumerate(parts):
            expected = channel.forward(joints[at])
            total += held.likelihood(expected)
            joints[at] = _step(channel, rest, joints[at], expected)
        if total > reached:
            best, reached = number, total
        if number >= _MOST_STEPS or number - best >= _PATIENCE:
            return best
        tell(0.3 + 0.6 * number / _MOST_STEPS)
    raise AssertionError("a count has no end")
