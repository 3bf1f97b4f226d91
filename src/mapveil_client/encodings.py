"""How a place becomes coordinates of a vector: what a query tells the devices to count.

An encoding is public and says nothing of anybody. Devices and server compute the same coordinates from it; it
travels as a small record (:func:`encoding_from_dict`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import IntArray
from mapveil_client.block_encoding import BlockEncoding
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.level_encoding import LevelEncoding, SketchEncoding
from mapveil_client.morton import MAX_BITS, PrefixTree, deinterleave


class Encoding(Protocol):
    """A map from sites to coordinates."""

    @property
    def length(self) -> int:
        """Coordinates of the vector."""
        ...

    @property
    def copies(self) -> int:
        """How many coordinates one place counts at: the L1 norm of a device is at most this many times its scale."""
        ...

    def positions(self, sites: npt.NDArray[np.integer], labels: IntArray | None = None) -> IntArray:
        """The coordinates of each place, shape (places, copies), -1 for nowhere. Run by: each client."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """A record of plain values, for the wire."""
        ...


@dataclass(frozen=True, eq=False)
class NodeEncoding:
    """One coordinate for each node of a prefix tree: a place counts at its deepest node.

    A place outside every node counts nowhere.

    Parameters
    ----------
    tree : PrefixTree
        The nodes.
    """

    tree: PrefixTree

    @property
    def length(self) -> int:
        """Number of nodes."""
        return self.tree.size

    @property
    def copies(self) -> int:
        """One."""
        return 1

    def positions(self, sites: npt.NDArray[np.integer], labels: IntArray | None = None) -> IntArray:
        """The owner of each site; see :class:`Encoding`."""
        outside = sites < 0
        if not outside.any():
            return self.tree.owner(sites)[:, None]
        return np.where(outside, -1, self.tree.owner(np.where(outside, 0, sites)))[:, None]

    def to_dict(self) -> dict[str, Any]:
        """A record of plain values."""
        return {
            "kind": "nodes",
            "depth": self.tree.depth,
            "level": self.tree.level.tolist(),
            "code": self.tree.code.tolist(),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> NodeEncoding:
        """Read back what :meth:`to_dict` wrote."""
        return cls(PrefixTree.of_nodes(record["depth"], record["level"], record["code"]))


@dataclass(frozen=True, eq=False)
class LabelEncoding:
    """Each coordinate of another encoding divided by label: ``position * labels + label``.

    Source: Bagdasaryan et al. (2022), appendix B.

    Parameters
    ----------
    places : Encoding
        How a place is encoded.
    labels : int
        Number of labels, at least 1; a place whose label is outside counts nowhere.
    """

    places: Encoding
    labels: int

    def __post_init__(self) -> None:
        if self.labels < 1:
            raise ParameterError(f"labels must be a whole number of at least 1, got {self.labels!r}")

    @property
    def length(self) -> int:
        """One coordinate for each coordinate and label."""
        return self.places.length * self.labels

    @property
    def copies(self) -> int:
        """As of the places."""
        return self.places.copies

    def positions(self, sites: npt.NDArray[np.integer], labels: IntArray | None = None) -> IntArray:
        """Coordinates by label; see :class:`Encoding`."""
        if labels is None:
            raise ParameterError(
                "a query by label needs a label of every place; expected a table with labels"
            )
        position = self.places.positions(sites)
        known = (position >= 0) & ((labels >= 0) & (labels < self.labels))[:, None]
        return np.where(known, position * self.labels + labels[:, None], -1)

    def to_dict(self) -> dict[str, Any]:
        """A record of plain values."""
        return {"kind": "labels", "labels": self.labels, "places": self.places.to_dict()}


@dataclass(frozen=True)
class MarginsEncoding:
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

    depth: int

    def __post_init__(self) -> None:
        if not 0 <= self.depth <= MAX_BITS:
            raise ParameterError(f"depth must be from 0 to {MAX_BITS}, got {self.depth!r}")

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

    def to_dict(self) -> dict[str, Any]:
        """A record of plain values."""
        return {"kind": "margins", "depth": self.depth}


def _labels(record: Mapping[str, Any]) -> LabelEncoding:
    if record["places"]["kind"] == "labels":
        raise ParameterError("labels of labels; expected labels of any other kind")
    return LabelEncoding(encoding_from_dict(record["places"]), record["labels"])


def _plain(record: Mapping[str, Any]) -> bool:
    """Whether all values are whole numbers, lists of them, text or such records: nothing that would be rounded."""
    left: list[Any] = list(record.values())
    while left:
        value = left.pop()
        if isinstance(value, Mapping):
            left += value.values()
        elif isinstance(value, list | tuple):
            if any(isinstance(each, str | Mapping) for each in value):
                return False
            left += value
        elif isinstance(value, bool) or not isinstance(value, int | str):
            return False
    return True


_KINDS: Mapping[str, Callable[[Mapping[str, Any]], Encoding]] = {
    "nodes": NodeEncoding.from_dict,
    "labels": _labels,
    "levels": LevelEncoding.from_dict,
    "sketch": SketchEncoding.from_dict,
    "blocks": BlockEncoding.from_dict,
    "margins": lambda record: MarginsEncoding(record["depth"]),
}


def encoding_from_dict(record: Mapping[str, Any]) -> Encoding:
    """Read back what an encoding's ``to_dict`` wrote. Run by: each client, and whoever keeps rounds.

    Parameters
    ----------
    record : mapping
        A record of plain values, as it came over the wire: nothing in it is trusted to be well formed.

    Raises
    ------
    InputError
        It is no record of an encoding; or one with a value outside its range.

    Examples
    --------
    >>> encoding_from_dict({"kind": "levels", "depth": 3, "levels": [1, 2], "runs": [[0, 64]]}).length
    20
    """
    kind = record.get("kind") if isinstance(record, Mapping) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InputError(f"no encoding is of kind {kind!r}; expected one of {', '.join(_KINDS)}")
    try:
        if not _plain(record):
            raise TypeError("a value is no whole number")
        return _KINDS[kind](record)
    except ParameterError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, IndexError) as error:
        raise InputError(
            f"the record of an encoding of kind {kind!r} is not complete or has a value of the wrong "
            f"kind ({type(error).__name__}: {error}); expected what to_dict() writes"
        ) from None
