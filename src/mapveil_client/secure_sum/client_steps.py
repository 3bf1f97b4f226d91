"""The steps of a client, each a function of its memory and of the server's message, and the bytes of that memory.

No step changes anything: it returns the new memory and the fields of the answer, or raises.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from mapveil_client import canonical_cbor
from mapveil_client.arrays import BoolArray
from mapveil_client.errors import InputError, Secret
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.boxes import complain, open_box, seal_box, sealing_key
from mapveil_client.secure_sum.certificate import Credentials
from mapveil_client.secure_sum.graph import Ring, make_ring
from mapveil_client.secure_sum.keys import (
    draw_graph_seed,
    key_statement,
    list_clients,
    pair_key,
    pair_mask_sign,
    receipt_statement,
    seed_commitment,
    self_mask_seed,
    signed_by,
    survivor_statement,
)
from mapveil_client.secure_sum.masks import Purpose, add_masks
from mapveil_client.secure_sum.messages import (
    CERTIFICATE,
    DELIVERED_BYTES,
    HASH_BYTES,
    IDENTITY,
    KEY_BYTES,
    MASK_KEY,
    SEAL_KEY,
    SHARE_BYTES,
    SIGNATURE,
    SIGNATURE_BYTES,
    distinct_parts,
    find_repeated,
    read_roster,
    read_set,
    receipt_bytes,
    roster_entry_bytes,
    rows_by_slot,
    write_set,
)
from mapveil_client.secure_sum.round_parameters import RoundParameters
from mapveil_client.secure_sum.shamir import split_secrets
from mapveil_client.secure_sum.states import Abort, ClientState, OwnFault, PeerFault
from mapveil_client.secure_sum.vectors import pack, packed_size

_STATE_VERSION = 2
_HEAD = 4
_C = ClientState
_Size = Callable[[RoundParameters], int]


def _held(size: _Size, *states: ClientState) -> bytes:
    """A byte string of a client's memory: its size, in the states that need it; else it is empty."""
    made: bytes = field(default=b"", metadata={"size": size, "states": states})
    return made


def _slots(unit: int) -> _Size:
    return lambda parameters: unit * parameters.neighbours


