r"""Consistent estimates of a hierarchy (constrained inference), and their covariance.

.. math:: \min_x \sum_v \frac{(y_v - x_v)^2}{v_l} \qquad \text{where } x_v = \sum_{c \in C(v)} x_c

where: C(v) are the children of node v, :math:`y_v` is the estimate of node v and :math:`v_l` the variance of its
level's. Upwards each node combines its own estimate with the sum of its children's by inverse variance; downwards
the difference between a parent and the sum of its children is divided in proportion to their variances.

The result, :func:`make_consistent`, is linear in the levels' estimates,

.. math:: \hat x = B \sum_l v_l^{-1} H_l^T y_l + \frac{W 1}{1^T W 1}, \qquad
    W = \Big( \sum_l v_l^{-1} H_l^T H_l \Big)^{-1}, \qquad B = W - \frac{W 1 1^T W}{1^T W 1}

where: :math:`H_l` adds up the sites of each node of level l, and the sum of everything is known to be 1. The
covariance follows:

.. math:: B \Big( \sum_l v_l^{-2} H_l^T C_l H_l \Big) B

where: :math:`C_l` is the covariance of :math:`y_l`, in which the entry of two nodes depends on the users in them alone.

The variances of single sites need no matrix. Row i of :math:`B v_l^{-1} H_l^T` is at least 0 at the node that holds
site i, and at most 0 at all others; the variance depends on the row's sum and its sum of squares, each also weighted by
the users at the nodes. An upward pass computes these sums below every node, a downward pass adds those of siblings:

.. math:: n (\hat x - x) = \sum_r \frac{B v_l^{-1} H_l^T (c_r - H_l x)}{w_l}

where: report r of n is about level l, asked for with probability :math:`w_l`, and adds :math:`c_r` to the level's
estimates. A user asked about another level is missing in this one. So the users' locations add the variance of
:math:`c_r - H_l x` beyond the reports' noise :math:`C_l`, less :math:`x_i (1 - x_i)`, which does not depend on the
choice of levels.

Source: Hay, Rastogi, Miklau, Suciu, "Boosting the Accuracy of Differentially Private Histograms Through Consistency"
(2010), for trees whose nodes have any number of children; the covariance is Mapveil's, for
:mod:`mapveil_client.local.hierarchical_hashing`.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mapveil.local.estimators.covariance import SiteNoise
from mapveil.local.randomizers.local_hashing import LineNoise, SupportNoise
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.local.staircase_groups import Blocks


def make_consistent(
    estimates: Sequence[FloatArray],
    variances: Sequence[float],
    children: Sequence[IntArray],
    total: float | None = None,
) -> FloatArray:
    """The leaves of the consistent tree, shape (leaves,). Run by: the server.

    Parameters
    ----------
    estimates : sequence of ndarray of float64
        Estimates of the nodes of each level, the coarsest first.
    variances : sequence of float
        Variance of each level's estimates, above 0.
    children : sequence of ndarray of int64
        For each level but the last, the number of children of each node, at least one; children follow in order.
    total : float, optional
        Known sum of all leaves.

    Examples
    --------
    >>> make_consistent([np.array([8.0]), np.ones(4)], [1.0, 1.0], [np.array([4])]).tolist()
    [1.8, 1.8, 1.8, 1.8]
    """
    up = [(estimates[-1], np.full(estimates[-1].size, variances[-1]))]
    sums: list[tuple[FloatArray, FloatArray]] = []
    for y, own, count in zip(
        reversed(estimates[:-1]), reversed(variances[:-1]), reversed(children), strict=True
    ):
        first = np.concatenate([[0], np.cumsum(count)[:-1]])
        below, spread = (np.add.reduceat(part, first) for part in up[-1])
        sums.append((below, spread))
        weight = spread / (spread + own)
        up.append((below + weight * (y - below), weight * own))
    top, spread = up[-1]
    if total is not None:
        top = top + (total - top.sum()) * spread / spread.sum()
    for (estimate, variance), (below, spread), count in zip(
        reversed(up[:-1]), reversed(sums), children, strict=True
    ):
        lack = np.repeat((top - below) / spread, count)
        top = estimate + variance * lack
    return top


class MeasuredLevel(NamedTuple):
    """The estimates of one level's nodes, and their noise."""

    nodes: Blocks
    noise: SupportNoise  # of one report about the level
    probability: float  # w, of being asked about the level
    variance: float  # v, of one report's worth of all
    lines: LineNoise  # bounds of the noise where nodes share lines
    held: float  # probability that a report supports its own node
    other: float  # probability that it supports any one other


