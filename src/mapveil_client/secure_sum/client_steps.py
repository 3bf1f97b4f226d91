"""A client's four steps, each a function of what it remembers and what it was sent.

Nothing here changes anything: a step returns the new memory and the fields of the answer, or raises.

What a client remembers between two messages, and how a device keeps it through a restart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil_client import canonical_cbor
from mapveil_client.arrays import BoolArray
from mapveil_client.errors import InputError
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.keys import (
    Enrolled,
    Identity,
    key_statement,
    pair_mask_seed,
    pair_mask_sign,
    pair_sealing_key,
    sealing_key,
    seed_commitment,
    self_mask_seed,
    signed_by,
    survivor_statement,
)
from mapveil_client.secure_sum.masks import add_masks, open_sealed, seal
from mapveil_client.secure_sum.messages import (
    BOX_BYTES,
    HASH_BYTES,
    IDENTITY,
    KEY_BYTES,
    MASK_KEY,
    SEAL_KEY,
    SHARE_BYTES,
    SIGNATURE,
    SIGNATURE_BYTES,
    read_set,
    roster_entry_bytes,
    rows_by_slot,
    write_set,
)
from mapveil_client.secure_sum.parameters import RoundParameters
from mapveil_client.secure_sum.shamir import split_secrets
from mapveil_client.secure_sum.states import Abort, ClientState, OwnFault, PeerFault
from mapveil_client.secure_sum.vectors import make_ring, pack, packed_size

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey


_STATE_VERSION = 1
_HEAD = 4
_C = ClientState


@dataclass(frozen=True, repr=False)
class Memory:
    """Byte strings, empty unless the state needs them: what is no longer needed is gone.

    Most are secret; none is ever shown.
    """

    vector: bytes = b""  # packed
    seed: bytes = b""  # of the mask that the client adds alone
    mask_private: bytes = b""
    seal_private: bytes = b""
    graph_seed: bytes = b""
    present: bytes = b""  # slots whose neighbour advertised
    mask_keys: bytes = b""  # public, by slot
    opening_keys: bytes = b""  # of the box from each slot
    identities: bytes = b""  # public, by slot
    senders: bytes = b""  # slots whose neighbour sent shares
    readable: bytes = b""  # slots whose box opened
    shares: bytes = b""  # by slot: of the seed, of the mask key
    included: bytes = b""  # the survivors that this client signed

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError(
            "a client's memory holds secrets and cannot be pickled or copied; to_state() saves it"
        )


class _Held(NamedTuple):
    states: frozenset[ClientState]
    size: Callable[[RoundParameters], int]


def _held(size: Callable[[RoundParameters], int], *states: ClientState) -> _Held:
    return _Held(frozenset(states), size)


def _slots(unit: int) -> Callable[[RoundParameters], int]:
    return lambda parameters: unit * parameters.neighbours


def _slot_set(parameters: RoundParameters) -> int:
    return -(-parameters.neighbours // 8)


_WHEN: dict[str, _Held] = {
    "vector": _held(lambda p: packed_size(p.length, p.bits), _C.FRESH, _C.ADVERTISED, _C.SHARED),
    "seed": _held(lambda _: KEY_BYTES, _C.ADVERTISED, _C.SHARED),
    "mask_private": _held(lambda _: KEY_BYTES, _C.ADVERTISED, _C.SHARED),
    "seal_private": _held(lambda _: KEY_BYTES, _C.ADVERTISED),
    "graph_seed": _held(lambda _: KEY_BYTES, _C.SHARED, _C.MASKED, _C.CONSENTED),
    "present": _held(_slot_set, _C.SHARED),
    "mask_keys": _held(_slots(KEY_BYTES), _C.SHARED),
    "opening_keys": _held(_slots(KEY_BYTES), _C.SHARED),
    "identities": _held(
        lambda p: KEY_BYTES * p.neighbours if p.signed else 0, _C.SHARED, _C.MASKED, _C.CONSENTED
    ),
    "senders": _held(_slot_set, _C.MASKED, _C.CONSENTED),
    "readable": _held(_slot_set, _C.MASKED, _C.CONSENTED),
    "shares": _held(_slots(2 * SHARE_BYTES), _C.MASKED, _C.CONSENTED),
    "included": _held(lambda p: -(-p.clients // 8), _C.CONSENTED),
}


def write_state(parameters: RoundParameters, client: int, state: ClientState, memory: Memory) -> bytes:
    """Write a client's state. It holds secrets: whoever stores it encrypts it."""
    held = [getattr(memory, field.name) for field in fields(memory)]
    body = canonical_cbor.encode([_STATE_VERSION, state.value, parameters.digest, client, *held])
    return body + hashlib.sha256(body).digest()


