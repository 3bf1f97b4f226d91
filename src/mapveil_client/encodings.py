"""Encodings of a location as coordinates of a vector: the counts that a query asks of clients.

An encoding is public and says nothing of anybody. Clients and server compute the same coordinates from it; it travels
as a small record (:func:`mapveil_client.announcement.read_encoding`).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import IntArray
from mapveil_client.errors import ParameterError, check
from mapveil_client.morton import MAX_BITS, PrefixTree, deinterleave


@dataclass(frozen=True, eq=False)
class Encoding(ABC):
    """A map from sites to coordinates; a dataclass, whose fields are those of its record."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def length(self) -> int:
        """Coordinates of the vector."""

    @property
    def copies(self) -> int:
        """Coordinates that one location counts at: a client's L1 norm is at most this many times its scale."""
        return 1

    @abstractmethod
    def positions(self, sites: npt.NDArray[np.integer], labels: IntArray | None = None) -> IntArray:
        """The coordinates of each location, shape (locations, copies), -1 for nowhere. Run by: each client."""

    def to_dict(self) -> dict[str, Any]:
        """A record of plain values, for the wire."""
        return {"kind": self.kind} | _record(self)


def _record(owner: Encoding | PrefixTree) -> dict[str, Any]:
    return {each.name: _plain(getattr(owner, each.name)) for each in fields(owner)}


def _plain(value: Any) -> Any:
    if isinstance(value, Encoding):
        return value.to_dict()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True, eq=False)
class NodeEncoding(Encoding):
    """One coordinate for each node of a prefix tree: a location counts at its deepest node, or nowhere.

    Parameters
    ----------
    tree : PrefixTree
        The nodes.
    """

    kind = "nodes"
    tree: PrefixTree

    @property
    def length(self) -> int:
        """Number of nodes."""
        return self.tree.size

    def positions(self, sites: npt.NDArray[np.integer], labels: IntArray | None = None) -> IntArray:
        """The owner of each site; see :class:`Encoding`."""
        outside = sites < 0
        if not outside.any():
            return self.tree.owner(sites)[:, None]
        return np.where(outside, -1, self.tree.owner(np.where(outside, 0, sites)))[:, None]

    def to_dict(self) -> dict[str, Any]:
        """A record of plain values, for the wire."""
        return {"kind": self.kind} | _record(self.tree)


@dataclass(frozen=True, eq=False)
class SiteEncoding(Encoding):
    """One coordinate for each site of a raster; devices of two operators share it, and no query is put in it.

    A label continues the Morton code of its site, ``site * 4**levels + label``: what is shared is a finer raster, whose
    report and whose proof are those of any other.

    Parameters
    ----------
    depth : int
        The raster has 4**depth sites.
    labels : int
        Number of labels that each site is divided by; a location whose label is outside counts nowhere.

    Examples
    --------
    >>> SiteEncoding(1, labels=3).positions(np.array([2, 0, 3]), np.array([1, 0, -1])).ravel().tolist()
    [9, 0, -1]
    """

    kind = "sites"
    depth: int
    labels: int = 1

    def __post_init__(self) -> None:
        check(self.labels >= 1, "labels", "a whole number of at least 1", self.labels)

    @property
    def levels(self) -> int:
        """Levels below a site that hold its labels, four to a level."""
        return ((self.labels - 1).bit_length() + 1) // 2

    @property
    def length(self) -> int:
        """Number of sites of the finer raster, of which labels may fill a part."""
        return 1 << (2 * (self.depth + self.levels))

    def positions(self, sites: npt.NDArray[np.integer], labels: IntArray | None = None) -> IntArray:
        """The site itself, or the one of its label; see :class:`Encoding`."""
        site = sites.astype(np.int64)
        if self.labels == 1:
            return site[:, None]
        if labels is None:
            raise ParameterError("sums by label need a label of every location; expected a table with labels")
        known = (site >= 0) & (labels >= 0) & (labels < self.labels)
        return np.where(known, (site << 2 * self.levels) | np.where(known, labels, 0), -1)[:, None]

    def divided(self, coordinates: IntArray) -> tuple[IntArray, IntArray]:
        """The site and the label of each coordinate."""
        below = 2 * self.levels
        return coordinates >> below, coordinates & ((1 << below) - 1)


@dataclass(frozen=True, eq=False)
class LabelEncoding(Encoding):
    """Each coordinate of another encoding divided by label: ``position * labels + label``.

    Source: Bagdasaryan et al. (2022), appendix B.

    Parameters
    ----------
    places : Encoding
        The encoding of a location.
    labels : int
        Number of labels, at least 1; a location whose label is outside counts nowhere.
    """

    kind = "labels"
    places: Encoding
    labels: int

    def __post_init__(self) -> None:
        check(self.labels >= 1, "labels", "a whole number of at least 1", self.labels)

    @property
    def length(self) -> int:
        """One coordinate for each coordinate and label."""
        return self.places.length * self.labels

    @property
    def copies(self) -> int:
        """As of the locations."""
        return self.places.copies

    def positions(self, sites: npt.NDArray[np.integer], labels: IntArray | None = None) -> IntArray:
        """Coordinates by label; see :class:`Encoding`."""
        if labels is None:
            raise ParameterError(
                "a query by label needs a label of every location; expected a table with labels"
            )
        position = self.places.positions(sites)
        known = (position >= 0) & ((labels >= 0) & (labels < self.labels))[:, None]
        return np.where(known, position * self.labels + labels[:, None], -1)


