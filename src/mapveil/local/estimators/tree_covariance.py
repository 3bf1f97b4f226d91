r"""How the consistent estimates of a hierarchy vary: the covariance of what constrained inference makes of its levels.

What :func:`mapveil.local.estimators.tree_consistency.make_consistent` returns is linear in the levels' estimates,

.. math:: \hat x = B \sum_l v_l^{-1} H_l^T y_l + \frac{W 1}{1^T W 1}, \qquad
    W = \Big( \sum_l v_l^{-1} H_l^T H_l \Big)^{-1}, \qquad B = W - \frac{W 1 1^T W}{1^T W 1}

where: :math:`y_l` are the estimates of the nodes of level l, of variance :math:`v_l` as the inference takes it,
:math:`H_l` adds up the sites of each node, and the sum of everything is known to be 1. The covariance follows:

.. math:: B \Big( \sum_l v_l^{-2} H_l^T C_l H_l \Big) B

where: :math:`C_l` is the covariance of :math:`y_l`, in which any two nodes' part depends on the users in them alone.

For the variances of single sites no matrix is needed. Of each level, row i of :math:`B v_l^{-1} H_l^T` is at least 0
at the node that holds site i, and at most 0 at all others; what depends on the row are its sum and its sum of
squares, each also weighted by the users at the nodes. An upward pass makes these sums below every node, a downward one
adds what each site's siblings bring:

.. math:: n (\hat x - x) = \sum_r \frac{B v_l^{-1} H_l^T (c_r - H_l x)}{w_l}

where: report r of n is about level l, asked for with probability :math:`w_l`, and adds :math:`c_r` to the level's
estimates. Whoever is asked about another level is missing in this one, so the users' places add to the variance what
:math:`c_r - H_l x` varies by, beyond the reports' noise :math:`C_l`, less the :math:`x_i (1 - x_i)` that no level's
choice changes.

Source: Mapveil; see :mod:`mapveil.local.randomizers.hierarchical_hashing`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mapveil.local.estimators.covariance import SiteNoise
from mapveil.local.randomizers.local_hashing import LineNoise, SupportNoise
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.local.staircase_groups import Blocks


class MeasuredLevel(NamedTuple):
    """The estimates of one level's nodes."""

    nodes: Blocks
    noise: SupportNoise  # of one report about the level
    reports: float  # about the level, of one report's worth of all: the chance of being asked about it
    variance: float  # v, of as many reports
    lines: LineNoise  # what noise is at most where nodes share lines
    held: float  # probability that a report supports its own node
    other: float  # probability that it supports any one other


def consistent_covariance(levels: Sequence[MeasuredLevel], ordered: FloatArray) -> FloatArray:
    """The covariance of the module's header, shape (sites, sites). Run by: the server.

    Parameters
    ----------
    levels : sequence of MeasuredLevel
        The coarsest first; the last's nodes are the sites.
    ordered : ndarray of float64, shape (sites,)
        Where the users are, as far as is known. Sites are in the order of the codes, here and in what is returned.
    """
    size = ordered.size
    noise = np.zeros((size, size))
    for level in levels:
        nodes = level.nodes
        at_node = nodes.spread(nodes.sums(ordered))
        alone = at_node * level.noise.at + (1 - at_node) * level.noise.away
        # Of two nodes it is a sum of what each has; of one, its variance.
        weight = 1 / (level.reports * level.variance**2)
        part = level.noise.both / 2 + at_node * (level.noise.own - level.noise.both)
        noise += weight * part[:, None]
        noise += weight * part
        noise += (nodes.of_rank[:, None] == nodes.of_rank) * (weight * (alone - 2 * part))
    # All levels' nodes lie within the coarsest's: W is made of as many blocks.
    whole = np.empty(size)
    for first, number in zip(levels[0].nodes.first, levels[0].nodes.size, strict=True):
        inside = slice(first, first + number)
        known = np.zeros((number, number))
        for level in levels:
            node = level.nodes.of_rank[inside]
            known += (node[:, None] == node) / level.variance
        inverse = np.linalg.inv(known)
        whole[inside] = inverse.sum(axis=1)
        noise[inside] = inverse @ noise[inside]
        noise[:, inside] = noise[:, inside] @ inverse
    return _with_known_sum(noise, whole)


def _with_known_sum(covariance: FloatArray, whole: FloatArray) -> FloatArray:
    """The covariance once all estimates sum to what they must: what they lack is divided as ``whole`` is."""
    part = whole / whole.sum()
    with_sum = covariance.sum(axis=1)
    covariance -= np.outer(with_sum, part)
    covariance -= np.outer(part, with_sum)
    covariance += np.outer(part, part * with_sum.sum())
    return covariance


