"""A collection that the helper has ended, or no longer knows, ends at the leader too; over the real routes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from mapveil.collector.http.asgi import create_app
from mapveil.collector.http.settings import Settings
from mapveil.collector.operators import helper as helper_module
from mapveil.collector.operators.helper import Helper
from mapveil.collector.operators.leader import _ASK_SECONDS
from mapveil.collector.operators.peer import HttpPeer, PeerUnavailable
from mapveil.collector.rounds.engine import Engine
from mapveil.collector.store.principals import Accounts
from mapveil.two_operators.aggregation import HELPER
from mapveil_client.errors import InputError, PromiseError
from tests.collector.engine.conftest import ACTOR
from tests.collector.http.conftest import serving

from .pair import OWN, SHARED, Pair

WHY = "our lawyers say no"


class Served:
    """A pair whose leader reaches the helper over HTTP."""

    def __init__(self, pair_of: Any, stack: contextlib.ExitStack) -> None:
        self.stack = stack
        self.pair: Pair = pair_of(meddle=self.peer)

    def peer(self, helper: Helper) -> HttpPeer:
        settings, store = Settings(), helper._store
        engine = Engine(store, store.clock, helper=helper)
        app = create_app(engine, store, settings, conduct=False, peer_key=SHARED)
        self.url = self.stack.enter_context(serving(app, settings))
        peer = HttpPeer(self.url, SHARED)
        self.stack.callback(peer._client.close)
        return peer

    def abort_at_helper(self, id: str) -> None:
        accounts = Accounts(self.pair.stores[HELPER])
        token = accounts.create_operator("h", "operator", timedelta(days=1), "command line").token
        answer = httpx.post(
            f"{self.url}/v1/collections/{id}/abort",
            json={"reason": WHY},
            headers={"Authorization": f"Bearer {token}"},
        )
        assert answer.json()["state"] == "aborted", answer.text

    def ended(self, id: str) -> str:
        """The reason, as the leader's API and audit log have it."""
        record = self.pair.engine.collection(id)
        assert record["state"] == "aborted"
        lines = self.pair.engine.audit(0, 1000, id)
        assert [line.detail for line in lines if line.action == "collection.aborted"] == [
            {"reason": record["reason"]}
        ]
        return str(record["reason"])


@pytest.fixture
def served(pair_of: Any) -> Iterator[Served]:
    with contextlib.ExitStack() as stack:
        yield Served(pair_of, stack)


@pytest.mark.parametrize("reports", [0, 24])
def test_a_collection_that_the_helpers_operator_aborts_ends_at_the_leader(
    served: Served, reports: int
) -> None:
    pair = served.pair
    id = pair.open()
    pair.send(id, pair.reports([index % 5 for index in range(reports)]))
    served.abort_at_helper(id)
    if not reports:
        pair.engine.tick()
        assert pair.engine.collection(id)["state"] == "open"  # the helper was asked a moment ago
        pair.clock.advance(_ASK_SECONDS)
    pair.engine.tick()
    assert WHY in served.ended(id)
    assert pair.engine.ledger() == []


@pytest.mark.parametrize("reports", [0, 24])
def test_a_helper_that_lost_its_store_ends_its_collections(
    served: Served, new_store: Any, tmp_path: Path, reports: int
) -> None:
    pair = served.pair
    id = pair.open()
    pair.send(id, pair.reports([index % 5 for index in range(reports)]))
    empty = new_store(str(tmp_path / "empty.sqlite"))
    empty.create_tables()
    pair.leader._peer = served.peer(Helper(empty, OWN[HELPER], SHARED))
    pair.clock.advance(_ASK_SECONDS)
    pair.engine.tick()
    assert "the helper refuses" in served.ended(id)


def test_an_absent_helper_is_asked_no_more_often_than_one_that_answers(pair_of: Any) -> None:
    pair = pair_of()
    pair.open()
    asked = []

    def absent(*_: Any) -> None:
        asked.append(pair.clock.monotonic())
        raise PeerUnavailable("the helper does not answer (ConnectError)")

    pair.helper.__dict__["begin"] = absent
    for _ in range(12):
        pair.clock.advance(_ASK_SECONDS / 6)
        pair.engine.tick()
    assert len(asked) == 2


def test_an_open_collection_that_the_helper_is_in_goes_on(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after an upgrade to a Mapveil that would not begin it."""
    pair = served.pair
    id = pair.open()

    def stricter(*_: Any, **__: Any) -> None:
        raise InputError("not with this Mapveil")

    monkeypatch.setattr(helper_module, "check_answerable", stricter)
    with pytest.raises(PromiseError, match="not with this Mapveil"):
        pair.open()
    for _ in range(3):
        pair.clock.advance(_ASK_SECONDS)
        pair.engine.tick()
    assert pair.engine.collection(id)["state"] == "open"
    assert pair.other.collection(id)["state"] == "running"
    pair.engine.abort(id, ACTOR, "no longer needed")
