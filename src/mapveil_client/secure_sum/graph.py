r"""The neighbour graph: clients around a ring in random order, each joined to the nearest on both sides.

Client i stands at place :math:`\pi^{-1}(i)` of the ring. Of its k neighbours, slot s (1 .. k) holds

- for k even: the client :math:`s` places ahead where :math:`s \le k/2`, else :math:`k + 1 - s` behind;
- for the complete graph, k = n - 1: the client :math:`s` places ahead.

So the slots mirror each other: if j is in slot s of i, then i is in slot :math:`k + 1 - s` of j. The
slot is also the point at which the neighbour's share of a secret is taken.

Source: Bell et al. (2020), section 3.3: a Harary graph with its nodes permuted.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mapveil_client.errors import ParameterError
from mapveil_client.secure_sum.domain import Purpose, info

_SEED_BYTES = 32


def permutation(clients: int, seed: bytes) -> npt.NDArray[np.int64]:
    """Order the clients at random, every order equally likely up to the keystream's quality.

    Run by: the server. Sorts 64-bit words of the seed's keystream; in the unlikely case that two
    are equal, all are drawn again further along the stream.

    Parameters
    ----------
    clients : int
        How many, at least 1.
    seed : bytes
        32 uniform bytes.

    Returns
    -------
    ndarray of int64, shape (clients,)
        Which client stands at each place.

    Raises
    ------
    ParameterError
        The seed has another length.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

    if len(seed) != _SEED_BYTES:
        raise ParameterError(f"a graph seed of {len(seed)} bytes; {_SEED_BYTES} are accepted")
    key = HKDFExpand(algorithm=SHA256(), length=32, info=info(Purpose.GRAPH, b"", b"")).derive(seed)
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    while True:
        words = np.frombuffer(stream.update(bytes(8 * clients)), dtype="<u8")
        order = np.argsort(words, kind="stable")
        if np.all(np.diff(words[order]) > 0):
            return order.astype(np.int64)


def mirror_slot(slot: int, neighbours: int) -> int:
    """The slot of i among j's neighbours, where j is in ``slot`` of i; its own inverse.

    Examples
    --------
    >>> mirror_slot(1, 6)
    6
    """
    return neighbours + 1 - slot


def slot_of(neighbours: npt.NDArray[np.integer], i: int, j: int) -> int:
    """In which slot (1 .. k) of client i its neighbour j is.

    Parameters
    ----------
    neighbours : ndarray, shape (n, k)
        From :func:`harary_graph`.
    i, j : int
        Two clients.

    Raises
    ------
    ParameterError
        They are no neighbours.
    """
    found = np.flatnonzero(neighbours[i] == j)
    if found.size != 1:
        raise ParameterError(f"clients {i} and {j} are no neighbours; an edge of the graph is accepted")
    return int(found[0]) + 1


def harary_graph(
    clients: int, neighbours: int, permutation: npt.NDArray[np.integer]
) -> npt.NDArray[np.int32]:
    """List each client's neighbours in the order of their slots.

    Run by: the server.

    Parameters
    ----------
    clients : int
        How many, n.
    neighbours : int
        How many each has, k: even, or n - 1.
    permutation : ndarray of int, shape (n,)
        Which client stands at each place of the ring.

    Returns
    -------
    ndarray of int32, shape (n, k)
        Row i, column s - 1: the client in slot s of client i. Slots mirror each other, see the
        module's header.

    Raises
    ------
    ParameterError
        There is no such graph, or ``permutation`` is none of 0 .. n - 1.
    """
    if not (0 < neighbours < clients and (neighbours % 2 == 0 or neighbours == clients - 1)):
        raise ParameterError(
            f"{neighbours} neighbours among {clients} clients; an even number below {clients}, "
            f"or {clients - 1}, is accepted"
        )
    order = np.asarray(permutation)
    if order.shape != (clients,) or not np.array_equal(np.sort(order), np.arange(clients)):
        raise ParameterError(f"not an order of the clients 0 .. {clients - 1}")
    half = (neighbours + 1) // 2
    ahead = np.arange(1, neighbours + 1)
    ahead[half:] += clients - 1 - neighbours  # behind, counted ahead around the ring
    # The ring twice over: the windows of each place are then plain slices.
    ring = np.concatenate([order, order]).astype(np.int32)
    made = np.empty((clients, neighbours), dtype=np.int32)
    made[order] = ring[np.arange(clients)[:, None] + ahead]
    return made
