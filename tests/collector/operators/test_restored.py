"""An operator that is restored from an old backup gives no answer twice."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from mapveil.collector.operators.helper import Helper
from mapveil.collector.refusals import Conflict, NotFound
from mapveil.collector.rounds.restoration import Restored, accept_restored
from mapveil.collector.store.backup import back_up
from mapveil.two_operators.aggregation import HELPER, LEADER
from mapveil_client.errors import InputError, PromiseError
from tests.collector.engine.conftest import ACTOR

from .pair import OWN, Pair, spec
from .test_attacks import ask, request_of, task_of, verified


def restored(pair: Pair, operator: int, backup: Path) -> Restored:
    """Put a backup in the place of an operator's store, and let both serve."""
    store = pair.stores[operator]
    assert store.path is not None
    store.close()
    for path in store.path.parent.glob(store.path.name + "*"):
        path.unlink()
    shutil.copy(backup / store.path.name, store.path)
    pair.stores[operator] = type(store)(pair.urls[operator], clock=pair.clock)
    found = accept_restored(pair.stores[operator], go_on=True)
    pair.start()
    return found


def test_a_restored_helper_draws_no_new_noise_for_an_answer(pair_of: Any, tmp_path: Path) -> None:
    """Two answers with noise of their own would tell twice the epsilon that devices agreed to."""
    pair = pair_of()
    id = task_of(pair)
    assert all(verified(pair, id, pair.reports([1, 2, 3] * 8)))
    back_up(pair.stores[HELPER], tmp_path / "backup")
    first = pair.helper.answer(id, 1, ask())
    assert pair.helper.answer(id, 1, ask()) == first  # as long as it remembers, the same bytes
    found = restored(pair, HELPER, tmp_path / "backup")
    assert (found.aborted, found.continued, found.operators) == ((id,), (), True)
    with pytest.raises(Conflict):
        pair.helper.answer(id, 1, ask())


def test_a_restored_helper_takes_no_terms_of_before(pair_of: Any, tmp_path: Path) -> None:
    """The attack: terms of after the backup once more, with one person fewer, and the whole epsilon again."""
    pair = pair_of()
    back_up(pair.stores[HELPER], tmp_path / "backup")
    told = []
    for _ in range(2):  # the same backup twice: a generation that was counted would come again
        id = task_of(pair)
        assert all(verified(pair, id, pair.reports([1, 2, 3] * 8)))
        pair.helper.answer(id, 1, ask(epsilon="2"))
        told.append((id, pair.terms.encode()))
        restored(pair, HELPER, tmp_path / "backup")
        for before in told:
            with pytest.raises(InputError, match="of another store of the helper"):
                pair.helper.begin(*before)
    id = pair.open()
    pair.send(id, pair.reports([index % 5 for index in range(24)]))
    assert pair.play(id) == "done"


def test_terms_that_were_pending_when_the_helper_was_restored_are_refused(
    pair_of: Any, tmp_path: Path
) -> None:
    pair = pair_of()
    back_up(pair.stores[HELPER], tmp_path / "backup")
    id = str(pair.engine.create(spec(), ACTOR)["id"])
    restored(pair, HELPER, tmp_path / "backup")
    with pytest.raises((InputError, PromiseError), match="create the collection anew"):
        pair.engine.open(id, ACTOR)


def test_a_restored_leader_opens_no_terms_of_before(pair_of: Any, tmp_path: Path) -> None:
    """Pending in the backup, they may have been opened and answered since."""
    pair = pair_of()
    id = str(pair.engine.create(spec(), ACTOR)["id"])
    back_up(pair.stores[LEADER], tmp_path / "backup")
    pair.engine.open(id, ACTOR)
    found = restored(pair, LEADER, tmp_path / "backup")
    assert (found.aborted, found.continued) == ((id,), ())
    with pytest.raises(Conflict):
        pair.engine.open(id, ACTOR)


def lost(pair: Pair, operator: int) -> None:
    """Delete an operator's store, but not its keys, and let both serve."""
    store = pair.stores[operator]
    assert store.path is not None
    store.close()
    for path in store.path.parent.glob(store.path.name + "*"):
        path.unlink()
    pair.start()


def test_a_new_store_under_the_old_keys_takes_no_terms_of_the_lost_one(pair_of: Any) -> None:
    """The attack: the same reports, one person fewer, verified and answered once more by a helper that forgot."""
    pair = pair_of()
    id = task_of(pair)
    bodies = pair.reports([1, 2, 3] * 8)
    assert all(verified(pair, id, bodies))
    pair.helper.answer(id, 1, ask(epsilon="2"))
    lost(pair, HELPER)
    with pytest.raises(InputError, match="of another store of the helper"):
        pair.helper.begin(id, pair.terms.encode())
    with pytest.raises(NotFound):
        pair.helper.job(id, 1, request_of(pair.terms, bodies[1:])[1])
    assert pair.other.ledger() == []


@pytest.mark.parametrize("generation", [b"", b"\1" * 16])
def test_a_malicious_helper_does_not_choose_the_leaders_identifiers(pair_of: Any, generation: bytes) -> None:
    """With all of an identifier it could bring back a task that a restored leader has forgotten."""

    class Chooser:
        def __init__(self, helper: Helper) -> None:
            self.helper = helper

        def __getattr__(self, name: str) -> Any:
            return getattr(self.helper, name)

        def config(self) -> bytes:
            return OWN[HELPER].config.encode() + generation

    pair = pair_of(meddle=Chooser)
    with pytest.raises(PromiseError, match="generation"):
        pair.engine.create(spec(), ACTOR)