def read_state(parameters: RoundParameters, data: bytes) -> tuple[int, ClientState, Memory]:
    """Read back what :func:`write_state` wrote.

    Raises
    ------
    InputError
        It is no state of a client of this round.
    """
    body, check = data[:-HASH_BYTES], data[-HASH_BYTES:]
    try:
        values = canonical_cbor.decode(body) if hashlib.sha256(body).digest() == check else []
    except canonical_cbor.NotCanonical:
        values = []
    names = [field.name for field in fields(Memory)]
    if len(values) != _HEAD + len(names) or values[0] != _STATE_VERSION or values[2] != parameters.digest:
        raise InputError("a client's saved state cannot be read; expected one of this version and round")
    number, client, held = values[1], values[3], values[_HEAD:]
    state = next((state for state in ClientState if state.value == number), None)
    kept: dict[str, bytes] = {}
    for name, value in zip(names, held, strict=True):
        when = _WHEN[name]
        size = when.size(parameters) if state in when.states else 0
        if isinstance(value, bytes) and len(value) == size:
            kept[name] = value
    if (
        state is None
        or not isinstance(client, int)
        or client >= parameters.clients
        or len(kept) != len(names)
    ):
        raise InputError("a client's saved state is damaged; expected the bytes that to_state() gave")
    return client, state, Memory(**kept)


Words = npt.NDArray[np.unsignedinteger]


class Outcome(NamedTuple):
    """What a step leaves behind: the memory from now on, and the fields of the message to send."""

    memory: Memory
    fields: tuple[bytes, ...]


def _x25519(private: bytes) -> X25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(private)


