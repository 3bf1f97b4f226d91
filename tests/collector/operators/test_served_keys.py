"""A store serves with the keys that it has served with: others would spoil what is under way."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from mapveil.collector.clock import SystemClock
from mapveil.collector.http.examination import examine
from mapveil.collector.http.serving import OperatorPart, operator_part
from mapveil.collector.http.settings import Settings
from mapveil.collector.store.database import Store
from mapveil_client.errors import InputError, PromiseError

from .test_attacks import task_of


@pytest.fixture
def start(tmp_path: Path) -> Callable[[str], OperatorPart]:
    """Start a helper as the service does, with a peer key of this name."""

    def begin(peer: str = "first") -> OperatorPart:
        settings = settings_of(tmp_path, peer)
        store = Store(settings.store, clock=SystemClock())
        store.create_tables()
        try:
            return operator_part(settings, store)
        finally:
            store.close()

    return begin


def settings_of(folder: Path, peer: str) -> Settings:
    key = folder / f"{peer}.key"
    if not key.exists():
        key.touch(mode=0o600)
        key.write_text(secrets.token_hex(32))
    names = {"store": f"sqlite:///{folder}/h.sqlite", "operator": "helper", "peer_key": str(key), "port": "0"}
    return Settings.read({f"MAPVEIL_{name.upper()}": value for name, value in names.items()})


def test_an_operator_starts_again_with_its_own_key_only(
    start: Callable[..., OperatorPart], tmp_path: Path
) -> None:
    first = start()
    assert start().config == first.config
    own = tmp_path / "h.sqlite.operator"
    kept = own.read_text()
    own.unlink()
    with pytest.raises(InputError, match="the operator's key is not here"):
        start()
    assert not own.exists()  # no other is drawn
    checked = {each.what: each for each in examine(settings_of(tmp_path, "first"))}
    assert checked["operator"].state == "failed"
    own.touch(mode=0o600)
    own.write_text(secrets.token_hex(32))
    with pytest.raises(InputError, match="not the one that this store has served with"):
        start()
    own.write_text(kept)
    assert start().config == first.config
    checked = {each.what: each for each in examine(settings_of(tmp_path, "first"))}
    assert checked["operator"].state == "ok"


def test_the_shared_key_may_change_between_collections_only(start, tmp_path: Path, pair_of) -> None:
    start()
    start("second")
    pair = pair_of()
    settings = settings_of(tmp_path, "first")
    store = pair.stores[1]
    own = Path(f"{store.path}.operator")
    own.touch(mode=0o600)
    own.write_text("02" * 32)
    for peer in ("first", "second"):
        operator_part(settings_of(tmp_path, peer), store)
    task_of(pair)
    with pytest.raises(InputError, match="collections are under way"):
        operator_part(settings, store)


def test_a_job_that_was_begun_with_other_keys_ends_its_collection(pair_of) -> None:
    from mapveil.collector.operators.leader import Leader
    from mapveil.collector.operators.operator_keys import PeerKey

    from .pair import OWN, Away

    pair = pair_of()
    id = pair.open(devices=20)
    pair.send(id, pair.reports([1] * 20))
    other = Leader(pair.stores[0], OWN[0], PeerKey(b"\x08" * 32), Away())
    pair.engine.begin(id, "tests")
    from mapveil.collector.rounds.collection import find

    with pair.stores[0].read() as connection:
        collection = find(connection, id)
    assert other.verify(collection, rest=True)  # opened, and nobody was asked
    with pytest.raises(PromiseError, match="other keys"):
        pair.leader.verify(collection, rest=True)
