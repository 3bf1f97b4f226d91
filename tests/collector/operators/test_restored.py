"""An operator that is restored from an old backup gives no answer twice."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from mapveil.collector.refusals import Conflict
from mapveil.collector.rounds.restoration import accept_restored
from mapveil.collector.store.backup import back_up
from mapveil.two_operators.aggregation import HELPER

from .pair import Pair
from .test_attacks import ask, task_of, verified


def test_a_restored_helper_draws_no_new_noise_for_an_answer(clock: Any, tmp_path: Path) -> None:
    """Two answers with noise of their own would tell twice the epsilon that devices agreed to."""
    pair = Pair(tmp_path, clock)
    try:
        id = task_of(pair)
        assert all(verified(pair, id, pair.reports([1, 2, 3] * 8)))
        back_up(pair.stores[HELPER], tmp_path / "backup")
        first = pair.helper.answer(id, 1, ask())
        assert pair.helper.answer(id, 1, ask()) == first  # as long as it remembers, the same bytes
        pair.stores[HELPER].close()
        for path in tmp_path.glob("helper.sqlite*"):
            path.unlink()
        shutil.copy(tmp_path / "backup" / "helper.sqlite", tmp_path)
        pair.stores[HELPER] = type(pair.stores[HELPER])(
            f"sqlite:///{tmp_path / 'helper.sqlite'}", clock=clock
        )
        found = accept_restored(pair.stores[HELPER], go_on=True)
        assert (found.aborted, found.continued, found.operators) == ((id,), (), True)
        pair.start()
        with pytest.raises(Conflict):
            pair.helper.answer(id, 1, ask())
    finally:
        pair.close()
