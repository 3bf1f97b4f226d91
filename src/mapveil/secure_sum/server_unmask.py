r"""Unmasking: decode secrets from shares, name clients whose shares are wrong, and take the masks off the sum.

.. math:: \sum_{i \in A} x_i = \sum_{i \in A} y_i - \sum_{i \in A} \mathrm{PRG}(b_i)
    - \sum_{i \in A} \sum_{j \in N(i) \cap D} \pm\, \mathrm{PRG}(s_{ij}) \pmod{2^b}

where: A are the clients in the sum, D those that sent shares and no masked input, :math:`y_i` the masked vectors,
:math:`b_i` the self-mask seed (reconstructed for A only), :math:`s_{ij}` the seed of a pair (from the mask key, which
is reconstructed for D only), and :math:`N(i)` the neighbours.

Source: Bell et al. (2020), algorithm 2, the server's last step.
"""

import heapq
from collections import defaultdict
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
    given: BoolArray  # slots that each client answered for, shape (n, k)
    shares: ByteArray  # of those slots, shape (n, k, 34)


class FaultKind(StrEnum):
    """The messages of a client that contradict others'."""

    SHARES = "shares"  # that it dealt
    ANSWERS = "answers"  # that it gave
    COMMITMENT = "commitment"
    KEY = "key"
    MESSAGE = "message"  # refused beside others that were accepted with it


class Fault(NamedTuple):
    """A client whose messages contradict those of others."""

    client: int
    kind: FaultKind
    against: int  # neighbours that must have lied if this client did not

    def proven(self, parameters: RoundParameters) -> bool:
        """Whether they are t or more: fewer could be corrupt together, and blame an honest client."""
        return self.against >= parameters.threshold


class Recovered(NamedTuple):
    """The secrets that the answers give back."""

    seeds: dict[int, bytes]  # of the self-masks, by client in the sum
    private_keys: dict[int, bytes]  # mask keys, by client that dropped out after it sent shares
    faults: list[Fault]
    missing: Abort | None  # why the masks cannot be taken off


def recover(parameters: RoundParameters, ring: Ring, collected: Collected) -> Recovered:
    """Decode the secrets of all clients, and name those whose shares are wrong. Run by: the server."""
    dropped = collected.sharing & ~collected.included & collected.included[ring.neighbours].any(axis=1)
    seeds: dict[int, bytes] = {}
    private_keys: dict[int, bytes] = {}
    faults: list[Fault] = []
    missing: Abort | None = None
    pairs: set[tuple[int, int]] = set()  # of owner and holder who contradict each other
    threshold, mirror = parameters.threshold, np.arange(parameters.neighbours)[::-1]
    for clients, secrets, kind in (
        (dropped, private_keys, FaultKind.KEY),
        (collected.included, seeds, FaultKind.COMMITMENT),
    ):
        owners = np.flatnonzero(clients)
        holders = ring.neighbours[owners]
        given = collected.given[holders, mirror]
        shares = collected.shares[holders, mirror].view("<u2").reshape(*holders.shape, DIGITS)
        found = decode_shares(given, shares, threshold)
        # Whoever answered and gave no share of an owner could not open the owner's box, or says so.
        answered: BoolArray = np.any(collected.given, axis=1)
        unopened = answered[holders] & ~given
        bound = np.zeros(owners.size, dtype=np.bool_)
        came, wrong = (np.count_nonzero(each, axis=1).tolist() for each in (given, found.wrong))
        each_owner = zip(owners.tolist(), found.secrets, came, wrong, strict=True)
        for row, (owner, secret, count, errors) in enumerate(each_owner):
            spare = count - errors - threshold
            if count < threshold:
                reason = f"{count} neighbours of client {owner} gave their share; {threshold} are needed"
            elif secret is None:
                faults.append(Fault(owner, FaultKind.SHARES, spare // 2 + 1))
                reason = f"the shares of client {owner} give back no secret"
            else:
                secrets[owner] = secret
                bound[row] = _bound(parameters, collected, owner, secret, kind)
                if bound[row]:
                    continue
                faults.append(Fault(owner, kind, spare + 1))
                if (
                    kind is FaultKind.COMMITMENT and spare
                ):  # more than t shares agree: the commitment was altered
                    continue
                reason = f"the shares of client {owner} do not give back the secret it is bound to"
            missing = missing or Abort(reason, owner)
        # A polynomial of another secret than the bound one may pass by the shares of honest holders.
        contradicted: BoolArray = unopened | (found.wrong & bound[:, None])
        rows, columns = np.nonzero(contradicted)
        pairs.update(zip(owners[rows].tolist(), holders[rows, columns].tolist(), strict=True))
    return Recovered(seeds, private_keys, faults + _blamed(pairs), missing)


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
    own = [self_mask_seed(parameters, client, seed) for client, seed in recovered.seeds.items()]
    add_masks(total, own, [-1] * len(own), parameters.cipher)
    for client, private in recovered.private_keys.items():
        _take_pair_masks_off(parameters, ring, collected, total, client, private)
    total &= total.dtype.type((1 << parameters.bits) - 1)
    return total


def _bound(
    parameters: RoundParameters, collected: Collected, client: int, secret: bytes, kind: FaultKind
) -> bool:
    """Whether a secret is the one that its client committed to, or the private half of the key it advertised."""
    if kind is FaultKind.COMMITMENT:
        own, told = seed_commitment(parameters, client, secret), collected.commitments[client]
    else:
        own = X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
        told = collected.keys[client, MASK_KEY]
    return own == bytes(told)


def _blamed(pairs: set[tuple[int, int]]) -> list[Fault]:
    """The fewest clients that explain all contradictions of (owner, holder), greedily, the most contradicted first."""
    against: defaultdict[tuple[bool, int], set[tuple[bool, int]]] = defaultdict(set)  # (as an owner?, client)
    for owner, holder in pairs:
        against[True, owner].add((False, holder))
        against[False, holder].add((True, owner))
    faults = []
    waiting = [(-len(others), *each) for each, others in against.items()]
    heapq.heapify(waiting)
    while waiting:
        counted, *each = heapq.heappop(waiting)
        dealt, client = bool(each[0]), each[1]
        others = against[dealt, client]
        if (
            len(others) < -counted
        ):  # some were explained since: counts fall only, so wait for the turn of this one
            heapq.heappush(waiting, (-len(others), dealt, client))
        elif others:
            faults.append(Fault(client, FaultKind.SHARES if dealt else FaultKind.ANSWERS, len(others)))
            for other in others:
                against[other].remove((dealt, client))
    return faults


def _take_pair_masks_off(
    parameters: RoundParameters, ring: Ring, collected: Collected, total: Words, client: int, private: bytes
) -> None:
    """Take off the pair masks of the neighbours of a client that dropped out."""
    key = X25519PrivateKey.from_private_bytes(private)
    neighbours = ring.neighbours[client]
    left = neighbours[collected.included[neighbours]].tolist()
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
