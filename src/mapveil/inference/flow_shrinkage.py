r"""From noisy sums of margins and of blocks of pairs to flows between zones.

Zones lie on a line of :math:`2^d` places, so that pairs of zones are a square raster whose boxes are runs of origins
and runs of destinations. Everything starts from an expectation and departs from it where noisy sums show it, box by box
from the whole raster down, by the split prior of :mod:`mapveil.inference.window_shrinkage`:

1. the margins (trips from, and to, each zone) around even ones;
2. a gravity model (:mod:`mapveil.inference.gravity`) of the margins, fitted to the noisy blocks by

   .. math:: \sum_b y_b \ln E_b

   an estimate of the log-likelihood of all trips, unbiased as noise has mean zero, where: :math:`y_b` is the noisy sum
   of block b, trips, and :math:`E_b` the model's fraction of all trips that block b holds. Of more than 512 zones, runs
   of neighbours are taken together, and within those origins and destinations are independent;
3. blocks around that model, then leaves around the blocks;
4. each leaf is the mean of that estimate and of a posterior mean by its own noisy sum alone, under a prior that is
   learned from the leaves with about as many expected trips (a mixture over a fixed grid, by expectation maximisation).
   A noisy sum above 8 noise scales is taken as it is, and an estimate below half a noise scale is no flow. The
   estimates that are not taken as they are share what those leave of the total, which is unbiased. Where those exceed
   the total, all other estimates become 0 and those are scaled down to it.

The rules of 4 were chosen on check-ins of the tune role (``python -m benchmarks.flow_errors``).

Post-processing: costs no privacy. Source: Wilson (1971); multiscale models of counts (Kolaczyk 1999); nonparametric
empirical Bayes (Kiefer and Wolfowitz 1956; Koenker and Mizera 2014).
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.geo.zone_order import ZoneOrder
from mapveil.inference.gravity import fit_gravity, spacing_m
from mapveil.inference.shrinkage import pool
from mapveil.inference.split_prior import noise_density
from mapveil.inference.window_shrinkage import WindowSums, shrink_around
from mapveil_client.arrays import BoolArray, FloatArray, IntArray, quotient
from mapveil_client.morton import PrefixTree, deinterleave, interleave

# Chosen by the errors on check-ins of the tune role, which ``python -m benchmarks.flow_errors`` measures.
_SURE: Final = 8.0  # noise scales above which a sum is taken as it is
_NOTHING: Final = 0.5  # noise scales up to which an estimate is no flow
# Chosen by hand, and not tuned.
_DISTRICTS: Final = (
    9  # halvings of the line of places: gravity is fitted between 512 runs of them at most, for time
)
_EVEN: Final = 0.02  # fraction of the trips that the model spreads evenly, so that no pair is impossible
_RUNS: Final = 12  # priors at most, each learned from leaves with about as many expected trips
_LEAST_RUN: Final = 300  # leaves that a prior is learned from
_STEPS: Final = 50  # of expectation maximisation
_FLOOR: Final = 1e-3  # of a block's even fraction: what the logarithm takes at least
_TINY: Final = 1e-300  # a divisor that may be 0
_SPARE: Final = 0.02  # leaves of a run that every point of the grid is given, so that no number is impossible
_GRID: Final = np.concatenate([np.arange(0, 4, 0.25), np.arange(4, 12, 0.5), np.arange(12, 33, 1.0)])
"""Numbers of the prior, noise scales: a quarter apart where the noise hides them, up to four times ``_SURE``."""
_BINS: Final = np.arange(-12, 24.05, 0.1)
"""Edges of the bins of noisy values, noise scales: a tenth of one; a curator's noise is beyond 12 once in 10^5 sums."""


class MeasuredBlocks(NamedTuple):
    """Noisy sums of disjoint nodes of the raster of pairs."""

    tree: PrefixTree
    values: FloatArray  # trips, shape (nodes,)
    variance: float  # of each
    terms: float  # discrete Laplace variables in each


