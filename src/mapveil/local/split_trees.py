r"""Users divided over trees of sites, each division drawn towards an even one: smoothing that keeps what is sure.

The sites are halved again and again (:mod:`mapveil.local.site_tree`). Of a box with c users, :math:`c_1` are in its
first half, which has the part r of its sites; the half is given the part

.. math:: \theta = \frac{c_1 + k r}{c + k}, \qquad k = \frac{2 a(m)}{\kappa_l} + 1

where: m is the number of the box's sites, a(m) says how evenly people usually divide (the concentration of a beta
law), and :math:`\kappa_l` how much less evenly they do here at level l, learned from the reports. The 1 makes the
answer to little evidence that of the posterior mean. What comes out is the mean over several trees, each turned
against the others.

Sites that were listed because people go there divide them more evenly the more sites there are, :math:`a(m) = 0.5\,
m^{0.6}`; cells of a raster do not, a = 0.5: public guesses, which what is learned corrects.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.geo.places import Places
from mapveil.local.domain import Domain
from mapveil.local.site_tree import SiteTree, site_tree

__all__ = ["Divisions", "SplitTrees", "usual_concentration"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_PLACES = (0.5, 0.6)
_RASTER = (0.5, 0.0)


def usual_concentration(domain: Domain, sites: FloatArray) -> FloatArray:
    """a of boxes of so many sites."""
    factor, power = _PLACES if isinstance(domain.tiling, Places) else _RASTER
    return np.asarray(factor * sites**power)


class _Level(NamedTuple):
    """The boxes of one level that are cut, and where their halves are in the next."""

    every: bool  # whether all are cut
    cut: IntArray
    kept: IntArray  # those that are not cut
    whole: IntArray  # their places in the next level
    one: IntArray | slice
    two: IntArray | slice
    edges: IntArray  # where the next level's boxes begin, and the last ends
    share: FloatArray  # r
    usual: FloatArray  # 2 a(m)


class Divisions(NamedTuple):
    """How a distribution divides at one level of one tree."""

    part: FloatArray  # of all users in each box that is cut
    half: FloatArray  # theta
    share: FloatArray  # r


class SplitTrees:
    """Several trees over one domain.

    Parameters
    ----------
    domain : Domain
        The sites.
    number : int
        How many trees.
    """

    def __init__(self, domain: Domain, number: int) -> None:
        self._trees: list[tuple[SiteTree, list[_Level]]] = []
        for turn in range(number):
            tree = site_tree(domain.plane, turn * math.pi / 2 / number)
            self._trees.append((tree, [_level(domain, tree, at) for at in range(len(tree.levels) - 1)]))
        self.unevenness: FloatArray = np.ones(self.levels)

    @property
    def levels(self) -> int:
        """How often sites are halved; the same for all trees."""
        return len(self._trees[0][1])

    def smooth(self, users: FloatArray) -> FloatArray:
        """The distribution of so many users, shape (sites,): each division drawn towards an even one."""
        made = np.zeros(users.size)
        for tree, levels in self._trees:
            sums = np.concatenate([[0.0], np.cumsum(users[tree.order])])
            whole = np.ones(1)
            for level, unevenness in zip(levels, self.unevenness, strict=True):
                held = np.diff(sums[level.edges])
                first, second = held[level.one], held[level.two]
                drawn = level.usual / unevenness
                drawn += 1.0
                half = drawn * level.share
                half += first
                drawn += first
                drawn += second
                half /= drawn
                half *= whole if level.every else whole[level.cut]
                found = np.empty(held.size)
                found[level.one] = half
                if level.every:
                    found[level.two] = whole - half
                else:
                    found[level.two] = whole[level.cut] - half
                    found[level.whole] = whole[level.kept]
                whole = found
            made[tree.order] += whole
        return np.asarray(made / made.sum())

    def divisions(self, distribution: FloatArray, level: int) -> Divisions:
        """How a distribution divides at one level of the first tree."""
        tree, levels = self._trees[0]
        at = levels[level]
        sums = np.concatenate([[0.0], np.cumsum(distribution[tree.order])])
        held = np.diff(sums[at.edges])
        part = held[at.one] + held[at.two]
        half = np.divide(held[at.one], part, out=at.share.copy(), where=part > 0)
        return Divisions(part, half, at.share)

    def moved(self, distribution: FloatArray, level: int, signs: FloatArray) -> FloatArray:
        """The change of a distribution as the divisions of one level grow by one each, or shrink, by their signs.

        Parameters
        ----------
        distribution : ndarray of float64, shape (sites,)
            Which.
        level : int
            Of the first tree.
        signs : ndarray of float64, shape (boxes,)
            1 or -1 for each box that is cut.
        """
        tree, levels = self._trees[0]
        at = levels[level]
        half = np.clip(self.divisions(distribution, level).half, 1e-9, 1 - 1e-9)
        factor = np.zeros(at.edges.size - 1)
        factor[at.one], factor[at.two] = signs / half, -signs / (1 - half)
        made = np.empty(distribution.size)
        made[tree.order] = distribution[tree.order] * np.repeat(factor, np.diff(at.edges))
        return made

    def variance(self, level: int, unevenness: float) -> FloatArray:
        """Of the law of each division of one level of the first tree, for a given kappa."""
        at = self._trees[0][1][level]
        return np.asarray(at.share * (1 - at.share) / (at.usual / unevenness + 1))


def _level(domain: Domain, tree: SiteTree, at: int) -> _Level:
    above, below = tree.levels[at], tree.levels[at + 1]
    halved = above.size > 1
    place = np.cumsum(np.where(halved, 2, 1)) - np.where(halved, 2, 1)
    one, every = place[halved], bool(halved.all())
    sites = above.size[halved].astype(np.float64)
    return _Level(
        every=every,
        cut=np.flatnonzero(halved),
        kept=np.flatnonzero(~halved),
        whole=place[~halved],
        one=slice(0, None, 2) if every else one,
        two=slice(1, None, 2) if every else one + 1,
        edges=np.append(below.first, tree.order.size),
        share=below.size[one] / sites,
        usual=2 * usual_concentration(domain, sites),
    )
