r"""Shrinkage over time: from noisy sums of blocks in each window, and a map of all windows together, to a map of each.

Time is halved like space: all windows, their halves, and so on down to single windows. The map of a run of windows is
made from that of the run around it. First its total; then, box by box from the whole raster down, the split of the
run's users between the halves of a box,

.. math:: \theta \sim \sum_k w_k\, \mathrm{Beta}(2 a_k r,\ 2 a_k (1 - r)), \qquad r = P(b_1) / P(b)

where: b is the box, :math:`b_1` its first half, :math:`\theta` the fraction of the box's users in that half, P the
estimate of the run around it, :math:`a_k` are :data:`mapveil.inference.split_prior.CONCENTRATIONS`, and the weights w
are learned per size of box and of run from all boxes of all runs of that length (:mod:`mapveil.inference.split_prior`).
So a run's map is the map around it but for what its own noisy sums show, and a quiet time axis shrinks away by itself.
Last, in every cell, the maps of both halves of a run are scaled to add up to that of the run.

Post-processing: costs no privacy. Source: multiscale models of counts (Kolaczyk 1999; Nowak and Kolaczyk 2000), with
the coarser estimate in place of an even split.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.inference.box_sums import measured_half
from mapveil.inference.split_prior import SplitPrior
from mapveil_client.arrays import BoolArray, FloatArray, IntArray, quotient


class WindowSums(NamedTuple):
    """Noisy sums of disjoint blocks in each window, on sites in Morton order."""

    values: FloatArray  # users, shape (windows, blocks)
    variance: float  # of each
    terms: float  # discrete Laplace variables in each
    block: IntArray  # of each site, -1 for none, shape (sites,)
    added: IntArray | None = (
        None  # noisy sums that each block's is the sum of, of that variance; one each by default
    )

    @property
    def each(self) -> IntArray:
        """Noisy sums in each block's, shape (blocks,)."""
        return np.ones(self.values.shape[1], dtype=np.int64) if self.added is None else self.added


class Runs(NamedTuple):
    """Runs of windows of one halving, shape (runs,) each."""

    start: IntArray
    stop: IntArray
    parent: IntArray  # number among the runs of the halving before

    @property
    def length(self) -> IntArray:
        """Number of windows of each run."""
        return self.stop - self.start


def shrink_windows(sums: WindowSums, pooled: FloatArray) -> FloatArray:
    """Estimate the users of every site in each window. Run by: whoever holds the noisy sums.

    Parameters
    ----------
    sums : WindowSums
        The noisy sums of each window.
    pooled : ndarray of float64, shape (sites,)
        Non-negative estimate of all windows together, sites in Morton order, a power of two of them.

    Returns
    -------
    ndarray of float64, shape (windows, sites)
        Non-negative; the windows of every site add up to ``pooled``.
    """
    windows = sums.values.shape[0]
    summed = np.concatenate([np.zeros((1, sums.values.shape[1])), np.cumsum(sums.values, axis=0)])
    estimate = pooled[None]
    for runs in halvings(windows):
        around, length = estimate[runs.parent], runs.length
        noisy = summed[runs.stop] - summed[runs.start]
        totals = _totals(noisy.sum(axis=1), around.sum(axis=1), runs, sums)
        made = _divide(totals, noisy, around, length, sums)
        both = np.zeros(estimate.shape)
        np.add.at(both, runs.parent, made)
        # Where neither half has anybody the run's users stay as they were, by the lengths.
        whole = np.bincount(runs.parent, length)[runs.parent]
        even = around * (length / whole)[:, None]
        under = both[runs.parent]
        estimate = np.where(under > 0, made * quotient(around, under), even)
    return estimate


def shrink_around(sums: WindowSums, around: FloatArray, total: float) -> FloatArray:
    """Estimate the users of every site in one window, around an expected map. Run by: whoever holds the noisy sums.

    Parameters
    ----------
    sums : WindowSums
        The noisy sums, of a single window.
    around : ndarray of float64, shape (sites,)
        Non-negative map that the estimate departs from only where the noisy sums show it; any scale.
    total : float
        Users in all, at least 0.

    Returns
    -------
    ndarray of float64, shape (sites,)
        Non-negative, with the given total.
    """
    once = np.ones(1, dtype=np.int64)
    return np.asarray(_divide(np.array([total]), sums.values, around[None], once, sums)[0])


