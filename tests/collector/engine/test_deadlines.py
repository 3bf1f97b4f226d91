"""What is left of a phase, whatever the clock on the wall does."""

from __future__ import annotations

import itertools
from datetime import timedelta

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mapveil.collector.rounds import conductor
from mapveil.collector.rounds.progress import Deadlines, progress_of

JUMP = st.floats(-1e6, 1e6)


def test_a_rest_runs_down_to_nothing(clock):
    deadlines = Deadlines(clock)
    began = clock.now()
    assert deadlines.left("a", 1, began, 60) == 60
    clock.advance(59)
    assert deadlines.left("a", 1, began, 60) == 1
    clock.jump(5000)
    assert deadlines.left("a", 1, began, 60) == 1
    clock.advance(2)
    assert deadlines.left("a", 1, began, 60) == 0
    assert deadlines.left("a", 2, clock.now(), 60) == 60
    deadlines.forget("a")
    clock.jump(-100_000)
    assert deadlines.left("a", 1, began, 60) == 60


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=st.floats(0, 60), jump=JUMP)
@example(before=1.4, jump=-2.0)  # (now + 60) - now would round above 60
def test_no_jump_holds_a_phase_longer_than_twice(clock, before, jump):
    clock.__init__()
    began = clock.now()
    first = Deadlines(clock)
    first.left("a", 1, began, 60)
    clock.advance(before)
    clock.wall += timedelta(seconds=jump)
    restarted = Deadlines(clock)
    assert 0 <= restarted.left("a", 1, began, 60) <= 60
    assert before + restarted.left("a", 1, began, 60) <= 120


def test_a_conductor_counts_for_a_twentieth_of_the_time(
    store, engine, clock, crowd_of, opened, make_spec, monkeypatch
):
    crowd = crowd_of(store, 24)
    id, _ = opened(engine, make_spec("distributed", method="uniform", join_seconds=3600))
    counted = []

    def slow(connection, collection, deadlines):
        counted.append(clock.monotonic())
        clock.advance(2)  # as of a million messages
        return progress_of(connection, collection, deadlines)

    monkeypatch.setattr(conductor, "progress_of", slow)
    for _ in range(100):
        engine.tick()
        clock.advance(1)
    assert [after - before for before, after in itertools.pairwise(counted)] == [42, 42]
    monkeypatch.undo()
    clock.advance(42)
    assert crowd.play(engine, id, clock) == "done"
