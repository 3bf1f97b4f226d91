"""Trials in processes of their own."""

import os

from mapveil.evaluation.trials import in_processes


def threads_of(asked: int) -> str | None:
    return os.environ.get("OMP_NUM_THREADS")


def test_a_worker_has_one_thread_and_this_process_keeps_its_own(monkeypatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert list(in_processes(threads_of, (1, 2), workers=2)) == ["1", "1"]
    assert threads_of(1) is None
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert list(in_processes(threads_of, (1, 2), workers=2)) == ["2", "2"]
