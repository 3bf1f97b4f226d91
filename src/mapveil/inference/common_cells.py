"""Measured cells of two maps: the smallest groups of cells that are made up of whole leaves in either map."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mapveil.geo.quadtree import Quadtree
from mapveil.inference.zone_overlay import ZoneOverlay, sums_of
from mapveil.maps.density_map import DensityMap
from mapveil_client.arrays import BoolArray, IntArray
from mapveil_client.errors import InputError

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def measured_in_both(one: ZoneOverlay, two: ZoneOverlay) -> tuple[csr_array, csr_array]:
    """Weights, 0 or 1, of the leaves of each map in the measured cells that lie wholly inside each zone.

    Raises
    ------
    InputError
        The maps have different cells, which do not divide each other.
    """
    from scipy.sparse import csr_array

    groups, whole = _groups(one.heat, two.heat)
    count, sizes = whole.size, [each.size for each in groups]
    inside = [each.inside for each in (one, two)]
    members = [
        csr_array((np.ones(size), (np.arange(size), at)), shape=(size, count))
        for size, at in zip(sizes, groups, strict=True)
    ]
    parts = [weights @ each for weights, each in zip(inside, members, strict=True)]
    of_group = [np.bincount(at, minlength=count) for at in groups]
    made = []
    for weights, member in zip(inside, members, strict=True):
        rows = np.repeat(np.arange(weights.shape[0]), np.diff(weights.indptr))
        at = member.indices[weights.indices]
        kept = whole[at] & (weights.data == 1)
        for part, number in zip(parts, of_group, strict=True):
            kept[kept] = part[rows[kept], at[kept]] == number[at[kept]]
        made.append(
            csr_array((np.ones(kept.sum()), (rows[kept], weights.indices[kept])), shape=weights.shape)
        )
    return made[0], made[1]


def blocks_of_cells(one: DensityMap, two: DensityMap) -> tuple[IntArray, IntArray]:
    """The measured block that each cell of each map lies in, -1 in none; blocks are the smallest that both measured.

    Raises
    ------
    InputError
        A map cannot be asked, or the maps have different cells, which do not divide each other.
    """
    groups, whole = _groups(one, two)
    number = np.append(np.where(whole, np.cumsum(whole) - 1, -1), -1)
    leaves = sums_of(one).leaf, sums_of(two).leaf
    first, second = (number[np.append(of, -1)[leaf]] for of, leaf in zip(groups, leaves, strict=True))
    return first, second


def _groups(one: DensityMap, two: DensityMap) -> tuple[tuple[IntArray, IntArray], BoolArray]:
    """The group of each leaf of each map, and whether each group is made up of leaves of both."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    first, second = _leaves_of_cells(one, two)
    held = (first >= 0) & (second >= 0)
    sizes = sums_of(one).cells.size, sums_of(two).cells.size
    pairs = np.unique(np.stack([first[held], second[held]]), axis=1)
    ends = pairs[0], pairs[1] + sizes[0]
    count, group = connected_components(
        coo_array((np.ones(pairs.shape[1]), ends), shape=(sum(sizes), sum(sizes))), directed=False
    )
    of_leaf: IntArray = group.astype(np.int64)
    groups = of_leaf[: sizes[0]], of_leaf[sizes[0] :]
    # A leaf without a cell in the other map has no group in common.
    return groups, np.isin(np.arange(count), groups[0]) & np.isin(np.arange(count), groups[1])


def _leaves_of_cells(one: DensityMap, two: DensityMap) -> tuple[IntArray, IntArray]:
    """The leaf of each cell in each map, of the smaller cells of both."""
    tilings, leaves = (one.tiling, two.tiling), (sums_of(one).leaf, sums_of(two).leaf)
    if tilings[0].to_dict() == tilings[1].to_dict():
        return leaves
    if not all(isinstance(each, Quadtree) for each in tilings):
        raise InputError(
            f"the maps have different cells, {tilings[0].spec} and {tilings[1].spec}; release both with one tiling "
            "(--tiling)"
        )
    if tilings[0].size < tilings[1].size:
        return _leaves_of_cells(two, one)[::-1]
    return leaves[0], leaves[1][tilings[1].locate(*tilings[0].centres())]
