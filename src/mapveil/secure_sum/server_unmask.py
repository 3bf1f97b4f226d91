r"""Unmasking: reconstruct secrets from shares, check them, and take the masks off the sum.

.. math:: \sum_{i \in A} x_i = \sum_{i \in A} y_i - \sum_{i \in A} \mathrm{PRG}(b_i)
    - \sum_{i \in A} \sum_{j \in N(i) \cap D} \pm\, \mathrm{PRG}(s_{ij}) \pmod{2^b}

where: A are the clients in the sum, D those that sent shares and no masked input, :math:`y_i` the masked vectors,
:math:`b_i` the self-mask seed (reconstructed for A only), :math:`s_{ij}` the seed of a pair (from the mask key, which
is reconstructed for D only), and :math:`N(i)` the neighbours.

Source: Bell et al. (2020), algorithm 2, the server's last step.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import BoolArray
from mapveil_client.secure_sum.graph import Ring
from mapveil_client.secure_sum.keys import pair_key, pair_mask_sign, seed_commitment, self_mask_seed
from mapveil_client.secure_sum.masks import Purpose, add_masks
from mapveil_client.secure_sum.messages import MASK_KEY
from mapveil_client.secure_sum.round_parameters import RoundParameters
from mapveil_client.secure_sum.shamir import DIGITS, reconstruct_secrets
from mapveil_client.secure_sum.states import Abort, PeerFault

ByteArray = npt.NDArray[np.uint8]
Words = npt.NDArray[np.unsignedinteger]


class Collected(NamedTuple):
    """The server's state when all answers are in; one row per client."""

    keys: ByteArray  # advertised, shape (n, ...)
    commitments: ByteArray  # to the self-mask seeds, shape (n, 32)
    sharing: BoolArray  # clients that sent shares
    included: BoolArray  # clients whose masked vector is in the sum
    given: BoolArray  # slots that each client answered for, shape (n, k)
    shares: ByteArray  # of those slots, shape (n, k, 34)


def unmask(parameters: RoundParameters, ring: Ring, masked: Words, collected: Collected) -> Words:
    """Take every mask off ``masked``, a sum of masked vectors; the sum modulo 2^b, shape (length,). Run by: the server.

    Raises
    ------
    Abort
        There are too few shares of a client, or shares that do not reconstruct the secret of its commitment.
    """
    dropped = collected.sharing & ~collected.included & collected.included[ring.neighbours].any(axis=1)
    lost = np.flatnonzero(dropped)
    private_keys = _rebuild(parameters, ring, collected, lost)
    alive = np.flatnonzero(collected.included)
    seeds = _rebuild(parameters, ring, collected, alive)
    total = masked.copy()
    own = []
    for client, row in zip(alive.tolist(), seeds, strict=True):
        seed = row.tobytes()
        if seed_commitment(parameters, client, seed) != collected.commitments[client].tobytes():
            raise _wrong(client)
        own.append(self_mask_seed(parameters, client, seed))
    add_masks(total, own, [-1] * len(own), parameters.cipher)
    for client, row in zip(lost.tolist(), private_keys, strict=True):
        _take_pair_masks_off(parameters, ring, collected, total, client, row.tobytes())
    total &= total.dtype.type((1 << parameters.bits) - 1)
    return total


def _wrong(client: int) -> Abort:
    return Abort(f"the shares of client {client} do not give back the secret it is bound to", client)


def _rebuild(
    parameters: RoundParameters, ring: Ring, collected: Collected, owners: npt.NDArray[np.int64]
) -> ByteArray:
    """One secret for each of ``owners``, shape (owners, 32), from the first t shares by slot."""
    threshold, mirror = parameters.threshold, np.arange(parameters.neighbours)[::-1]
    holders = ring.neighbours[owners]
    given = collected.given[holders, mirror]
    left = np.count_nonzero(given, axis=1)
    if left.size and left.min() < threshold:
        worst = int(np.argmin(left))
        raise Abort(
            f"{left[worst]} neighbours of client {owners[worst]} gave their share; {threshold} are needed",
            int(owners[worst]),
        )
    columns = np.argsort(~given, axis=1, kind="stable")[:, :threshold]
    rows = np.take_along_axis(holders, columns, axis=1)
    shares = collected.shares[rows, mirror[columns]].view("<u2").reshape(*columns.shape, DIGITS)
    try:
        return reconstruct_secrets(columns + 1, shares)
    except PeerFault:
        for owner, slots, share in zip(owners.tolist(), columns + 1, shares, strict=True):
            try:
                reconstruct_secrets(slots[None], share[None])
            except PeerFault:
                raise _wrong(owner) from None
        raise


def _take_pair_masks_off(
    parameters: RoundParameters, ring: Ring, collected: Collected, total: Words, client: int, private: bytes
) -> None:
    """Take off the pair masks of the neighbours of a client that dropped out."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    key = X25519PrivateKey.from_private_bytes(private)
    if key.public_key().public_bytes_raw() != collected.keys[client, MASK_KEY].tobytes():
        raise _wrong(client)
    neighbours = ring.neighbours[client]
    left = neighbours[collected.included[neighbours]].tolist()
    seeds = [
        pair_key(parameters, Purpose.PAIR_MASK, key, collected.keys[other, MASK_KEY].tobytes(), client, other)
        for other in left
    ]
    signs = [-pair_mask_sign(other, client) for other in left]
    add_masks(total, seeds, signs, parameters.cipher)
