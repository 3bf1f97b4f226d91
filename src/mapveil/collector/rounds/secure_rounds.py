"""The rounds of a distributed collection: started, closed phase by phase, and done.

A phase is closed in three steps: no more messages are accepted (a transaction); the machine of every shard takes the
phase's messages from the store (outside any); and the next phase is opened (a transaction). Whatever is lost between
them is done again, and comes out the same.
"""

import json
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from sqlalchemy import ColumnElement, insert, update
from sqlalchemy.engine import Connection

from mapveil.collector.rounds.collection import charge, forget_messages, move, newest_round, now_text
from mapveil.collector.rounds.life_cycle import Happening, State
from mapveil.collector.rounds.offer import offer
from mapveil.collector.rounds.plan_replay import TOTAL, announce, round_terms, shard_sizes
from mapveil.collector.rounds.shard_machines import RoundMachines
from mapveil.collector.store import audit_log as audit
from mapveil.collector.store.database import lock_collection
from mapveil.collector.store.schema import assignments, rounds, shards
from mapveil.trust.queries import Query
from mapveil_client.announcement import RoundAnnouncement
from mapveil_client.arrays import IntArray
from mapveil_client.errors import PromiseError
from mapveil_client.randomness.noise_shares import promised_survivors
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.messages import largest
from mapveil_client.secure_sum.states import Abort, Message, ServerState, sent_messages, server_phases
from mapveil_client.terms import CollectionTerms

_RUN_BYTES: Final = 16
_SEED_BYTES: Final = 32
_ROWS: Final = 5000


class Drawn(NamedTuple):
    """A round that could begin."""

    announcement: RoundAnnouncement
    devices: IntArray  # in the order of the shards
    seeds: tuple[bytes, ...]  # of each shard's graph


class Closed(NamedTuple):
    """Result of a phase, over all shards."""

    phase: ServerState  # the next one
    included: int | None  # devices in the sums, once that is settled
    total: IntArray | None  # units of all shards, once the round is done


def draw_round(terms: CollectionTerms, query: Query, number: int, asked: IntArray, rng: Randomness) -> Drawn:
    """Assign the devices to shards at random, and fix the announcement."""
    if asked.size < terms.minimum:
        raise PromiseError(f"{asked.size} devices could be asked; {terms.minimum} are promised at least")
    sizes = shard_sizes(asked.size, offer(terms).model)
    run = rng.words(_RUN_BYTES, np.uint8).tobytes().hex()
    seeds = rng.words(_SEED_BYTES * sizes.size, np.uint8).tobytes()
    order = np.argsort(rng.words(asked.size, np.uint64), kind="stable")
    return Drawn(
        announce(terms, query, number, run, sizes),
        asked[order],
        tuple(seeds[start : start + _SEED_BYTES] for start in range(0, len(seeds), _SEED_BYTES)),
    )


def start_round(connection: Connection, identifier: str, drawn: Drawn) -> bool:
    """Begin a round, the first one with the step from joining to running; False where another process was faster."""
    announced, number = drawn.announcement, drawn.announcement.number
    state = lock_collection(connection, identifier)
    newest = newest_round(connection, identifier)
    before = None if newest is None else (newest.number, newest.phase)
    if before != (None if number == 1 else (number - 1, ServerState.DONE)):
        return False
    if number == 1:
        if move(connection, identifier, Happening.JOINED, "service", members=drawn.devices.size) is None:
            return False
    elif state != State.RUNNING:
        return False
    scope = {"collection": identifier, "round": number}
    connection.execute(
        insert(rounds).values(
            collection=identifier,
            number=number,
            announcement=announced.encode(),
            phase=ServerState.KEYS.value,
            open=True,
            phase_at=now_text(connection),
            bytes=json.dumps(_message_bytes(announced), sort_keys=True),
        )
    )
    connection.execute(
        insert(shards),
        [{**scope, "shard": shard, "graph_seed": seed} for shard, seed in enumerate(drawn.seeds)],
    )
    of_shard = np.repeat(np.arange(len(announced.sizes)), announced.sizes)
    starts = np.cumsum((0, *announced.sizes))[:-1]
    client = np.arange(drawn.devices.size) - starts[of_shard]
    placed = np.column_stack([drawn.devices, of_shard, client]).tolist()
    columns = ("device", "shard", "client")
    for start in range(0, len(placed), _ROWS):
        rows = [{**scope, **dict(zip(columns, row, strict=True))} for row in placed[start : start + _ROWS]]
        connection.execute(insert(assignments), rows)
    detail = {
        "asked": drawn.devices.size,
        "shards": len(announced.sizes),
        "announcement": announced.digest.hex(),
    }
    audit.record(
        connection, "service", "round.start", identifier, round=number, purpose=announced.purpose, **detail
    )
    return True


