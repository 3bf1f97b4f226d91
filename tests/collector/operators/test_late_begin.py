"""Terms that reach the helper after the end of their collection begin nothing, whoever sends them and however often."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from sqlalchemy import func, select, text

from mapveil.collector.operators.helper import Helper
from mapveil.collector.operators.task_records import begin_task
from mapveil.collector.refusals import Conflict, Invalid, NotFound
from mapveil.collector.store.audit_log import lines
from mapveil.collector.store.schema import ended_tasks
from mapveil.two_operators.aggregation import HELPER, LEADER
from mapveil_client.errors import InputError
from mapveil_client.terms import CollectionTerms
from tests.collector.engine.conftest import ACTOR

from .pair import OWN, SHARED, Pair, spec
from .test_attacks import ask, task_of

WHY = b"no longer needed"


def pending(pair: Pair) -> tuple[str, bytes]:
    """A collection of which the helper was not told, and its terms."""
    id = str(pair.engine.create(spec(), ACTOR)["id"])
    with pair.stores[LEADER].read() as connection:
        from mapveil.collector.rounds.collection import find

        return id, find(connection, id).terms.encode()


def states(pair: Pair) -> list[tuple[str, str | None]]:
    """State and reason of each collection at the helper."""
    return [(each["state"], each["reason"]) for each in pair.other.collections()]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_late_begin_of_a_collection_that_ended_before_opens_nothing(pair_of: Any, restarts: bool) -> None:
    """The attack: an end that the helper knows nothing of, and the terms behind it."""
    pair = pair_of()
    id, terms = pending(pair)
    pair.helper.end(id, WHY)
    pair.helper.end(id, WHY)
    for _ in range(2):
        if restarts:
            pair.start()
        with pytest.raises(Conflict, match="is over"):
            pair.helper.begin(id, terms)
    with pytest.raises(NotFound):
        pair.helper.answer(id, 1, ask())
    assert states(pair) == []
    with pair.stores[HELPER].read() as connection:
        assert connection.execute(select(func.count()).select_from(ended_tasks)).scalar() == 1
        (line,) = [each for each in lines(connection) if each.collection == id]
    assert (line.actor, line.action, line.detail) == ("leader", "task.end", {"reason": WHY.decode()})


@pytest.mark.parametrize("restarts", [False, True])
def test_a_replayed_begin_after_the_end_opens_nothing(pair_of: Any, restarts: bool) -> None:
    pair = pair_of()
    id = task_of(pair)
    pair.helper.begin(id, pair.terms.encode())
    pair.helper.end(id, WHY)
    if restarts:
        pair.start()
    with pytest.raises(Conflict, match="is over"):
        pair.helper.begin(id, pair.terms.encode())
    assert states(pair) == [("aborted", WHY.decode())]


def test_an_abort_that_overtakes_the_terms_leaves_no_task_at_the_helper(pair_of: Any) -> None:
    """The leader is killed while its terms are under way; they arrive after it told the end."""
    under_way: list[tuple[str, bytes]] = []

    class Slow:
        def __init__(self, helper: Helper) -> None:
            self.helper = helper

        def __getattr__(self, name: str) -> Any:
            return getattr(self.helper, name)

        def begin(self, id: str, terms: bytes) -> None:
            under_way.append((id, terms))
            raise SystemExit  # killed

    pair = pair_of(meddle=Slow)
    id = str(pair.engine.create(spec(), ACTOR)["id"])
    with pytest.raises(SystemExit):
        pair.engine.open(id, ACTOR)
    pair.start()
    pair.engine.abort(id, ACTOR, "no longer needed")
    pair.engine.tick()
    with pytest.raises(Conflict, match="is over"):
        pair.helper.begin(*under_way[0])
    assert states(pair) == []


def test_the_first_end_stands(pair_of: Any) -> None:
    """An end once more is confirmed, and changes neither state nor reason."""
    pair = pair_of()
    id = task_of(pair)
    pair.helper.end(id, WHY)
    pair.helper.end(id, b"")
    pair.helper.end(id, b"another reason")
    assert states(pair) == [("aborted", WHY.decode())]
    pair = pair_of()
    id = task_of(pair)
    pair.helper.end(id, b"")
    pair.helper.end(id, WHY)
    assert states(pair) == [("done", None)]


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("reason", [b"\xff", b"\0", b"x" * 501, "\u202e".encode()])
def test_a_reason_that_is_none_ends_nothing(pair_of: Any, known: bool, reason: bytes) -> None:
    pair = pair_of()
    id = task_of(pair) if known else "0" * 32
    with pytest.raises((InputError, Invalid), match="reason"):
        pair.helper.end(id, reason)
    assert states(pair) == [("running", None)] * known


def test_the_helper_records_how_a_collection_ended(pair_of: Any) -> None:
    pair = pair_of()
    id = pair.open(options={"minimum_batch": 20})
    pair.send(id, pair.reports([0] * 19))
    pair.engine.abort(id, ACTOR, "no longer needed")
    pair.engine.tick()
    assert states(pair) == [("aborted", "no longer needed")]
    id = pair.open()
    pair.send(id, pair.reports([index % 5 for index in range(24)]))
    assert pair.play(id) == "done"
    assert pair.other.collection(id)["state"] == "done"


def test_an_end_that_meets_its_begin_in_another_process_ends_it(
    postgresql_url: str, new_store: Any, monkeypatch: pytest.MonkeyPatch, pair_of: Any
) -> None:
    """Neither sees the other's rows before both have committed, unless one waits."""
    from mapveil.collector.operators import task_records as records

    stores = [new_store(postgresql_url) for _ in range(2)]
    stores[0].create_tables()
    pair = pair_of(meddle=lambda _: Helper(stores[0], OWN[HELPER], SHARED))
    id, terms = pending(pair)
    first, second = (Helper(store, OWN[HELPER], SHARED) for store in stores)
    ending = threading.Thread(target=second.end, args=(id, WHY))
    waits = text("SELECT count(*) FROM pg_locks WHERE NOT granted")

    def slow(*given: Any) -> None:
        begin_task(*given)
        ending.start()
        while ending.is_alive():
            with stores[1].read() as connection:
                if connection.execute(waits).scalar():
                    return

    monkeypatch.setattr(records, "begin_task", slow)
    first.begin(id, terms)
    ending.join()
    with stores[0].read() as connection:
        from mapveil.collector.rounds.collection import find

        assert find(connection, id).state == "aborted"
        assert CollectionTerms.decode(terms).identifier == id
