r"""The neighbour graph: clients around a ring in random order, each joined to the nearest on both sides.

Client i stands at place :math:`\pi^{-1}(i)` of the ring. Of its k neighbours, slot s (1 .. k) holds

- for k even: the client :math:`s` places ahead where :math:`s \le k/2`, else :math:`k + 1 - s` behind;
- for the complete graph, k = n - 1: the client :math:`s` places ahead.

So the slots mirror each other: if j is in slot s of i, then i is in slot :math:`k + 1 - s` of j. The
slot is also the point at which the neighbour's share of a secret is taken.

Source: Bell et al. (2020), section 3.3: a Harary graph with its nodes permuted.
"""

import functools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from mapveil_client.arrays import BoolArray, IntArray
from mapveil_client.errors import check
from mapveil_client.secure_sum.masks import SEED_BYTES, Purpose, info


def permutation(clients: int, seed: bytes) -> IntArray:
    """Order the clients at random: the client at each place, shape (clients,), int64. Run by: both sides.

    Sorts 64-bit words of the keystream of ``seed`` (32 bytes); in the unlikely case that two are equal, all are drawn
    again further along the stream.

    Raises
    ------
    ParameterError
        The seed has another length.
    """
    check(len(seed) == SEED_BYTES, "a graph seed", f"{SEED_BYTES} bytes", len(seed))
    key = HKDFExpand(algorithm=SHA256(), length=32, info=info(Purpose.GRAPH, b"", b"")).derive(seed)
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    while True:
        words = np.frombuffer(stream.update(bytes(8 * clients)), dtype="<u8")
        order = np.argsort(words, kind="stable")
        if np.all(np.diff(words[order]) > 0):
            return order.astype(np.int64)


def harary_graph(
    clients: int, neighbours: int, permutation: npt.NDArray[np.integer]
) -> npt.NDArray[np.int32]:
    """List the k neighbours of each of n clients, shape (n, k): row i, column s - 1 is the client in slot s of i.

    ``permutation`` is the client at each place of the ring. Run by: both sides.

    Raises
    ------
    ParameterError
        There is no such graph, or ``permutation`` is none of 0 .. n - 1.
    """
    good = 0 < neighbours < clients and (neighbours % 2 == 0 or neighbours == clients - 1)
    check(good, "neighbours", f"even and below {clients}, or {clients - 1}", neighbours)
    order = np.asarray(permutation)
    good = order.shape == (clients,) and np.array_equal(np.sort(order), np.arange(clients))
    check(good, "permutation", f"an order of the clients 0 .. {clients - 1}", order)
    half = (neighbours + 1) // 2
    ahead = np.arange(1, neighbours + 1)
    ahead[half:] += clients - 1 - neighbours  # behind, counted ahead around the ring
    # The ring twice over: the windows of each place are then plain slices.
    ring = np.concatenate([order, order]).astype(np.int32)
    made = np.empty((clients, neighbours), dtype=np.int32)
    made[order] = ring[np.arange(clients)[:, None] + ahead]
    return made


class Ring(NamedTuple):
    """The graph drawn from one seed. Arrays are shared and read-only."""

    seed: bytes
    order: IntArray  # the client at each place of the ring
    neighbours: npt.NDArray[np.int32]  # of each client, by slot, shape (n, k)

    def committee(self, size: int) -> list[int]:
        """The clients whose signatures confirm the survivors of an active round: those at the first places."""
        members: list[int] = self.order[:size].tolist()
        return members

    def connected(self, included: BoolArray) -> bool:
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
    """Draw the graph of a round of n clients with k neighbours each from a seed of 32 bytes."""
    order = permutation(clients, seed)
    made = harary_graph(clients, neighbours, order)
    order.flags.writeable = made.flags.writeable = False
    return Ring(seed, order, made)
