"""Records that operators read: collections with their rounds, and the ledger."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from sqlalchemy import select
from sqlalchemy.engine import Connection

from mapveil.collector.clock import time_text
from mapveil.collector.rounds.collection import Collection, counted, rounds_of, terms_of
from mapveil.collector.rounds.life_cycle import State
from mapveil.collector.rounds.progress import Progress
from mapveil.collector.rounds.results import guarantee_of
from mapveil.collector.store.schema import charges, collections, members, reports
from mapveil_client.announcement import RoundAnnouncement
from mapveil_client.secure_sum.states import ServerState, phase_name


def record_of(connection: Connection, collection: Collection, progress: Progress) -> dict[str, Any]:
    """A collection as operators see it: JSON-ready."""
    terms = collection.terms
    spent = select(charges.c.epsilon).where(charges.c.collection == collection.id)
    return {
        "id": collection.id,
        "title": terms.title,
        "state": collection.state.value,
        "trust": terms.trust,
        "method": terms.method,
        "epsilon": None if terms.epsilon is None else str(terms.epsilon),
        "options": dict(terms.options),
        "tiling": terms.cells.spec,
        "region": list(terms.cells.region.bbox),
        "devices": terms.devices,
        "minimum": terms.minimum,
        "active": terms.active,
        "guarantee": guarantee_of(terms).to_dict(),
        "join_seconds": collection.join_seconds,
        "phase_seconds": collection.phase_seconds,
        "created_at": time_text(collection.created_at),
        "opened_at": None if collection.opened_at is None else time_text(collection.opened_at),
        "ended_at": None if collection.ended_at is None else time_text(collection.ended_at),
        "reason": collection.reason,
        "terms": terms.digest.hex(),
        "members": counted(connection, collection.id, members),
        "reports": counted(connection, collection.id, reports),
        "progress": vars(progress),
        "rounds": [_round(row, collection.state) for row in rounds_of(connection, collection.id)],
        "spent": str(sum((Fraction(each) for each in connection.execute(spent).scalars()), Fraction(0))),
        "result": collection.state is State.DONE,
    }


def _round(row: Any, state: State) -> dict[str, Any]:
    announced, phase = RoundAnnouncement.decode(row.announcement), ServerState(row.phase)
    done = phase is ServerState.DONE
    if done:
        stands = "done"
    elif state is not State.RUNNING:
        stands = "aborted"
    else:
        stands = "open" if row.open else "closing"
    return {
        "number": row.number,
        "purpose": announced.purpose,
        "epsilon": str(announced.epsilon),
        "length": announced.length,
        "bits": announced.bits,
        "asked": sum(announced.sizes),
        "included": row.included,
        "phase": None if done else phase_name(phase),
        "state": stands,
    }


def ledger_lines(connection: Connection) -> list[dict[str, Any]]:
    """Epsilon that every collection charged each of its devices, the newest first."""
    query = (
        select(charges, collections.c.terms)
        .join_from(charges, collections, charges.c.collection == collections.c.id)
        .order_by(charges.c.at.desc(), charges.c.collection, charges.c.number.desc())
    )
    return [
        {
            "collection": row.collection,
            "title": terms_of(row.terms).title,
            "trust": terms_of(row.terms).trust,
            "number": row.number,
            "purpose": row.purpose,
            "epsilon": row.epsilon,
            "devices": row.devices,
            "at": row.at,
        }
        for row in connection.execute(query)
    ]
