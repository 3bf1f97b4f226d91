r"""The split of a box's users between its two halves: a prior learned from the noisy halves themselves.

The fraction :math:`\theta` of a box's P users that is in its first half, which holds the fraction r of the box's
members, follows a mixture of beta laws with mean r, from nearly even to all on one side:

.. math:: \theta \sim \sum_k w_k\, \mathrm{Beta}(2 a_k r,\ 2 a_k (1 - r))

where: :math:`a_k` are :data:`CONCENTRATIONS` and the weights w are found per box size by expectation maximisation over
all boxes cut in two equal parts, starting from (and held by ``_STRENGTH`` boxes' worth of) a mean of the weights of
the size before and :data:`PUBLIC_WEIGHTS`. The noisy half z was measured with a standard deviation :math:`\tau`; its
noise is a sum of Laplace variables (a Gaussian from 16 of them on). The estimate is the posterior mean
:math:`P\, E[\theta \mid z]`. It is looked up: with :math:`s = P / \tau` and :math:`t = z / \tau`, measured from the
nearer end, it is a smooth function of two numbers for each r, tabulated once.

People cluster on most maps, but not on all. Where a prior ``may_be_flat``, its public weights are

.. math:: \sum_m \pi_m' v_m, \qquad \pi_m' \propto \pi_m \prod_i \Big(\sum_k v_{mk}\, p(z_i \mid k)\Big)^{1/2}

where: :math:`v_m` are :data:`PUBLIC_WEIGHTS` and :data:`FLAT_WEIGHTS`, :math:`\pi` is 0.88 and 0.12, and i runs over
the boxes of all sizes that were seen, each counting 1 / offsets.

The constants were chosen by hand. Varied on scenes that nobody tuned them on, they change the error of a curator's map
within the noise and of local reports by 2.5 % at most; those of the tables change both within the noise
(docs/reference/mechanism-constants.md).

Source: multiscale models of counts with beta-mixture splits (Kolaczyk 1999; Nowak and Kolaczyk 2000), empirical
Bayes over a fixed grid of scales (Stephens 2017).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.inference.threshold_expansion import CutBoxes
from mapveil_client.arrays import BoolArray, FloatArray, IntArray

CONCENTRATIONS: Final = (200.0, 30.0, 8.0, 3.0, 1.0, 0.35, 0.1, 0.02)
"""a of each component: 200 is nearly even, 0.02 nearly everything on one side."""

PUBLIC_WEIGHTS: Final = (0.03, 0.03, 0.05, 0.08, 0.14, 0.2, 0.23, 0.24)
"""Weights before any data: people cluster, at most scales."""

FLAT_WEIGHTS: Final = (0.5, 0.25, 0.12, 0.06, 0.03, 0.02, 0.01, 0.01)
"""Weights on a map without structure: nearly even, at all scales."""

_FLAT: Final = 0.12  # probability of such a map before any data
_TOLD: Final = 0.5  # of a box's evidence: boxes of one map are not independent
_STRENGTH: Final = 8.0  # boxes
_SPREAD: Final = 1.1  # deviation of ln a about an expected concentration
_POSSIBLE: Final = 0.05  # weight of the public mixture beside an expected concentration
_CARRIED: Final = 0.5  # weight of the size before in the start
_ROUNDS: Final = 30  # of expectation maximisation
_ABOUT: Final = 1e-9  # of a share of a half
_SHARES: Final = np.array([0.01, 0.08, 0.25, 0.5, 0.75, 0.92, 0.99])  # r of the tables
_FINE: Final = 1 / (1 + np.exp(-np.linspace(-5.2, 5.2, 41)))
"""r of the tables where halves are uneven throughout: close enough to tell a good expectation from none."""
_FIRST_OCTAVE, _OCTAVES = -3, 24  # of s
_STEPS: Final = 64  # of t, from _BELOW noise deviations below zero up to the middle
_BELOW: Final = 6.0
_BEND: Final = 1.5  # noise deviations; steps of t are even below it, logarithmic above
_NODES: Final = 40  # of the integral over theta
_REACH: Final = 9.0  # noise deviations beyond which a likelihood is nothing
_SURE_S, _SURE_T = 2000.0, 30.0  # beyond both the measurement stands
_GAUSSIAN: Final = 16  # Laplace variables whose sum is taken for a Gaussian
_USUAL_TERMS: Final = (2, 4, 8, _GAUSSIAN)  # of halves of 1, 2, 4 and more sites
CHUNK: Final = 1 << 16  # boxes, whose arrays stay in the cache


class _Grid(NamedTuple):
    t: FloatArray  # (octaves, steps)
    edges: FloatArray  # (octaves, steps, nodes + 1), users over noise deviation
    middles: FloatArray  # (octaves, steps, nodes)


class _Table(NamedTuple):
    likelihood: FloatArray  # (octaves * steps, components)
    moment: FloatArray  # of the correction to t, same shape


class SplitPrior:
    """Weights of the mixture, learned from the largest boxes down to the smallest.

    Parameters
    ----------
    terms : int
        Laplace variables in the noise of one site.
    may_be_flat : bool
        Whether the map may be one of :data:`FLAT_WEIGHTS`; the boxes then tell which of both kinds it is.
    uneven : bool
        Whether boxes with uneven halves tell of the weights too; only those cut in two equal parts by default.
    """

    def __init__(self, terms: int = 1, *, may_be_flat: bool = False, uneven: bool = False) -> None:
        self._terms = terms
        self._uneven_tell = uneven
        self._shares = _FINE if uneven else _SHARES
        # Of the boxes of the last size, up to a constant of theirs; maximised over the weights, so not marginal.
        self.log_evidence = 0.0
        flat = _FLAT if may_be_flat else 0.0
        self._kinds = np.array([PUBLIC_WEIGHTS, FLAT_WEIGHTS])[: 1 + may_be_flat]
        self._kinds /= self._kinds.sum(axis=1, keepdims=True)
        self._evidence = np.log([1 - flat, flat][: 1 + may_be_flat])
        self._judging = may_be_flat
        self._public = self._expected()
        self.weights: FloatArray = self._public
        self._fresh = True

    def _expected(self) -> FloatArray:
        """The weights of a map of the kinds that the evidence makes likely."""
        likely = np.exp(self._evidence - self._evidence.max())
        return np.asarray(likely @ self._kinds / likely.sum())

    def begin_again(self) -> None:
        """Forget all weights but what the boxes so far told of the kind of map."""
        self._judging = False
        self.weights = self._public = self._expected()
        self._fresh = True

    def expect(self, concentration: float) -> None:
        """Expect later boxes to divide as a concentration a says: within a factor of about three."""
        away = np.log(np.array(CONCENTRATIONS) / concentration) / _SPREAD
        near = np.exp(-np.square(away) / 2)
        public = np.array(PUBLIC_WEIGHTS) / sum(PUBLIC_WEIGHTS)
        self._public = (1 - _POSSIBLE) * near / near.sum() + _POSSIBLE * public
        if self._fresh:
            self.weights = self._public

    def halves(
        self,
        parent: FloatArray,
        measured: FloatArray,
        variance: FloatArray,
        share: FloatArray,
        telling: npt.NDArray[np.bool_] | None,
        sites: int,
        offsets: int = 1,
    ) -> FloatArray:
        r"""Learn the weights for boxes of one size, and estimate their first halves.

        Parameters
        ----------
        parent, measured, variance, share : ndarray of float64, shape (boxes,)
            P, z, the square of :math:`\tau`, and r.
        telling : ndarray of bool, optional
            The boxes to learn from; all by default.
        sites : int
            Number of sites in a half.
        offsets : int
            Shifts at which each box was cut: boxes overlap, and each counts 1 / ``offsets`` in learning.
        """
        parts = []
        for at in _chunks(parent.size):
            told = None if telling is None else telling[at]
            parts.append(
                CutBoxes(parent[at], measured[at], variance[at], share[at], np.zeros(1), told, offsets)
            )
        return np.concatenate([np.zeros(0), *self.halves_of(parts, sites)])

    def halves_of(self, parts: Sequence[CutBoxes], sites: int) -> Iterable[FloatArray]:
        """The same of boxes in parts; their slopes play no role."""
        terms = min(2 * sites * self._terms, _GAUSSIAN)
        found = [self._seen(part) for part in parts]
        entries = [np.zeros(0, dtype=np.int64), *(self._entries(boxes) for boxes in found)]
        self._learn(np.concatenate(entries), terms, parts[0].offsets if parts else 1)
        return (self._estimated(boxes, terms) for boxes in found)

    def _seen(self, part: CutBoxes) -> _Seen:
        boxes = _seen(part)
        if self._uneven_tell:
            boxes.even[:] = True
        if part.telling is not None:
            boxes.even[~part.telling[boxes.place]] = False
        return boxes

    def _estimated(self, boxes: _Seen, terms: int) -> FloatArray:
        boxes.estimate[boxes.place] = self._posterior(boxes, terms)
        return boxes.estimate

    def _entries(self, boxes: _Seen) -> IntArray:
        """The entries that are nearest to the boxes that tell, of all tables one after the other."""
        told = boxes.even
        if not self._uneven_tell:
            return np.asarray(boxes.entry[told] + self._shares.size // 2 * _OCTAVES * _STEPS)
        share = np.where(boxes.mirrored, 1 - boxes.share, boxes.share)[told]
        upper = np.clip(np.searchsorted(self._shares, share), 1, self._shares.size - 1)
        below = share - self._shares[upper - 1] < self._shares[upper] - share
        return np.asarray((upper - below) * _OCTAVES * _STEPS + boxes.entry[told])

    def _learn(self, entries: IntArray, terms: int, offsets: int) -> None:
        start = _CARRIED * self.weights + (1 - _CARRIED) * self._public
        counts = np.bincount(entries)
        used = np.flatnonzero(counts)
        table, entry = np.divmod(used, _OCTAVES * _STEPS)
        seen = np.empty((used.size, len(CONCENTRATIONS)))
        for index in np.unique(table):
            of = table == index
            seen[of] = _table(float(self._shares[index]), terms).likelihood[entry[of]]
        largest = np.maximum(seen.max(axis=1, keepdims=True), 1e-300)
        seen = seen / largest
        boxes = counts[used] / offsets
        if self._judging:
            self._evidence = self._evidence + _TOLD * boxes @ np.log(seen @ self._kinds.T)
            self._public = self._expected()
        weights = start
        for _ in range(_ROUNDS):
            weights = weights * ((boxes / (seen @ weights)) @ seen) + _STRENGTH * start
            weights = weights / weights.sum()
        if self._uneven_tell:
            self.log_evidence = float(boxes @ (np.log(seen @ weights) + np.log(largest[:, 0])))
        self.weights, self._fresh = weights, False

    def _posterior(self, boxes: _Seen, terms: int) -> FloatArray:
        """Posterior means of the first halves, users."""
        half = _look_up(self._corrections(0.5, terms), boxes.octave, boxes.step)
        uneven = np.flatnonzero(np.abs(boxes.share - 0.5) >= _ABOUT)
        share = np.where(boxes.mirrored, 1 - boxes.share, boxes.share)[uneven]
        if uneven.size:
            half[uneven] = self._uneven(boxes.octave[uneven], boxes.step[uneven], share, terms)
        half += np.maximum(boxes.nearest, -_BELOW)
        np.clip(half, 0.0, boxes.signal, out=half)
        lopsided = (share < self._shares[0]) | (share > self._shares[-1])
        if lopsided.any():
            of, share = uneven[lopsided], share[lopsided]
            spread = share * (1 - share) * boxes.signal[of] ** 2 / 2
            even = share * boxes.signal[of]
            half[of] = even + (boxes.nearest[of] - even) * spread / (spread + 1)
        np.subtract(boxes.signal, half, out=half, where=boxes.mirrored)
        half *= boxes.deviation
        return half

    def _uneven(self, octave: FloatArray, step: FloatArray, share: FloatArray, terms: int) -> FloatArray:
        """Posterior means less what was measured, noise deviations, of boxes with uneven halves."""
        shares = self._shares
        lower = np.clip(np.searchsorted(shares, share, side="right") - 1, 0, shares.size - 2)
        upper = np.clip((share - shares[lower]) / (shares[lower + 1] - shares[lower]), 0.0, 1.0)
        moved = np.zeros(share.size)
        for index in np.flatnonzero(np.bincount(lower)):
            of = np.flatnonzero(lower == index)
            low, high = (
                _look_up(self._corrections(float(shares[at]), terms), octave[of], step[of])
                for at in (index, index + 1)
            )
            moved[of] = low + upper[of] * (high - low)
        return moved

    def _corrections(self, share: float, terms: int) -> FloatArray:
        table = _table(share, terms)
        return np.asarray((table.moment @ self.weights) / np.maximum(table.likelihood @ self.weights, 1e-280))


class _Seen(NamedTuple):
    """Boxes of which the measurement tells something, but not all."""

    estimate: FloatArray  # of the first half of every box, users; of these boxes not yet
    place: IntArray  # among all boxes
    share: FloatArray
    deviation: FloatArray
    signal: FloatArray  # s
    nearest: FloatArray  # t
    mirrored: BoolArray  # whether t is measured from the other end
    octave: FloatArray
    step: FloatArray
    entry: IntArray  # of the tables, the nearest
    even: BoolArray  # whether its halves are even, and to learn from


def _seen(boxes: CutBoxes) -> _Seen:
    """The boxes to look up; where the measurement stands it is the estimate."""
    parent, measured, variance, share, *_ = boxes
    estimate = share * parent
    deviation = np.sqrt(np.maximum(variance, 1e-200))
    signal = parent / deviation
    nearest = np.minimum(measured, parent - measured)
    nearest /= deviation
    sure = (signal > _SURE_S) & (nearest > _SURE_T) | (variance <= 0)
    estimate[sure] = measured[sure]
    place = np.flatnonzero((signal > 2.0**_FIRST_OCTAVE) & ~sure)
    mirrored = (measured > parent / 2)[place]
    share, deviation, signal, nearest = (each[place] for each in (share, deviation, signal, nearest))
    octave, step = _place(signal, nearest)
    entry = np.rint(octave).astype(np.int64) * _STEPS + np.rint(step).astype(np.int64)
    even = np.abs(share - 0.5) < _ABOUT
    return _Seen(estimate, place, share, deviation, signal, nearest, mirrored, octave, step, entry, even)


def _chunks(size: int) -> list[slice]:
    return [slice(start, start + CHUNK) for start in range(0, size, CHUNK)]


def _place(signal: FloatArray, t: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Row and column of a pair in the tables."""
    octave = np.clip(np.log(signal) / math.log(2) - _FIRST_OCTAVE, 0, _OCTAVES - 1.001)
    bent = 1 + _BELOW / _BEND
    scaled = np.log(np.maximum(t, -_BELOW) / _BEND + bent) / np.log(signal / (2 * _BEND) + bent)
    return octave, np.clip(scaled * (_STEPS - 1), 0, _STEPS - 1.001)


