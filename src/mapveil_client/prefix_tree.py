"""A prefix tree of the map: nodes with any number of children, orphans among them.

A node is a Morton prefix and its subtree an interval of sites, so a set of nodes cuts the sites into segments,
each owned by the deepest node over it: the longest matching prefix of Bagdasaryan et al. (2022), sections 5.3
and 5.6. A node stands for what its descendants in the tree leave over.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import BoolArray, FloatArray, IntArray
from mapveil_client.errors import ParameterError
from mapveil_client.morton import children


class _Segments(NamedTuple):
    starts: IntArray  # first site of each segment, ascending, from 0
    owner: IntArray  # node of each segment, -1 for none
    sites: IntArray  # number of sites


@dataclass(frozen=True, eq=False)
class PrefixTree:
    """A set of nodes over the sites of a square raster of 2**depth rows and columns.

    Parameters
    ----------
    depth : int
        Levels below the root, 0 .. 31.
    level : ndarray of int64, shape (nodes,)
        How often the root is quartered for each node, 0 .. depth.
    code : ndarray of int64, shape (nodes,)
        Its Morton code at that level. Nodes are kept in the order of their first site, coarse before fine; each
        appears once.

    Raises
    ------
    ParameterError
        A level or a code is out of range.

    Examples
    --------
    >>> tree = PrefixTree.of_nodes(2, [0, 1, 2], [0, 3, 12])
    >>> tree.sites_owned().tolist()
    [12, 3, 1]
    >>> tree.owner(np.array([0, 12, 13])).tolist()
    [0, 2, 1]
    """

    depth: int
    level: IntArray
    code: IntArray

    @classmethod
    def of_nodes(cls, depth: int, level: npt.ArrayLike, code: npt.ArrayLike) -> PrefixTree:
        """The tree of these nodes, in any order, repeated or not."""
        levels, codes = np.asarray(level, dtype=np.int64), np.asarray(code, dtype=np.int64)
        if levels.shape != codes.shape or not 0 <= depth <= 31:
            raise ParameterError(
                f"{levels.shape} levels, {codes.shape} codes, depth {depth}; as many, 0 to 31 accepted"
            )
        if levels.size and (int(levels.min()) < 0 or int(levels.max()) > depth):
            raise ParameterError(
                f"nodes of levels {levels.min()} to {levels.max()}; 0 to {depth} are accepted"
            )
        if codes.size and (int(codes.min()) < 0 or bool((codes >> (2 * levels) != 0).any())):
            raise ParameterError("a node's code is negative or too large for its level")
        first = codes << (2 * (depth - levels))
        order = np.lexsort((levels, first))
        first, levels, codes = first[order], levels[order], codes[order]
        new = np.ones(order.size, dtype=np.bool_)
        new[1:] = (np.diff(first) != 0) | (np.diff(levels) != 0)
        return cls(depth, levels[new], codes[new])

    @classmethod
    def uniform(cls, depth: int, level: int) -> PrefixTree:
        """All nodes of one level."""
        codes = np.arange(1 << (2 * level), dtype=np.int64)
        return cls.of_nodes(depth, np.full(codes.shape, level), codes)

    @property
    def size(self) -> int:
        """Number of nodes."""
        return self.level.size

    @cached_property
    def _first(self) -> IntArray:
        return self.code << (2 * (self.depth - self.level))

    @cached_property
    def _segments(self) -> _Segments:
        total = 1 << (2 * self.depth)
        stop = (self.code + 1) << (2 * (self.depth - self.level))
        starts = np.sort(np.concatenate([[0], self._first, stop[stop < total]]), kind="stable")
        starts = starts[
            np.diff(starts, prepend=-1) > 0
        ]  # np.unique hashes, and that is many times slower here
        owner = np.full(starts.shape, -1, dtype=np.int64)
        for level in range(self.depth + 1):  # nodes of one level are disjoint; deeper ones paint over
            nodes = np.flatnonzero(self.level == level)
            low = np.searchsorted(starts, self._first[nodes])
            count = np.searchsorted(starts, stop[nodes]) - low
            offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
            owner[np.repeat(low, count) + offset] = np.repeat(nodes, count)
        return _Segments(starts, owner, np.diff(starts, append=total))

    @cached_property
    def _table(self) -> npt.NDArray[np.int32]:
        """The owner of every site, shape (4**depth,)."""
        return np.repeat(self._segments.owner.astype(np.int32), self._segments.sites)

    def owner(self, sites: npt.NDArray[np.integer]) -> IntArray:
        """The deepest node over each site (Morton codes at ``depth``), -1 where there is none; any shape.

        Run by: each client for its own places, with the tree the server sent.
        """
        total = 1 << (2 * self.depth)
        if sites.size > 1024 and total <= 8 * sites.size and total <= 1 << 26:
            return np.asarray(self._table[sites], dtype=np.int64)
        at = np.searchsorted(self._segments.starts, sites, side="right") - 1
        return np.asarray(self._segments.owner[at])

    def sites_owned(self, members: IntArray | None = None) -> IntArray:
        """How many sites each node stands for, shape (nodes,); cells, given ``members`` per site in Morton order."""
        segments = self._segments
        weight = segments.sites
        if members is not None:
            running = np.concatenate([[0], np.cumsum(members)])
            weight = running[segments.starts + segments.sites] - running[segments.starts]
        held = segments.owner >= 0
        owned = np.zeros(
            self.size, dtype=np.int64
        )  # a deep raster has more sites than a float counts exactly
        np.add.at(owned, segments.owner[held], weight[held])
        return owned

    def spread(self, values: FloatArray, members: IntArray | None = None) -> FloatArray:
        r"""Divide each node's value evenly over the sites it stands for, in Morton order, shape (4**depth,).

        .. math:: f(x) = v_i / a_i, \qquad i = \operatorname{owner}(x)

        where: v is ``values`` (one per node), :math:`a_i` the node's own area: ``sites_owned``. With ``members`` a
        site's part is in proportion to its members. The denominator is an area, not a side as in the
        published code (see the notes on deviations). Run by: the server.
        """
        area = self.sites_owned(members)
        density = np.append(np.divide(values, area, out=np.zeros(self.size), where=area > 0), 0.0)
        filled = np.repeat(density[self._segments.owner], self._segments.sites)
        return filled if members is None else filled * members

    def owning(self, members: IntArray) -> PrefixTree:
        """The nodes that stand for a site with ``members``; whom each of these stands for does not change."""
        return self.take(self.sites_owned(members) > 0)

    def take(self, kept: BoolArray) -> PrefixTree:
        """The nodes that are ``kept``, shape (nodes,); what the others stood for falls to the node above."""
        return PrefixTree(self.depth, self.level[kept], self.code[kept])

    def split(self, chosen: BoolArray) -> PrefixTree:
        """The tree with all four children of each ``chosen`` node, shape (nodes,), in it too.

        Raises
        ------
        ParameterError
            A chosen node is a site, which cannot be divided.
        """
        level, code = self.level[chosen] + 1, children(self.code[chosen])
        return PrefixTree.of_nodes(
            self.depth,
            np.concatenate([self.level, np.repeat(level, 4)]),
            np.concatenate([self.code, code.reshape(-1)]),
        )

    def child_count(self) -> IntArray:
        """How many of each node's four children are nodes too, shape (nodes,)."""
        inner = np.flatnonzero(self.level > 0)
        parents = self.find(self.level[inner] - 1, self.code[inner] >> 2)
        return np.bincount(parents[parents >= 0], minlength=self.size)

    def find(self, level: IntArray, code: IntArray) -> IntArray:
        """The index of each node asked for, -1 where it is not in the tree."""
        mine = self._key(self.level, self.code)
        order = np.argsort(mine)
        asked = self._key(level, code)
        at = np.minimum(np.searchsorted(mine, asked, sorter=order), max(self.size - 1, 0))
        if self.size == 0:
            return np.full(np.shape(level), -1, dtype=np.int64)
        found = order[at]
        return np.where(mine[found] == asked, found, -1)

    @staticmethod
    def _key(level: IntArray, code: IntArray) -> npt.NDArray[np.uint64]:
        # A leading one marks where the prefix begins, so prefixes of all levels differ.
        return (np.uint64(1) << (2 * level).astype(np.uint64)) | code.astype(np.uint64)