def consistent_covariance(levels: Sequence[MeasuredLevel], ordered: FloatArray) -> FloatArray:
    """The covariance of the module's header, shape (sites, sites). Run by: the server.

    Parameters
    ----------
    levels : sequence of MeasuredLevel
        The coarsest first; the last's nodes are the sites.
    ordered : ndarray of float64, shape (sites,)
        Estimated distribution of the users. Sites are in the order of the codes, as in the result.
    """
    size = ordered.size
    noise = np.zeros((size, size))
    for level in levels:
        nodes = level.nodes
        users = nodes.spread(nodes.sums(ordered))
        moments = level.noise
        variance = users * moments.variance_held + (1 - users) * moments.variance_other
        # The covariance of two nodes is a sum of one term for each; the diagonal holds variances.
        weight = 1 / (level.probability * level.variance**2)
        term = moments.covariance_others / 2 + users * (moments.covariance_held - moments.covariance_others)
        noise += weight * term[:, None]
        noise += weight * term
        noise += (nodes.of_rank[:, None] == nodes.of_rank) * (weight * (variance - 2 * term))
    # All levels' nodes lie within the coarsest's: W is made of as many blocks.
    whole = np.empty(size)
    for first, number in zip(levels[0].nodes.first, levels[0].nodes.size, strict=True):
        inside = slice(first, first + number)
        precision = np.zeros((number, number))
        for level in levels:
            node = level.nodes.of_rank[inside]
            precision += (node[:, None] == node) / level.variance
        inverse = np.linalg.inv(precision)
        whole[inside] = inverse.sum(axis=1)
        noise[inside] = inverse @ noise[inside]
        noise[:, inside] = noise[:, inside] @ inverse
    return _with_known_sum(noise, whole)


def _with_known_sum(covariance: FloatArray, whole: FloatArray) -> FloatArray:
    """The covariance given the sum of all estimates: the difference is divided in proportion to ``whole``."""
    fraction = whole / whole.sum()
    with_sum = covariance.sum(axis=1)
    covariance -= np.outer(with_sum, fraction)
    covariance -= np.outer(fraction, with_sum)
    covariance += np.outer(fraction, fraction * with_sum.sum())
    return covariance


def consistent_site_noise(levels: Sequence[MeasuredLevel], ordered: FloatArray) -> SiteNoise:
    """The noise of every site's consistent estimate, in O(nodes); parameters as above. Run by: the server.

    At least the diagonal of :func:`consistent_covariance`, which takes the level of each report as given and as many
    nodes on one line as in an average group. Here as many are on a line as it can hold.
    """
    tree = _Tree(levels)
    variance = high = low = np.zeros(1)
    for number, level in enumerate(levels):
        users = level.nodes.sums(ordered)
        row = tree.row(number, users)
        parent, fraction = tree.parent[number], tree.fraction[number]
        # The estimates above reach a node's sites through the node's fraction of its parent's difference.
        variance = variance[parent] * fraction**2 + _report_variance(level, row, users) / level.probability
        size = level.probability * (level.held - level.other)
        middle = (row.own * users - row.rest_users) / level.probability
        up = (row.own * (1 - level.other) + row.rest * level.other) / size - middle
        down = (row.own * level.other + row.rest * (1 - level.other)) / size + middle
        high, low = np.maximum(high[parent] * fraction, up), np.maximum(low[parent] * fraction, down)
    # A report of site i adds 1 - x_i to its estimate on average, one of another site takes x_i.
    step = np.maximum(high + ordered, low + 1 - ordered)
    return SiteNoise(variance - ordered * (1 - ordered), float(step.max()))


