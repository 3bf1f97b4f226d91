"""The loops of a process log a store that fails, and that it is there again, once each."""

from __future__ import annotations

import logging

from mapveil.collector.roles import Loop
from mapveil.collector.rounds.engine import Engine
from mapveil.collector.store.backends import Repeatable
from tests.authority import AUTHORITY


def test_a_store_that_is_lost_and_back_is_two_lines_of_the_log(postgresql, postgresql_store, clock, caplog):
    caplog.set_level(logging.INFO, "mapveil.collector.rounds.loops")
    loops = Engine(postgresql_store, clock, authority=AUTHORITY).loops
    loops._act(Loop.CONDUCT)
    assert not caplog.records
    postgresql.stop()
    for _ in range(3):
        loops._act(Loop.CONDUCT)
        loops._act(Loop.SHARDS)
    (lost,) = caplog.records
    assert lost.levelname == "WARNING"
    assert lost.getMessage().startswith("the store is unavailable: the store ")
    assert postgresql_store.shown not in caplog.text
    postgresql.start()
    loops._act(Loop.CONDUCT)
    assert len(caplog.records) == 1  # of a loop of which nothing is known yet
    for _ in range(2):
        loops._act(Loop.SHARDS)
        loops._act(Loop.CONDUCT)
    (_, back) = caplog.records
    assert (back.levelname, back.getMessage()) == ("INFO", "the store is available again")


def test_a_transaction_that_gave_way_to_another_is_no_lost_store(store, clock, caplog):
    def gives_way() -> None:
        raise Repeatable("two changes of the store were in each other's way")

    loops = Engine(store, clock, authority=AUTHORITY).loops
    loops._acts = {Loop.CONDUCT: gives_way}
    loops._act(Loop.CONDUCT)
    assert not caplog.records
