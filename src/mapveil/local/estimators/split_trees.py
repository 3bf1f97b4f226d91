r"""Balanced trees over sites, and the smoothing of users over them: divisions shrink towards even ones.

Boxes of sites are halved again and again. Of a box with c users, :math:`c_1` are in its first half, which has the
fraction r of its sites; the smoothed half has the fraction

.. math:: \theta = \frac{c_1 + k r}{c + k}, \qquad k = \frac{2 a(m)}{\kappa_l} + 1

where: m is the number of the box's sites, a(m) the prior concentration of the division (a beta law), and
:math:`\kappa_l` the unevenness of level l relative to that prior, learned from the reports. The 1 makes the result
for little evidence that of the posterior mean. The result is the mean over several trees, each rotated against the
others.

Around a map that is known, such as that of all windows of a series, r is the fraction of its users instead.

Sites that were listed because people go there divide people more evenly the more sites there are, :math:`a(m) =
0.5\, m^{0.6}`; cells of a raster do not, a = 0.5. Both are public guesses, corrected by the learned :math:`\kappa_l`.
"""

import math
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.geo.places import Places
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.local.domain import Domain

# Factor and power of a(m). Varied in docs/reference/estimator-constants.md: half or twice the factor changes the L1
# error by 2 % at most.
_PLACES = (0.5, 0.6)
_RASTER = (0.5, 0.0)

_LEAST_HALF: Final = 1e-9  # of a map around: nobody is ruled out


class TreeLevel(NamedTuple):
    """The boxes of one level of a balanced tree: intervals of its order."""

    first: IntArray
    size: IntArray


class SiteTree(NamedTuple):
    """A tree whose leaves are single sites."""

    order: IntArray  # site at each position, shape (sites,)
    levels: tuple[TreeLevel, ...]  # the root's first


def site_tree(plane: FloatArray, angle: float) -> SiteTree:
    """Halve boxes of sites along their longer side until each site is alone.

    A box of 2 k + 1 sites is cut into k and k + 1. Boxes of one site stay as they are.

    Parameters
    ----------
    plane : ndarray of float64, shape (2, sites)
        Coordinates, metres.
    angle : float
        Rotation of the cuts from the axes, radians.

    Examples
    --------
    >>> tree = site_tree(np.array([[0.0, 3, 1, 2], [0, 0, 0, 0]]), 0.0)
    >>> tree.order.tolist(), tree.levels[1].size.tolist()
    ([0, 2, 3, 1], [2, 2])
    """
    x, y = plane
    size = x.size
    # Sites by rank along either axis: sorting whole numbers sorts sites within all boxes at once.
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


def usual_concentration(domain: Domain, sites: FloatArray) -> FloatArray:
    """a(m) of boxes of m sites, shape as given."""
    factor, power = _PLACES if isinstance(domain.tiling, Places) else _RASTER
    return np.asarray(factor * sites**power)


class _Level(NamedTuple):
    """The boxes of one level that are cut, and their halves in the next level; the same for all trees."""

    first: IntArray  # index of each box's first half
    edges: IntArray  # positions where the next level's boxes begin, and the end of the last
    cut: npt.NDArray[np.bool_]  # of all boxes
    even_half: FloatArray  # r, shape (boxes,), or (trees, boxes) around a map
    concentration: FloatArray  # 2 a(m)

    @property
    def first_tree(self) -> FloatArray:
        """r of the first tree, shape (boxes,)."""
        return self.even_half if self.even_half.ndim == 1 else self.even_half[0]


class _Prior(NamedTuple):
    """Pseudo-users of each box, for one unevenness of its level."""

    first: FloatArray  # k r, of its first half
    both: FloatArray  # k


class Divisions(NamedTuple):
    """Divisions of a distribution at one level of one tree, one entry for each box that is cut."""

    fraction: FloatArray  # of all users in the box
    half: FloatArray  # theta
    even_half: FloatArray  # r


