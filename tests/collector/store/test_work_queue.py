"""Work is leased by one worker at a time, taken over from one that was killed, and shared fairly."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from mapveil.collector.rounds import worker
from mapveil.collector.rounds.engine import Engine
from mapveil.collector.store.work_queue import (
    LEASE_SECONDS,
    Leases,
    Task,
    Work,
    finish,
    forget_exports,
    forget_work,
    is_ordered,
    keep_result,
    order,
    results,
    unfinished,
    waits_in_vain,
)
from tests.authority import AUTHORITY

ONE, OTHER = "a" * 32, "b" * 32


def shards(collection: str, count: int, phase: int = 1) -> list[Work]:
    return [Work(Task.SHARD, collection, 1, shard, phase=phase) for shard in range(count)]


def put(store: Any, work: list[Work]) -> None:
    with store.write() as connection:
        order(connection, work)


def kept(store: Any, work: Work, result: bytes) -> bool:
    with store.write() as connection:
        return keep_result(connection, work, result)


def test_two_workers_never_hold_the_same_work(postgresql_store: Any) -> None:
    put(postgresql_store, shards(ONE, 6))
    workers = [Leases(postgresql_store, name, Task.SHARD) for name in "xy"]
    taken = [each for _ in range(4) for worker in workers for each in worker.take(1)]
    assert sorted(each.shard for each in taken) == list(range(6))


def test_work_of_a_worker_that_was_killed_is_taken_by_another(store: Any, clock: Any) -> None:
    put(store, shards(ONE, 1))
    killed, other = (Leases(store, name, Task.SHARD) for name in "xy")
    (work,) = killed.take(1)
    if store.shareable:  # on SQLite nobody else can be working
        assert other.take(1) == []
        clock.advance(LEASE_SECONDS + 1)
    assert other.take(1) == [work]
    # The first one was only asleep: both come to the same bytes, and one of them counts.
    assert [kept(store, work, b"sum"), kept(store, work, b"sum")] == [True, False]
    assert other.take(1) == killed.take(1) == []


def test_a_lease_lasts_from_its_last_renewal(postgresql_store: Any, clock: Any) -> None:
    put(postgresql_store, shards(ONE, 1))
    own, other = (Leases(postgresql_store, name, Task.SHARD) for name in "xy")
    (work,) = own.take(1)
    clock.advance(LEASE_SECONDS - 1)
    own.renew([work])
    clock.advance(LEASE_SECONDS - 1)
    assert other.take(1) == []
    clock.advance(2)
    assert other.take(1) == [work]
    own.renew([work])  # which it has no more
    clock.advance(LEASE_SECONDS - 1)
    assert own.take(1) == []


def test_collections_take_turns_however_many_shards_they_have(store: Any, clock: Any) -> None:
    put(store, shards(ONE, 20))
    clock.advance(1)
    put(store, shards(OTHER, 3))
    worker, served = Leases(store, "x", Task.SHARD), []
    for _ in range(8):
        clock.advance(1)
        (work,) = worker.take(1)
        served.append(work.collection)
        assert kept(store, work, b"")
    assert Counter(served[:6]) == {ONE: 3, OTHER: 3}
    assert served[6:] == [ONE, ONE]


def test_a_worker_gets_the_shards_that_it_had_before(postgresql_store: Any) -> None:
    store = postgresql_store
    put(store, shards(ONE, 4))
    workers = [Leases(store, name, Task.SHARD) for name in "xy"]
    before = [[each.shard for each in worker.take(2)] for worker in workers]
    for work in shards(ONE, 4):
        assert kept(store, work, b"")
    put(store, shards(ONE, 4, phase=2))
    assert [[each.shard for each in worker.take(2)] for worker in reversed(workers)] == before[::-1]


def test_a_phase_is_done_when_every_shard_has_a_result(store: Any) -> None:
    work = shards(ONE, 2)

    def left(phase: int) -> int | None:
        with store.read() as connection:
            return unfinished(connection, ONE, 1, phase)

    assert left(1) is None
    put(store, work)
    assert kept(store, work[1], b"second")
    assert left(1) == 1
    put(store, work)  # ordered once more: what is done stays done
    assert left(1) == 1
    assert kept(store, work[0], b"first")
    with store.read() as connection:
        assert list(results(connection, ONE, 1, 1)) == [b"first", b"second"]
    put(store, shards(ONE, 2, phase=2))
    assert (left(1), left(2)) == (None, 2)
    assert not kept(store, work[0], b"late")  # of the phase before


def test_work_that_is_given_back_rests(store: Any, clock: Any) -> None:
    put(store, shards(ONE, 2))
    worker = Leases(store, "x", Task.SHARD)
    taken = worker.take(2)
    worker.rest(taken[:1])
    worker.rest(taken[1:], 5)
    assert worker.take(2) == taken[:1]
    assert kept(store, taken[0], b"")
    clock.advance(6)
    assert worker.take(2) == taken[1:]


def test_work_is_taken_off(store: Any) -> None:
    a_map = Work(Task.MAP, ONE)
    put(store, [a_map, *shards(ONE, 2)])
    with store.write() as connection:
        assert is_ordered(connection, a_map)
        assert [finish(connection, a_map), finish(connection, a_map)] == [True, False]
        forget_work(connection, ONE, Task.SHARD)
        assert not is_ordered(connection, shards(ONE, 1)[0])


def test_files_that_nobody_makes_are_taken_off(store: Any, clock: Any) -> None:
    gone = Work(Task.EXPORT, ONE, name="png", place="a folder of before")
    (shard,) = shards(ONE, 1)
    put(store, [gone, shard])
    clock.advance(100)
    assert forget_exports(store, 200) == pytest.approx(100)  # until this one is old
    assert there(store, gone)
    assert forget_exports(store, 50) == 50
    assert not there(store, gone)
    assert there(store, shard)


def test_a_worker_looks_for_files_that_nobody_makes_when_one_is_due(
    store: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []

    def look(*given: Any) -> float:
        looks.append(clock.monotonic())
        return forget_exports(*given)

    monkeypatch.setattr(worker, "forget_exports", look)
    gone = Work(Task.EXPORT, ONE, name="png", place="a folder of before")
    put(store, [gone])
    clock.advance(600)
    works = Engine(store, clock, authority=AUTHORITY).loops._worker
    for _ in range(100):
        works.make_exports()
    assert len(looks) == 1
    clock.advance(2990)
    works.make_exports()
    assert len(looks) == 1
    clock.advance(20)  # an hour after it was ordered
    works.make_exports()
    assert not there(store, gone)
    assert len(looks) == 2


def there(store: Any, wanted: Work) -> bool:
    with store.read() as connection:
        return is_ordered(connection, wanted)


@pytest.mark.parametrize("leased", [False, True])
def test_work_waits_in_vain_where_no_worker_has_a_lease(
    postgresql_store: Any, clock: Any, leased: bool
) -> None:
    put(postgresql_store, shards(ONE, 2))
    clock.advance(100)
    if leased:
        Leases(postgresql_store, "x", Task.SHARD).take(1)
    assert waits_in_vain(postgresql_store, 60) is not leased
    assert not waits_in_vain(postgresql_store, 200)
