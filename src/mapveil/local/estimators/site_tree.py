"""Balanced trees over sites: boxes cut in two equal numbers of sites along their longer side, again and again."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapveil_client.arrays import FloatArray, IntArray


class TreeLevel(NamedTuple):
    """The boxes of one level: intervals of the tree's order."""

    first: IntArray
    size: IntArray


class SiteTree(NamedTuple):
    """A tree whose leaves are single sites."""

    order: IntArray  # site at each position, shape (sites,)
    levels: tuple[TreeLevel, ...]  # the root's first


def site_tree(plane: FloatArray, angle: float) -> SiteTree:
    """Cut the sites in halves until each is alone.

    A box of 2 k + 1 sites is cut into k and k + 1. Boxes of one site stay as they are.

    Parameters
    ----------
    plane : ndarray of float64, shape (2, sites)
        Coordinates, metres.
    angle : float
        By how much the cuts are turned from the axes, radians.

    Examples
    --------
    >>> tree = site_tree(np.array([[0.0, 3, 1, 2], [0, 0, 0, 0]]), 0.0)
    >>> tree.order.tolist(), tree.levels[1].size.tolist()
    ([0, 2, 3, 1], [2, 2])
    """
    x, y = plane
    size = x.size
    # Places by rank along either axis: sorting whole numbers sorts sites within all boxes at once.
    turned = [np.cos(angle) * x + np.sin(angle) * y, np.cos(angle) * y - np.sin(angle) * x]
    by = [np.argsort(along, kind="stable") for along in turned]
    rank = [np.empty(size, dtype=np.int64) for _ in by]
    for ranks, sites in zip(rank, by, strict=True):
        ranks[sites] = np.arange(size)
    order = np.arange(size)
    levels = [TreeLevel(np.zeros(1, dtype=np.int64), np.array([size]))]
    while (levels[-1].size > 1).any():
        first, held = levels[-1]
        extent = [_extent(axis[order], first) for axis in turned]
        second = np.repeat(extent[1] > extent[0], held)
        box = np.repeat(np.arange(first.size), held)
        along = np.where(second, rank[1][order], rank[0][order])
        along = np.sort(box * size + along) % size
        order = np.where(second, by[1][along], by[0][along])
        cut = held // 2
        both = np.stack([cut, held - cut], axis=1).reshape(-1)
        both = both[both > 0]
        levels.append(TreeLevel(np.concatenate([[0], np.cumsum(both)[:-1]]), both))
    return SiteTree(order, tuple(levels))


def _extent(values: FloatArray, first: IntArray) -> FloatArray:
    return np.asarray(np.maximum.reduceat(values, first) - np.minimum.reduceat(values, first))