def shrink_margin(
    noisy: FloatArray, held: BoolArray, variance: float, terms: float, total: float
) -> FloatArray:
    """Trips at every place, from their noisy sums. Run by: whoever holds the noisy sums.

    Parameters
    ----------
    noisy : ndarray of float64, shape (places,)
        Noisy trips of every place, of the variance and with the discrete Laplace variables that are given.
    held : ndarray of bool, shape (places,)
        The places that have a zone.
    total : float
        Trips in all.
    """
    block = np.where(held, np.cumsum(held) - 1, -1)
    sums = WindowSums(noisy[None, held], variance, terms, block)
    return shrink_around(sums, held.astype(np.float64), total)


def gravity_parent(
    origins: FloatArray, destinations: FloatArray, order: ZoneOrder, total: float, blocks: MeasuredBlocks
) -> FloatArray:
    """Trips of every pair of places by the gravity model, shape (places, places). Run by: as :func:`shrink_pairs`.

    Parameters
    ----------
    origins, destinations : ndarray of float64, shape (places,)
        Estimated trips from and to every place.
    order : ZoneOrder
        The places.
    total : float
        Trips in all.
    blocks : MeasuredBlocks
        All nodes of one level.
    """
    down = max(order.depth - _DISTRICTS, 0)
    cell, held = order.cell, order.held
    number = _runs(held.astype(np.float64), down)
    there = number > 0
    middle = np.stack([_runs(np.where(held, axis[cell], 0.0), down)[there] for axis in order.plane])
    middle /= number[there]
    coarse = [_runs(each, down) for each in (origins, destinations)]
    rows, columns = (each[there] / max(float(each.sum()), _TINY) for each in coarse)
    joint = np.outer(rows, columns)
    if rows.size > 1:
        level = min(int(blocks.tree.level[0]), order.depth - down)
        seen = np.zeros((1 << level,) * 2)
        codes = blocks.tree.code >> (2 * (blocks.tree.level - level))
        np.add.at(seen, tuple(deinterleave(codes)), blocks.values)
        run = np.flatnonzero(there) >> (order.depth - down - level)
        first = np.flatnonzero(np.diff(run, prepend=-1))
        seen = seen[np.ix_(run[first], run[first])]

        def score(expected: FloatArray) -> float:
            pooled = np.add.reduceat(np.add.reduceat(expected, first, axis=0), first, axis=1)
            return float((seen * np.log(np.maximum(pooled, _FLOOR / seen.size))).sum())

        joint = fit_gravity(joint, rows, columns, middle, spacing_m(middle), score).joint
    whole = np.zeros((there.size,) * 2)
    whole[np.ix_(there, there)] = joint
    inside = [
        quotient(each, np.repeat(run_total, 1 << down))
        for each, run_total in zip((origins, destinations), coarse, strict=True)
    ]
    made = np.repeat(np.repeat(whole, 1 << down, axis=0), 1 << down, axis=1)
    made *= (1 - _EVEN) * total * inside[0][:, None]
    made *= inside[1]
    made += (_EVEN * total / max(int(held.sum()), 1) ** 2) * held
    made[~held] = 0.0
    return made


def shrink_pairs(parent: FloatArray, blocks: MeasuredBlocks, total: float) -> FloatArray:
    """Trips of every pair of places, around expected ones. Run by: whoever holds the noisy sums.

    Parameters
    ----------
    parent : ndarray of float64, shape (places, places)
        Expected trips; inside a node the estimate is in proportion to them.
    blocks : MeasuredBlocks
        Nodes that hold every pair of zones.
    total : float
        Trips in all.
    """
    nodes = _Nodes.of(parent, blocks)
    return nodes.spread(parent, nodes.shrunk(total))


def settle_pairs(parent: FloatArray, blocks: MeasuredBlocks, total: float) -> FloatArray:
    """As :func:`shrink_pairs`, by both estimates of each node: for the last noisy sums (4. of the module's header)."""
    nodes = _Nodes.of(parent, blocks)
    scale = math.sqrt(blocks.variance / 2)
    shrunk = nodes.shrunk(total)
    own = posterior_means(blocks.values / scale, nodes.expected, blocks.terms) * scale
    sure = blocks.values > _SURE * scale
    made = np.where(sure, 0.0, (own + shrunk) / 2)
    made[made <= _NOTHING * scale] = 0.0
    if not made.any():
        made = np.where(sure, 0.0, shrunk)
    certain = np.where(sure, blocks.values, 0.0)
    # What is dropped below the noise would otherwise be missing from every total.
    made *= quotient(np.maximum(total - certain.sum(), 0.0), made.sum())
    made += certain
    return nodes.spread(parent, made * quotient(np.array(total), made.sum()))


