r"""How the consistent estimates of a hierarchy vary: the covariance of what constrained inference makes of its levels.

What :func:`mapveil.local.tree_consistency.make_consistent` returns is linear in the levels' estimates,

.. math:: \hat x = B \sum_l v_l^{-1} H_l^T y_l + \frac{W 1}{1^T W 1}, \qquad
    W = \Big( \sum_l v_l^{-1} H_l^T H_l \Big)^{-1}, \qquad B = W - \frac{W 1 1^T W}{1^T W 1}

where: :math:`y_l` are the estimates of the nodes of level l, of variance :math:`v_l` as the inference takes it,
:math:`H_l` adds up the sites of each node, and the sum of everything is known to be 1. The covariance follows:

.. math:: B \Big( \sum_l v_l^{-2} H_l^T C_l H_l \Big) B

where: :math:`C_l` is the covariance of :math:`y_l`, in which any two nodes' part depends on the users in them alone.

Source: Mapveil; see :mod:`mapveil.local.hierarchical_hashing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.local.local_hashing import SupportNoise
from mapveil.local.staircase_groups import Blocks

__all__ = ["MeasuredLevel", "consistent_covariance"]

FloatArray = npt.NDArray[np.float64]


class MeasuredLevel(NamedTuple):
    """The estimates of one level's nodes."""

    nodes: Blocks
    noise: SupportNoise  # of one report about the level
    reports: float  # about the level, of one report's worth of all: the chance of being asked about it
    variance: float  # v, of as many reports


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
