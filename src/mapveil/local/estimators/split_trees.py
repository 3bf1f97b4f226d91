r"""Users divided over trees of sites, each division drawn towards an even one: smoothing that keeps what is sure.

The sites are halved again and again (:mod:`mapveil.local.estimators.site_tree`). Of a box with c users,
:math:`c_1` are in its
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
from mapveil.local.estimators.site_tree import SiteTree, site_tree
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.local.domain import Domain

_PLACES = (0.5, 0.6)
_RASTER = (0.5, 0.0)


def usual_concentration(domain: Domain, sites: FloatArray) -> FloatArray:
    """a of boxes of so many sites."""
    factor, power = _PLACES if isinstance(domain.tiling, Places) else _RASTER
    return np.asarray(factor * sites**power)


class _Level(NamedTuple):
    """The boxes of one level that are cut, and where their halves are in the next; the same for all trees."""

    one: IntArray
    edges: IntArray  # where the next level's boxes begin, and the last ends
    cut: npt.NDArray[np.bool_]  # which of all boxes
    share: FloatArray  # r
    usual: FloatArray  # 2 a(m)


class _Prior(NamedTuple):
    """What is added to the users of each box, for one unevenness of its level."""

    first: FloatArray  # k r, to its first half's
    both: FloatArray  # k


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
        trees = [site_tree(domain.plane, turn * math.pi / 2 / number) for turn in range(number)]
        # How many sites a box has depends on its place in the tree alone: one pass serves all trees.
        self._levels = [_level(domain, trees[0], at) for at in range(len(trees[0].levels) - 1)]
        # Boxes differ by a site at most, so only of the last level are some not cut: they have an empty second half.
        filled = np.ones((number, 1 << self.levels), dtype=np.bool_)
        if self._levels:
            filled[:, 1::2] = self._levels[-1].cut
        self._order: IntArray = np.stack([tree.order for tree in trees])
        self._leaves: IntArray = np.full(filled.shape, domain.size)
        self._leaves[filled] = self._order.reshape(-1)
        self._places: IntArray = np.flatnonzero(filled).reshape(number, -1)
        np.put_along_axis(self._places, self._order, self._places.copy(), axis=1)
        self.unevenness: FloatArray = np.ones(self.levels)
        self._prior: tuple[bytes, list[_Prior]] = (b"", [])

    @property
    def levels(self) -> int:
        """How often sites are halved; the same for all trees."""
        return len(self._levels)

    def smooth(self, users: FloatArray) -> FloatArray:
        """The distribution of so many users, shape (sites,): each division drawn towards an even one."""
        of_levels = [np.append(users, 0.0).take(self._leaves)]
        for _ in range(self.levels):
            halves = of_levels[-1]
            of_levels.append(halves[:, 0::2] + halves[:, 1::2])
        whole: FloatArray = np.ones((len(self._order), 1))
        for prior in self._priors():
            held, halves = of_levels.pop(), of_levels[-1]
            first = halves[:, 0::2] + prior.first
            held += prior.both
            first /= held
            first *= whole
            found = np.empty(halves.shape)
            found[:, 0::2] = first
            np.subtract(whole, first, out=found[:, 1::2])
            whole = found
        made = whole.take(self._places).sum(axis=0)
        return np.asarray(made / made.sum())

    def _priors(self) -> list[_Prior]:
        key = self.unevenness.tobytes()
        if key != self._prior[0]:
            self._prior = (
                key,
                [_prior(at, float(of)) for at, of in zip(self._levels, self.unevenness, strict=True)],
            )
        return self._prior[1]

    def divisions(self, distribution: FloatArray, level: int) -> Divisions:
        """How a distribution divides at one level of the first tree."""
        at = self._levels[level]
        sums = np.concatenate([[0.0], np.cumsum(distribution[self._order[0]])])
        held = np.diff(sums[at.edges])
        part = held[at.one] + held[at.one + 1]
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
        at, order = self._levels[level], self._order[0]
        half = np.clip(self.divisions(distribution, level).half, 1e-9, 1 - 1e-9)
        factor = np.zeros(at.edges.size - 1)
        factor[at.one], factor[at.one + 1] = signs / half, -signs / (1 - half)
        made = np.empty(distribution.size)
        made[order] = distribution[order] * np.repeat(factor, np.diff(at.edges))
        return made

    def variance(self, level: int, unevenness: float) -> FloatArray:
        """Of the law of each division of one level of the first tree, for a given kappa."""
        at = self._levels[level]
        return np.asarray(at.share * (1 - at.share) / (at.usual / unevenness + 1))


def _prior(level: _Level, unevenness: float) -> _Prior:
    both, share = np.ones(level.cut.size), np.ones(level.cut.size)
    both[level.cut] += level.usual / unevenness
    share[level.cut] = level.share
    return _Prior(both * share, both)


def _level(domain: Domain, tree: SiteTree, at: int) -> _Level:
    above, below = tree.levels[at], tree.levels[at + 1]
    halved = above.size > 1
    place = np.cumsum(np.where(halved, 2, 1)) - np.where(halved, 2, 1)
    one = place[halved]
    sites = above.size[halved].astype(np.float64)
    return _Level(
        one=one,
        edges=np.append(below.first, tree.order.size),
        cut=halved,
        share=below.size[one] / sites,
        usual=2 * usual_concentration(domain, sites),
    )
