r"""Unmasking: decode secrets from shares, name clients that dealt wrong ones, and take the masks off the sum.

.. math:: \sum_{i \in A} x_i = \sum_{i \in A} y_i - \sum_{i \in A} \mathrm{PRG}(b_i)
    - \sum_{i \in A} \sum_{j \in N(i) \cap D} \pm\, \mathrm{PRG}(s_{ij}) \pmod{2^b}

where: A are the clients in the sum, D those that sent shares and no masked input, :math:`y_i` the masked vectors,
:math:`b_i` the self-mask seed (reconstructed for A only), :math:`s_{ij}` the seed of a pair (from the mask key, which
is reconstructed for D only), and :math:`N(i)` the neighbours that
opened each other's boxes.

Source: Bell et al. (2020), algorithm 2, the server's last step.
"""

from enum import StrEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from mapveil.secure_sum.share_decoding import decode_shares
from mapveil_client.arrays import BoolArray
from mapveil_client.secure_sum.graph import Ring
from mapveil_client.secure_sum.keys import pair_key, pair_mask_sign, seed_commitment, self_mask_seed
from mapveil_client.secure_sum.masks import Purpose, add_masks
from mapveil_client.secure_sum.messages import MASK_KEY
from mapveil_client.secure_sum.round_parameters import RoundParameters
from mapveil_client.secure_sum.shamir import DIGITS
from mapveil_client.secure_sum.states import Abort

ByteArray = npt.NDArray[np.uint8]
Words = npt.NDArray[np.unsignedinteger]


class Collected(NamedTuple):
    """The server's state when all answers are in; one row per client."""

    keys: ByteArray  # advertised, shape (n, ...)
    commitments: ByteArray  # to the self-mask seeds, shape (n, 32)
    sharing: BoolArray  # clients that sent shares
    included: BoolArray  # clients whose masked vector is in the sum
    held: BoolArray  # slots whose shares each client holds, shape (n, k)
    given: BoolArray  # slots that each client answered for, shape (n, k)
    shares: ByteArray  # of those slots, shape (n, k, 34)


class FaultKind(StrEnum):
    """The messages of a client that show it to be at fault."""

    SHARES = "shares"  # that it dealt, off one polynomial
    COMMITMENT = "commitment"  # to another seed than that of the shares it dealt
    KEY = "key"  # another than that of the shares it dealt
    BOXES = "boxes"  # that do not open, or hold other shares than it says
    PAIRS = "pairs"  # digests of keys that its neighbours contradict
    MESSAGE = "message"  # refused beside others that were accepted with it


_UNPROVEN = (FaultKind.PAIRS, FaultKind.MESSAGE)  # where it is one client's word against another's


class Fault(NamedTuple):
    """A client at fault."""

    client: int
    kind: FaultKind
    against: int  # neighbours whose messages show it

    @property
    def proven(self) -> bool:
        """Whether its own messages show it, so that no other clients can blame an honest one."""
        return self.kind not in _UNPROVEN


class Recovered(NamedTuple):
    """The secrets that the answers give back."""

    seeds: dict[int, bytes]  # of the self-masks, by client in the sum
    private_keys: dict[int, bytes]  # mask keys, by client that dropped out after it sent shares
    faults: list[Fault]
    missing: Abort | None  # why the masks cannot be taken off


def recover(parameters: RoundParameters, ring: Ring, collected: Collected) -> Recovered:
    """Decode the secrets of all clients, and name those that dealt wrong shares. Run by: the server.

    Every share is one that its client dealt. So a secret that the shares do not give back, or that is not the one its
    client is bound to, is that client's fault; the sum cannot be known then.
    """
    mirror = np.arange(parameters.neighbours)[::-1]
    masked = collected.included[ring.neighbours] & collected.held[ring.neighbours, mirror]
    dropped = collected.sharing & ~collected.included & masked.any(axis=1)
    seeds: dict[int, bytes] = {}
    private_keys: dict[int, bytes] = {}
    faults: list[Fault] = []
    missing: Abort | None = None
    for clients, secrets, kind in (
        (dropped, private_keys, FaultKind.KEY),
        (collected.included, seeds, FaultKind.COMMITMENT),
    ):
        owners = np.flatnonzero(clients)
        holders = ring.neighbours[owners]
        given = collected.given[holders, mirror]
        shares = collected.shares[holders, mirror].view("<u2").reshape(*holders.shape, DIGITS)
        found = decode_shares(given, shares, parameters.threshold)
        came, wrong = (np.count_nonzero(each, axis=1).tolist() for each in (given, found.wrong))
        for owner, secret, count, off in zip(owners.tolist(), found.secrets, came, wrong, strict=True):
            if count < parameters.threshold:
                reason = f"{count} neighbours of client {owner} gave their share; {parameters.threshold} are needed"
            elif secret is None:
                faults.append(Fault(owner, FaultKind.SHARES, count))
                reason = f"the shares of client {owner} give back no secret"
            elif not _bound(parameters, ring.seed, collected, owner, secret, kind):
                faults.append(Fault(owner, kind, count))
                reason = f"the shares of client {owner} do not give back the secret it is bound to"
            else:
                secrets[owner] = secret
                if off:
                    faults.append(Fault(owner, FaultKind.SHARES, off))
                continue
            missing = missing or Abort(reason, owner)
    return Recovered(seeds, private_keys, faults, missing)


def unmask(
    parameters: RoundParameters, ring: Ring, masked: Words, collected: Collected, recovered: Recovered
) -> Words:
    """Take every mask off ``masked``, a sum of masked vectors; the sum modulo 2^b, shape (length,). Run by: the server.

    Raises
    ------
    Abort
        There are too few shares of a client, or shares that do not reconstruct the secret it is bound to.
    """
    if recovered.missing is not None:
        raise recovered.missing
    total = masked.copy()
    own = [self_mask_seed(parameters, ring.seed, client, seed) for client, seed in recovered.seeds.items()]
    add_masks(total, own, [-1] * len(own), parameters.cipher)
    for client, private in recovered.private_keys.items():
        _take_pair_masks_off(parameters, ring, collected, total, client, private)
    total &= total.dtype.type((1 << parameters.bits) - 1)
    return total


def _bound(
    parameters: RoundParameters,
    graph_seed: bytes,
    collected: Collected,
    client: int,
    secret: bytes,
    kind: FaultKind,
) -> bool:
    """Whether a secret is the one that its client committed to, or the private half of the key it advertised."""
    if kind is FaultKind.COMMITMENT:
        own, told = seed_commitment(parameters, graph_seed, client, secret), collected.commitments[client]
    else:
        own = X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
        told = collected.keys[client, MASK_KEY]
    return own == bytes(told)


def _take_pair_masks_off(
    parameters: RoundParameters, ring: Ring, collected: Collected, total: Words, client: int, private: bytes
) -> None:
    """Take off the pair masks of the neighbours of a client that dropped out."""
    key = X25519PrivateKey.from_private_bytes(private)
    neighbours = ring.neighbours[client]
    mirror = np.arange(parameters.neighbours)[::-1]
    left = neighbours[collected.included[neighbours] & collected.held[neighbours, mirror]].tolist()
    seeds = [
        pair_key(
            parameters,
            Purpose.PAIR_MASK,
            ring.seed,
            key,
            collected.keys[other, MASK_KEY].tobytes(),
            client,
            other,
        )
        for other in left
    ]
    signs = [-pair_mask_sign(other, client) for other in left]
    add_masks(total, seeds, signs, parameters.cipher)
