"""Reconciliation of the stored charges: each is recomputed from terms, announcements and the audit log, and compared.

The lines of the audit log, whose chain is verified apart, hold the digest of every collection's terms and of every
round's announcement, and each charge with the digest of the devices that were charged. So the charges follow from
documents that the devices were told; a row that differs in any column, is missing or stands alone is a problem.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import Column, Select, inspect, select
from sqlalchemy.engine import Connection

from mapveil.collector.operators.peer_messages import AskedQuery
from mapveil.collector.rounds.charged_devices import charged_devices, included_devices
from mapveil.collector.rounds.collection import CHARGE, REPORTS_PURPOSE
from mapveil.collector.rounds.life_cycle import State
from mapveil.collector.store.schema import (
    answers,
    audit,
    charges,
    collections,
    results,
    retired,
    rounds,
)
from mapveil_client.announcement import RoundAnnouncement
from mapveil_client.errors import InputError
from mapveil_client.secure_sum.states import ServerState
from mapveil_client.terms import CollectionTerms, is_hexadecimal

FORGET: Final = "collection.forget"
"""Action of the audit line of a deletion; its detail is the number of devices that took part."""

_MOST_SHOWN: Final = 5
_STATES: Final = {f"collection.{state.value}": state.value for state in State}
_AT_ONCE: Final = {"yield_per": 5000}
_ONE: Final = {"yield_per": 1}  # terms may have 16 MiB

Rows = dict[tuple[str, int], dict[str, Any]]  # by collection and number
_Query = TypeVar("_Query", bound=Select[Any])


class Reconciled(NamedTuple):
    """Findings of :func:`reconcile`."""

    charges: int
    collections: int
    problems: list[str]
    retired: int = 0  # collections of which only the audit log knows who was charged


def reconcile(connection: Connection, only: str | None = None) -> Reconciled:
    """Recompute every charge and compare it with the audit log and the store, exactly.

    Parameters
    ----------
    connection : Connection
        Of a store whose audit log is intact.
    only : str, optional
        Identifier of the one collection that is looked at.
    """
    told, problems = _Log.read(connection, only)
    problems += _documents(connection, told)
    if not problems:
        problems += _charges(connection, told)
    more = len(problems) - _MOST_SHOWN
    shown = problems[:_MOST_SHOWN] + ([f"and {more} more"] if more > 0 else [])
    return Reconciled(len(told.charges), len(told.collections), shown, len(told.retired))


class _Log(NamedTuple):
    """The audit log's account of collections, rounds and charges."""

    collections: Rows  # of number 0
    rounds: Rows
    charges: Rows
    retired: Rows  # of number 0
    only: str | None  # the one collection that is looked at

    @classmethod
    def read(cls, connection: Connection, only: str | None) -> tuple["_Log", list[str]]:
        """Read the lines in order, and find those that repeat what happens once."""
        log, twice = cls({}, {}, {}, {}, only), []
        actions = ("collection.create", "round.start", CHARGE, FORGET, *_STATES)
        query = select(audit).where(audit.c.action.in_(actions)).order_by(audit.c.number)
        for line in connection.execute(log.of(query, audit.c.collection), execution_options=_AT_ONCE):
            detail = json.loads(line.detail)
            key = (line.collection or "", detail.pop("number", detail.get("round", 0)))
            rows = log.collections
            if line.action == "collection.create":
                values = {"terms": detail.get("terms"), "state": State.PENDING.value}
            elif line.action == "round.start":
                rows, values = log.rounds, {"announcement": detail.get("announcement")}
            elif line.action == CHARGE:
                rows, values = log.charges, detail
            elif line.action == FORGET:
                rows, values = log.retired, detail
            else:
                log.collections.setdefault(key, {"terms": None})["state"] = _STATES[line.action]
                continue
            if key in rows:
                twice.append(f"line {line.number} of the audit log repeats {line.action} of {_named(key)}")
            rows[key] = values
        return log, twice

    def of(self, query: _Query, collection: Column[Any]) -> _Query:
        """Keep the rows of the collections that are looked at."""
        return query if self.only is None else query.where(collection == self.only)


def _documents(connection: Connection, told: _Log) -> list[str]:
    """Differences of the stored collections and rounds from the audit log."""
    held = {
        (row.id, 0): {"terms": _digest(row.terms), "state": row.state}
        for row in connection.execute(told.of(select(collections), collections.c.id), execution_options=_ONE)
    }
    of_rounds = select(rounds.c.collection, rounds.c.number, rounds.c.announcement)
    announced = {
        (row.collection, row.number): {"announcement": _digest(row.announcement)}
        for row in connection.execute(told.of(of_rounds, rounds.c.collection))
    }
    deleted: Rows = {}
    if inspect(connection).has_table(retired.name):  # else of a Mapveil that deleted none
        for row in connection.execute(told.of(select(retired), retired.c.collection)):
            deleted[row.collection, 0] = {"devices": row.devices}
    log = "the audit log"
    return [
        *_differences("the deletion of who took part", told.retired, log, deleted, "the store"),
        *_differences("collection", told.collections, log, held, "the store"),
        *_differences("round", told.rounds, log, announced, "the store"),
    ]


