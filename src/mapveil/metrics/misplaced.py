"""Fraction of people that a map puts into a wrong block, at each resolution, and the finest resolution of use."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from mapveil.geo.tiling import Tiling
from mapveil_client.arrays import FloatArray
from mapveil_client.cells import Lattice

MISPLACED: Final = 0.25
"""A resolution is useful while at most this fraction of the people is put into a wrong block."""


class FinestCell(NamedTuple):
    """The finest useful resolution of a map."""

    side_m: float | None  # None where even the coarsest resolution is not useful
    rows: int  # of the map at that resolution, 0 where none is useful


def misplaced_fractions(truth: FloatArray, released: FloatArray, lattice: Lattice) -> list[float]:
    """Half the L1 distance of both normalised maps, summed over blocks of 1/1, 1/2, 1/4 ... of the lattice's side.

    Parameters
    ----------
    truth : ndarray of float64, shape (cells,)
        Users per cell, not all 0.
    released : ndarray of float64, shape (cells,)
        Users per cell of the map; negative values count as 0, and a map without users as the uniform one.
    lattice : Lattice
        Of the cells.
    """
    fractions = []
    kept = np.maximum(released, 0.0)
    total = kept.sum()
    estimate = kept / total if total > 0 else np.full(kept.size, 1.0 / kept.size)
    moved = truth / truth.sum() - estimate
    for level in range(lattice.depth + 1):
        block = ((lattice.row >> (lattice.depth - level)) << level) + (lattice.col >> (lattice.depth - level))
        fractions.append(float(np.abs(np.bincount(block, moved)).sum()) / 2)
    return fractions


def finest_cell(fractions: Sequence[float], tiling: Tiling) -> FinestCell:
    """The finest resolution at which at most ``MISPLACED`` of the people are in a wrong block.

    Parameters
    ----------
    fractions : sequence of float
        As :func:`misplaced_fractions` returns them, or their means.
    tiling : Tiling
        The cells.
    """
    # Level 0 is the whole region, where nobody can be misplaced.
    useful = [level for level in range(1, len(fractions)) if fractions[level] <= MISPLACED]
    if not useful:
        return FinestCell(None, 0)
    finest = max(useful)
    side = math.sqrt(float(np.mean(tiling.area_m2()))) * 2 ** (len(fractions) - 1 - finest)
    return FinestCell(side, 2**finest)
