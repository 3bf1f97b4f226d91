r"""The exact privacy loss of PrivTree's decisions, the worst over all trees, from the noise that is really drawn.

A tree T is made of independent decisions. A node of noise threshold t is split with probability :math:`\Pr[X \ge t]`,
X discrete Laplace; both are read off the code as it runs: the law from what its sampler is asked for, the threshold by
bisection over the noise that it is handed. The largest log-ratio of probabilities over all trees is

.. math:: f(v) = \max\Big( \ln \frac{1 - s_v}{1 - s'_v},\ \ln \frac{s_v}{s'_v} + \sum_{c} f(c) \Big)

where: :math:`s_v, s'_v` are the probabilities that node v is split, under either neighbour, and c its children that
can hold anybody. A node of the last level is a leaf for sure: f = 0. No proof of PrivTree's is used.
"""

from __future__ import annotations

import decimal
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest

from mapveil.mechanisms import privtree
from mapveil.mechanisms.privtree import TreeQuery
from mapveil_client.arrays import IntArray
from mapveil_client.level_encoding import level_members
from mapveil_client.randomness.random import Randomness

_WIDEST = 1 << 60
_DIGITS = 60


class _Decision(NamedTuple):
    split: Decimal  # logarithm of its probability
    leaf: Decimal


def tree_loss(query: TreeQuery, first: IntArray, second: IntArray) -> Fraction:
    """The largest log-ratio of a tree's probabilities under two sums per site, in either direction."""
    with decimal.localcontext(decimal.Context(prec=_DIGITS)):
        decisions = [_decisions(query, level_members(sums)) for sums in (first, second)]
        members = level_members(query.members)
        worst = max(_worst(*pair, members, 0, 0) for pair in (decisions, decisions[::-1]))
        return Fraction(worst)


def _worst(
    one: list[dict[int, _Decision]],
    other: list[dict[int, _Decision]],
    members: Any,
    level: int,
    node: int,
) -> Decimal:
    if level == len(members) - 1:
        return Decimal(0)
    mine, theirs = one[level][node], other[level][node]
    below = [child for child in range(4 * node, 4 * node + 4) if members[level + 1][child] > 0]
    split = mine.split - theirs.split + sum(_worst(one, other, members, level + 1, c) for c in below)
    return max(mine.leaf - theirs.leaf, split)


def _decisions(query: TreeQuery, masses: tuple[IntArray, ...]) -> list[dict[int, _Decision]]:
    """Log-probabilities of every node's decision, for all levels but the last."""
    made = []
    known: dict[tuple[int, Decimal], _Decision] = {}
    for level, at in enumerate(masses[:-1]):
        rate, least = _thresholds(query, at, level)
        step = Decimal(rate.numerator) / Decimal(rate.denominator)
        each = {}
        for node, threshold in enumerate(least.tolist()):
            if (threshold, step) not in known:
                known[threshold, step] = _Decision(_log_tail(threshold, step), _log_tail(1 - threshold, step))
            each[node] = known[threshold, step]
        made.append(each)
    return made


def _thresholds(query: TreeQuery, masses: IntArray, level: int) -> tuple[Fraction, IntArray]:
    """The rate of the noise of a level, and the least noise that splits each node."""
    asked: list[Fraction] = []
    low, high = np.full(masses.size, -_WIDEST), np.full(masses.size, _WIDEST)
    handed = high

    def noise(count: int, epsilon: Fraction, sensitivity: int, rng: Any) -> IntArray:
        assert count == masses.size, "not one draw of noise for every node"
        asked.append(Fraction(epsilon) / sensitivity)
        return handed.copy()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(privtree, "discrete_laplace", noise)
        while (high - low > 1).any():
            handed = (low + high) // 2
            split = query._split(masses, level, Randomness(1))
            low, high = np.where(split, low, handed), np.where(split, handed, high)
    assert len(set(asked)) == 1
    return asked[0], high


def _log_tail(threshold: int, rate: Decimal) -> Decimal:
    """ln Pr[X >= threshold] of discrete Laplace noise with q = exp(-rate)."""
    q = (-rate).exp()
    if threshold >= 1:
        return -rate * threshold - (1 + q).ln()
    return (1 - (-rate * (1 - threshold)).exp() / (1 + q)).ln()
