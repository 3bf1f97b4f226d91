"""A collection by two operators from beginning to end: its sums, its charges, its accounts, and what ends it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
from sqlalchemy.exc import IntegrityError

from mapveil.collector.operators.task_records import KeepSealedReports, find_task
from mapveil.collector.refusals import Conflict, Invalid, TooLate
from mapveil.collector.rounds.intake import Kept, Report
from mapveil.collector.rounds.reconciliation import reconcile
from mapveil.two_operators.aggregation import HELPER, LEADER
from mapveil_client.errors import InputError
from mapveil_client.randomness.random import Randomness
from tests.collector.engine.conftest import ACTOR
from tests.collector.store.rows import lock_waits

from .pair import OWN, Pair, changed

SITES = [index % 5 for index in range(24)]


def exact(pair: Pair, id: str) -> list[int]:
    """The sums without noise, of both operators' shares."""
    from mapveil.collector.operators.verification import scheme_for
    from mapveil.two_operators.sum_schemes import noisy_sums_of

    shares = [np.frombuffer(pair.kept[number].sums, dtype=np.uint8)[None] for number in (LEADER, HELPER)]
    for store in pair.stores:
        with store.read() as connection:
            assert find_task(connection, id).sums == b""
    return noisy_sums_of(scheme_for(pair.terms), (shares[0], shares[1])).tolist()


def test_a_collection_becomes_a_map_of_noisy_sums(store_urls, pair_of) -> None:
    pair = pair_of(urls=store_urls)
    id = pair.open(method="multiscale")
    pair.send(id, pair.reports(SITES))
    assert pair.play(id) == "done"
    assert exact(pair, id)[:5] == [5, 5, 5, 5, 4]
    heat = pair.engine.map(id)
    assert heat.guarantee.model == "operators"
    assert heat.guarantee.epsilon == 2
    charges = [(line["purpose"], line["epsilon"], line["devices"]) for line in pair.engine.ledger()]
    assert charges == [(line["purpose"], line["epsilon"], line["devices"]) for line in pair.other.ledger()]
    assert sum(Fraction(epsilon) for _, epsilon, _ in charges) == 2
    accounts = [engine.account(id) for engine in (pair.engine, pair.other)]
    assert [account.pop("operator") for account in accounts] == ["leader", "helper"]
    assert accounts[0] == accounts[1]
    assert accounts[0]["accepted"] == 24
    for store in pair.stores:
        with store.read() as connection:
            assert reconcile(connection).problems == []


@pytest.mark.parametrize("scale", [3, 1])
def test_vectors_and_paths_add_up_alike(pair_of, scale: int) -> None:
    pair = pair_of()
    id = pair.open(options={"scale": scale})
    pair.send(id, pair.reports([*SITES[:-1], None]))
    assert pair.play(id) == "done"
    assert exact(pair, id)[:5] == [5 * scale, 5 * scale, 5 * scale, 4 * scale, 4 * scale]


def test_a_report_counts_once_whoever_sends_it_again(pair_of) -> None:
    pair = pair_of(devices=25)
    id = pair.open()
    bodies = pair.reports(SITES)
    pair.send(id, bodies[:3])
    pair.send(id, bodies[:3])
    with pytest.raises(Conflict, match="another device has sent this report"):
        pair.send(id, bodies[:1], first=25)
    with pytest.raises(Conflict, match="only one is kept"):
        pair.send(id, bodies[5:6], first=1)
    pair.send(id, bodies[3:], first=4)
    assert pair.play(id) == "done"
    assert sum(exact(pair, id)) == 24
    with pytest.raises(TooLate):
        pair.send(id, pair.reports([1], seed=6), first=25)


def test_two_devices_that_send_one_report_at_once_count_once(pair_of) -> None:
    pair = pair_of()
    id = pair.open()
    (body,) = pair.reports([3])

    async def at_once() -> list[object]:
        sent = (pair.engine.devices.report(id, device, body) for device in range(1, 9))
        return await asyncio.gather(*sent, return_exceptions=True)

    outcomes = asyncio.run(at_once())
    assert sum(outcome is None for outcome in outcomes) == 1
    assert all(isinstance(outcome, Conflict) for outcome in outcomes if outcome is not None)


def test_two_processes_insert_the_ids_of_reports_in_one_order(
    pair_of, postgresql_url, new_store, tmp_path
) -> None:
    """Else each holds the id that the other waits for, and one of them gives way."""
    pair = pair_of(urls=[postgresql_url, f"sqlite:///{tmp_path / 'helper.sqlite'}"])
    keep = KeepSealedReports(pair.open())
    store, other = pair.stores[LEADER], new_store(postgresql_url)
    first, last = sorted(pair.reports([3, 4]))

    def keep_both() -> list[Kept]:
        with other.write() as connection:
            return keep(connection, [Report(3, last), Report(4, first)])

    with ThreadPoolExecutor() as pool:
        with store.write() as connection:
            assert keep(connection, [Report(1, first)]) == [Kept.NEW]
            both = pool.submit(keep_both)
            while not lock_waits(store):
                assert not both.done()
            assert keep(connection, [Report(2, last)]) == [Kept.NEW]
        with pytest.raises(IntegrityError):  # upon which a batch is written again
            both.result()
    assert keep_both() == [Kept.REPLAYED] * 2


