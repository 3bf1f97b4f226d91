"""Private retrieval of the traffic around a device, by blocks of neighbouring cells, one record per block.

A device always queries the same number of blocks, so the number of queries reveals nothing. A small map is cheaper to
fetch whole, which reveals nothing either: ``client.offer.shape.traffic()`` gives the bytes of both.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.geo.tiling import Tiling
from mapveil.maps.density_map import DensityMap
from mapveil.retrieval.pir_client import Client
from mapveil.retrieval.pir_server import Server
from mapveil.retrieval.records import Database
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import InputError, check
from mapveil_client.morton import interleave
from mapveil_client.randomness.random import Randomness

BLOCK: Final = 16
"""Cells of a record."""

_VALUE: Final = np.dtype("<f4")


class Blocks(NamedTuple):
    """The cells of each record; public, the same for every map of a tiling."""

    cells: IntArray  # -1 beyond the last, shape (blocks, size)
    of_cell: IntArray  # block of each cell, shape (cells,)


def traffic_blocks(tiling: Tiling, size: int = BLOCK) -> Blocks:
    """Blocks of ``size`` cells in the order of their Morton codes: mostly neighbours. Run by: both sides."""
    check(size >= 1, "size", "at least 1 cell", size)
    lattice = tiling.lattice()
    order = np.argsort(interleave(lattice.row, lattice.col), kind="stable")
    count = -(-tiling.size // size)
    cells = np.full(count * size, -1, dtype=np.int64)
    cells[: order.size] = order
    of_cell = np.empty(tiling.size, dtype=np.int64)
    of_cell[order] = np.arange(order.size) // size
    return Blocks(cells.reshape(count, size), of_cell)


def traffic_database(traffic: DensityMap, size: int = BLOCK, *, queries: int = 8) -> Database:
    """The users of a traffic map by block, as 32-bit floats, for ``queries`` queries per device. Run by: the server."""
    blocks = traffic_blocks(traffic.tiling, size)
    users = np.append(traffic.values, 0.0)[blocks.cells].astype(_VALUE)
    about = json.dumps({"record": "users by block", "size": size, "map": traffic.metadata()}, sort_keys=True)
    return Database.of(np.ascontiguousarray(users).view(np.uint8), about.encode(), queries=queries)


@dataclass(eq=False)
class TrafficClient:
    """The client half: queries one map for the same number of blocks each time. Run by: the client."""

    client: Client
    tiling: Tiling
    blocks: Blocks
    queries: int

    @classmethod
    def connect(cls, server: Server, tiling: Tiling, size: int = BLOCK, queries: int = 8) -> TrafficClient:
        """Fetch a server's offer and, once per map, its hint.

        Parameters
        ----------
        server : Server
            Server of one map.
        tiling : Tiling
            Public cells of the map.
        size : int
            Cells of a block.
        queries : int
            Blocks of each fetch, at least 1.

        Raises
        ------
        InputError
            The offer or the hint is malformed, or the map has other cells.
        """
        check(queries >= 1, "queries", "at least 1", queries)
        client = Client(server.offer())
        blocks = traffic_blocks(tiling, size)
        if client.offer.shape.records != blocks.cells.shape[0]:
            raise InputError(
                f"{tiling.spec} has {blocks.cells.shape[0]} blocks of {size} cells, the server's map "
                f"{client.offer.shape.records}"
            )
        for message in server.hint_messages():
            client.receive_hint(message)
        return cls(client, tiling, blocks, queries)

    def fetch(
        self, wanted: npt.ArrayLike, answer: Callable[[bytes], bytes], rng: Randomness | None = None
    ) -> FloatArray:
        """The users of the cells of some blocks; NaN in all other cells, shape (cells,).

        Parameters
        ----------
        wanted : array_like of int
            Blocks, the most important first. Blocks beyond ``queries`` are left out; block 0 fills up missing ones.
        answer : callable
            The server: query to answer.
        rng : Randomness, optional
            Source of the queries' secrets; the operating system's by default.
        """
        asked = np.asarray(wanted, dtype=np.int64).ravel()[: self.queries]
        padded = np.concatenate([asked, np.zeros(self.queries - asked.size, dtype=np.int64)])
        users = np.full(self.blocks.of_cell.size, np.nan)
        for block in padded.tolist():
            query = self.client.query(block, rng)
            record = np.frombuffer(self.client.open(query.opening, answer(query.message)), dtype=_VALUE)
            cells = self.blocks.cells[block]
            users[cells[cells >= 0]] = record[cells >= 0]
        return users
