"""The rounds of a distributed collection: started, closed phase by phase, and done.

A phase is closed in three steps: no more messages are accepted (a transaction); the machine of every shard takes the
phase's messages from the store (:mod:`~mapveil.collector.rounds.shard_ends`, by any worker); and the next phase is
opened (a transaction). Whatever is lost between them is done again, and comes out the same.
"""

import json
import logging
from typing import Any, Final, NamedTuple

import numpy as np
from sqlalchemy import ColumnElement, func, insert, select, update
from sqlalchemy.engine import Connection

from mapveil.collector.rounds.collection import (
    charge,
    forget_inputs,
    log_text,
    move,
    newest_round,
    now_text,
    prune_round,
)
from mapveil.collector.rounds.life_cycle import Happening, State
from mapveil.collector.rounds.offer import Offer
from mapveil.collector.rounds.plan_replay import TOTAL, announce, message_bytes, shard_sizes
from mapveil.collector.rounds.shard_ends import Closed, Lines
from mapveil.collector.store import audit_log as audit
from mapveil.collector.store.database import lock_collection
from mapveil.collector.store.schema import assignments, rounds, shards
from mapveil.collector.store.work_queue import Task, Work, forget_work, order
from mapveil.trust.queries import Query
from mapveil_client.announcement import RoundAnnouncement
from mapveil_client.arrays import IntArray
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.states import Abort, ServerState
from mapveil_client.terms import CollectionTerms

_LOG: Final = logging.getLogger(__name__)
_RUN_BYTES: Final = 16
_SEED_BYTES: Final = 32
_ROWS: Final = 5000
_BEFORE_INPUTS: Final = (ServerState.KEYS, ServerState.SHARES)
MOST_RESTARTS: Final = 2
"""Rounds of a collection that are run again before shards are left out: each costs its devices two phases. Chosen so
that two failures leave no shard out, and devices that fail on purpose cost the others four phases at most."""


class Drawn(NamedTuple):
    """A round that could begin."""

    announcement: RoundAnnouncement
    devices: IntArray  # in the order of the shards
    seeds: tuple[bytes, ...]  # of each shard's graph


def draw_round(terms: CollectionTerms, query: Query, number: int, asked: IntArray, rng: Randomness) -> Drawn:
    """Assign the devices to shards at random, and fix the announcement."""
    if asked.size < terms.minimum:
        raise Abort(f"{asked.size} devices could be asked; {terms.minimum} are promised at least")
    sizes = shard_sizes(asked.size, Offer(terms).model)
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
    due = 1 if newest is None else newest.number + 1 if newest.over else None
    if number != due:
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
            bytes=json.dumps(message_bytes(announced), sort_keys=True),
        )
    )
    connection.execute(
        insert(shards),
        [{**scope, "shard": shard, "graph_seed": seed} for shard, seed in enumerate(drawn.seeds)],
    )
    of_shard = np.repeat(np.arange(len(announced.sizes)), announced.sizes)
    starts = np.cumsum((0, *announced.sizes))[:-1]
    client = np.arange(drawn.devices.size) - starts[of_shard]
    placed = np.column_stack([drawn.devices, of_shard, client])
    columns = ("device", "shard", "client")
    for start in range(0, len(placed), _ROWS):
        part = placed[start : start + _ROWS].tolist()
        rows = [{**scope, **dict(zip(columns, row, strict=True))} for row in part]
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
    """First step of closing a phase: accept no more of its messages, and order the second step of every shard.

    False where the collection has gone on.
    """
    if lock_collection(connection, identifier) != State.RUNNING:
        return False
    at = (*_of(identifier, number), rounds.c.phase == phase.value)
    if connection.execute(update(rounds).where(*at).values(open=False)).rowcount != 1:
        return False
    of_round = shards.c.collection == identifier, shards.c.round == number
    going_on = select(shards.c.shard).where(*of_round, shards.c.failed.is_(None))
    of_phase = Work(Task.SHARD, identifier, number, phase=phase.value)
    order(connection, [of_phase._replace(shard=shard) for shard in connection.execute(going_on).scalars()])
    return True