def posterior_means(noisy: FloatArray, expected: FloatArray, terms: float = 1.0) -> FloatArray:
    """Means of numbers given their noisy values, under priors that are learned from those expected to be alike.

    Parameters
    ----------
    noisy : ndarray of float64, shape (numbers,)
        Numbers of at least 0 with noise of variance 2.
    expected : ndarray of float64, shape (numbers,)
        What orders the numbers: each of at most twelve runs of them, of 300 at least, has a prior of its own.
    terms : float
        Laplace variables that the noise of a number is the sum of: one of a curator, two of two operators, and the
        summed shapes of the noise shares over secure sums.

    Returns
    -------
    ndarray of float64, shape (numbers,)
        Non-negative; numbers far above the noise as they are.
    """
    middle = (_BINS[1:] + _BINS[:-1]) / 2
    likelihood = noise_density((middle[:, None] - _GRID) / math.sqrt(2), terms)
    found = np.maximum(noisy, 0.0)
    runs = max(1, min(_RUNS, noisy.size // _LEAST_RUN))
    for run in np.array_split(np.argsort(expected, kind="stable"), runs):
        low = run[noisy[run] < _BINS[-1] - 4]
        bins = np.clip(np.searchsorted(_BINS, noisy[low], side="right") - 1, 0, middle.size - 1)
        count = np.bincount(bins, minlength=middle.size).astype(np.float64)
        weights = np.full(_GRID.size, 1 / _GRID.size)
        for _ in range(_STEPS):
            posterior = likelihood * weights
            posterior /= posterior.sum(axis=1, keepdims=True)
            weights = count @ posterior + _SPARE
            weights /= weights.sum()
        posterior = likelihood * weights
        found[low] = ((posterior @ _GRID) / posterior.sum(axis=1))[bins]
    return found


class _Nodes(NamedTuple):
    """Measured nodes on the raster of their deepest level, in Morton order."""

    blocks: MeasuredBlocks
    around: FloatArray  # expected trips of each site
    owner: IntArray  # node of each site
    code: npt.NDArray[np.int32]  # of each site of the square, of which there are 2**24 at most
    expected: FloatArray  # trips of each node

    @classmethod
    def of(cls, parent: FloatArray, blocks: MeasuredBlocks) -> _Nodes:
        tree = blocks.tree
        down = tree.depth - int(tree.level.max())
        coarse = pool(parent, down)
        line = np.arange(coarse.shape[0])
        code = interleave(line, 0 * line).astype(np.int32)[:, None] + interleave(0 * line, line).astype(
            np.int32
        )
        around = np.empty(coarse.size)
        around[code] = coarse
        owner = tree.owner(np.arange(coarse.size) << (2 * down))
        return cls(blocks, around, owner, code, _of_nodes(owner, around, tree.size))

    def shrunk(self, total: float) -> FloatArray:
        """Trips of each node by halving boxes, shape (nodes,)."""
        sums = WindowSums(self.blocks.values[None], self.blocks.variance, self.blocks.terms, self.owner)
        return _of_nodes(self.owner, shrink_around(sums, self.around, total), self.blocks.tree.size)

    def spread(self, parent: FloatArray, values: FloatArray) -> FloatArray:
        """The trips of nodes on all pairs of places, in proportion to the expected ones."""
        ratio = np.append(quotient(values, self.expected), 0.0)[self.owner][self.code]
        times = parent.shape[0] // ratio.shape[0]
        if times > 1:
            ratio = np.repeat(np.repeat(ratio, times, axis=0), times, axis=1)
        ratio *= parent
        return np.asarray(ratio)


def _of_nodes(owner: IntArray, values: FloatArray, nodes: int) -> FloatArray:
    """Sums over the sites of each node; sites without a node have owner -1."""
    return np.bincount(owner + 1, values, nodes + 1)[1:].astype(np.float64)


def _runs(values: FloatArray, down: int) -> FloatArray:
    """Sums over runs of ``2**down`` places."""
    return np.asarray(values.reshape(-1, 1 << down).sum(axis=1))
