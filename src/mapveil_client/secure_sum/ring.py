"""The round's graph as both sides see it: who neighbours whom, and whether the survivors hang together."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil_client.secure_sum.graph import harary_graph, permutation


class Ring(NamedTuple):
    """The graph drawn from one seed. Arrays are shared and read-only."""

    order: npt.NDArray[np.int64]  # the client at each place of the ring
    neighbours: npt.NDArray[np.int32]  # of each client, by slot, shape (n, k)

    def connected(self, included: npt.NDArray[np.bool_]) -> bool:
        """Whether the clients ``included`` form one piece: otherwise the sum would come apart.

        Two clients are neighbours up to k / 2 places apart, so only wider gaps on the ring part
        them; the ring falls in two where there are two such gaps. The complete graph never does.
        """
        clients, slots = self.neighbours.shape
        if slots == clients - 1:
            return True
        places = np.flatnonzero(included[self.order])
        if not places.size:
            return True
        gaps = np.diff(places, append=places[0] + clients)
        return int(np.count_nonzero(gaps > slots // 2)) <= 1


@functools.lru_cache(maxsize=2)
def make_ring(clients: int, neighbours: int, seed: bytes) -> Ring:
    """Draw the graph of a round from the server's seed.

    Parameters
    ----------
    clients, neighbours : int
        n and k.
    seed : bytes
        32 uniform bytes.
    """
    order = permutation(clients, seed)
    made = harary_graph(clients, neighbours, order)
    order.flags.writeable = made.flags.writeable = False
    return Ring(order, made)