def restart(connection: Connection, identifier: str, number: int, phase: ServerState, closed: Closed) -> bool:
    """Instead of the third step: run the round again, as the next one, with the devices that answered ``phase``.

    Before the masked inputs no device has sent anything of its locations, so nobody is charged.
    """
    if phase not in _BEFORE_INPUTS or not closed.failed:
        return False
    if lock_collection(connection, identifier) != State.RUNNING:
        return False
    ended = rounds.c.collection == identifier, rounds.c.phase == ServerState.ABORTED.value
    before = connection.execute(select(func.count()).select_from(rounds).where(*ended)).scalar_one()
    if before >= MOST_RESTARTS:
        return False
    shut = (rounds.c.phase == phase.value, rounds.c.open.is_(False))
    values = {"phase": ServerState.ABORTED.value, "phase_at": now_text(connection)}
    moved = connection.execute(update(rounds).where(*_of(identifier, number), *shut).values(**values))
    if moved.rowcount != 1:
        return False
    prune_round(connection, identifier, number, phase)
    restarted = {"round": number, "failed": len(closed.failed)}
    record_lines(connection, identifier, (*closed.lines, ("round.restart", restarted)))
    forget_work(connection, identifier, Task.SHARD)
    return True


def open_next(
    connection: Connection,
    terms: CollectionTerms,
    announced: RoundAnnouncement,
    phase: ServerState,
    closed: Closed,
) -> bool:
    """Third step: open the next phase, or end the round.

    Before the survivors are sent to any device, and so before any sum can become known, the round is charged: here,
    in the transaction that opens the phase after the masked inputs. False where another process was faster, or ended
    the collection.

    Raises
    ------
    Abort
        No shard is left, or fewer than the promised devices in those that are.
    """
    identifier, minimum, number = terms.identifier, terms.minimum, announced.number
    if lock_collection(connection, identifier) != State.RUNNING:
        return False
    values: dict[str, Any] = {
        "phase": closed.phase.value,
        "open": closed.phase is not ServerState.DONE,
        "phase_at": now_text(connection),
        "included": closed.included,
    }
    if closed.total is not None:
        values["total"] = closed.total.astype(TOTAL).tobytes()
    shut = (rounds.c.phase == phase.value, rounds.c.open.is_(False))
    moved = connection.execute(update(rounds).where(*_of(identifier, number), *shut).values(**values))
    if moved.rowcount != 1:
        return False
    if not closed.left:
        raise Abort(closed.failed[0].reason)
    if closed.included is not None and closed.included < minimum:
        raise Abort(f"{closed.included} devices are in the sums; {minimum} are promised at least")
    for failure in closed.failed:
        here = (shards.c.collection == identifier, shards.c.round == number, shards.c.shard == failure.shard)
        connection.execute(update(shards).where(*here).values(failed=phase.value))
    record_lines(connection, identifier, closed.lines)
    if closed.withdrawn:
        forget_inputs(connection, identifier, number, closed.withdrawn)
    if phase is ServerState.INPUTS:
        charge(connection, identifier, number, announced.purpose, announced.epsilon)
    if closed.total is not None:
        prune_round(connection, identifier, number)
        forget_work(connection, identifier, Task.SHARD)
        audit.record(connection, "service", "round.done", identifier, round=number)
    return True


def record_lines(connection: Connection, identifier: str, lines: Lines) -> None:
    """Write lines of the service to the audit log, and failures of shards and restarts to its own log too."""
    for action, detail in lines:
        audit.record(connection, "service", action, identifier, **detail)
        if action == "shard.fail":
            _LOG.warning(
                "collection %s round %d: %s", identifier, detail["round"], log_text(detail["reason"])
            )
        elif action == "round.restart":
            _LOG.warning(
                "collection %s round %d is run again: shards that failed: %d",
                *(identifier, detail["round"], detail["failed"]),
            )


def _of(identifier: str, number: int) -> tuple[ColumnElement[bool], ...]:
    return rounds.c.collection == identifier, rounds.c.number == number
