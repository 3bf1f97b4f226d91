"""Replies about disjoint nodes of the tree of a raster: measurements, consistency, shrinkage, weights with a prior."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.inference.nested_rounds import Leaves, Round, block_inference, shrink_rounds
from mapveil.inference.prior_mixture import mixed_weights
from mapveil.inference.shrinkage import pool
from mapveil.maps.measurement import Measurement
from mapveil.mechanisms.uniform_grid import held_at
from mapveil.trust.queries import NoisySums, Setting
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.morton import PrefixTree, deinterleave, interleave

_FAR: Final = 4.0  # deviations from the declared number of users: by chance below once in 1,000 maps
_WITHIN: Final = 2.0  # deviations: about 95 %
_LEAST: Final = 1e-12  # users squared: a large budget's variance is zero in floating point


class MeasuredNodes(NamedTuple):
    """One reply, and the disjoint nodes that it is about."""

    tree: PrefixTree
    sums: NoisySums


def on_raster(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Values per site in Morton order on the raster, shape (side, side)."""
    return np.asarray(values[_codes((values.size.bit_length() - 1) // 2)])


def off_raster(square: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Values on the raster per site in Morton order, shape (sites,): the inverse of :func:`on_raster`."""
    values: npt.NDArray[Any] = np.empty(square.size, dtype=square.dtype)
    values[_codes(square.shape[0].bit_length() - 1)] = square
    return values


@functools.lru_cache(maxsize=2)
def _codes(depth: int) -> IntArray:
    """Morton codes of a raster's sites, shape (side, side)."""
    row, col = np.indices((1 << depth, 1 << depth))
    return interleave(row, col)


def measurements_of(replies: Sequence[MeasuredNodes]) -> tuple[Measurement, ...]:
    """The replies as measurements of sites."""
    sites = np.arange(1 << (2 * replies[0].tree.depth))
    return tuple(each.sums.measurement(each.tree.owner(sites)) for each in replies)


def consistent(above: MeasuredNodes, below: MeasuredNodes) -> list[MeasuredNodes]:
    """The second of two replies, made consistent with the first by least squares."""
    block = np.searchsorted(
        above.tree.code, below.tree.code >> (2 * (below.tree.level - above.tree.level[0]))
    )
    values = block_inference(
        above.sums.values, below.sums.values, block, above.sums.variance, below.sums.variance
    )
    return [below._replace(sums=below.sums._replace(values=values))]


def note_on_declared(
    setting: Setting,
    replies: Sequence[MeasuredNodes],
    why: str,
) -> tuple[str, ...]:
    """A note where all of a curator's replies together contradict the declared number of users, and why it matters."""
    if not setting.curator or setting.clients is None:
        return ()
    sums = [each.sums for each in replies]
    precision = np.array([1 / max(each.variance * each.values.size, _LEAST) for each in sums])
    total = float(precision @ [each.values.sum() for each in sums] / precision.sum())
    deviation = 1 / math.sqrt(precision.sum())
    if abs(total - setting.clients) <= _FAR * deviation:
        return ()
    low, high = (max(total + sign * _WITHIN * deviation, 0.0) for sign in (-1, 1))
    return (
        f"the declared number of users, {setting.clients:,}, is not that in the cells: the noisy sums found {low:,.0f} "
        f"to {high:,.0f}; {why}, so declare one near that next time, or none",
    )


def row_by_row(tree: PrefixTree) -> IntArray:
    """The nodes by their first site, row by row of the raster."""
    row, col = deinterleave(tree.code << (2 * (tree.depth - tree.level)))
    return np.argsort((row << tree.depth) + col)


def leaf_nodes(setting: Setting, level: int, codes: IntArray, depths: IntArray) -> PrefixTree:
    """The parts of nodes of one level, each quartered so many times, where anybody can be."""
    levels, parts = [], []
    for depth in np.unique(depths).tolist():
        below = level + depth
        quarters = (codes[depths == depth, None] << (2 * depth)) + np.arange(1 << (2 * depth))
        there = quarters[held_at(setting, below)[quarters]]
        levels.append(np.full(there.shape, below))
        parts.append(there)
    return PrefixTree.of_nodes(setting.depth, np.concatenate(levels), np.concatenate(parts))


def shrink_replies(
    setting: Setting,
    level: int,
    weights: npt.NDArray[Any],
    replies: Sequence[MeasuredNodes],
    *,
    shifts: int,
    sampled: bool,
) -> FloatArray:
    """Users per site of a level's raster, shape (2**level, 2**level), from all replies.

    Parameters
    ----------
    setting : Setting
        The public setting.
    level : int
        A level as fine as the last reply's nodes.
    weights : ndarray, shape (side, side)
        Number of cells on each site of the whole raster, or its weight.
    replies : sequence of MeasuredNodes
        The coarsest first.
    shifts, sampled
        See :func:`mapveil.inference.shrinkage.multiscale_shrinkage`.
    """
    rounds, of_site = _rounds(setting, level, replies)
    held = pool(weights, setting.depth - level)
    if setting.prior is None:
        leaves = Leaves(of_site, replies[-1].tree.sites_owned(setting.members))
    else:
        leaves = _weighed(of_site, held)
    return shrink_rounds(
        rounds, leaves, held, shifts=shifts, sampled=sampled, uneven=setting.prior is not None
    )


def weights_of(
    setting: Setting, level: int, members: IntArray, replies: Sequence[MeasuredNodes]
) -> npt.NDArray[Any]:
    """The members of the sites, or with a prior their weights, as far as the replies agree with it.

    Parameters
    ----------
    setting, level, replies
        See :func:`shrink_replies`.
    members : ndarray of int64, shape (side, side)
        Number of cells on each site of the whole raster.
    """
    if setting.prior is None:
        return members
    rounds, of_site = _rounds(setting, level, replies)
    leaves = _weighed(of_site, pool(members, setting.depth - level))
    return mixed_weights(rounds, leaves, members, on_raster(setting.prior))


def _rounds(setting: Setting, level: int, replies: Sequence[MeasuredNodes]) -> tuple[list[Round], IntArray]:
    """The replies on the raster of a level, and the leaf of each site, -1 where nobody can be."""
    tree = replies[-1].tree
    sites = np.arange(1 << (2 * level))
    of_site = on_raster(tree.owner(sites << (2 * (setting.depth - level))))
    of_site[~on_raster(held_at(setting, level))] = -1
    first = tree.code << (2 * (setting.depth - tree.level))
    rounds = [
        Round(each.values, each.variance, 1 << np.maximum(level - nodes.level, 0), nodes.owner(first))
        for nodes, each in replies
    ]
    return rounds, of_site


def _weighed(of_site: IntArray, weights: npt.NDArray[Any]) -> Leaves:
    inside = of_site >= 0
    return Leaves(of_site, np.bincount(of_site[inside], weights[inside]))