@dataclass(frozen=True, repr=False)
class ClientSteps:
    """The steps of one client of one round.

    Parameters
    ----------
    parameters : RoundParameters
        What the parties agreed on.
    client : int
        This client's number.
    rng : Randomness
        The source of keys, seed and shares.
    identity : Identity or None
        In a signed round.
    enrolled : callable or None
        Whether an identity is that of a client; none takes the server's word.
    """

    parameters: RoundParameters
    client: int
    rng: Randomness
    identity: Identity | None
    enrolled: Enrolled | None

    def _neighbours(self, graph_seed: bytes) -> list[int]:
        ring = make_ring(self.parameters.clients, self.parameters.neighbours, graph_seed)
        return [int(j) for j in ring.neighbours[self.client]]

    def _enough(self, slots: BoolArray, done: str) -> None:
        """Abort where fewer than t neighbours are left."""
        left, threshold = int(np.count_nonzero(slots)), self.parameters.threshold
        if left < threshold:
            raise Abort(
                f"{left} neighbours of client {self.client} {done}; {threshold} are needed", self.client
            )

    def advertise(self) -> Outcome:
        """Draw two key pairs and the seed of the client's own mask; tell the public keys."""
        drawn = self.rng.words(3 * KEY_BYTES, np.uint8).tobytes()
        mask_private, seal_private = drawn[MASK_KEY], drawn[SEAL_KEY]
        keys = b"".join(_x25519(key).public_key().public_bytes_raw() for key in (mask_private, seal_private))
        if self.identity is not None:
            keys += self.identity.public + self._sign(key_statement(self.parameters, self.client, keys))
        seed = drawn[2 * KEY_BYTES :]
        return Outcome(Memory(mask_private=mask_private, seal_private=seal_private, seed=seed), (keys,))

    def share(self, memory: Memory, graph_seed: bytes, present: bytes, keys: bytes) -> Outcome:
        """Seal to each neighbour its shares of the seed and of the mask key."""
        p = self.parameters
        there = read_set(present, p.neighbours)
        entries = rows_by_slot(keys, there, roster_entry_bytes(p), "keys")
        self._enough(there, "advertised keys")
        peers = self._neighbours(graph_seed)
        slots = [int(slot) for slot in np.flatnonzero(there)]
        if p.signed:
            for slot in slots:
                self._check_keys(peers[slot], entries[slot].tobytes())
        private = _x25519(memory.seal_private)
        pair_keys = {}
        for slot in slots:
            try:
                pair_keys[slot] = pair_sealing_key(
                    p, private, entries[slot, SEAL_KEY].tobytes(), self.client, peers[slot]
                )
            except PeerFault:
                raise PeerFault(f"the server gave a key of client {peers[slot]} that is no key") from None
        secrets = np.frombuffer(memory.seed + memory.mask_private, dtype=np.uint8).reshape(2, KEY_BYTES)
        shares = split_secrets(secrets, p.neighbours, p.threshold, self.rng).astype("<u2")
        plain = np.ascontiguousarray(shares.transpose(1, 0, 2))
        boxes = []
        opening = bytearray(KEY_BYTES * p.neighbours)
        for slot, pair_key in pair_keys.items():
            key = sealing_key(pair_key, self.client, peers[slot])
            boxes.append(seal(key, plain[slot].tobytes(), p.digest, p.cipher))
            opening[slot * KEY_BYTES : (slot + 1) * KEY_BYTES] = sealing_key(
                pair_key, peers[slot], self.client
            )
        kept = Memory(
            seed=memory.seed,
            mask_private=memory.mask_private,
            graph_seed=graph_seed,
            present=present,
            mask_keys=entries[:, MASK_KEY].tobytes(),
            opening_keys=bytes(opening),
            identities=entries[:, IDENTITY].tobytes() if p.signed else b"",
        )
        return Outcome(kept, (b"".join(boxes),))

    def _check_keys(self, peer: int, entry: bytes) -> None:
        """Refuse a neighbour's keys that its device did not sign."""
        public, signature = entry[IDENTITY], entry[SIGNATURE]
        statement = key_statement(self.parameters, peer, entry[: SEAL_KEY.stop])
        if not signed_by(public, signature, statement):
            raise PeerFault(f"the server gave keys of client {peer} that are not signed by its identity")
        if self.enrolled is not None and not self.enrolled(peer, public):
            raise PeerFault(
                f"the server gave keys of client {peer} signed by an identity that is not enrolled"
            )

    def mask(self, memory: Memory, vector: Words, senders: bytes, boxes: bytes) -> Outcome:
        """Open the shares that came, and mask the vector with every neighbour that sent some."""
        p = self.parameters
        sent = read_set(senders, p.neighbours)
        if np.any(sent & ~read_set(memory.present, p.neighbours)):
            raise PeerFault("the server gave shares of a client that advertised no keys")
        rows = rows_by_slot(boxes, sent, BOX_BYTES, "boxes")
        self._enough(sent, "sent shares")
        peers = self._neighbours(memory.graph_seed)
        readable = sent.copy()
        shares = np.zeros((p.neighbours, 2 * SHARE_BYTES), dtype=np.uint8)
        private = _x25519(memory.mask_private)
        seeds, signs = [self_mask_seed(p, self.client, memory.seed)], [1]
        for slot in np.flatnonzero(sent):
            part = slice(slot * KEY_BYTES, (slot + 1) * KEY_BYTES)
            try:
                opened = open_sealed(memory.opening_keys[part], rows[slot].tobytes(), p.digest, p.cipher)
                shares[slot] = np.frombuffer(opened, dtype=np.uint8)
            except PeerFault:
                # Its sender may be to blame: others can answer for it, so this client goes on without.
                readable[slot] = False
            try:
                seeds.append(pair_mask_seed(p, private, memory.mask_keys[part], self.client, peers[slot]))
            except PeerFault:
                raise PeerFault(f"the server gave a key of client {peers[slot]} that is no key") from None
            signs.append(pair_mask_sign(self.client, peers[slot]))
        masked = vector.copy()
        add_masks(masked, seeds, signs, p.cipher)
        masked &= masked.dtype.type((1 << p.bits) - 1)
        kept = Memory(
            graph_seed=memory.graph_seed,
            identities=memory.identities,
            senders=senders,
            readable=write_set(readable),
            shares=shares.tobytes(),
        )
        return Outcome(kept, (seed_commitment(p, self.client, memory.seed), pack(masked, p.bits)))

    def survivors(self, memory: Memory, included: bytes) -> Outcome:
        """Judge who is in the sum, then consent to it (active) or answer at once."""
        p = self.parameters
        members = read_set(included, p.clients)
        ring = make_ring(p.clients, p.neighbours, memory.graph_seed)
        neighbours = members[ring.neighbours[self.client]]
        if not members[self.client]:
            raise PeerFault("the server asks for shares of a sum that this client is not in")
        if np.any(neighbours & ~read_set(memory.senders, p.neighbours)):
            raise PeerFault("the server counts a neighbour as in the sum that sent no shares")
        count = int(np.count_nonzero(members))
        if count < p.minimum:
            raise Abort(f"{count} clients are in the sum; {p.minimum} are promised at least")
        self._enough(neighbours, "are in the sum")
        if not ring.connected(members):
            raise Abort("the clients in the sum are not connected, so that it would come apart")
        if not p.active:
            return self._answer(memory, neighbours)
        kept = replace(memory, included=included)
        return Outcome(kept, (self._sign(survivor_statement(p, memory.graph_seed, members)),))

    def confirm(self, memory: Memory, signers: bytes, signatures: bytes) -> Outcome:
        """Answer once t neighbours have signed the same survivors that this client did."""
        p = self.parameters
        signed = read_set(signers, p.neighbours)
        rows = rows_by_slot(signatures, signed, SIGNATURE_BYTES, "signatures")
        members = read_set(memory.included, p.clients)
        ring = make_ring(p.clients, p.neighbours, memory.graph_seed)
        neighbours = members[ring.neighbours[self.client]]
        if np.any(signed & ~neighbours):
            raise PeerFault("the server gave the signature of a client that is not in the sum")
        self._enough(signed, "agreed to the sum")
        statement = survivor_statement(p, memory.graph_seed, members)
        for slot in np.flatnonzero(signed):
            public = memory.identities[slot * KEY_BYTES : (slot + 1) * KEY_BYTES]
            if not signed_by(public, rows[slot].tobytes(), statement):
                peer = ring.neighbours[self.client, slot]
                raise PeerFault(f"client {peer} has not signed the survivors that this client was told")
        return self._answer(memory, neighbours)

    def _answer(self, memory: Memory, included: BoolArray) -> Outcome:
        """Give one share per neighbour: of its seed where it is in the sum, else of its mask key."""
        given = read_set(memory.readable, self.parameters.neighbours)
        held = np.frombuffer(memory.shares, dtype=np.uint8).reshape(-1, 2, SHARE_BYTES)
        chosen = np.where(included[:, None], held[:, 0], held[:, 1])
        return Outcome(Memory(), (write_set(given), chosen[given].tobytes()))

    def _sign(self, statement: bytes) -> bytes:
        if self.identity is None:
            raise OwnFault(f"client {self.client} has no identity to sign with; a signed round needs one")
        return self.identity.sign(statement)
