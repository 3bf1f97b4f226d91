r"""Encodings of levels of the quadtree: a coordinate for every node, or count-min sketches in which nodes share them.

Nodes where nobody can be get no coordinate. They are public and travel as the runs of sites that can hold somebody, so
the record stays small where it describes a million nodes.

Row r of level l's sketch counts node x at

.. math:: h_{l,r}(x) = \left\lfloor w\, \frac{\lfloor (a x + b) / 2^{32} \rfloor \bmod 2^{32}}{2^{32}} \right\rfloor,
    \qquad (a, b) = \mathrm{BLAKE2b}_{key}(l, r)

where: x is a Morton code (or any number) below :math:`2^{32}`, w is ``width``, a and b are 64-bit words. For random a
and b, the inner numbers of two nodes are independent and uniform, so the nodes share a coordinate with probability at
most :math:`1 / w + 2^{-32}`. The key is public: the functions need to be spread out, not secret.

Source: Cormode, Muthukrishnan (2005) for the sketch; Dietzfelbinger (1996), Theorem 1, for the multiply-shift family.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.encodings import Encoding
from mapveil_client.errors import check
from mapveil_client.morton import MAX_BITS

WordArray = npt.NDArray[np.uint64]

_DEEPEST_SKETCH = 15
_HALF = np.uint64(32)


class _Nodes(NamedTuple):
    """The nodes of one level that have coordinates, as runs of codes."""

    first: IntArray  # ascending
    stop: IntArray
    start: IntArray  # the coordinate of each run's first node
    size: int


def level_members(members: IntArray) -> tuple[IntArray, ...]:
    """Number of cells in each node of each level, the root's first, from the ``members`` of each site in Morton order.

    Examples
    --------
    >>> [level.tolist() for level in level_members(np.array([1, 0, 2, 1]))]
    [[4], [1, 0, 2, 1]]
    """
    levels = [members]
    while levels[-1].size > 1:
        levels.append(levels[-1].reshape(-1, 4).sum(axis=1))
    return tuple(reversed(levels))


def _check_levels(depth: int, levels: Sequence[int], deepest: int) -> None:
    check(0 <= depth <= deepest, "depth", f"from 0 to {deepest}", depth)
    good = bool(levels) and all(0 <= level <= depth for level in levels)
    check(good, "levels", f"some of 0 to {depth}", levels)


@dataclass(frozen=True, eq=False)
class LevelEncoding(Encoding):
    """The nodes of some levels, level after level in the order given, each level in Morton order.

    A location where nobody can be counts nowhere.

    Parameters
    ----------
    depth : int
        Of the raster of sites, 0 .. 31.
    levels : tuple of int
        Which, each from 0 (the root) to ``depth``; at least one.
    runs : ndarray of int64, shape (runs, 2)
        The first site and the end of each run of sites that can hold somebody, ascending and disjoint.

    Raises
    ------
    ParameterError
        A level or a run is out of range.

    Examples
    --------
    >>> encoding = LevelEncoding.of_members(2, (1, 2), np.array([1] * 6 + [0] * 10))
    >>> encoding.length
    8
    >>> encoding.positions(np.array([5, 6, -1])).tolist()
    [[1, 7], [-1, -1], [-1, -1]]
    """

    kind = "levels"
    depth: int
    levels: tuple[int, ...]
    runs: IntArray

    def __post_init__(self) -> None:
        _check_levels(self.depth, self.levels, MAX_BITS)
        edges = self.runs.reshape(-1)
        length, sites = np.diff(edges), 1 << (2 * self.depth)
        good = self.runs.shape == (edges.size // 2, 2) and edges.size > 0
        good = good and edges.min() >= 0 and edges.max() <= sites  # all of them, or a difference could wrap
        good = good and bool((length[::2] > 0).all() and (length >= 0).all())
        check(good, "runs", f"ascending and disjoint, from 0 to {sites}", self.runs)

    @classmethod
    def of_members(cls, depth: int, levels: Sequence[int], members: IntArray) -> LevelEncoding:
        """The encoding of sites that hold any of ``members`` (cells per site, in Morton order)."""
        edges = np.flatnonzero(np.diff(members > 0, prepend=False, append=False))
        return cls(depth, tuple(levels), edges.reshape(-1, 2))

    @cached_property
    def _nodes(self) -> tuple[_Nodes, ...]:
        """Of each level in turn."""
        made, start = [], 0
        for level in self.levels:
            up = 2 * (self.depth - level)
            first, stop = self.runs[:, 0] >> up, ((self.runs[:, 1] - 1) >> up) + 1
            # Runs that meet in a node are one.
            new = np.flatnonzero(np.concatenate([[True], first[1:] >= stop[:-1]]))
            first, stop = first[new], stop[np.append(new[1:], stop.size) - 1]
            running = np.cumsum(stop - first)
            made.append(_Nodes(first, stop, start + running - (stop - first), int(running[-1])))
            start += int(running[-1])
        return tuple(made)

    @property
    def length(self) -> int:
        """Number of nodes of all levels."""
        return sum(nodes.size for nodes in self._nodes)

    @property
    def copies(self) -> int:
        """Number of levels."""
        return len(self.levels)

    def positions(self, sites: npt.NDArray[np.integer], labels: IntArray | None = None) -> IntArray:
        """The node of each level; see :class:`mapveil_client.encodings.Encoding`."""
        position = np.empty((sites.size, self.copies), dtype=np.int64)
        at = np.searchsorted(self.runs[:, 0], sites, side="right") - 1
        known = (at >= 0) & (sites < self.runs[at, 1])
        for column, (level, nodes) in enumerate(zip(self.levels, self._nodes, strict=True)):
            code = np.where(known, sites, self.runs[0, 0]).astype(np.int64) >> (2 * (self.depth - level))
            run = np.searchsorted(nodes.first, code, side="right") - 1
            position[:, column] = np.where(known, nodes.start[run] + code - nodes.first[run], -1)
        return position

    def coordinates(self, index: int) -> slice:
        """The coordinates of the nodes of ``levels[index]`` in the vector. Run by: the server."""
        nodes = self._nodes[index]
        return slice(int(nodes.start[0]), int(nodes.start[0]) + nodes.size)

    def codes(self, index: int) -> IntArray:
        """The Morton codes of the nodes of ``levels[index]`` that have coordinates, ascending."""
        nodes = self._nodes[index]
        length = nodes.stop - nodes.first
        offset = np.repeat(nodes.first - (np.cumsum(length) - length), length)
        return np.asarray(np.arange(nodes.size) + offset)

    def fill(self, index: int, values: FloatArray) -> FloatArray:
        """The sums of all nodes of ``levels[index]``, 0 where nobody can be, shape (4**level,). Run by: the server."""
        filled = np.zeros(1 << (2 * self.levels[index]))
        filled[self.codes(index)] = values[self.coordinates(index)]
        return filled

    def groups(self, index: int) -> IntArray:
        """The node of ``levels[index]`` that each site lies in, numbered along it; -1 for none, shape (4**depth,)."""
        level = self.levels[index]
        number = np.full(1 << (2 * level), -1, dtype=np.int64)
        codes = self.codes(index)
        number[codes] = np.arange(codes.size)
        return np.asarray(number.repeat(1 << (2 * (self.depth - level))))


@dataclass(frozen=True)
class SketchEncoding(Encoding):
    """One sketch of ``rows`` x ``width`` coordinates for each level: row after row, level after level.

    Parameters
    ----------
    depth : int
        Of the raster of sites, 0 .. 15.
    levels : tuple of int
        Which, each from 0 to ``depth``; at least one.
    width : int
        Coordinates of a row, 1 .. 2**31.
    rows : int
        Rows of a sketch (the paper's depth), at least 1.
    key : str
        Names the hash functions; public, at most 64 bytes.

    Raises
    ------
    ParameterError
        A number is out of range.
    """

    kind = "sketch"
    depth: int
    levels: tuple[int, ...]
    width: int
    rows: int
    key: str

    def __post_init__(self) -> None:
        _check_levels(self.depth, self.levels, _DEEPEST_SKETCH)
        check(1 <= self.width <= 1 << 31, "width", "from 1 to 2^31", self.width)
        check(1 <= self.rows <= 1 << 15, "rows", "from 1 to 2^15", self.rows)
        check(len(self.key.encode()) <= hashlib.blake2b.MAX_KEY_SIZE, "key", "at most 64 bytes", self.key)

    @property
    def length(self) -> int:
        """Coordinates of all sketches."""
        return len(self.levels) * self.rows * self.width

    @property
    def copies(self) -> int:
        """One coordinate in every row of every level."""
        return len(self.levels) * self.rows

    @cached_property
    def _words(self) -> tuple[WordArray, WordArray]:
        """a and b of every row of every level, each of shape (levels, rows)."""
        drawn = b"".join(
            hashlib.blake2b(
                level.to_bytes(4, "little") + row.to_bytes(4, "little"), key=self.key.encode(), digest_size=16
            ).digest()
            for level in self.levels
            for row in range(self.rows)
        )
        words = np.frombuffer(drawn, dtype="<u8").astype(np.uint64).reshape(len(self.levels), self.rows, 2)
        return words[..., 0], words[..., 1]

    def columns(self, index: int, row: int, nodes: npt.NDArray[np.integer]) -> IntArray:
        """The column of each node of ``levels[index]`` in one row of its sketch, same shape.

        Run by: the client for its own nodes, the server for all.
        """
        a, b = (words[index, row] for words in self._words)
        spread = (nodes.astype(np.uint64) * a + b) >> _HALF
        return np.asarray((spread * np.uint64(self.width)) >> _HALF, dtype=np.int64)

    def positions(self, sites: npt.NDArray[np.integer], labels: IntArray | None = None) -> IntArray:
        """A coordinate in every row of every level; see :class:`mapveil_client.encodings.Encoding`."""
        position = np.empty((sites.size, self.copies), dtype=np.int64)
        known = sites >= 0
        inside = np.where(known, sites, 0)
        for index, level in enumerate(self.levels):
            nodes = inside >> (2 * (self.depth - level))
            for row in range(self.rows):
                copy = index * self.rows + row
                position[:, copy] = copy * self.width + self.columns(index, row, nodes)
        position[~known] = -1
        return position
