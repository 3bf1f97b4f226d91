"""Balanced trees over sites: boxes cut in two equal numbers of sites along their longer side, again and again."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["SiteTree", "TreeLevel", "site_tree"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


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
    turned = np.stack([np.cos(angle) * x + np.sin(angle) * y, np.cos(angle) * y - np.sin(angle) * x])
    order = np.arange(x.size)
    first, size = np.zeros(1, dtype=np.int64), np.array([x.size])
    levels = [TreeLevel(first, size)]
    while (size > 1).any():
        placed = turned[:, order]
        extent = np.maximum.reduceat(placed, first, axis=1) - np.minimum.reduceat(placed, first, axis=1)
        longer = np.repeat(extent.argmax(axis=0), size)
        along = np.where(longer == 0, placed[0], placed[1])
        box = np.repeat(np.arange(first.size), size)
        order = order[np.lexsort((order, along, box))]
        cut = size // 2
        both = np.stack([cut, size - cut], axis=1).reshape(-1)
        size = both[both > 0]
        first = np.concatenate([[0], np.cumsum(size)[:-1]])
        levels.append(TreeLevel(first, size))
    return SiteTree(order, tuple(levels))
