"""The noisy sums behind flows: trips from and to every zone, and trips in blocks of origins and destinations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mapveil.maps.measurement import Measurement
from mapveil.maps.proportion_map import LabelMeasurement
from mapveil_client.arrays import BoolArray, FloatArray, IntArray
from mapveil_client.morton import PrefixTree, deinterleave, interleave


@dataclass(frozen=True, eq=False)
class FlowSums:
    """Noisy sums of trips; they are part of what epsilon paid for.

    Zones lie on a line of ``2**depth`` places (:mod:`mapveil.geo.zone_order`); a pair of zones is a site of the square
    raster whose rows are the places of origins and whose columns are those of destinations.

    Parameters
    ----------
    place : ndarray of int64, shape (zones,)
        Place of each zone, -1 where no trip can begin or end.
    leaves : PrefixTree
        The finest blocks, disjoint nodes of the raster that hold every pair.
    blocks : tuple of Measurement
        Noisy sums of groups of leaves, the coarsest first; ``groups`` has shape (leaves,).
    margins : tuple of Measurement
        Trips from every zone, then trips to every zone, where they were measured; ``groups`` has shape (zones,).
    """

    place: IntArray
    leaves: PrefixTree
    blocks: tuple[Measurement, ...]
    margins: tuple[Measurement, ...] = ()

    def of_window(self, window: int) -> FlowSums:
        """Of sums by label, those of one label."""
        parts = (tuple(_of_label(each, window) for each in part) for part in (self.blocks, self.margins))
        return FlowSums(self.place, self.leaves, *parts)

    @property
    def held(self) -> BoolArray:
        """The places that have a zone, shape (2**depth,)."""
        found = np.zeros(1 << self.leaves.depth, dtype=np.bool_)
        found[self.place[self.place >= 0]] = True
        return found

    def pairs_of(self, origins: BoolArray, destinations: BoolArray) -> FloatArray:
        """Number of pairs of zones in each leaf, from some places to some others (of shape (2**depth,)); (leaves,)."""
        row, col = deinterleave(self.leaves.code)
        down = self.leaves.depth - self.leaves.level
        numbers = []
        for first, held in ((row << down, origins), (col << down, destinations)):
            running = np.concatenate([[0], np.cumsum(held)])
            numbers.append(running[first + (1 << down)] - running[first])
        return np.asarray(numbers[0] * numbers[1], dtype=np.float64)

    @cached_property
    def pairs(self) -> FloatArray:
        """Number of pairs of zones in each leaf, shape (leaves,)."""
        return self.pairs_of(self.held, self.held)

    def leaf_of(self, origin: IntArray, destination: IntArray) -> IntArray:
        """The leaf of each pair of zones."""
        return self.leaves.owner(interleave(self.place[origin], self.place[destination]))


def _of_label(measurement: Measurement, label: int) -> Measurement:
    return measurement.of_label(label) if isinstance(measurement, LabelMeasurement) else measurement