def halvings(windows: int) -> Iterator[Runs]:
    """Runs of windows, each about half of one before, down to single windows."""
    start, stop = np.array([0]), np.array([windows])
    while (stop - start).max() > 1:
        middle = (start + stop + 1) // 2
        long = np.flatnonzero(stop - start > 1)
        first = np.concatenate([start, middle[long]])
        last = np.concatenate([np.where(stop - start > 1, middle, stop), stop[long]])
        parent = np.concatenate([np.arange(start.size), long])
        order = np.argsort(first)
        start, stop = first[order], last[order]
        yield Runs(start, stop, parent[order])


def _totals(noisy: FloatArray, around: FloatArray, runs: Runs, sums: WindowSums) -> FloatArray:
    """Users of each run: its own sum and what the other half leaves of the run around both, shrunk together."""
    windows = np.bincount(runs.parent, runs.length)[runs.parent].astype(np.float64)
    other = np.bincount(runs.parent, noisy)[runs.parent] - noisy
    share = runs.length / windows
    blocks = int(sums.each.sum())
    variance = blocks * sums.variance * runs.length.astype(np.float64)
    rest = blocks * sums.variance * (windows - runs.length)
    alone = share >= 1
    measured, left = measured_half(around, noisy, other, variance, rest)
    prior = SplitPrior(int(max(sums.terms, 1)))
    made = prior.halves(around, measured, left, share, None, int(runs.length.max()) * blocks)
    made = np.where(alone, around, np.clip(made, 0.0, around))
    return np.asarray(made)


def _divide(
    totals: FloatArray, noisy: FloatArray, around: FloatArray, length: IntArray, sums: WindowSums
) -> FloatArray:
    """Users of each run at every site, shape (runs, sites)."""
    sites = around.shape[1]
    held = sums.block >= 0
    levels = [around if held.all() else np.where(held, around, 0.0)]
    while levels[-1].shape[1] > 1:
        levels.append(levels[-1].reshape(length.size, -1, 2).sum(axis=2))
    # A block's own sums count once, at its first site, and its boxes are sums of whole blocks: below them nothing is
    # measured, and users lie as in the run around.
    block, firsts = _first_sites(sums.block)
    leaf = np.zeros((length.size, sites))
    leaf[:, firsts] = noisy[:, block]
    count = np.zeros(sites, dtype=np.int32)
    count[firsts] = sums.each[block]
    values, blocks = [leaf], [count]
    while values[-1].shape[1] > 1:
        values.append(values[-1].reshape(length.size, -1, 2).sum(axis=2))
        blocks.append(blocks[-1].reshape(-1, 2).sum(axis=1, dtype=np.int32))
    prior = SplitPrior(int(max(sums.terms, 1)), may_be_flat=True, uneven=True)
    noise = sums.variance * length[:, None].astype(np.float64)
    estimate = totals[:, None]
    longest = int(length.max())
    for pyramid in (levels, values, blocks):
        pyramid.pop()
    # Each level is let go when it was used: the finest are as large as all above them together.
    while levels:
        estimate = _halve(estimate, levels.pop(), values.pop(), blocks.pop(), noise, prior, longest)
    return estimate


def _first_sites(block: IntArray) -> tuple[IntArray, IntArray]:
    """The blocks of all sites, and the first site of each; without sorting all sites."""
    starts = np.append(0, 1 + np.flatnonzero(block[1:] != block[:-1]))
    found, first = np.unique(block[starts], return_index=True)
    return found[found >= 0], starts[first[found >= 0]]


def _halve(
    whole: FloatArray,
    members: FloatArray,
    y: FloatArray,
    counts: npt.NDArray[np.int32],
    noise: FloatArray,
    prior: SplitPrior,
    longest: int,
) -> FloatArray:
    """From the users of all boxes to those of their halves, shape (runs, halves)."""
    runs = whole.shape[0]
    first, second = members[:, ::2], members[:, 1::2]
    share = quotient(first, first + second)
    half = share * whole
    measured: BoolArray = (counts[::2] > 0) & (counts[1::2] > 0)
    boxes = np.flatnonzero(measured)
    if boxes.size:
        parent, part = whole[:, boxes].ravel(), share[:, boxes].ravel()
        v1, v2 = ((noise * counts[side::2][boxes]).ravel() for side in (0, 1))
        y1, y2 = (y[:, side::2][:, boxes].ravel() for side in (0, 1))
        seen, variance = measured_half(parent, y1, y2, v1, v2)
        blocks = int(max(counts[boxes * 2].max(), counts[boxes * 2 + 1].max()))
        found = prior.halves(parent, seen, variance, part, None, longest * blocks)
        found = np.where((part > 0) & (part < 1), np.clip(found, 0.0, parent), part * parent)
        half[:, boxes] = found.reshape(runs, -1)
    made = np.empty(members.shape)
    made[:, ::2], made[:, 1::2] = half, whole - half
    return made
