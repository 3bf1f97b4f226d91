"""How a place becomes coordinates of a vector: what a query tells the devices to count.

An encoding is public and says nothing of anybody. Devices and server compute the same coordinates from it; it
travels as a small record (:func:`encoding_from_dict`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mapveil.distributed.prefix_tree import PrefixTree
from mapveil_client.arrays import IntArray
from mapveil_client.errors import ParameterError


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
            raise ParameterError(f"labels is {self.labels!r}; a whole number of at least 1 is accepted")

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
                "a query by label needs a label of every place; a table with labels is accepted"
            )
        position = self.places.positions(sites)
        known = (position >= 0) & ((labels >= 0) & (labels < self.labels))[:, None]
        return np.where(known, position * self.labels + labels[:, None], -1)

    def to_dict(self) -> dict[str, Any]:
        """A record of plain values."""
        return {"kind": "labels", "labels": self.labels, "places": self.places.to_dict()}
