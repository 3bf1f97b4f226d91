"""Chunks over the cores: the same sum whatever their number, and a failure that is not swallowed."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from mapveil.random_features.visits import sum_chunks
from mapveil_client.random_features.report import Visits
from mapveil_client.randomness.random import Randomness

CHUNKS = [Visits(np.full((2, n), float(n))) for n in (3, 1, 4, 1, 5, 9, 2, 6, 5, 3)]


def words(chunk):
    return chunk.rng.words(8, np.uint32).astype(np.float64) * chunk.visits.devices


@pytest.mark.parametrize("cores", [1, 2, 7])
def test_the_sum_does_not_depend_on_the_cores(monkeypatch, cores):
    monkeypatch.setattr("mapveil.random_features.visits.os.cpu_count", lambda: cores)
    told = []
    made = sum_chunks(iter(CHUNKS), Randomness(4), words, told.append)
    wanted = sum(
        Randomness(4).child(f"chunk {at}").words(8, np.uint32).astype(np.float64) * visits.devices
        for at, visits in enumerate(CHUNKS)
    )
    np.testing.assert_array_equal(made.values, wanted)
    assert made.devices == told[-1] == 39
    assert told == sorted(told)


def test_one_chunk_alone_gets_every_thread_and_many_one_each():
    seen = []

    def look(chunk):
        seen.append(chunk.threads)
        return np.zeros(1)

    sum_chunks(iter(CHUNKS[:1]), Randomness(1), look, lambda done: None)
    assert seen == [None]
    seen.clear()
    sum_chunks(iter(CHUNKS), Randomness(1), look, lambda done: None)
    assert seen == [1] * len(CHUNKS)


def test_chunks_are_made_no_faster_than_they_are_summed(monkeypatch):
    monkeypatch.setattr("mapveil.random_features.visits.os.cpu_count", lambda: 2)
    alive, most, lock = 0, 0, threading.Lock()

    def make():
        nonlocal alive, most
        for visits in CHUNKS * 5:
            with lock:
                alive += 1
                most = max(most, alive)
            yield visits

    def add(chunk):
        nonlocal alive
        with lock:
            alive -= 1
        return np.ones(1)

    assert sum_chunks(make(), Randomness(1), add, lambda done: None).values[0] == 50
    assert most <= 6  # two at work, one waiting, one ahead, and what the counting misses


def test_a_failure_comes_out():
    def fail(chunk):
        if chunk.visits.devices == 9:
            raise ValueError("the ninth")
        return np.zeros(1)

    with pytest.raises(ValueError, match="the ninth"):
        sum_chunks(iter(CHUNKS), Randomness(1), fail, lambda done: None)
