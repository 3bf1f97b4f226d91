"""How a collection ended, and whether everything that was written down about it adds up."""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import func, select

from mapveil.collector.clock import SystemClock
from mapveil.collector.rounds.plan_replay import TOTAL
from mapveil.collector.rounds.reconciliation import reconcile
from mapveil.collector.store import schema
from mapveil.collector.store.database import Store
from mapveil_client.announcement import RoundAnnouncement
from mapveil_client.contribution import encode_places
from mapveil_client.randomness.random import Randomness
from mapveil_client.terms import CollectionTerms

from .scene import Scene, Service, until

VIEWS = ("", "/map", "/guarantee")


class Outcome(NamedTuple):
    """Findings about a collection."""

    state: str
    reason: str | None
    rounds: int  # that are done
    included: tuple[int, ...]  # devices in the sums, round by round
    spent: Fraction  # by the collector's ledger
    actions: Counter[str]  # of the audit log


_ORPHAN = re.compile(
    r'Traceback \(most recent call last\):\n  File "<string>", line 1, .*\n(?: .*\n)+EOFError: Ran out of input\n'
)
"""Traceback of a process that Python was starting when its parent was killed."""


def outcome_of(scene: Scene, service: Service, collection: str) -> Outcome:
    """Check everything about a collection that has ended; restart the service, and see the same."""
    until(
        lambda: _ended(scene, service, collection), "the collection has ended"
    )  # devices may leave before it
    until(lambda: _erased(scene, collection), "its messages and reports are erased")
    told = _told(scene, service, collection)
    found = _checked(scene, collection)
    service.kill()
    service.start()
    assert _told(scene, service, collection) == told, "the outcome is another one after a restart"
    assert _checked(scene, collection) == found
    assert "Traceback" not in _ORPHAN.sub("", service.log), service.log
    return found


def _ended(scene: Scene, service: Service, collection: str) -> bool:
    return scene.ask(service, f"/collections/{collection}")["state"] in ("done", "aborted")


def _erased(scene: Scene, collection: str) -> bool:
    store, (messages, reports) = Store(scene.store, clock=SystemClock()), (schema.messages, schema.reports)
    left = (
        select(messages.c.client).where(messages.c.collection == collection),
        select(reports.c.device).where(reports.c.collection == collection, reports.c.body != b""),
    )
    try:
        with store.read() as connection:
            return all(connection.execute(each).first() is None for each in left)
    finally:
        store.close()


def _told(scene: Scene, service: Service, collection: str) -> list[Any]:
    record = scene.ask(service, f"/collections/{collection}")
    views = VIEWS if record["state"] == "done" else VIEWS[:1]
    return [
        *(scene.ask(service, f"/collections/{collection}{view}") for view in views),
        scene.ask(service, "/ledger"),
        scene.ask(service, "/audit?limit=1000"),
    ]


def _checked(scene: Scene, collection: str) -> Outcome:
    store = Store(scene.store, clock=SystemClock())
    try:
        report = store.check()
        assert report.ok, report.problems  # of which the audit log's chain is one
        with store.read() as connection:
            assert reconcile(connection).problems == []
            return _of(connection, scene, collection)
    finally:
        store.close()


def _of(connection: Any, scene: Scene, collection: str) -> Outcome:
    tables = schema.collections, schema.rounds, schema.charges, schema.assignments, schema.audit
    of_collection = schema.collections.c.id == collection
    row = connection.execute(select(schema.collections).where(of_collection)).one()
    rounds, charges, assignments, lines = (
        connection.execute(select(table).where(table.c.collection == collection)).all()
        for table in tables[1:]
    )
    assert not connection.execute(select(func.count()).select_from(schema.messages)).scalar()
    terms = CollectionTerms.decode(row.terms)
    charged = {each.number: each for each in charges}
    memories, places = scene.memories(), scene.whereabouts()
    included: dict[int, set[int]] = {}
    for each in sorted(rounds, key=lambda line: line.number):
        announced = RoundAnnouncement.decode(each.announcement)
        if each.total is None:
            continue
        included[each.number] = {assigned.device for assigned in assignments if assigned.round == each.number}
        assert each.included == len(included[each.number]) == charged[each.number].devices
        assert Fraction(charged[each.number].epsilon) == announced.epsilon
        plain = sum(
            encode_places(
                places[device].devices(terms),
                announced.query.encoding,
                announced.scale,
                announced.rounding,
                Randomness(0),
            ).dense(0)
            for device in included[each.number]
        )
        total = np.frombuffer(each.total, dtype=TOTAL)
        assert np.array_equal(np.rint(total / announced.scale), plain / announced.scale), "another sum"
        assert plain.any()
    actions = Counter(line.action for line in lines)
    if terms.trust == "local":
        return _of_reports(connection, row, charges, memories, actions)
    _check_accounts(collection, terms, charged, included, memories)
    assert actions["collection.charge"] == len(charges)
    assert actions["round.start"] == len(rounds)
    assert actions["round.done"] == len(included)
    assert actions["collection.done"] + actions["collection.aborted"] == 1
    if row.state == "done":
        assert len(charged) == len(included) == len(rounds) - actions["round.restart"] > 0
    return Outcome(
        row.state,
        row.reason,
        len(included),
        tuple(len(included[number]) for number in sorted(included)),
        sum((Fraction(each.epsilon) for each in charges), Fraction(0)),
        actions,
    )


def _of_reports(connection: Any, row: Any, charges: Any, memories: Any, actions: Counter[str]) -> Outcome:
    """A collection of reports: one of each device, charged once on both sides, and thrown away."""
    table = schema.reports
    kept = connection.execute(select(table).where(table.c.collection == row.id)).all()
    assert all(report.body == b"" for report in kept)
    ((number, devices, epsilon),) = [(line.number, line.devices, line.epsilon) for line in charges]
    assert (number, devices) == (0, len(kept))
    for report in kept:
        assert memories[report.device].account.entries[row.id].charges == {0: Fraction(epsilon)}
    assert actions["collection.finishing"] == actions["collection.done"] == 1
    return Outcome(row.state, row.reason, 0, (devices,), Fraction(epsilon), actions)


def _check_accounts(
    collection: str, terms: CollectionTerms, charged: Any, included: Any, memories: Any
) -> None:
    """The devices' own accounts: whatever the collector charged a device, the device did, once."""
    assert terms.epsilon is not None
    for number, devices in included.items():
        for device in devices:
            own = memories[device].account.entries[collection].charges
            assert own[number] == Fraction(charged[number].epsilon)
    for device, memory in memories.items():
        entry = memory.account.entries.get(collection)
        if entry is None:
            continue
        assert entry.spent <= terms.epsilon
        was_in = [number for number, devices in included.items() if device in devices]
        # Beside those, at most the one round that its vector left for, or may have left for, and did not arrive in.
        assert len(set(entry.charges) - set(was_in)) <= 1
