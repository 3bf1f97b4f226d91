"""One coordinate for every node of some levels of the quadtree: a place counts once at each level.

Nodes where nobody can be get no coordinate. Which those are is public and travels as the runs of sites that can hold
somebody, so the record stays small where it describes a million nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import ParameterError

_DEEPEST = 31


class _Nodes(NamedTuple):
    """The nodes of one level that have coordinates, as runs of codes."""

    first: IntArray  # ascending
    stop: IntArray
    start: IntArray  # the coordinate of each run's first node
    size: int


def level_members(members: IntArray) -> tuple[IntArray, ...]:
    """How many cells that can hold anybody lie in each node of each level, the root's first.

    Parameters
    ----------
    members : ndarray of int64, shape (4**depth,)
        Cells per site, in Morton order.

    Examples
    --------
    >>> [level.tolist() for level in level_members(np.array([1, 0, 2, 1]))]
    [[4], [1, 0, 2, 1]]
    """
    levels = [members]
    while levels[-1].size > 1:
        levels.append(levels[-1].reshape(-1, 4).sum(axis=1))
    return tuple(reversed(levels))


@dataclass(frozen=True, eq=False)
class LevelEncoding:
    """The nodes of some levels, level after level in the order given, each level in Morton order.

    A place where nobody can be counts nowhere.

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

    depth: int
    levels: tuple[int, ...]
    runs: IntArray

    def __post_init__(self) -> None:
        if not 0 <= self.depth <= _DEEPEST:
            raise ParameterError(f"depth is {self.depth!r}; 0 to {_DEEPEST} is accepted")
        if not self.levels or not all(0 <= level <= self.depth for level in self.levels):
            raise ParameterError(f"levels are {self.levels!r}; some of 0 to {self.depth} are accepted")
        edges = self.runs.reshape(-1)
        if (
            self.runs.shape != (edges.size // 2, 2)
            or not edges.size
            or edges[0] < 0
            or edges[-1] > 1 << (2 * self.depth)
            or (np.diff(edges) <= 0)[::2].any()
            or (np.diff(edges) < 0).any()
        ):
            raise ParameterError(
                f"the runs of sites overlap, are out of order or leave 0 to {1 << (2 * self.depth)}; "
                "ascending and disjoint ones are accepted"
            )

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
        """Where the nodes of ``levels[index]`` lie in the vector. Run by: the server."""
        nodes = self._nodes[index]
        return slice(int(nodes.start[0]), int(nodes.start[0]) + nodes.size)

    def codes(self, index: int) -> IntArray:
        """The Morton codes of the nodes of ``levels[index]`` that have coordinates, ascending."""
        nodes = self._nodes[index]
        length = nodes.stop - nodes.first
        offset = np.repeat(nodes.first - (np.cumsum(length) - length), length)
        return np.asarray(np.arange(nodes.size) + offset)

    def fill(self, index: int, values: FloatArray) -> FloatArray:
        """The sums of all nodes of ``levels[index]``, 0 where nobody can be, shape (4**level,). Run by: the server.

        Parameters
        ----------
        index : int
            Which of ``levels``.
        values : ndarray of float64, shape (length,)
            The vector's sums.
        """
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

    def to_dict(self) -> dict[str, Any]:
        """A record of plain values."""
        return {
            "kind": "levels",
            "depth": self.depth,
            "levels": list(self.levels),
            "runs": self.runs.tolist(),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> LevelEncoding:
        """Read back what :meth:`to_dict` wrote."""
        return cls(record["depth"], tuple(record["levels"]), np.asarray(record["runs"], dtype=np.int64))
