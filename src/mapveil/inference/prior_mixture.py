r"""Weights of sites between even and those of a public prior, learned scale by scale from noisy sums.

A box is cut into two halves, which are expected to hold the parts

.. math:: r_\lambda = \lambda q + (1 - \lambda) r

where: r is the first half's part of the box's members and q its part of the prior, drawn to r by one person:

.. math:: q = \frac{S Q_1 + r}{S Q + 1}, \qquad S = \min \left( \frac{n}{\tau}, \frac{1}{Q_{least}} \right)

where: Q and :math:`Q_1` are the prior's fractions of all people in the box and in its first half, :math:`Q_{least}` is
the least fraction of a site above 0, n the noisy number of users and :math:`\tau` the deviation of the last round's
noise. So a prior of counts tells no more than so many people can, and none is believed about boxes that the noise
could not tell from empty ones. At every scale the noisy halves weigh the values of :math:`\lambda`,

.. math:: \pi_l(\lambda) \propto \pi_0(\lambda)^{1 - c} \, \pi_{l-1}(\lambda)^{c} \, p(z_l \mid \lambda)

where: :math:`p(z_l \mid \lambda)` is the likelihood of the measured halves under the mixture of beta laws around
:math:`r_\lambda` (:mod:`mapveil.inference.split_prior`), c = 0.8 keeps what coarser boxes told, and :math:`\pi_0` puts
0.8 on :math:`\lambda = 0` and the rest on 0.2, 0.4, 0.6, 0.8 and 0.95 alike. A box gives its halves the mean of
:math:`r_\lambda`, from the whole raster down to single sites; below what was measured the last :math:`\pi_l` stays. So
a prior that is right where it can be seen is believed where it cannot. One that is wrong where it can be seen is not;
one that is wrong only below what the noise can tell still is, and costs (``docs/how-to/priors.md`` has the figures).
The likelihood is maximised over the weights of the beta laws, not integrated: it is no marginal likelihood.
Post-processing: costs no privacy.

Source: power priors and their mixtures (Ibrahim and Chen 2000; Schmidli et al. 2014), here on multiscale splits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.inference.box_sums import measured_half
from mapveil.inference.nested_rounds import Leaves, Round, sites_of_rounds
from mapveil.inference.shrinkage import pool
from mapveil.inference.split_prior import SplitPrior
from mapveil_client.arrays import FloatArray

_LAMBDA: Final = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 0.95])
_NONE: Final = 0.8  # probability of lambda = 0 before any data; what wrong priors cost: benchmarks/priors.py
_KEPT: Final = 0.8  # c
_FINEST: Final = 8  # halvings along either axis that are learned from
_LEAST: Final = 1e-12  # users squared: a large budget's variance is zero in floating point
_WHOLE: Final = 0.99  # of a leaf: a cut with less in either half tells nothing


def mixed_weights(
    rounds: Sequence[Round], leaves: Leaves, members: npt.NDArray[Any], prior: FloatArray
) -> FloatArray:
    """Weights of the sites, which sum to their members in all. Run by: whoever holds the noisy sums.

    Parameters
    ----------
    rounds, leaves
        See :func:`mapveil.inference.nested_rounds.shrink_rounds`, on a raster of (known, known) sites.
    members : ndarray, shape (side, side)
        Number of cells on each site; ``side`` is ``known`` times a power of two.
    prior : ndarray of float64, shape (side, side)
        Fractions of all people, 0 where there are no members.

    Returns
    -------
    ndarray of float64, shape (side, side)
    """
    known = leaves.of_site.shape[0]
    deeper = (members.shape[0] // known).bit_length() - 1
    spare = max(known.bit_length() - 1 - _FINEST, 0)
    held = pool(members.astype(np.float64), deeper)
    sites = sites_of_rounds(rounds, leaves, held)
    noises = [(side, each if isinstance(each, np.ndarray) else each * held) for side, each in sites.coarser]
    noises.append((1, sites.variance))
    values, parts = (_halvings(pool(each, spare)) for each in (sites.noisy, sites.parts))
    layers = [(side >> spare, _halvings(pool(noise, spare))) for side, noise in noises]
    weights, expected = (_halvings(np.asarray(each, dtype=np.float64)) for each in (members, prior))
    rules = [SplitPrior(uneven=True) for _ in _LAMBDA]
    odds = before = np.log(np.r_[_NONE, np.full(_LAMBDA.size - 1, (1 - _NONE) / (_LAMBDA.size - 1))])
    estimate = np.maximum(values[0], 0.0)
    people = _people_behind(prior, float(estimate.sum()), rounds[-1].variance)
    made = weights[0].copy()
    for step in range(len(weights) - 1):
        axis = step % 2
        even, public = (_first_part(each[step + 1], axis) for each in (weights, expected))
        told_of = people * expected[step] / (people * expected[step] + 1)
        public = np.where(np.isnan(public), even, told_of * public + (1 - told_of) * even)
        chosen = np.exp(odds - odds.max())
        if step + 1 < len(values):
            length = 1 << ((len(values) - 1 - step) // 2)
            noise = next(layer for side, layer in layers if side <= max(length, 1))[step + 1]
            halves = _Halves(values[step + 1], noise, parts[step + 1], even, public, axis, held.size)
            estimate, told = _cut(estimate, halves, rules, chosen)
            if told is not None:
                odds = (1 - _KEPT) * before + _KEPT * odds + told - told.max()
                chosen = np.exp(odds - odds.max())
        mean = float(chosen @ _LAMBDA / chosen.sum())
        part = np.nan_to_num(mean * public + (1 - mean) * even)
        made = _joined(part * made, (1 - part) * made, axis)
    return np.where(members > 0, made, 0.0)


def _people_behind(prior: FloatArray, users: float, variance: float) -> float:
    """S: the number of people whose count the prior is taken for."""
    least = float(prior[prior > 0].min(initial=1.0))
    return min(max(users, 1.0) / math.sqrt(max(variance, _LEAST)), 1 / least)


class _Halves(NamedTuple):
    """Both halves of all boxes of one size: arrays of shape (rows, columns) of halves, or of boxes."""

    values: FloatArray  # noisy users, of halves
    noise: FloatArray  # variance, of halves
    parts: FloatArray  # leaves that were measured apart, of halves
    even: FloatArray  # r, of boxes
    public: FloatArray  # q, of boxes
    axis: int
    whole: int  # sites of the whole raster


def _cut(
    parent: FloatArray, halves: _Halves, rules: Sequence[SplitPrior], chosen: FloatArray
) -> tuple[FloatArray, FloatArray | None]:
    """Estimates of all halves, and the maximised log-likelihood of each lambda where any box tells of it."""
    axis, even = halves.axis, halves.even
    (y1, y2), (v1, v2) = (_both(each, axis) for each in (halves.values, halves.noise))
    z, spread = measured_half(parent, y1, y2, v1, v2)
    cut = (even > 0) & (even < 1)
    telling = (np.minimum(*_both(halves.parts, axis)) > _WHOLE)[cut]
    whole, measured, variance = (each[cut] for each in (parent, z, spread))
    found, evidence = np.zeros(whole.size), []
    for part, rule, probability in zip(_LAMBDA, rules, chosen / chosen.sum(), strict=True):
        share = (part * halves.public + (1 - part) * even)[cut]
        made = rule.halves(whole, measured, variance, share, telling, halves.whole // halves.values.size)
        evidence.append(rule.log_evidence)
        found += probability * np.clip(made, 0.0, whole)
    first = np.where(even > 0, parent, 0.0)
    first[cut] = found
    return _joined(first, parent - first, axis), np.array(evidence) if telling.any() else None


def _halvings(square: FloatArray) -> list[FloatArray]:
    """Sums over boxes, from the whole square down: rows are halved first, then columns, in turn."""
    found = [np.asarray(square, dtype=np.float64)]
    while found[-1].size > 1:
        for axis in (1, 0):
            first, second = _both(found[-1], axis)
            found.append(first + second)
    return found[::-1]


def _both(halves: FloatArray, axis: int) -> tuple[FloatArray, FloatArray]:
    return (halves[::2], halves[1::2]) if axis == 0 else (halves[:, ::2], halves[:, 1::2])


def _first_part(halves: FloatArray, axis: int) -> FloatArray:
    """The first half's part of both, NaN where both are 0."""
    first, second = _both(halves, axis)
    with np.errstate(invalid="ignore"):
        return np.asarray(first / (first + second))


def _joined(first: FloatArray, second: FloatArray, axis: int) -> FloatArray:
    return np.stack([first, second], axis=axis + 1).reshape(
        (-1, first.shape[1]) if axis == 0 else (first.shape[0], -1)
    )
