r"""A public prior beside an estimate: the estimate moves to the prior only where the reports themselves say so.

Let q be the estimate without the prior r. For a group of sites A, and all others B, users move from q to

.. math:: q_w = (1 - w)\, q + w\, q', \qquad q' = \begin{cases} r & \text{on A} \\
    q\, r(B) / q(B) & \text{on B,} \end{cases}

with the likeliest w, if that adds more than 6 to the log-likelihood. A holds the :math:`2^k` sites that r has densest,
or those that it has sparsest, k = 0, 1, ..., or all. A larger A takes the place of a smaller one only if it adds 6
more. After a move the same is done inside B, until the chosen A does not add 6.

- What the reports show without r counts for nothing, however right r is about it: evidence is beyond q.
- A is no larger than its evidence. So r cannot earn trust at a hot spot, or at empty sites, and spend it elsewhere.
  Where a group shows less than 6, chance can add what is missing to a larger one.
- That r has fewer parameters than q was fitted with counts for nothing. A right r is used less often than it could be.

Sizes of A are compared by :math:`S w - I w^2 / 2` at :math:`w = \min(1, S / I)`, with the slope S of the log-likelihood
and the Fisher information I at w = 0; the move by the log-likelihood itself. Were q the truth, one given move would add
6 by chance once in 3,700 times: twice what it adds is then chi-squared, of which only w > 0 counts. Some twenty groups
are tried, so that some move is made several times as often.

Source: Mapveil; after Rao's score test (1948) and Wilks' theorem (1938).
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from mapveil.local.estimators.likelihood import TINY, Likelihood
from mapveil_client.arrays import FloatArray, IntArray

_GAIN: Final = 6.0
"""Log-likelihood that a move must add. Chosen with seeds 0 to 2 on maps and priors like those of
benchmarks/local_priors.py, where less let wrong priors of flat maps cost more."""
_BISECTIONS: Final = 12  # of the weight of a mixture
_NEAR_BASE: Final = np.linspace(0.0, 1.0, _BISECTIONS) ** 2
"""Weights of the trapezoidal rule: slopes change most near a base without the estimate."""


class Mixture(NamedTuple):
    """Mixtures of a base and an estimate, both of shape (sites,)."""

    likelihood: Likelihood
    base: FloatArray
    estimate: FloatArray

    def at(self, weight: float) -> FloatArray:
        """The mixture in which the estimate has the weight."""
        return np.asarray(self.base + weight * (self.estimate - self.base))

    def slope(self, weight: float) -> float:
        """The derivative of the log-likelihood as the weight grows."""
        mixed = np.maximum(self.at(weight), TINY)
        return float(((self.estimate - self.base) * self.likelihood.users(mixed) / mixed).sum())

    def best(self, freedom: float) -> float:
        """The weight of the largest log-likelihood less ``freedom`` times the weight."""
        if self.slope(1.0) >= freedom:
            return 1.0
        low, high = 0.0, 1.0 if self.slope(0.0) > freedom else 0.0
        for _ in range(_BISECTIONS if high else 0):
            middle = (low + high) / 2
            low, high = (middle, high) if self.slope(middle) > freedom else (low, middle)
        return (low + high) / 2

    def gain(self, weight: float) -> float:
        """The log-likelihood beyond that of the base, by the trapezoidal rule."""
        at = weight * _NEAR_BASE
        return float(np.trapezoid([self.slope(float(each)) for each in at], at))


def leaning_to(likelihood: Likelihood, estimate: FloatArray, prior: FloatArray) -> FloatArray:
    """The estimate after the moves of the module's header. Run by: the server.

    Parameters
    ----------
    likelihood : Likelihood
        The likelihood of the reports.
    estimate : ndarray of float64, shape (sites,)
        The distribution of the users that was found without the prior.
    prior : ndarray of float64, shape (sites,)
        A public distribution of the users.
    """
    left = np.argsort(-prior, kind="stable")
    while float(prior[left].sum()) > 0:
        others, most, best = left, 0.0, Mixture(likelihood, estimate, estimate)
        for some, rest in _groups(prior, left):
            move = _move(likelihood, estimate, prior, some, rest)
            added = _added(move)
            if added > most + _GAIN:
                others, most, best = rest, added, move
        weight = best.best(0.0)
        if others is left or best.gain(weight) <= _GAIN:
            break
        estimate, left = best.at(weight), others
    return estimate


def _groups(prior: FloatArray, left: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
    """Groups A of sites in the order of the prior's densities, the small ones first, and the sites beside each.

    None ends between sites that the prior has equally dense.
    """
    falling, size = prior[left], left.size
    for at in 2 ** np.arange(size.bit_length()):
        densest = int((-falling).searchsorted(-falling[at - 1], "right"))
        sparsest = int((-falling).searchsorted(-falling[size - at], "left"))
        yield left[:densest], left[densest:]
        if sparsest:
            yield left[sparsest:], left[:sparsest]
    yield left, left[:0]


def _move(
    likelihood: Likelihood, q: FloatArray, prior: FloatArray, group: IntArray, others: IntArray
) -> Mixture:
    """From q to the prior on a group of sites, with as many users of all these sites as before."""
    held = float(q[group].sum() + q[others].sum())
    made, scale = q.copy(), held / float(prior[group].sum() + prior[others].sum())
    made[group] = scale * prior[group]
    made[others] *= scale * float(prior[others].sum()) / max(float(q[others].sum()), TINY)
    return Mixture(likelihood, q, made)


def _added(move: Mixture) -> float:
    """Growth of the log-likelihood by a move, from its slope and information at weight 0."""
    slope = max(move.slope(0.0), 0.0)
    information = max(move.likelihood.information(move.base, move.estimate - move.base), TINY)
    weight = min(1.0, slope / information)
    return slope * weight - information * weight**2 / 2