class _Row(NamedTuple):
    """The coefficients of a level's estimates in the result of each of its nodes, and their sums over other nodes."""

    own: FloatArray
    rest: FloatArray  # sum over the others, all at most 0, with its sign changed
    rest_users: FloatArray  # the same, each times the users at it
    squares: FloatArray  # sum of squares over the others
    squares_users: FloatArray


class _Tree:
    """The weights of both passes of constrained inference."""

    def __init__(self, levels: Sequence[MeasuredLevel]) -> None:
        self.parent: list[IntArray] = [np.zeros(levels[0].nodes.first.size, dtype=np.int64)]
        for above, below in itertools.pairwise(levels):
            self.parent.append(above.nodes.of_rank[below.nodes.first])
        # Upwards: the weight of a node's own estimate beside the sum of its children's.
        self.weight: list[FloatArray] = []
        self.fraction: list[FloatArray] = []
        spread = np.empty(0)
        for number in range(len(levels) - 1, -1, -1):
            own = levels[number].variance
            if self.weight:
                self.weight.append(spread / (spread + own))
                spread = spread * own / (spread + own)
            else:
                spread = np.full(levels[number].nodes.first.size, own)
                self.weight.append(np.ones(spread.size))
            # Downwards: a node's fraction of the difference of its parent (or the known sum) and all children.
            among = self._add(number, spread)
            self.fraction.append(spread / among[self.parent[number]])
            spread = among
        self.weight.reverse()
        self.fraction.reverse()

    def row(self, number: int, users: FloatArray) -> _Row:
        """The coefficients of one level's estimates in each of its nodes, before any level below it."""
        weight = self.weight[number]
        # Upwards: sums over the nodes of the level below each node.
        below = [[weight, weight * users, weight**2, weight**2 * users]]
        around = []
        for level in range(number, -1, -1):
            among = [self._add(level, values) for values in below[-1]]
            around.append(among)
            if level:
                kept = 1 - self.weight[level - 1]
                below.append([a * b for a, b in zip(among, (kept, kept, kept**2, kept**2), strict=True)])
        # Downwards: the fraction of the difference left by the node's own estimate, and the sums of its siblings.
        lack, own, sums = np.ones(1), np.zeros(1), [np.zeros(1)] * 4
        for level in range(number + 1):
            parent, fraction = self.parent[level], self.fraction[level]
            inside, among = below[number - level], around[number - level]
            taken = lack[parent] * fraction
            sums = [
                total[parent] * by + np.maximum(every[parent] - values, 0.0) * times
                for total, every, values, by, times in zip(
                    sums,
                    among,
                    inside,
                    (fraction, fraction, fraction**2, fraction**2),
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


def _report_variance(level: MeasuredLevel, row: _Row, users: FloatArray) -> FloatArray:
    """The variance that one report about a level adds at each of its nodes, over users drawn anew, shape (nodes,)."""
    every, at = row.own - row.rest, row.own * users - row.rest_users
    square, square_at = row.own**2 + row.squares, row.own**2 * users + row.squares_users
    noise, lines = level.noise, level.lines
    made = noise.variance_other * (square - square_at) + noise.variance_held * square_at
    made += 2 * noise.covariance_held * (every * at - square_at)
    made += lines.covariance * (every**2 - 2 * every * at + 2 * square_at - square)
    # On a line with the user's node, the node itself and another can only lower the variance: their signs differ.
    # The square of the sum of m others on a line is at most m times their sum of squares more (Cauchy-Schwarz).
    made += lines.surplus * np.minimum(lines.nodes * row.squares, np.maximum(row.rest**2 - row.squares, 0.0))
    return np.asarray(made + square_at - at**2)