def _look_up(table: FloatArray, octave: FloatArray, step: FloatArray) -> FloatArray:
    row, column = octave.astype(np.int64), step.astype(np.int64)
    down, along = octave - row, step - column
    entry = row * _STEPS + column
    top = table.take(entry)
    top += along * (table.take(entry + 1) - top)
    entry += _STEPS
    bottom = table.take(entry)
    bottom += along * (table.take(entry + 1) - bottom)
    return np.asarray(top + down * (bottom - top))


@functools.cache
def _grid() -> _Grid:
    signal = 2.0 ** np.arange(_FIRST_OCTAVE, _FIRST_OCTAVE + _OCTAVES)[:, None]
    t = _BEND * np.expm1(np.linspace(0, 1, _STEPS) * np.log1p((signal / 2 + _BELOW) / _BEND)) - _BELOW
    high = np.minimum(np.maximum(t, 0) + _REACH, signal)
    low = np.minimum(np.maximum(t - _REACH, 0), high * 0.999)
    # Nodes gather at the end, where a skewed split has its mass.
    even = np.linspace(0, 1, _NODES + 1)
    edges = low[..., None] + (high - low)[..., None] * np.where(low[..., None] > 0, even, even**2)
    return _Grid(t, edges, (edges[..., 1:] + edges[..., :-1]) / 2)


