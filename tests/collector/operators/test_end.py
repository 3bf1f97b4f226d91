"""The end of a collection reaches the helper, whatever ended it; then neither operator holds a share of its sums."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from sqlalchemy import select

from mapveil.collector.operators import verification as steps
from mapveil.collector.operators.helper import Helper
from mapveil.collector.operators.peer import PeerUnavailable
from mapveil.collector.operators.task_records import ended_at_leader, find_task
from mapveil.collector.refusals import Conflict
from mapveil.collector.rounds import retention
from mapveil.collector.rounds.reconciliation import reconcile
from mapveil.collector.store.schema import jobs, report_ids, retired
from mapveil.two_operators.aggregation import LEADER
from tests.collector.engine.conftest import ACTOR

from .pair import Pair
from .test_attacks import ask

SITES = [index % 5 for index in range(24)]


class _Cut:
    """A helper that some requests do not reach, or whose answers to them are lost."""

    def __init__(self, helper: Helper, names: set[str], *, lost: bool) -> None:
        self.helper, self.names, self.lost = helper, names, lost

    def __getattr__(self, name: str) -> Any:
        honest = getattr(self.helper, name)

        def act(*given: Any) -> Any:
            if name in self.names and not self.lost:
                raise PeerUnavailable("the helper does not answer (ConnectError)")
            made = honest(*given)
            if name in self.names:
                raise PeerUnavailable("the helper does not answer (ReadTimeout)")
            return made

        return act


def held(pair: Pair, id: str) -> list[tuple[bool, bool]]:
    """Whether each operator holds sums, and messages of jobs."""
    found = []
    for store in pair.stores:
        with store.read() as connection:
            parts = connection.execute(select(jobs.c.request, jobs.c.reply, jobs.c.closing)).all()
            found.append((find_task(connection, id).sums != b"", any(any(part) for part in parts)))
    return found


def untold(pair: Pair) -> list[str]:
    with pair.stores[LEADER].read() as connection:
        return list(ended_at_leader(connection))


def test_an_aborted_collection_leaves_no_share_at_the_helper(pair_of: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(steps, "_MOST_JOB", 20)
    pair = pair_of()
    id = pair.open()
    pair.send(id, pair.reports(SITES[:22]))
    assert pair.play(id, turns=1) == "open"
    assert [sums for sums, _ in held(pair, id)] == [True, True]
    pair.away = True
    pair.start()
    pair.engine.abort(id, ACTOR, "no longer needed")
    pair.engine.tick()
    assert held(pair, id) == [(False, False), (True, True)]
    assert untold(pair) == [id]
    pair.away = False
    pair.start()
    pair.engine.tick()
    assert held(pair, id) == [(False, False), (False, False)]
    assert untold(pair) == []
    with pytest.raises(Conflict, match="is over"):
        pair.helper.answer(id, 1, ask())
    pair.helper.end(id, b"no longer needed")


@pytest.mark.parametrize("lost", [False, True])
def test_an_end_that_is_lost_is_told_again(pair_of: Any, lost: bool) -> None:
    pair = pair_of(meddle=lambda helper: _Cut(helper, {"end"}, lost=lost))
    id = pair.open()
    pair.send(id, pair.reports(SITES))
    assert pair.play(id) == "done"
    assert held(pair, id) == [(False, False), (not lost, not lost)]
    assert untold(pair) == [id]
    pair.meddle = lambda helper: helper
    pair.start()
    pair.engine.tick()
    assert held(pair, id) == [(False, False), (False, False)]
    assert untold(pair) == []


def test_a_collection_whose_terms_never_reached_the_helper_ends_there_too(pair_of: Any) -> None:
    pair = pair_of(meddle=lambda helper: _Cut(helper, {"begin"}, lost=False))
    with pytest.raises(PeerUnavailable):
        pair.open()
    (record,) = pair.engine.collections()
    assert record["state"] == "pending"
    pair.engine.tick()
    assert untold(pair) == []
    pair.engine.abort(record["id"], ACTOR, "no helper")
    assert untold(pair) == [record["id"]]
    pair.engine.tick()
    assert untold(pair) == []
    assert pair.other.collections() == []


@pytest.mark.parametrize("name", ["job", "close", "answer"])
def test_an_abort_while_the_helper_answers_is_not_written_over(pair_of: Any, name: str) -> None:
    """The leader commits nothing of a step that it was in: no sums come back after they were forgotten."""
    pair = pair_of()
    id = pair.open()
    pair.send(id, pair.reports(SITES))
    honest = getattr(pair.helper, name)

    def aborted_meanwhile(*given: Any) -> Any:
        made = honest(*given)
        pair.engine.abort(id, ACTOR, "no longer needed")
        return made

    pair.helper.__dict__[name] = aborted_meanwhile
    pair.engine.tick()
    assert pair.engine.collection(id)["state"] == "aborted"
    pair.engine.tick()
    assert held(pair, id) == [(False, False), (False, False)]


def test_a_helper_that_does_not_answer_keeps_no_other_collection_waiting(pair_of: Any) -> None:
    pair = pair_of()
    id = pair.open()
    pair.send(id, pair.reports(SITES))
    honest, asked, free = pair.helper.job, threading.Event(), threading.Event()

    def slow(*given: Any) -> bytes:
        asked.set()
        assert free.wait(60)
        return honest(*given)

    pair.helper.__dict__["job"] = slow
    other = pair.engine.create(
        {"title": "Local", "trust": "local", "region": [-74.1, 40.6, -73.9, 40.8], "tiling": "quadtree:2"}
        | {"devices": 24, "minimum": 20, "epsilon": "2", "accept_custom_policy": True},
        ACTOR,
    )["id"]
    pair.engine.open(other, ACTOR)
    leading = threading.Thread(target=pair.engine._conductor.lead)
    leading.start()
    try:
        assert asked.wait(60)
        pair.clock.advance(10**6)
        assert pair.engine._conductor.tick()
        assert pair.engine.collection(other)["state"] == "aborted"  # nobody came in time
        assert pair.engine.collection(id)["state"] == "running"
    finally:
        free.set()
        leading.join()
    assert pair.play(id) == "done"


def test_both_ledgers_reconcile_once_who_took_part_is_deleted(store_urls: list[str], pair_of: Any) -> None:
    pair = pair_of(urls=store_urls)
    id = pair.open()
    pair.send(id, pair.reports(SITES))
    assert pair.play(id) == "done"
    for store in pair.stores:
        assert retention.begin(store, id) == []
        assert retention.delete_rows(store, retention.participants_of(store, id), 7, lambda: False)
        with store.read() as connection:
            assert connection.execute(select(report_ids)).all() == []
            assert connection.execute(select(retired.c.devices)).scalar_one() == 24
            assert reconcile(connection).problems == []
    with pytest.raises(Conflict, match="is over"):
        pair.helper.job(id, 2, b"")
