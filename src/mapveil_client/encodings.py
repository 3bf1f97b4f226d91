"""Encodings of a location as coordinates of a vector: the counts that a query asks of clients.

An encoding is public and says nothing of anybody. Clients and server compute the same coordinates from it; it travels
as a small record (:func:`mapveil_client.announcement.read_encoding`).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar

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