@dataclass(frozen=True)
class MarginsEncoding(Encoding):
    """The column and the row of a location: ``col``, then ``2**depth + row``.

    Parameters
    ----------
    depth : int
        Halvings of the raster, 0 .. 31: it has 2**depth rows and columns.

    Raises
    ------
    ParameterError
        ``depth`` is out of range.
    """

    kind = "margins"
    depth: int

    def __post_init__(self) -> None:
        check(0 <= self.depth <= MAX_BITS, "depth", f"from 0 to {MAX_BITS}", self.depth)

    @property
    def length(self) -> int:
        """Columns and rows."""
        return 2 << self.depth

    @property
    def copies(self) -> int:
        """A column and a row."""
        return 2

    def positions(self, sites: npt.NDArray[np.integer], labels: IntArray | None = None) -> IntArray:
        """See :class:`Encoding`."""
        row, col = deinterleave(np.maximum(sites, 0).astype(np.int64))
        both = np.stack([col, row + (1 << self.depth)], axis=1)
        return np.where((sites >= 0)[:, None], both, -1)


def even_edges(first: int, last: int, parts: int) -> IntArray:
    r"""Where to cut the sites from ``first`` up to, not including, ``last``, shape (parts + 1,).

    .. math:: e_i = f + \lceil i n / k \rceil

    where: f is ``first``, n the number of sites and k is ``parts`` (or n, where there are fewer sites).

    Examples
    --------
    >>> even_edges(0, 10, 4).tolist()
    [0, 3, 5, 8, 10]
    """
    length = last - first
    count = min(parts, length)
    return first - (-np.arange(count + 1, dtype=np.int64) * length // count)


class _Parts(NamedTuple):
    """The division of each block, all of shape (blocks,)."""

    down: IntArray
    across: IntArray
    start: IntArray  # the coordinate of its first part


@dataclass(frozen=True, eq=False)
class BlockEncoding(Encoding):
    """One coordinate for each part of each block: blocks row by row, and the parts of a block row by row.

    Blocks are rectangles of the raster, not always nodes of the quadtree: ten of them along 1,024 sites are 102 or 103
    sites wide. Source: the grids of Qardaji et al. (2013).

    A location in no block, or in one that is not asked about, counts nowhere.

    Parameters
    ----------
    depth : int
        Of the raster of sites, 0 .. 31.
    rows, columns : ndarray of int64, shapes (down + 1,) and (across + 1,)
        Edges of the blocks: the first row (column) of each, and the end of the last; ascending.
    parts : ndarray of int64, shape (down, across)
        Into how many parts each block is divided along either side, as far as it has sites; 0 asks nothing.

    Raises
    ------
    ParameterError
        An edge or a number is out of range, or there are not as many numbers as blocks.

    Examples
    --------
    >>> encoding = BlockEncoding(2, np.array([0, 3, 4]), np.array([0, 4]), np.array([[2], [0]]))
    >>> encoding.length
    4
    >>> encoding.positions(np.arange(16)).reshape(-1, 4).tolist()  # Morton order, quarter by quarter
    [[0, 0, 0, 0], [1, 1, 1, 1], [2, 2, -1, -1], [3, 3, -1, -1]]
    """

    kind = "blocks"
    depth: int
    rows: IntArray
    columns: IntArray
    parts: IntArray

    def __post_init__(self) -> None:
        check(0 <= self.depth <= MAX_BITS, "depth", f"from 0 to {MAX_BITS}", self.depth)
        for name, edges in (("rows", self.rows), ("columns", self.columns)):
            good = edges.ndim == 1 and edges.size >= 2 and edges.min() >= 0 and edges.max() <= 1 << self.depth
            good = good and bool((np.diff(edges) > 0).all())
            check(good, name, f"two or more edges from 0 to {1 << self.depth}, ascending", edges)
        shape = (self.rows.size - 1, self.columns.size - 1)
        good = self.parts.shape == shape and bool((self.parts >= 0).all())
        check(good, "parts", f"numbers of at least 0, of shape {shape}", self.parts)

    @cached_property
    def _parts(self) -> _Parts:
        down = np.minimum(self.parts, np.diff(self.rows)[:, None]).reshape(-1)
        across = np.minimum(self.parts, np.diff(self.columns)).reshape(-1)
        return _Parts(down, across, np.cumsum(down * across) - down * across)

    @property
    def length(self) -> int:
        """Number of parts."""
        return int((self._parts.down * self._parts.across).sum())

    @property
    def block(self) -> IntArray:
        """The block of each coordinate, shape (length,)."""
        return np.repeat(np.arange(self.parts.size), self._parts.down * self._parts.across)

    def positions(self, sites: npt.NDArray[np.integer], labels: IntArray | None = None) -> IntArray:
        """The part each site lies in; see :class:`Encoding`."""
        inside = (sites >= 0) & (sites < 1 << (2 * self.depth))
        row, col = deinterleave(np.where(inside, sites, 0).astype(np.int64))
        down, i, height = self._along(self.rows, row)
        across, j, width = self._along(self.columns, col)
        inside &= (i >= 0) & (i < self.rows.size - 1) & (j >= 0) & (j < self.columns.size - 1)
        block = np.where(inside, i * (self.columns.size - 1) + j, 0)
        per_row = self._parts.across[block]
        position = self._parts.start[block] + down * self._parts.down[block] // height * per_row
        position += across * per_row // width
        return np.where(inside & (per_row > 0), position, -1)[:, None]

    @staticmethod
    def _along(edges: IntArray, at: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """The offset within its block, the block and its length, of rows or of columns."""
        block = np.searchsorted(edges, at, side="right") - 1
        there = np.clip(block, 0, edges.size - 2)
        return at - edges[there], block, np.diff(edges)[there]
