"""Either service may be killed at any commit: the map, the charges and the answers come out the same."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import func, select

from mapveil.collector.roles import Loop
from mapveil.collector.rounds import conductor
from mapveil.collector.rounds.reconciliation import reconcile
from mapveil.collector.store.schema import answers, report_ids
from mapveil.collector.store.work_queue import LEASE_SECONDS
from mapveil.two_operators.aggregation import HELPER, LEADER
from tests.collector.engine.conftest import Killed

from .pair import Pair

SITES = [index % 5 for index in range(20)]


def told(pair: Pair, id: str) -> Any:
    """All that either operator answered, and the charges of both."""
    with pair.stores[LEADER].read() as leader, pair.stores[HELPER].read() as helper:
        given = [
            [tuple(row) for row in connection.execute(select(answers.c.query, answers.c.share))]
            for connection in (leader, helper)
        ]
        assert reconcile(leader).problems == reconcile(helper).problems == []
        counted = [
            connection.execute(select(func.count()).select_from(report_ids)).scalar()
            for connection in (leader, helper)
        ]
    charges = [
        [(line["purpose"], line["epsilon"], line["devices"]) for line in engine.ledger()]
        for engine in (pair.engine, pair.other)
    ]
    return given, charges, counted, pair.engine.account(id)["accepted"]


def begun(pair: Pair) -> str:
    id = pair.open(devices=20, options={"minimum_batch": 10})
    pair.send(id, pair.reports(SITES))
    return id


@pytest.mark.parametrize("operator", [LEADER, HELPER])
@pytest.mark.parametrize("after", [False, True])
def test_a_kill_at_any_commit_changes_nothing(
    store_urls: list[str], pair_of: Any, operator: int, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mapveil.collector.operators import verification as steps

    monkeypatch.setattr(steps, "_MOST_JOB", 10)  # two jobs
    # Each start begins with a heartbeat, a commit of no step: the same one would be killed for ever.
    monkeypatch.setattr(conductor, "send_heartbeat", lambda *_: None)
    pair = pair_of(urls=store_urls)
    id = begun(pair)
    kills, most = 0, 100
    # One commit later each time, in one collection: each start goes on from the kill before.
    for _ in range(most):
        dies = (1, None) if operator == LEADER else (None, 1)
        pair.start(dies, after=after)
        try:
            state = pair.play(id, turns=1)
        except Killed:
            kills += 1
            if after:
                continue  # the commit was made
            pair.start()  # the same step again, once, to go past it
            if not pair.engine._conductor.step(id):
                pair.engine.loops._act(Loop.MAPS)
                pair.leader.end_all()
            continue
        break
    if state == "finishing":  # on PostgreSQL the worker that was killed still has the map's lease
        pair.clock.advance(LEASE_SECONDS + 1)
        pair.start()
        state = pair.play(id)
    assert state == "done"
    assert kills >= (10 if operator == LEADER else 5)
    given, charges, counted, accepted = told(pair, id)
    assert [len(each) for each in given] == [1, 1]
    assert charges[0] == charges[1]
    assert (counted, accepted) == ([20, 20], 20)


def test_an_answer_made_again_is_the_same_bytes(pair_of: Any) -> None:
    """The leader is killed before its share is kept: what the helper was told, and the noise, come out the same."""
    from mapveil.collector.operators import task_records as records
    from mapveil.collector.operators.peer_messages import AskedQuery
    from mapveil.collector.operators.verification import Secrets, noisy_share

    from .pair import OWN, SHARED

    pair = pair_of()
    id = begun(pair)
    assert pair.play(id) == "done"
    for operator, store in enumerate(pair.stores):
        keys = Secrets(OWN[operator], SHARED)
        with store.read() as connection:
            task, (given,) = pair.kept[operator], records.answers_of(connection, id)
        assert noisy_share(pair.terms, keys, task, [], given.query) == given.share
        other = AskedQuery("another", given.query.encoding, given.query.epsilon)
        assert noisy_share(pair.terms, keys, task, [], other) != given.share