def test_whoever_keeps_another_report_takes_none_from_its_sender(pair_of) -> None:
    pair = pair_of()
    id = pair.open()
    own, another = pair.reports([3, 4])
    pair.send(id, [own])

    async def at_once() -> list[object]:
        sent = (pair.engine.devices.report(id, device, another) for device in (1, 2))
        return await asyncio.gather(*sent, return_exceptions=True)

    refused, kept = asyncio.run(at_once())
    assert isinstance(refused, Conflict)
    assert kept is None


def test_a_minimum_batch_is_kept_by_whoever_counts(pair_of) -> None:
    pair = pair_of()
    id = pair.open(devices=20)
    good = pair.reports(SITES[:20])
    nonsense = changed(good[0], public=bytes(len(pair.reports([0])[0]) and 1) or b"")
    with pytest.raises(Invalid, match="other sizes"):
        pair.send(id, [nonsense])
    from mapveil_client.two_operators.sealed_report import Report

    spoilt = Report.decode(good[0])
    public = bytes([spoilt.public[0] ^ 1]) + spoilt.public[1:]
    pair.send(id, [changed(good[0], public=public), *good[1:]])
    assert pair.play(id) == "aborted"
    assert "19 reports were accepted and 20 are needed" in pair.engine.collection(id)["reason"]
    assert pair.engine.ledger() == pair.other.ledger() == []
    assert pair.engine.account(id)["refused"] == {"sealed for another": 1}


def test_a_lost_helper_pauses_and_never_spoils(pair_of) -> None:
    pair = pair_of()
    id = pair.open()
    pair.send(id, pair.reports(SITES))
    pair.away = True
    pair.start()
    assert pair.play(id) == "running"
    pair.away = False
    pair.start()
    assert pair.play(id) == "done"
    assert sum(exact(pair, id)) == 24


def test_whole_jobs_are_verified_while_reports_come_in(pair_of, monkeypatch) -> None:
    from mapveil.collector.operators import verification

    monkeypatch.setattr(verification, "_MOST_JOB", 5)
    pair = pair_of()
    id = pair.open()
    bodies = pair.reports(SITES)
    pair.send(id, bodies[:12])
    assert pair.play(id, turns=1) == "open"
    with pair.stores[HELPER].read() as connection:
        assert find_task(connection, id).accepted == 10
    pair.send(id, bodies[12:], first=13)
    assert pair.play(id) == "done"
    assert exact(pair, id)[:5] == [5, 5, 5, 5, 4]


def test_what_cannot_be_answered_is_refused_before_any_device_is_asked(pair_of) -> None:
    pair = pair_of()
    with pytest.raises(InputError, match="65536 sites: expected at most 16384"):
        pair.open(tiling="quadtree:8")
    with pytest.raises(InputError, match="need a helper"):
        pair.other.create({**_plain(), "trust": "operators"}, ACTOR)
    with pytest.raises(InputError, match="active: sums by two operators have no secure sum"):
        pair.open(active=True)
    assert pair.engine.collection(pair.open(active=False))["active"] is False


def _plain() -> dict[str, object]:
    from .pair import spec

    return spec()


def test_no_collection_opens_where_the_helper_cannot_be_told(pair_of) -> None:
    from mapveil.collector.rounds.engine import Engine

    from .pair import spec

    pair = pair_of()
    id = pair.engine.create(spec(), ACTOR)["id"]
    with pytest.raises(Conflict, match="the helper cannot be told"):
        Engine(pair.stores[LEADER], pair.clock).open(id, ACTOR)
    assert pair.engine.collection(id)["state"] == "pending"


def test_the_noise_of_an_answer_is_bound_to_all_that_is_answered() -> None:
    keys = OWN[LEADER]

    def drawn(*bound: bytes) -> bytes:
        return keys.noise(*bound).words(32, np.uint8).tobytes()

    one = drawn(b"task", b"1", b"query", b"sums")
    assert drawn(b"task", b"1", b"query", b"sums") == one
    others = [drawn(b"tas", b"k1", b"query", b"sums"), drawn(b"task", b"1", b"query", b"other")]
    others += [OWN[HELPER].noise(b"task", b"1", b"query", b"sums").words(32, np.uint8).tobytes()]
    assert len({one, *others}) == 4
    assert not keys.noise(b"task").seeded
    assert (
        Randomness.keyed(bytes(32)).words(4, np.uint8).tolist()
        != Randomness.keyed(b"\1" * 32).words(4, np.uint8).tolist()
    )