def _charges(connection: Connection, told: _Log) -> list[str]:
    """Differences of the charges: of the audit log from the documents, and of the stored rows from the audit log."""
    followed: Rows = {}
    problems: list[str] = []
    ids = told.of(select(collections.c.id).order_by(collections.c.id), collections.c.id)
    for identifier in connection.execute(ids).scalars().all():
        row = connection.execute(select(collections).where(collections.c.id == identifier)).one()
        try:
            terms = CollectionTerms.decode(row.terms)
            own = _follow(connection, terms, State(row.state), told)
        except (InputError, ValueError) as error:
            problems.append(f"collection {row.id}: {error}")
            continue
        followed |= own
        spent = sum((Fraction(each["epsilon"]) for each in own.values()), Fraction(0))
        if terms.epsilon is not None and spent > terms.epsilon:
            problems.append(
                f"collection {row.id}: {spent} is charged, its terms promise at most {terms.epsilon}"
            )
        if row.state == State.DONE.value and row.created_by is not None:
            problems += _guarantee(connection, row.id, terms, own)
    held = {}
    for row in connection.execute(told.of(select(charges), charges.c.collection)):
        values = row._asdict()
        held[values.pop("collection"), values.pop("number")] = values
    stored = {
        key: {name: value for name, value in detail.items() if name != "devices_sha256"}
        for key, detail in told.charges.items()
    }
    return [
        *problems,
        *_differences("the charge", followed, "its documents", told.charges, "the audit log"),
        *_differences("the charge", stored, "the audit log", held, "the store"),
    ]


def _follow(connection: Connection, terms: CollectionTerms, state: State, told: _Log) -> Rows:
    """The charges that follow from the terms, the announcements, and the devices that took part."""
    identifier, ended = terms.identifier, state in (State.DONE, State.ABORTED)
    deleted = (identifier, 0) in told.retired  # then who took part is what the audit log says
    made: Rows = {}

    def add(number: int, purpose: str, epsilon: Fraction | None, pruned: bool) -> None:
        if deleted:
            line = told.charges.get((identifier, number), {})
            devices, digest = line.get("devices", 0), line.get("devices_sha256", "")
            if not number:  # every report is charged
                devices = told.retired[identifier, 0].get("devices", 0)
        else:
            devices, digest = charged_devices(connection, identifier, number, pruned=pruned)
        if devices or number:
            values = {
                "purpose": purpose,
                "epsilon": str(epsilon),
                "devices": devices,
                "devices_sha256": digest,
            }
            made[identifier, number] = values

    if terms.trust == "local" and (ended or state is State.FINISHING):
        add(0, REPORTS_PURPOSE, terms.epsilon, False)
    given = select(answers).where(answers.c.collection == identifier).order_by(answers.c.number)
    for row in connection.execute(given).all():
        asked = AskedQuery.decode(bytes(row.query))
        add(row.number, asked.purpose, asked.epsilon, True)
    query = select(rounds).where(rounds.c.collection == identifier).order_by(rounds.c.number)
    for row in connection.execute(query).all():
        announced = RoundAnnouncement.decode(row.announcement)
        if (announced.terms, announced.number) != (terms.digest.hex(), row.number):
            raise InputError(f"round {row.number} was announced under other terms or another number")
        phase = ServerState(row.phase)
        if ServerState.INPUTS.value < phase.value < ServerState.ABORTED.value:
            pruned = ended or phase is ServerState.DONE
            add(row.number, announced.purpose, announced.epsilon, pruned)
            in_them = included_devices(connection, identifier, row.number, pruned=pruned)
            if not deleted and row.included != in_them:
                raise InputError(
                    f"round {row.number} says {row.included} devices are in its sums, its rows do not"
                )
            charged = made[identifier, row.number]["devices"]
            if deleted and (row.included or 0) > charged:
                raise InputError(
                    f"round {row.number} says {row.included} devices are in its sums, and {charged} are charged"
                )
    return made


def _guarantee(connection: Connection, identifier: str, terms: CollectionTerms, own: Rows) -> Iterator[str]:
    """The guarantee of a finished map states what was charged."""
    text = connection.execute(select(results.c.guarantee).where(results.c.collection == identifier)).scalar()
    if text is None:
        yield f"collection {identifier} is done and has no map"
        return
    charged = [{"purpose": each["purpose"], "epsilon": each["epsilon"]} for each in own.values()]
    epsilon = None if terms.epsilon is None else str(terms.epsilon)
    try:
        record = json.loads(text)
        same = record["epsilon"] == epsilon and (
            terms.trust not in ("distributed", "operators") or record["shares"] == charged
        )
    except (ValueError, TypeError, KeyError):
        same = False
    if not same:
        yield f"collection {identifier}: the guarantee of its map is not what was charged"


def _differences(
    what: str, one: Mapping[Any, Mapping[str, Any]], by: str, other: Mapping[Any, Mapping[str, Any]], of: str
) -> Iterator[str]:
    """Rows of ``one`` (said by ``by``) that ``other`` (said by ``of``) lacks, adds or has with another value."""
    for key in sorted(one.keys() | other.keys()):
        if key not in other:
            yield f"{what} of {_named(key)} is missing in {of}"
        elif key not in one:
            yield f"{what} of {_named(key)} stands in {of}, and not in {by}"
        else:
            for name, value in one[key].items():
                if other[key].get(name) != value:
                    found = str(other[key].get(name))[:40]
                    yield f"{what} of {_named(key)}: {name} is {found} in {of}, {str(value)[:40]} by {by}"


def _named(key: tuple[str, int]) -> str:
    identifier, number = key
    shown = identifier if is_hexadecimal(identifier, 32) else "an identifier that is none"
    return f"collection {shown}" + (f", round {number}" if number else "")


def _digest(document: bytes) -> str:
    return hashlib.sha256(document).hexdigest()