class SplitTrees:
    """Some number of trees over one domain, whose divisions shrink to even ones, or to those of a map ``around``."""

    def __init__(self, domain: Domain, number: int, around: FloatArray | None = None) -> None:
        trees = [site_tree(domain.plane, turn * math.pi / 2 / number) for turn in range(number)]
        # How many sites a box has depends on its place in the tree alone: one pass serves all trees.
        self._levels = [_level(domain, trees[0], at) for at in range(len(trees[0].levels) - 1)]
        if around is not None:
            self._levels = [_level_around(level, trees, around) for level in self._levels]
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
        """Number of divisions from the root to a site; the same for all trees."""
        return len(self._levels)

    def smooth(self, users: FloatArray) -> FloatArray:
        """The smoothed distribution of expected users, shape (sites,)."""
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
            made = [_prior(at, float(of)) for at, of in zip(self._levels, self.unevenness, strict=True)]
            self._prior = key, made
        return self._prior[1]

    def divisions(self, distribution: FloatArray, level: int) -> Divisions:
        """The divisions of a distribution at one level of the first tree."""
        at = self._levels[level]
        sums = np.concatenate([[0.0], np.cumsum(distribution[self._order[0]])])
        held = np.diff(sums[at.edges])
        fraction = held[at.first] + held[at.first + 1]
        half = np.divide(held[at.first], fraction, out=at.first_tree.copy(), where=fraction > 0)
        return Divisions(fraction, half, at.first_tree)

    def moved(self, distribution: FloatArray, level: int, signs: FloatArray) -> FloatArray:
        """The derivative of a distribution as the divisions of one level of the first tree grow, times their signs.

        ``signs`` are 1 or -1 for each box that is cut, shape (boxes,).
        """
        at, order = self._levels[level], self._order[0]
        half = np.clip(self.divisions(distribution, level).half, 1e-9, 1 - 1e-9)
        factor = np.zeros(at.edges.size - 1)
        factor[at.first], factor[at.first + 1] = signs / half, -signs / (1 - half)
        made = np.empty(distribution.size)
        made[order] = distribution[order] * np.repeat(factor, np.diff(at.edges))
        return made

    def variance(self, level: int, unevenness: float) -> FloatArray:
        """The prior variance of each division of one level of the first tree, for a given kappa."""
        at = self._levels[level]
        return np.asarray(at.first_tree * (1 - at.first_tree) / (at.concentration / unevenness + 1))


def _prior(level: _Level, unevenness: float) -> _Prior:
    both, share = np.ones(level.cut.size), np.ones((*level.even_half.shape[:-1], level.cut.size))
    both[level.cut] += level.concentration / unevenness
    share[..., level.cut] = level.even_half
    return _Prior(both * share, both)


def _level_around(level: _Level, trees: list[SiteTree], around: FloatArray) -> _Level:
    """The level with the halves of a distribution, even ones where it holds nobody."""
    halves = np.empty((len(trees), level.first.size))
    for made, tree in zip(halves, trees, strict=True):
        held = np.diff(np.concatenate([[0.0], np.cumsum(around[tree.order])])[level.edges])
        whole = held[level.first] + held[level.first + 1]
        made[:] = np.divide(held[level.first], whole, out=level.even_half.copy(), where=whole > 0)
    return level._replace(even_half=np.clip(halves, _LEAST_HALF, 1 - _LEAST_HALF))


def _level(domain: Domain, tree: SiteTree, at: int) -> _Level:
    above, below = tree.levels[at], tree.levels[at + 1]
    halved = above.size > 1
    place = np.cumsum(np.where(halved, 2, 1)) - np.where(halved, 2, 1)
    first = place[halved]
    sites = above.size[halved].astype(np.float64)
    return _Level(
        first=first,
        edges=np.append(below.first, tree.order.size),
        cut=halved,
        even_half=below.size[first] / sites,
        concentration=2 * usual_concentration(domain, sites),
    )