def _masses(share: float) -> FloatArray:
    """Prior mass of every component between the edges, shape (components, octaves, steps, nodes)."""
    from scipy.special import betainc

    signal = 2.0 ** np.arange(_FIRST_OCTAVE, _FIRST_OCTAVE + _OCTAVES)[:, None, None]
    theta = _grid().edges / signal
    odds = np.log(np.maximum(theta, 1e-300)) - np.log(np.maximum(1 - theta, 1e-300))
    known = np.linspace(-22, 22, 1201)
    places = 1 / (1 + np.exp(-known))
    masses = []
    for concentration in CONCENTRATIONS:
        below = betainc(2 * concentration * share, 2 * concentration * (1 - share), places)
        cdf = np.interp(odds, known, below)
        cdf[theta <= 0] = 0.0
        cdf[theta >= 1] = 1.0
        masses.append(np.diff(cdf, axis=-1))
    return np.stack(masses)


def _table(share: float, terms: int) -> _Table:
    return _tables(share, _USUAL_TERMS if terms in _USUAL_TERMS else (terms,))[terms]


@functools.cache
def _tables(share: float, each: tuple[int, ...]) -> dict[int, _Table]:
    """The tables of one r by the number of Laplace variables, from masses that are megabytes and not kept."""
    masses = _masses(share)
    found = {}
    for terms in each:
        density = _density(terms)
        likelihood = np.einsum("kosn,osn->osk", masses, density)
        moment = np.einsum("kosn,osn->osk", masses, -_away() * density)
        found[terms] = _Table(*(sums.reshape(-1, masses.shape[0]) for sums in (likelihood, moment)))
    return found


@functools.cache
def _away() -> FloatArray:
    """Noise that would make each node of the first half what was measured, shape (octaves, steps, nodes)."""
    grid = _grid()
    return np.asarray(grid.t[..., None] - grid.middles)


@functools.cache
def _density(terms: int) -> FloatArray:
    """Density of that noise, but for a factor."""
    return noise_density(_away(), terms)


def noise_density(x: FloatArray, terms: float) -> FloatArray:
    """Density at x, but for a factor, of a sum of so many Laplace variables scaled to variance 1."""
    if terms >= _GAUSSIAN:
        return np.asarray(np.exp(-x * x / 2) + 1e-300)
    from scipy.special import kv

    order = terms - 0.5
    scaled = np.maximum(np.abs(x) * np.sqrt(2.0 * terms), 1e-8)
    return np.asarray(np.nan_to_num(scaled**order * kv(order, scaled)) + 1e-300)
