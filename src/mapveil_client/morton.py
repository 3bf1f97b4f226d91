"""Morton codes: two coordinates as one integer whose prefixes are the nodes of a quadtree.

Digit k of a code (base 4, from the least significant) is ``2 * y_k + x_k`` for bits k of the column x and the
row y, as in quadkeys. A node of level j is a code below ``4**j``, and its subtree at level d is the interval
``[node << 2 (d - j), (node + 1) << 2 (d - j))``.

A prefix tree is a set of nodes, orphans among them. It cuts the sites into segments, each owned by the deepest node
over it: the longest matching prefix of Bagdasaryan et al. (2022), sections 5.3 and 5.6.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import BoolArray, FloatArray, IntArray
from mapveil_client.errors import ParameterError, check

WordArray = npt.NDArray[np.uint64]

MAX_BITS: Final = 31
"""Bits per coordinate: codes stay below 2**62, so they are also exact as int64."""

# Blocks of 2**j bits, with as many zeros after each: spreading goes down the list, gathering up.
_BLOCKS: Final = tuple(
    (np.uint64(shift), np.uint64(spread), np.uint64(gathered))
    for shift, spread, gathered in (
        (16, 0x0000FFFF0000FFFF, 0x00000000FFFFFFFF),
        (8, 0x00FF00FF00FF00FF, 0x0000FFFF0000FFFF),
        (4, 0x0F0F0F0F0F0F0F0F, 0x00FF00FF00FF00FF),
        (2, 0x3333333333333333, 0x0F0F0F0F0F0F0F0F),
        (1, 0x5555555555555555, 0x3333333333333333),
    )
)
_ONE: Final = np.uint64(1)
_EVEN: Final = np.uint64(0x5555555555555555)
_CHUNK: Final = 1 << 15  # words of a chunk and its scratch stay in the cache


class RowCol(NamedTuple):
    """Rows (from the north) and columns (from the west), int64."""

    row: IntArray
    col: IntArray


def interleave(row: IntArray, col: IntArray) -> IntArray:
    """The Morton codes of rows and columns (0 .. 2**31 - 1), same shape.

    Raises
    ------
    ParameterError
        A coordinate is out of range.

    Examples
    --------
    >>> interleave(np.array([0, 1, 1]), np.array([1, 0, 1])).tolist()
    [1, 2, 3]
    """
    row, col = np.asarray(row, dtype=np.int64), np.asarray(col, dtype=np.int64)
    code = np.empty(col.shape, dtype=np.uint64)
    out, flat_row, flat_col = code.reshape(-1), row.reshape(-1), col.reshape(-1)
    spread_row = np.empty(min(_CHUNK, out.size), dtype=np.uint64)
    scratch = np.empty_like(spread_row)
    for start in range(0, out.size, _CHUNK):
        x = out[start : start + _CHUNK]
        y = spread_row[: x.size]
        x[:] = flat_col[start : start + _CHUNK]
        y[:] = flat_row[start : start + _CHUNK]
        # The bits of this number bound both; negatives are huge.
        largest = int(np.bitwise_or(x, y, out=scratch[: x.size]).max())
        if largest >> MAX_BITS:
            raise ParameterError(f"a row or column is negative or at least 2**{MAX_BITS}")
        _spread(x, scratch[: x.size], largest.bit_length())
        _spread(y, scratch[: x.size], largest.bit_length())
        y <<= _ONE
        x |= y
    return code.view(np.int64)


def deinterleave(code: IntArray) -> RowCol:
    """The rows and columns of Morton codes (0 .. 2**62 - 1), the inverse of :func:`interleave`.

    Examples
    --------
    >>> deinterleave(np.array([1, 2, 3])).col.tolist()
    [1, 0, 1]
    """
    code = np.ascontiguousarray(code, dtype=np.int64)
    row, col = np.empty(code.shape, dtype=np.uint64), np.empty(code.shape, dtype=np.uint64)
    flat, rows, cols = code.reshape(-1).view(np.uint64), row.reshape(-1), col.reshape(-1)
    scratch = np.empty(min(_CHUNK, flat.size), dtype=np.uint64)
    for start in range(0, flat.size, _CHUNK):
        word = flat[start : start + _CHUNK]
        x, y = cols[start : start + _CHUNK], rows[start : start + _CHUNK]
        bits = (int(word.max()).bit_length() + 1) // 2
        np.bitwise_and(word, _EVEN, out=x)
        np.right_shift(word, _ONE, out=y)
        y &= _EVEN
        _gather(x, scratch[: x.size], bits)
        _gather(y, scratch[: x.size], bits)
    return RowCol(row.view(np.int64), col.view(np.int64))


def children(code: IntArray) -> IntArray:
    """The four nodes one level down (north-west, north-east, south-west, south-east), shape (n, 4)."""
    return (np.asarray(code, dtype=np.int64)[..., None] << 2) + np.arange(4)


def _spread(words: WordArray, scratch: WordArray, bits: int) -> None:
    """Put a zero before every bit, in place."""
    for shift, spread, _ in _BLOCKS:
        if bits > shift:
            np.left_shift(words, shift, out=scratch)
            np.bitwise_or(words, scratch, out=words)
            np.bitwise_and(words, spread, out=words)


def _gather(words: WordArray, scratch: WordArray, bits: int) -> None:
    """Drop every second bit, in place."""
    for shift, _, gathered in reversed(_BLOCKS):
        if bits > shift:
            np.right_shift(words, shift, out=scratch)
            np.bitwise_or(words, scratch, out=words)
            np.bitwise_and(words, gathered, out=words)


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
        Level of each node, 0 (the root) .. depth.
    code : ndarray of int64, shape (nodes,)
        Its Morton code at that level. Nodes are in the order of their first site, coarse before fine, each once.

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
        check(0 <= depth <= MAX_BITS, "depth", f"0 to {MAX_BITS}", depth)
        check(levels.shape == codes.shape, "levels and codes", "as many", (levels.shape, codes.shape))
        check(levels.ndim == 1, "levels", "a list of numbers", levels.shape)
        check(bool(((levels >= 0) & (levels <= depth)).all()), "levels", f"0 to {depth}", levels)
        fits = (codes >= 0) & (codes >> (2 * levels) == 0)
        check(bool(fits.all()), "codes", "from 0 to below 4**level", codes)
        first = codes << (2 * (depth - levels))
        if bool((np.diff(first) > 0).all()):
            return cls(depth, levels, codes)
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
    def _is_whole_level(self) -> bool:
        """Whether the nodes are all those of one level, each of which is its own index."""
        return (
            self.size > 0
            and self.size == 1 << (2 * int(self.level[0]))
            and bool((self.level == self.level[0]).all())
        )

    @cached_property
    def _first(self) -> IntArray:
        return self.code << (2 * (self.depth - self.level))

    @cached_property
    def _segments(self) -> _Segments:
        total = 1 << (2 * self.depth)
        stop = (self.code + 1) << (2 * (self.depth - self.level))
        starts = np.sort(np.concatenate([[0], self._first, stop[stop < total]]), kind="stable")
        starts = starts[np.diff(starts, prepend=-1) > 0]  # np.unique hashes: many times slower here
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
        """The deepest node over each site (Morton codes at ``depth``), -1 for none; any shape. Run by: each client."""
        total = 1 << (2 * self.depth)
        if self._is_whole_level:
            return np.asarray(sites >> (2 * (self.depth - int(self.level[0]))), dtype=np.int64)
        if sites.size > 1024 and total <= 8 * sites.size and total <= 1 << 26:
            return np.asarray(self._table[sites], dtype=np.int64)
        at = np.searchsorted(self._segments.starts, sites, side="right") - 1
        return np.asarray(self._segments.owner[at])

    def sites_owned(self, members: IntArray | None = None) -> IntArray:
        """Number of sites that each node owns, shape (nodes,); of cells, given ``members`` per site in Morton order."""
        segments = self._segments
        weight = segments.sites
        if members is not None:
            running = np.concatenate([[0], np.cumsum(members)])
            weight = running[segments.starts + segments.sites] - running[segments.starts]
        held = segments.owner >= 0
        # Integers: a deep raster has more sites than a float counts exactly.
        owned = np.zeros(self.size, dtype=np.int64)
        np.add.at(owned, segments.owner[held], weight[held])
        return owned

    def spread(self, values: FloatArray, members: IntArray | None = None) -> FloatArray:
        r"""Divide each node's value evenly over the sites that it owns, in Morton order, shape (4**depth,).

        .. math:: f(x) = v_i / a_i, \qquad i = \operatorname{owner}(x)

        where: v is ``values`` (one per node), :math:`a_i` the node's own area: ``sites_owned``. With ``members`` a
        site's fraction is in proportion to its members. Deviation: the denominator is an area, not a side as in the
        published code. Run by: the server.
        """
        area = self.sites_owned(members)
        density = np.append(np.divide(values, area, out=np.zeros(self.size), where=area > 0), 0.0)
        filled = np.repeat(density[self._segments.owner], self._segments.sites)
        return filled if members is None else filled * members

    def owning(self, members: IntArray) -> PrefixTree:
        """The nodes that own a site with ``members``."""
        return self.take(self.sites_owned(members) > 0)

    def take(self, kept: BoolArray) -> PrefixTree:
        """The nodes that are ``kept``, shape (nodes,); the sites of the others fall to the node above."""
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
