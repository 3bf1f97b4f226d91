"""What a client remembers between two messages, and how a device keeps it through a restart."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import NamedTuple

from mapveil_client import canonical_cbor
from mapveil_client.errors import InputError
from mapveil_client.secure_sum.messages import HASH_BYTES, KEY_BYTES, SHARE_BYTES
from mapveil_client.secure_sum.packing import packed_size
from mapveil_client.secure_sum.parameters import RoundParameters
from mapveil_client.secure_sum.states import ClientState

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
        raise InputError("a client's saved state cannot be read; one of this version and round is accepted")
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
        raise InputError("a client's saved state is damaged; the bytes that to_state() gave are accepted")
    return client, state, Memory(**kept)