def consistent_site_noise(levels: Sequence[MeasuredLevel], ordered: FloatArray) -> SiteNoise:
    """The variance of every site's consistent estimate, and the most one report adds: O(nodes). Run by: the server.

    At least the diagonal of :func:`consistent_covariance`: that has who is asked about which level for given, and
    nodes on one line for as frequent as in an average group, where here they are as many as lines can hold.

    Parameters
    ----------
    levels : sequence of MeasuredLevel
        The coarsest first; the last's nodes are the sites.
    ordered : ndarray of float64, shape (sites,)
        Where the users are, sums to 1. Sites are in the order of the codes, here and in what is returned.
    """
    tree = _Tree(levels)
    variance = high = low = np.zeros(1)
    for number, level in enumerate(levels):
        at_node = level.nodes.sums(ordered)
        row = tree.row(number, at_node)
        parent, part = tree.parent[number], tree.part[number]
        # What is above reaches a node's sites through the node's part of what its parent lacks.
        variance = variance[parent] * part**2 + _varies(level, row, at_node) / level.reports
        size = level.reports * (level.held - level.other)
        middle = (row.own * at_node - row.rest_users) / level.reports
        up = (row.own * (1 - level.other) + row.rest * level.other) / size - middle
        down = (row.own * level.other + row.rest * (1 - level.other)) / size + middle
        high, low = np.maximum(high[parent] * part, up), np.maximum(low[parent] * part, down)
    # A report of site i adds 1 - x_i to its estimate on average, one of another site takes x_i.
    step = np.maximum(high + ordered, low + 1 - ordered)
    return SiteNoise(variance - ordered * (1 - ordered), float(step.max()))


class _Row(NamedTuple):
    """Of each node of a level, what estimates of the level do to the node's own: ``own`` of it, the rest of others."""

    own: FloatArray
    rest: FloatArray  # sum over the others, which all take away
    rest_users: FloatArray  # the same, each times the users at it
    squares: FloatArray  # sum of squares over the others
    squares_users: FloatArray


class _Tree:
    """Both passes of constrained inference, with the weights that they take."""

    def __init__(self, levels: Sequence[MeasuredLevel]) -> None:
        self.parent: list[IntArray] = [np.zeros(levels[0].nodes.first.size, dtype=np.int64)]
        for above, below in itertools.pairwise(levels):
            self.parent.append(above.nodes.of_rank[below.nodes.first])
        # Upwards: the weight of a node's own estimate beside the sum of its children's.
        self.weight: list[FloatArray] = []
        self.part: list[FloatArray] = []
        spread = np.empty(0)
        for number in range(len(levels) - 1, -1, -1):
            own = levels[number].variance
            if self.weight:
                self.weight.append(spread / (spread + own))
                spread = spread * own / (spread + own)
            else:
                spread = np.full(levels[number].nodes.first.size, own)
                self.weight.append(np.ones(spread.size))
            # Downwards: a node's part of what its parent, or of the roots the known sum, has more than all children.
            among = self._add(number, spread)
            self.part.append(spread / among[self.parent[number]])
            spread = among
        self.weight.reverse()
        self.part.reverse()

    def row(self, number: int, users: FloatArray) -> _Row:
        """What the estimates of one level do to each of its nodes, before any level below it."""
        weight = self.weight[number]
        # Upwards: what all nodes of the level below a node do to its estimate.
        below = [[weight, weight * users, weight**2, weight**2 * users]]
        around = []
        for level in range(number, -1, -1):
            among = [self._add(level, values) for values in below[-1]]
            around.append(among)
            if level:
                kept = 1 - self.weight[level - 1]
                below.append([a * b for a, b in zip(among, (kept, kept, kept**2, kept**2), strict=True)])
        # Downwards: of what a node's children lack, the part that its own estimate does not make up for; the siblings'.
        lack, own, sums = np.ones(1), np.zeros(1), [np.zeros(1)] * 4
        for level in range(number + 1):
            parent, part = self.parent[level], self.part[level]
            inside, among = below[number - level], around[number - level]
            taken = lack[parent] * part
            sums = [
                total[parent] * by + np.maximum(every[parent] - values, 0.0) * times
                for total, every, values, by, times in zip(
                    sums,
                    among,
                    inside,
                    (part, part, part**2, part**2),
                    (taken, taken, taken**2, taken**2),
                    strict=True,
                )
            ]
            own = 1 - taken
            lack = 1 - own * (1 - self.weight[level])
        return _Row(own * weight, *sums)

    def _add(self, level: int, values: FloatArray) -> FloatArray:
        """The sum over the children of each node of the level above, of the roots over all."""
        return np.bincount(self.parent[level], values).astype(np.float64, copy=False)


def _varies(level: MeasuredLevel, row: _Row, users: FloatArray) -> FloatArray:
    """What one report about a level adds to the variance at each of its nodes, of places drawn anew."""
    every, at = row.own - row.rest, row.own * users - row.rest_users
    square, square_at = row.own**2 + row.squares, row.own**2 * users + row.squares_users
    noise, lines = level.noise, level.lines
    made = noise.away * (square - square_at) + noise.at * square_at
    made += 2 * noise.own * (every * at - square_at)
    made += lines.apart * (every**2 - 2 * every * at + 2 * square_at - square)
    # On a line with the place, the node itself and another can but lower the variance: theirs have opposite signs.
    # Of the others a line holds so many that the square of their sum is at most as many times the sum of squares more.
    made += lines.more * np.minimum(lines.others * row.squares, np.maximum(row.rest**2 - row.squares, 0.0))
    return np.asarray(made + square_at - at**2)
