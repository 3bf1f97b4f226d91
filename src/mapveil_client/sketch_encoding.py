r"""Count-min sketches of the levels of the quadtree: many nodes share a coordinate, in many ways at once.

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
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import IntArray
from mapveil_client.errors import ParameterError

WordArray = npt.NDArray[np.uint64]

_DEEPEST = 15
_HALF = np.uint64(32)


@dataclass(frozen=True)
class SketchEncoding:
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

    depth: int
    levels: tuple[int, ...]
    width: int
    rows: int
    key: str

    def __post_init__(self) -> None:
        if not 0 <= self.depth <= _DEEPEST:
            raise ParameterError(f"depth is {self.depth!r}; a sketch of 0 to {_DEEPEST} levels is accepted")
        if not self.levels or not all(0 <= level <= self.depth for level in self.levels):
            raise ParameterError(f"levels are {self.levels!r}; some of 0 to {self.depth} are accepted")
        if not 1 <= self.width <= 1 << 31:
            raise ParameterError(f"width is {self.width!r}; 1 to 2^31 is accepted")
        if not 1 <= self.rows <= 1 << 15:
            raise ParameterError(f"rows is {self.rows!r}; 1 to 2^15 is accepted")
        if len(self.key.encode()) > hashlib.blake2b.MAX_KEY_SIZE:
            raise ParameterError(f"key has {len(self.key.encode())} bytes; at most 64 are accepted")

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

    def to_dict(self) -> dict[str, Any]:
        """A record of plain values."""
        return {
            "kind": "sketch",
            "depth": self.depth,
            "levels": list(self.levels),
            "width": self.width,
            "rows": self.rows,
            "key": self.key,
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> SketchEncoding:
        """Read back what :meth:`to_dict` wrote."""
        return cls(record["depth"], tuple(record["levels"]), record["width"], record["rows"], record["key"])
