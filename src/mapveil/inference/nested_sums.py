r"""Linear functionals of noisy sums over nested groups: estimate, coefficients and noise.

.. math:: y = A x + \eta, \qquad \hat q = w^T \hat x = a^T y, \qquad A^T a = w

where: x are the users of each leaf (a finest group), A says which leaves each noisy sum y holds, :math:`\eta` are
independent noises of known variance, w weighs the leaves, and a has the least variance of all coefficients with
:math:`A^T a = w`. Both come from two passes over the tree of groups. Upwards, as in
:mod:`mapveil.inference.tree_least_squares`, with any number of children,

.. math:: z_v = t_v + \omega_v (y_v - t_v), \quad t_v = \sum_c z_c, \quad
    \omega_v = \frac{S_v}{S_v + \sigma_v^2}, \quad S_v = \sum_c s_c, \quad s_v = \omega_v \sigma_v^2;
    \qquad g_v = \frac{1}{S_v} \sum_c s_c\, g_c, \quad g_{leaf} = w

and downwards, with :math:`h_{root} = g_{root}`,

.. math:: a_v = \omega_v h_v, \qquad h_c = (g_c - g_v) + (1 - \omega_v) h_v

for every child c of v. A zone that holds or misses all of a node's leaves adds nothing below that node but one number
for all of them, so leaves outside the zone are counted, not walked through.

A mechanism of several rounds divides a block deeper where the noise of its first sum was high, so a weight
:math:`\omega_v` that depends on the block's own division leans on noise that is not centred: 95 % intervals held in
90 % of the cases. For ``adaptive`` groups the weight depends on the least-squares estimate of the block instead,

.. math:: \tilde \omega_v = \frac{\tilde S_v}{\tilde S_v + \sigma_v^2}, \qquad
    \log \tilde S_v = \operatorname{mean} \Big\{ \log S_u : \Big| \operatorname{asinh} \frac{\hat x_u}{\sigma_v} -
    \operatorname{asinh} \frac{\hat x_v}{\sigma_v} \Big| \le b \Big\}

over the blocks u of the level, whose estimates :math:`\hat x` are alike: the error of a least-squares estimate is
uncorrelated with the difference :math:`y_v - t_v` that the weight multiplies. Whatever the weights are, the variances
are those of the coefficients in use.

Source: Hay, Rastogi, Miklau, Suciu, "Boosting the Accuracy of Differentially Private Histograms Through Consistency"
(VLDB 2010), Theorem 4; the passes of its adjoint for a functional: Abowd et al., "The 2020 Census Disclosure
Avoidance System TopDown Algorithm" (2022), and arXiv 2404.13164 for the variance of any linear functional.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from mapveil.maps.measurement import Measurement, are_one_release
from mapveil.privacy.weighted_noise import WeightedNoise
from mapveil_client.arrays import BoolArray, FloatArray, IntArray
from mapveil_client.errors import InputError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_PER_OCTAVE: Final = 32  # coefficients are rounded up to powers of 2**(1/32): widths by 1 % on average
_LEAST_OCTAVE: Final = -34  # smaller coefficients are taken for rounding errors
_AT_ONCE: Final = 1 << 22  # coefficients
_OF_ERRORS: Final = ("parent", "weight", "spread")
_LEAST_REST: Final = 1e-9  # of the variance of a parent's leaves
# b, chosen on maps that benchmarks/zone_bands.py makes: 1 is narrower by up to 9 % and 3 wider by 28 %; with less, what
# noise chooses shows in the totals.
_ALIKE: Final = 1.5


class _Level(NamedTuple):
    """Groups of one measurement that hold anybody's cells, or one node above all that was not measured."""

    noisy: FloatArray  # y, shape (nodes,)
    variance: float  # of the noise on each, inf where it was not measured
    parent: IntArray  # index of each node among those of the level above
    law: Measurement | None
    spread: FloatArray = np.ones(1)  # variance of the noise on each node over ``variance``


class SumLevel(NamedTuple):
    """A level of the tree of noisy sums, for readers who ask without this package; arrays of shape (nodes,)."""

    noisy: FloatArray  # users
    parent: IntArray  # index of each node among those of the level above
    weight: FloatArray  # omega: of each node's own noisy sum against those below it
    variance: float  # of the noise on each, inf where the level was not measured
    law: Measurement | None  # None where it was not measured
    spread: FloatArray  # variance of the noise on each node over ``variance``; one for all, or shape (nodes,)