def shut_phase(connection: Connection, identifier: str, number: int, phase: ServerState) -> bool:
    """First step of closing a phase: accept no more of its messages; False where the collection has gone on."""
    if lock_collection(connection, identifier) != State.RUNNING:
        return False
    at = (*_of(identifier, number), rounds.c.phase == phase.value)
    return connection.execute(update(rounds).where(*at).values(open=False)).rowcount == 1


def close_machines(held: RoundMachines, phase: ServerState) -> Closed:
    """Second step: every shard's machine takes the phase's messages from the store. CPU-heavy.

    An :class:`Abort` means that a shard cannot be finished, or too few of its devices are left: then no sum of the
    round can ever be known.
    """
    announced = held.announcement
    order = (*server_phases(announced.active), ServerState.DONE)
    following = order[order.index(phase) + 1]
    included: int | None = 0 if following.value > ServerState.INPUTS.value else None
    totals: list[npt.NDArray[np.uint64]] = []
    for shard, machine in enumerate(held.machines):
        with machine.lock:
            machine.bring_up(following)
            if included is not None:
                count = int(np.count_nonzero(machine.server.included))
                promised = promised_survivors(announced.sizes[shard], announced.dropout)
                if count < promised:
                    raise Abort(
                        f"{count} of the {announced.sizes[shard]} devices of shard {shard + 1} are left; {promised} "
                        "were promised, and their noise would not suffice"
                    )
                included += count
            if following is ServerState.DONE:
                totals.append(machine.server.total)
    units = round_terms(announced).units(totals) if totals else None
    return Closed(following, included, units)


def open_next(
    connection: Connection, identifier: str, announced: RoundAnnouncement, phase: ServerState, closed: Closed
) -> bool:
    """Third step: open the next phase, or end the round.

    Before the survivors are sent to any device, and so before any sum can become known, the round is charged: here,
    in the transaction that opens the phase after the masked inputs. False where another process was faster, or ended
    the collection.
    """
    number = announced.number
    if lock_collection(connection, identifier) != State.RUNNING:
        return False
    values: dict[str, Any] = {
        "phase": closed.phase.value,
        "open": closed.phase is not ServerState.DONE,
        "phase_at": now_text(connection),
    }
    if phase is ServerState.INPUTS:
        values["included"] = closed.included
    if closed.total is not None:
        values["total"] = closed.total.astype(TOTAL).tobytes()
    shut = (rounds.c.phase == phase.value, rounds.c.open.is_(False))
    moved = connection.execute(update(rounds).where(*_of(identifier, number), *shut).values(**values))
    if moved.rowcount != 1:
        return False
    if phase is ServerState.INPUTS:
        charge(connection, identifier, number, announced.purpose, announced.epsilon)
    if closed.total is not None:
        forget_messages(connection, identifier, number)
        audit.record(connection, "service", "round.done", identifier, round=number)
    return True


def _of(identifier: str, number: int) -> tuple[ColumnElement[bool], ...]:
    return rounds.c.collection == identifier, rounds.c.number == number


def _message_bytes(announced: RoundAnnouncement) -> dict[str, dict[str, int]]:
    """The most that one device of the largest shard sends and receives in each phase."""
    shard = int(np.argmax(announced.sizes))
    parameters = announced.parameters(shard)

    def sizes(kinds: tuple[Message, ...]) -> dict[str, int]:
        return {kind.name.lower(): largest(parameters, kind) for kind in kinds}

    sent, received = sent_messages(announced.active)
    return {"up": sizes(sent), "down": sizes(received)}
