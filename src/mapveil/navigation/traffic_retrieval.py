"""The traffic around a device, fetched without telling the server which part of the map it is.

A map's cells are laid out in blocks of neighbours, one record a block. For each update a device asks for the same
number of blocks, whatever it needs: how many were asked for says nothing. For a small map it is cheaper to fetch all of
it, which says nothing either; :meth:`TrafficClient.cost` tells.
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
from mapveil.retrieval.client import Client
from mapveil.retrieval.database import Database
from mapveil.retrieval.server import Server
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.morton import interleave
from mapveil_client.randomness.random import Randomness

BLOCK: Final = 16
"""Cells of a record, by default."""

_VALUE: Final = np.dtype("<f4")


class RetrievalCost(NamedTuple):
    """Bytes that pass for one device and one map."""

    hint: int  # once
    query: int  # each
    answer: int  # each
    whole_map: int  # what fetching everything openly would cost


class Blocks(NamedTuple):
    """Which cells are in which record; public, the same for every map of a tiling."""

    cells: IntArray  # -1 beyond the last, shape (blocks, size)
    of_cell: IntArray  # block of each cell, shape (cells,)


def traffic_blocks(tiling: Tiling, size: int = BLOCK) -> Blocks:
    """Cells in the order of their Morton codes, cut into blocks: neighbours for the most part. Run by: both sides."""
    if size < 1:
        raise ParameterError(f"a block of {size!r} cells; at least 1 is accepted")
    lattice = tiling.lattice()
    order = np.argsort(interleave(lattice.row, lattice.col), kind="stable")
    count = -(-tiling.size // size)
    cells = np.full(count * size, -1, dtype=np.int64)
    cells[: order.size] = order
    of_cell = np.empty(tiling.size, dtype=np.int64)
    of_cell[order] = np.arange(order.size) // size
    return Blocks(cells.reshape(count, size), of_cell)


def traffic_database(traffic: DensityMap, size: int = BLOCK, *, queries: int = 8) -> Database:
    """A map's users by block, as 32-bit floats. Run by: the server.

    Parameters
    ----------
    traffic : DensityMap
        Of one window.
    size : int
        Cells of a block.
    queries : int
        How often a device asks of one map.
    """
    blocks = traffic_blocks(traffic.tiling, size)
    users = np.append(traffic.values, 0.0)[blocks.cells].astype(_VALUE)
    about = json.dumps({"record": "users by block", "size": size, "map": traffic.metadata()}, sort_keys=True)
    return Database.of(np.ascontiguousarray(users).view(np.uint8), about.encode(), queries=queries)


@dataclass(eq=False)
class TrafficClient:
    """A device's half: it asks one map for the blocks that it needs, always equally many. Run by: the client.

    Parameters
    ----------
    offer : bytes
        From the server.
    hint : sequence of bytes
        From the server, fetched once for a map.
    tiling : Tiling
        The map's cells; public.
    size : int
        Cells of a block.
    queries : int
        How many blocks are asked for each time.

    Raises
    ------
    InputError
        The offer or the hint is none, or the map is of other cells.
    ParameterError
        ``queries`` is below 1.
    """

    client: Client
    blocks: Blocks
    queries: int

    @classmethod
    def connect(cls, server: Server, tiling: Tiling, size: int = BLOCK, queries: int = 8) -> TrafficClient:
        """Fetch a server's offer and hint."""
        if queries < 1:
            raise ParameterError(f"queries is {queries!r}; at least 1 is accepted")
        client = Client(server.offer())
        blocks = traffic_blocks(tiling, size)
        if client.offer.shape.records != blocks.cells.shape[0]:
            raise InputError(
                f"a map of {client.offer.shape.records} blocks; {blocks.cells.shape[0]} of {size} cells are accepted "
                f"for {tiling.spec}"
            )
        for message in server.hint_messages():
            client.receive_hint(message)
        return cls(client, blocks, queries)

    def fetch(
        self, wanted: npt.ArrayLike, answer: Callable[[bytes], bytes], rng: Randomness | None = None
    ) -> FloatArray:
        """Users of the cells of some blocks; NaN for all others, shape (cells,).

        Parameters
        ----------
        wanted : array_like of int
            Blocks, the most important first; what is beyond the number of queries is left out, and what is missing
            to it is filled up with block 0.
        answer : callable
            The server: takes a query, gives the answer.
        rng : Randomness, optional
            The source of the queries' secrets; the operating system's by default.
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

    def cost(self) -> RetrievalCost:
        """What passes for one device and this map, without the messages' heads."""
        traffic = self.client.offer.shape.traffic()
        return RetrievalCost(traffic.hint, traffic.query, traffic.answer, traffic.database)