def _slot_set(parameters: RoundParameters) -> int:
    return -(-parameters.neighbours // 8)


def _key(_: RoundParameters) -> int:
    return KEY_BYTES


@dataclass(frozen=True, repr=False)
class Memory(Secret):
    """The memory of a client between two messages; most of it is secret, and none is ever shown."""

    # Packed.
    vector: bytes = _held(lambda p: packed_size(p.length, p.bits), _C.FRESH, _C.ADVERTISED, _C.SHARED)
    seed: bytes = _held(_key, _C.ADVERTISED, _C.SHARED)  # of the mask that the client adds alone
    mask_private: bytes = _held(_key, _C.ADVERTISED)
    seal_private: bytes = _held(_key, _C.ADVERTISED)
    graph_seed: bytes = _held(_key, _C.SHARED, _C.MASKED, _C.CONSENTED)
    present: bytes = _held(_slot_set, _C.SHARED)  # slots whose neighbour advertised
    pair_seeds: bytes = _held(_slots(KEY_BYTES), _C.SHARED)  # of the mask with each slot
    box_pairs: bytes = _held(_slots(KEY_BYTES), _C.SHARED)  # pair keys of the boxes with each slot
    # Public, by slot.
    identities: bytes = _held(lambda p: KEY_BYTES * p.neighbours if p.signed else 0, _C.SHARED, _C.MASKED)
    opened: bytes = _held(
        _slot_set, _C.MASKED, _C.CONSENTED
    )  # slots whose box opened: the masks are with these
    shares: bytes = _held(_slots(2 * SHARE_BYTES), _C.MASKED, _C.CONSENTED)  # of the seed, of the mask key
    included: bytes = _held(lambda p: -(-p.clients // 8), _C.CONSENTED)  # the survivors that it signed
    # Public: the identities of the committee, zero where one did not advertise.
    committee: bytes = _held(lambda p: KEY_BYTES * p.committee, _C.SHARED, _C.MASKED, _C.CONSENTED)


def write_state(parameters: RoundParameters, client: int, state: ClientState, memory: Memory) -> bytes:
    """Write a client's state. It holds secrets: whoever stores it encrypts it."""
    held = [getattr(memory, each.name) for each in fields(memory)]
    body = canonical_cbor.encode([_STATE_VERSION, state.value, parameters.digest, client, *held])
    return body + hashlib.sha256(body).digest()


def read_state(parameters: RoundParameters, data: bytes) -> tuple[int, ClientState, Memory]:
    """Read back the bytes of :func:`write_state`.

    Raises
    ------
    InputError
        They are no state of a client of this round.
    """
    body, digest = data[:-HASH_BYTES], data[-HASH_BYTES:]
    try:
        values = canonical_cbor.decode(body) if hashlib.sha256(body).digest() == digest else []
    except canonical_cbor.NotCanonical:
        values = []
    items = fields(Memory)
    if len(values) != _HEAD + len(items) or values[0] != _STATE_VERSION or values[2] != parameters.digest:
        raise InputError("a client's saved state cannot be read; expected one of this version and round")
    number, client = values[1], values[3]
    state = next((state for state in ClientState if state.value == number), None)
    kept: dict[str, bytes] = {}
    for item, value in zip(items, values[_HEAD:], strict=True):
        size = item.metadata["size"](parameters) if state in item.metadata["states"] else 0
        if isinstance(value, bytes) and len(value) == size:
            kept[item.name] = value
    whole = len(kept) == len(items)
    if not whole or state is None or not isinstance(client, int) or client >= parameters.clients:
        raise InputError("a client's saved state is damaged; expected the bytes that to_state() gave")
    return client, state, Memory(**kept)


Words = npt.NDArray[np.unsignedinteger]


class Outcome(NamedTuple):
    """The outcome of a step: the memory from now on, and the fields of the message to send."""

    memory: Memory
    fields: tuple[bytes, ...]


_read_private = X25519PrivateKey.from_private_bytes


@dataclass(frozen=True, repr=False)
class ClientSteps:
    """The steps of one client of one round, with the fields of :class:`mapveil_client.secure_sum.client.Client`."""

    parameters: RoundParameters
    client: int
    rng: Randomness
    credentials: Credentials | None

    def _ring(self, graph_seed: bytes) -> Ring:
        return make_ring(self.parameters.clients, self.parameters.neighbours, graph_seed)

    def _neighbours(self, graph_seed: bytes) -> list[int]:
        return [int(j) for j in self._ring(graph_seed).neighbours[self.client]]

    def _enough(self, slots: BoolArray, done: str) -> None:
        """Abort where fewer than t neighbours are left."""
        left, threshold = int(np.count_nonzero(slots)), self.parameters.threshold
        if left < threshold:
            raise Abort(
                f"{left} neighbours of client {self.client} {done}; {threshold} are needed", self.client
            )

    def advertise(self) -> Outcome:
        """Draw two key pairs and the seed of the client's own mask; send the public keys."""
        drawn = self.rng.words(3 * KEY_BYTES, np.uint8).tobytes()
        mask_private, seal_private = drawn[MASK_KEY], drawn[SEAL_KEY]
        memory = Memory(mask_private=mask_private, seal_private=seal_private, seed=drawn[2 * KEY_BYTES :])
        return Outcome(memory, (self._own_keys(memory),))

    def _own_keys(self, memory: Memory) -> bytes:
        """The advertisement of this client."""
        private = (memory.mask_private, memory.seal_private)
        keys = b"".join(_read_private(key).public_key().public_bytes_raw() for key in private)
        if self.credentials is not None:
            signature = self.credentials.identity.sign(key_statement(self.parameters, self.client, keys))
            keys += self.credentials.identity.public + signature + self.credentials.certificate.entry
        return keys

    def share(
        self, memory: Memory, graph: bytes, present: bytes, keys: bytes, known: bytes, committee_keys: bytes
    ) -> Outcome:
        """Seal to each neighbour its shares of the seed and of the mask key."""
        p = self.parameters
        there = read_set(present, p.neighbours)
        entries = rows_by_slot(keys, there, roster_entry_bytes(p), "keys")
        self._enough(there, "advertised keys")
        graph_seed = draw_graph_seed(p, graph)
        peers = self._neighbours(graph_seed)
        slots = [int(slot) for slot in np.flatnonzero(there)]
        private = [_read_private(key) for key in (memory.mask_private, memory.seal_private)]
        others = read_set(known, p.committee)
        committee = rows_by_slot(committee_keys, others, roster_entry_bytes(p), "committee keys")
        members = self._ring(graph_seed).committee(p.committee)
        around, rows = [self.client, *peers, *members], np.concatenate([entries, committee])
        if p.active:
            self._check_roster(graph, self._own_keys(memory), around, rows)
        if p.signed:
            if fault := self._signer.list_fault():
                raise PeerFault(fault)
            # A neighbour's keys stand among the committee's once more: both are those that the roster lists.
            there = np.concatenate([there, others & ~np.isin(members, around[: 1 + p.neighbours])])
            self._check_distinct([self._own_keys(memory), *map(bytes, rows[there])])
            for row in np.flatnonzero(there).tolist():
                if row < p.neighbours:  # of the committee only signatures of the survivors are needed
                    self._check_keys(around[1 + row], rows[row].tobytes())
                self._check_certificate(around[1 + row], rows[row].tobytes())

        def agree(purpose: Purpose, private: X25519PrivateKey, part: slice, slot: int) -> bytes:
            public, peer = entries[slot, part].tobytes(), peers[slot]
            try:
                return pair_key(p, purpose, graph_seed, private, public, self.client, peer)
            except PeerFault:
                raise PeerFault(f"the server gave a key of client {peer} that is no key") from None

        secrets = np.frombuffer(memory.seed + memory.mask_private, dtype=np.uint8).reshape(2, KEY_BYTES)
        shares = split_secrets(secrets, p.neighbours, p.threshold, self.rng).astype("<u2")
        plain = np.ascontiguousarray(shares.transpose(1, 0, 2))
        boxes = []
        box_pairs, pair_seeds = bytearray(KEY_BYTES * p.neighbours), bytearray(KEY_BYTES * p.neighbours)
        for slot in slots:
            part = slice(slot * KEY_BYTES, (slot + 1) * KEY_BYTES)
            pair_seeds[part] = agree(Purpose.PAIR_MASK, private[0], MASK_KEY, slot)
            box_pairs[part] = pair = agree(Purpose.SEALING, private[1], SEAL_KEY, slot)
            dealt = plain[slot].tobytes()
            boxes.append(seal_box(p, graph_seed, pair, self.client, peers[slot], dealt))
        kept = Memory(
            seed=memory.seed,
            graph_seed=graph_seed,
            present=present,
            pair_seeds=bytes(pair_seeds),
            box_pairs=bytes(box_pairs),
            identities=entries[:, IDENTITY].tobytes() if p.signed else b"",
            committee=committee[:, IDENTITY].tobytes() if p.active else b"",
        )
        commitment = seed_commitment(p, graph_seed, self.client, memory.seed)
        return Outcome(kept, (commitment, b"".join(boxes)))

    def _check_roster(
        self, graph: bytes, own: bytes, around: list[int], entries: npt.NDArray[np.uint8]
    ) -> None:
        """Refuse a roster whose hash this device did not help to fix, or other keys of others than it lists."""
        listed, advertised = read_roster(graph)
        rows = np.concatenate([np.frombuffer(own, dtype=np.uint8)[None], entries])
        other = np.any(listed[around] != list_clients(self.parameters, rows), axis=1)
        if np.any(other):
            peer = around[int(np.argmax(other))]
            raise PeerFault(f"the server's roster lists other keys of client {peer} than that client's own")
        if (count := int(np.count_nonzero(advertised))) < self.parameters.minimum:
            raise Abort(f"{count} clients advertised keys; {self.parameters.minimum} are promised at least")

    @staticmethod
    def _check_distinct(entries: list[bytes]) -> None:
        """Refuse a device that has several numbers: each identity, serial, mask key and seal key stands once."""
        seen: set[tuple[str, bytes]] = set()
        for entry in entries:
            if name := find_repeated(entry, seen):
                raise PeerFault(f"the server gave two clients one {name}; expected one device for each")
            seen.update(distinct_parts(entry))

    def _check_keys(self, peer: int, entry: bytes) -> None:
        """Refuse a neighbour's keys that its device did not sign."""
        public, signature = entry[IDENTITY], entry[SIGNATURE]
        statement = key_statement(self.parameters, peer, entry[: SEAL_KEY.stop])
        if not signed_by(public, signature, statement):
            raise PeerFault(f"the server gave keys of client {peer} that are not signed by its identity")

    def _check_certificate(self, peer: int, entry: bytes) -> None:
        """Refuse a device that the authority did not certify."""
        if fault := self._signer.fault(entry[IDENTITY], entry[CERTIFICATE]):
            raise PeerFault(f"the server gave keys of client {peer}: {fault}")

    def mask(self, memory: Memory, vector: Words, senders: bytes, boxes: bytes) -> Outcome:
        """Open the boxes that came, mask the vector with their senders, and complain of those that do not open."""
        p = self.parameters
        sent = read_set(senders, p.neighbours)
        if np.any(sent & ~read_set(memory.present, p.neighbours)):
            raise PeerFault("the server gave shares of a client that advertised no keys")
        rows = rows_by_slot(boxes, sent, DELIVERED_BYTES, "boxes")
        peers = self._neighbours(memory.graph_seed)
        opened, complaints = sent.copy(), b""
        shares = np.zeros((p.neighbours, 2 * SHARE_BYTES), dtype=np.uint8)
        seeds, signs = [self_mask_seed(p, memory.graph_seed, self.client, memory.seed)], [1]
        for slot in np.flatnonzero(sent).tolist():
            part, peer = slice(slot * KEY_BYTES, (slot + 1) * KEY_BYTES), peers[slot]
            key = sealing_key(memory.box_pairs[part], peer, self.client)
            box = rows[slot].tobytes()
            try:
                inside = open_box(p, memory.graph_seed, key, peer, self.client, box)
            except PeerFault:
                opened[slot] = False
                complaints += complain(p, memory.box_pairs[part], peer, self.client, box)
                continue
            shares[slot] = np.frombuffer(inside, dtype=np.uint8)
            seeds.append(memory.pair_seeds[part])
            signs.append(pair_mask_sign(self.client, peer))
        self._enough(opened, "sent shares")
        masked = vector.copy()
        add_masks(masked, seeds, signs, p.cipher)
        masked &= masked.dtype.type((1 << p.bits) - 1)
        kept = Memory(
            graph_seed=memory.graph_seed,
            identities=memory.identities,
            committee=memory.committee,
            opened=write_set(opened),
            shares=shares.tobytes(),
        )
        receipt = b""
        if p.active:
            statement = receipt_statement(p, memory.graph_seed, self.client, kept.opened)
            receipt = self._signer.identity.sign(statement)
        unopened = write_set(sent & ~opened)
        return Outcome(kept, (pack(masked, p.bits), unopened, complaints, receipt))

    def survivors(self, memory: Memory, included: bytes, receipts: bytes) -> Outcome:
        """Judge who is in the sum, then consent to it (active) or answer at once."""
        p = self.parameters
        members = read_set(included, p.clients)
        ring = self._ring(memory.graph_seed)
        neighbours = members[ring.neighbours[self.client]]
        if not members[self.client]:
            raise PeerFault("the server asks for shares of a sum that this client is not in")
        if np.any(neighbours & ~read_set(memory.opened, p.neighbours)):
            raise PeerFault("the server counts a neighbour as in the sum that sent no shares, or wrong ones")
        count = int(np.count_nonzero(members))
        if count < p.minimum:
            raise Abort(f"{count} clients are in the sum; {p.minimum} are promised at least")
        self._enough(neighbours, "are in the sum")
        if not ring.connected(members):
            raise Abort("the clients in the sum are not connected, so that it would come apart")
        if not p.active:
            return self._answer(memory, neighbours)
        self._check_receipts(memory, ring.neighbours[self.client].tolist(), neighbours, receipts)
        kept = replace(memory, included=included, identities=b"")
        return Outcome(kept, (self._signer.identity.sign(survivor_statement(p, memory.graph_seed, members)),))

    def _check_receipts(self, memory: Memory, peers: list[int], included: BoolArray, receipts: bytes) -> None:
        """Refuse a neighbour in the sum that opened no box of this client: they share no mask."""
        p, unit = self.parameters, receipt_bytes(self.parameters)
        for slot in np.flatnonzero(included).tolist():
            receipt = receipts[slot * unit : (slot + 1) * unit]
            opened, signature = receipt[:-SIGNATURE_BYTES], receipt[-SIGNATURE_BYTES:]
            statement = receipt_statement(p, memory.graph_seed, peers[slot], opened)
            public = memory.identities[slot * KEY_BYTES : (slot + 1) * KEY_BYTES]
            if not signed_by(public, signature, statement):
                raise PeerFault(f"the server gave a receipt that client {peers[slot]} did not sign")
            if not read_set(opened, p.neighbours)[p.neighbours - 1 - slot]:
                raise PeerFault(
                    f"client {peers[slot]} opened no box of this client, and adds no mask with it"
                )

    def confirm(self, memory: Memory, signers: bytes, signatures: bytes) -> Outcome:
        """Answer once a quorum of the committee has signed the same survivors that this client did."""
        p = self.parameters
        signed = read_set(signers, p.committee)
        rows = rows_by_slot(signatures, signed, SIGNATURE_BYTES, "signatures")
        included = read_set(memory.included, p.clients)
        ring = self._ring(memory.graph_seed)
        committee = ring.committee(p.committee)
        if np.any(signed & ~included[committee]):
            raise PeerFault("the server gave the signature of a client that is not in the sum")
        if (count := int(np.count_nonzero(signed))) < p.quorum:
            raise Abort(f"{count} of the committee of {p.committee} agreed to the sum; {p.quorum} are needed")
        statement = survivor_statement(p, memory.graph_seed, included)
        for member in np.flatnonzero(signed).tolist():
            public = memory.committee[member * KEY_BYTES : (member + 1) * KEY_BYTES]
            if not signed_by(public, rows[member].tobytes(), statement):
                raise PeerFault(
                    f"client {committee[member]} has not signed the survivors that this client was told"
                )
        return self._answer(memory, included[ring.neighbours[self.client]])

    def _answer(self, memory: Memory, included: BoolArray) -> Outcome:
        """Give one share per neighbour: of its seed where it is in the sum, else of its mask key."""
        given = read_set(memory.opened, self.parameters.neighbours)
        held = np.frombuffer(memory.shares, dtype=np.uint8).reshape(-1, 2, SHARE_BYTES)
        chosen = np.where(included[:, None], held[:, 0], held[:, 1])
        return Outcome(Memory(), (write_set(given), chosen[given].tobytes()))

    @property
    def _signer(self) -> Credentials:
        if self.credentials is None:
            raise OwnFault(f"client {self.client} has no identity to sign with; a signed round needs one")
        return self.credentials