class LinearError(NamedTuple):
    """The error of a linear functional's estimate."""

    variance: float  # users squared
    noise: WeightedNoise  # its law, coefficients rounded up by at most 2.2 %


class NestedSums:
    """Noisy sums of nested groups of cells, as a tree.

    Parameters
    ----------
    measurements : sequence of Measurement
        Noisy sums whose noises are independent of each other; any order.
    inside : ndarray of bool, shape (cells,)
        Whether anybody can be in each cell.
    shown : ndarray of float64, shape (cells,), optional
        Users that the map shows: estimates from reports are noisier where more users are.
    adaptive : bool
        Whether the groups may follow from earlier noisy sums.
    windows : sequence of sequences of Measurement
        Measurements of the windows of a series, where those of all windows are of the same reports.

    Raises
    ------
    InputError
        The groups are not nested, or leave out a cell where somebody can be.
    """

    def __init__(
        self,
        measurements: Sequence[Measurement],
        inside: BoolArray,
        shown: FloatArray | None = None,
        *,
        adaptive: bool = False,
        windows: Sequence[Sequence[Measurement]] = (),
    ) -> None:
        cells = np.flatnonzero(inside)
        ordered = self._measurements = _coarsest_first(measurements)
        self._windows = [_coarsest_first(each) for each in windows]
        self._levels = [_Level(np.zeros(1), np.inf, np.zeros(1, dtype=np.int64), None)]
        node = np.zeros(cells.size, dtype=np.int64)
        for each in ordered:
            group = each.groups[cells]
            if (group < 0).any():
                raise InputError("its noisy sums leave out cells where somebody can be")
            used, first, own = np.unique(group, return_index=True, return_inverse=True)
            parent = node[first]
            if (parent[own] != node).any():
                raise InputError("its noisy sums are of groups that are not nested")
            variance = max(each.deviation() ** 2, 1e-300)
            spread: FloatArray = np.ones(used.size)
            if shown is not None:
                users = np.bincount(own, shown[cells], used.size).astype(np.float64)
                spread = each.relative_variance(users)
            self._levels.append(_Level(each.noisy[used], variance, parent, each, spread))
            node = own
        self.leaf = np.full(inside.size, -1, dtype=np.int64)
        """Leaf of each cell, -1 where nobody can be."""
        self.leaf[cells] = node
        self.cells = np.bincount(node, minlength=self._levels[-1].noisy.size)
        """Number of cells of each leaf where somebody can be."""
        self._up(adaptive)

    @property
    def levels(self) -> tuple[SumLevel, ...]:
        """The levels of the tree, its root first."""
        return tuple(
            SumLevel(level.noisy, level.parent, weight, level.variance, level.law, level.spread)
            for level, weight in zip(self._levels, self._weight, strict=True)
        )

    def is_same(self, other: object) -> bool:
        """Whether both are of one release, so that they share all errors: also where a file was read twice."""
        return self is other or (
            isinstance(other, NestedSums)
            and np.array_equal(self.leaf, other.leaf)
            and are_one_release(self._measurements, other._measurements)
        )

    def has_window(self, other: object) -> bool:
        """Whether the other's measurements are of reports that these are of too."""
        return isinstance(other, NestedSums) and any(
            are_one_release(each, other._measurements) for each in self._windows
        )

    def has_errors_of(self, other: NestedSums) -> bool:
        """Whether every functional's error has the same law for both."""
        pairs = zip(self.levels, other.levels, strict=False)
        return len(self._levels) == len(other._levels) and all(
            one.variance == two.variance
            and (one.law and one.law.law()) == (two.law and two.law.law())
            and all(np.array_equal(getattr(one, name), getattr(two, name)) for name in _OF_ERRORS)
            for one, two in pairs
        )

    def _up(self, adaptive: bool) -> None:
        """The upward pass: weights, variances, and estimates from below."""
        from scipy.sparse import csr_array

        last = self._levels[-1]
        s = np.full(last.noisy.size, last.variance)
        least = last.noisy, s  # squares: estimates and variances without regard to the choice of groups
        self._share = []  # s_c / S_v of each child, as a matrix (parents, children)
        self._part = []  # the same, shape (children,)
        self._weight = [np.ones(last.noisy.size)]  # omega, of each level
        for child, level in zip(reversed(self._levels[1:]), reversed(self._levels[:-1]), strict=True):
            size = level.noisy.size
            spread = _summed(s, child, size)
            columns, part = np.arange(child.parent.size), s / spread[child.parent]
            self._part.append(part)
            self._share.append(csr_array((part, (child.parent, columns)), shape=(size, child.parent.size)))
            measured = np.isfinite(level.variance)
            apart = spread
            if adaptive and measured:
                sums, own = (_summed(each, child, size) for each in least)
                least = _combined(level, sums, own / (own + level.variance))
                apart = _of_alike(spread, least[0] / math.sqrt(level.variance))
            weight = apart / (apart + level.variance) if measured else np.zeros(size)
            s = weight * level.variance if measured else spread
            self._weight.append(weight)
        for each in (self._weight, self._share, self._part):
            each.reverse()
        self.estimate = self._estimated([level.noisy for level in self._levels])
        """Least-squares estimate of each leaf, users; it may be negative."""

    def _estimated(self, noisy: Sequence[FloatArray]) -> FloatArray:
        """The estimate of each leaf from the noisy sums of all levels."""
        below = [noisy[-1]]
        pairs = zip(
            reversed(self._levels[1:]), reversed(noisy[:-1]), reversed(self._weight[:-1]), strict=True
        )
        for child, own, weight in pairs:
            total = _summed(below[-1], child, own.size)
            below.append(total + weight * (own - total))
        found = below.pop()
        for child, part in zip(self._levels[1:], self._part, strict=True):
            z = below.pop()
            found = z + part * (found - _summed(z, child, found.size))[child.parent]
        return found

    def covariance(self, one: csr_array, other: csr_array) -> FloatArray:
        """Covariances of the errors of two lists of functionals, shape (functionals of one, of the other).

        Parameters
        ----------
        one, other : csr_array of float64, shape (functionals, leaves)
            w of each.
        """
        from scipy.sparse import csr_array

        (above, lazy), (others, rest) = self._inner(one), self._inner(other)
        leaves = self._levels[-1]
        shape = leaves.noisy.size, lazy.shape[0]
        spread = np.broadcast_to(leaves.spread, shape[:1])
        # A leaf's coefficient is its weight and that of a leaf of no weight: four products.
        parent = csr_array((spread, (np.arange(shape[0]), leaves.parent)), shape=shape)
        made = (one * spread @ other.T).toarray() + (one @ parent) @ rest + ((other @ parent) @ lazy).T
        made += lazy.T @ (np.bincount(leaves.parent, spread, shape[1])[:, None] * rest)
        made *= leaves.variance
        for level, first, second in zip(self._levels[1:-1], above[1:], others[1:], strict=True):
            made += level.variance * (first.T @ (level.spread[:, None] * second))
        return np.asarray(made)

    def covariance_with(self, weights: FloatArray) -> FloatArray:
        """Covariances of a functional's error with those of the leaves' estimates, shape (leaves,)."""
        from scipy.sparse import csr_array

        coefficients = self.coefficients(csr_array(weights[None]))
        noises = [
            level.variance * level.spread * each[:, 0]
            for level, each in zip(self._levels[1:], coefficients, strict=True)
        ]
        return self._estimated([np.zeros(1), *noises])

    def errors(self, weights: csr_array) -> Iterator[LinearError]:
        """The error of each functional's estimate.

        Parameters
        ----------
        weights : csr_array of float64, shape (functionals, leaves)
            w of each.
        """
        count = weights.shape[0]
        inner = sum(level.noisy.size for level in self._levels[:-1])
        chunk = max(1, _AT_ONCE // max(inner, 1))
        for start in range(0, count, chunk):
            yield from self._errors(weights[start : min(start + chunk, count)])

    def coefficients(self, weights: csr_array) -> list[FloatArray]:
        """Every a, one array of shape (nodes, functionals) for each measurement, coarsest first; for checks."""
        found, lazy = self._inner(weights)
        leaves = self._levels[-1]
        return [*found[1:], weights.T.toarray() + lazy[leaves.parent]]

    def _inner(self, weights: csr_array) -> tuple[list[FloatArray], FloatArray]:
        """The coefficients of all nodes but leaves, and that of a leaf of each parent if its weight is 0."""
        up = [(self._share[-1] @ weights.T).toarray()]
        for share in reversed(self._share[:-1]):
            up.append(share @ up[-1])
        up.reverse()
        h, made = up[0], []
        for at, g in enumerate(up):
            weight = self._weight[at][:, None]
            made.append(weight * h)
            rest = (1 - weight) * h - g
            if at + 1 < len(up):
                h = up[at + 1] + rest[self._levels[at + 1].parent]
        return made, rest

    def _errors(self, weights: csr_array) -> list[LinearError]:
        from scipy.sparse import csr_array

        found, lazy = self._inner(weights)
        leaves, zones = self._levels[-1], weights.shape[0]
        rows = np.repeat(np.arange(zones), np.diff(weights.indptr))
        parent = leaves.parent[weights.indices]
        touched = weights.data + lazy[parent, rows]
        apart = leaves.spread[weights.indices]
        held = np.bincount(leaves.parent, leaves.spread, lazy.shape[0])[:, None]
        seen = csr_array((apart, (parent, rows)), shape=lazy.shape).toarray()
        every = np.broadcast_to(np.arange(zones), lazy.shape)
        # Leaves whose variance was counted by themselves leave rounding errors behind.
        rest = np.where(held - seen > _LEAST_REST * held, held - seen, 0.0)
        last = [(touched, rows, apart), (lazy, every, rest)]
        inner = [
            [(a, np.broadcast_to(np.arange(zones), a.shape), np.broadcast_to(level.spread[:, None], a.shape))]
            for a, level in zip(found[1:], self._levels[1:-1], strict=True)
        ]
        variance = np.zeros(zones)
        laws: list[list[WeightedNoise]] = [[] for _ in range(zones)]
        for level, parts in zip(self._levels[1:], [*inner, last], strict=True):
            flat = [tuple(np.ravel(each) for each in part) for part in parts]
            a, zone, number = (np.concatenate(each) for each in zip(*flat, strict=True))
            variance += np.bincount(zone, number * a * a, zones) * level.variance
            for at, law in enumerate(binned_laws(a, zone, number, zones, level.law)):
                laws[at].append(law)
        joined = (WeightedNoise(*map(np.concatenate, zip(*each, strict=True))) for each in laws)
        return [LinearError(*each) for each in zip(variance.tolist(), joined, strict=True)]


def _coarsest_first(measurements: Sequence[Measurement]) -> list[Measurement]:
    return sorted(measurements, key=lambda each: each.noisy.size)


def _summed(values: FloatArray, child: _Level, size: int) -> FloatArray:
    """The sums of children's values by their parents, shape (size,)."""
    return np.asarray(np.bincount(child.parent, values, size), dtype=np.float64)


def _combined(level: _Level, below: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Estimates from the sums below and each node's own, and omega sigma**2."""
    return below + weight * (level.noisy - below), weight * level.variance


def _of_alike(spread: FloatArray, users: FloatArray) -> FloatArray:
    """The geometric mean of the spreads of nodes whose users, in deviations of their noise, are alike."""
    at = np.arcsinh(users)
    order = np.argsort(at)
    at = at[order]
    start, end = np.searchsorted(at, at - _ALIKE), np.searchsorted(at, at + _ALIKE, "right")
    summed = np.concatenate(([0.0], np.cumsum(np.log(spread[order]))))
    made = np.empty(spread.size)
    made[order] = np.exp((summed[end] - summed[start]) / (end - start))
    return made


def binned_laws(
    a: FloatArray, zone: IntArray, number: FloatArray, zones: int, law: Measurement | None
) -> Iterator[WeightedNoise]:
    """The laws of each zone's coefficients, rounded up to a geometric grid.

    Parameters
    ----------
    a : ndarray of float64, shape (coefficients,)
        Coefficients of noisy sums of one measurement.
    zone : ndarray of int64, shape (coefficients,)
        Zone of each.
    number : ndarray of float64, shape (coefficients,)
        Noisy sums that have it.
    zones : int
        Number of zones.
    law : Measurement
        The measurement.
    """
    assert law is not None
    size = np.abs(a)
    kept = (size > 2.0**_LEAST_OCTAVE) & (number > 0)
    size, zone, number = size[kept], zone[kept], number[kept]
    # Just below the grid's own points, so that a weight of 1 stays 1.
    step = np.ceil(_PER_OCTAVE * np.log2(size) - 1e-9).astype(np.int64) - _PER_OCTAVE * _LEAST_OCTAVE
    width = int(step.max(initial=0)) + 1
    counts = np.bincount(zone * width + step, number, zones * width).reshape(zones, width)
    of_one = law.law()
    grid = np.exp2((np.arange(width) / _PER_OCTAVE) + _LEAST_OCTAVE) * of_one.step
    row, used = np.nonzero(counts)
    terms = np.asarray(of_one.terms * counts[row, used], dtype=np.float64)
    found = WeightedNoise(grid[used], np.full(used.size, of_one.rate), terms)
    ends = np.searchsorted(row, np.arange(zones + 1)).tolist()
    for start, end in pairwise(ends):
        yield WeightedNoise(*(part[start:end] for part in found))
