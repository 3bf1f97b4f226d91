"""Edges between the rows or columns of a raster: the definition of which one a location lies in.

A projection's formula rounds differently from one machine and library to another, and need not be monotone in the last
bits. So the formula only says where an edge is, once: the least coordinate of a line, found by bisection to the last
bit. A location is then compared with edges, which every engine does alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from mapveil_client.arrays import FloatArray, IntArray

MOST_KEPT: Final = 1 << 16
"""Lines whose edges are kept in a table, of 512 KiB; the edges of more are found where a location is near one."""

_NEAR: Final = 2.0**-44
"""Distance from an edge, in parts of the largest coordinate, beyond which rounding cannot move a location across:
some 250 units in the last place, where the formulas lose fewer than ten."""

_SIGN: Final = np.int64(np.iinfo(np.int64).min)


@dataclass(frozen=True, eq=False)
class CellEdges:
    """The edges of consecutive lines 0 .. count - 1 along one coordinate, which grows with the line.

    Parameters
    ----------
    low, high : float
        Range of the coordinate.
    count : int
        Number of lines, at least 1.
    formula : callable
        Line of each coordinate but for rounding, int64 from 0 to count - 1.

    Examples
    --------
    >>> thirds = CellEdges(0.0, 1.0, 3, lambda x: np.clip(x * 3, 0, 2).astype(np.int64))
    >>> thirds.locate(np.array([0.0, np.nextafter(1 / 3, 0), 1 / 3, 1.0])).tolist()
    [0, 0, 1, 2]
    """

    low: float
    high: float
    count: int
    formula: Callable[[FloatArray], IntArray]

    def locate(self, values: FloatArray) -> IntArray:
        """Line of each coordinate, int64: the number of edges that are not above it."""
        if self.count <= MOST_KEPT:
            return np.searchsorted(self._kept, values, side="right").astype(np.int64, copy=False)
        line = self.formula(values)
        step = _NEAR * max(abs(self.low), abs(self.high))
        near = np.flatnonzero(self.formula(values - step) != self.formula(values + step))
        if near.size:
            line[near] = self._compared(line[near], values[near])
        return line

    def first(self, lines: IntArray) -> FloatArray:
        """Least coordinate of each line from 1 on; infinite where the range ends before the line."""
        below, at = (np.full(lines.shape, _ordered(edge), dtype=np.int64) for edge in (self.low, self.high))
        # The line of "below" is a lower one, the line of "at" is not, whatever the formula does between them.
        for _ in range(64):
            if not (at - 1 > below).any():
                break
            middle = (below >> 1) + (at >> 1) + (below & at & 1)
            reached = self.formula(_float(middle)) >= lines
            at, below = np.where(reached, middle, at), np.where(reached, below, middle)
        found = np.where(self.formula(_float(at)) >= lines, _float(at), np.inf)
        return np.where(self.formula(np.full(lines.shape, self.low)) >= lines, self.low, found)

    @cached_property
    def _kept(self) -> FloatArray:
        # Of neighbours that the formula takes in the wrong order, the later one may seem to begin first.
        return np.maximum.accumulate(self.first(np.arange(1, self.count, dtype=np.int64)))

    def _compared(self, lines: IntArray, values: FloatArray) -> IntArray:
        """The lines of coordinates near an edge, from guesses."""
        while True:
            asked, of = np.unique(np.concatenate([lines, lines + 1]), return_inverse=True)
            edges = np.where(asked > 0, self.first(asked), -np.inf)
            edges[asked >= self.count] = np.inf
            begin, end = edges[of].reshape(2, -1)
            move = (values >= end).astype(np.int64) - (values < begin)
            if not move.any():
                return lines
            lines = lines + move


def _ordered(value: float) -> np.int64:
    """An integer for a float, in the order of floats and without gaps."""
    bits = np.float64(value).view(np.int64)
    return np.int64(bits if bits >= 0 else _SIGN - bits)


def _float(ordered: IntArray) -> FloatArray:
    """Floats of the integers of :func:`_ordered`."""
    return np.where(ordered < 0, _SIGN - ordered, ordered).view(np.float64)
