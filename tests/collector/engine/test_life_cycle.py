"""The table of states: every state is reached and left as it says, and the ends are ends."""

from __future__ import annotations

import pytest

from mapveil.collector.rounds.life_cycle import ACTIVE, STEPS, Happening, State, step_of
from mapveil_client.secure_sum.states import (
    SERVER_STEPS,
    ServerState,
    Signal,
    phase_name,
    phase_named,
    server_phases,
)

PHASES = server_phases(active=True)


def test_every_row_is_the_only_one_of_its_kind():
    assert len({(step.state, step.happening) for step in STEPS}) == len(STEPS)
    assert {step.happening for step in STEPS} == set(Happening)


def test_every_state_is_reached_and_only_the_ends_are_not_left():
    reached = {State.PENDING}
    for _ in State:
        reached |= {step.after for step in STEPS if step.state in reached}
    assert reached == set(State)
    left = {step.state for step in STEPS}
    assert set(State) - left == {State.DONE, State.ABORTED}
    assert set(ACTIVE) == left - {State.PENDING}


@pytest.mark.parametrize("state", State)
def test_whatever_has_not_ended_can_fail(state):
    ended = state in (State.DONE, State.ABORTED)
    assert step_of(state, Happening.FAILED) == (None if ended else State.ABORTED)


@pytest.mark.parametrize("active", [True, False])
def test_phases_follow_each_other_as_the_protocol_closes_them(active):
    order = [*server_phases(active), ServerState.DONE]
    closes = {
        step.state: step.after
        for step in SERVER_STEPS
        if step.event is Signal.CLOSE and step.active in (None, active)
    }
    assert [closes[phase] for phase in order[:-1]] == order[1:]


def test_phases_have_names():
    assert [phase_named(phase_name(phase)) for phase in PHASES] == list(PHASES)
    assert phase_named("done") is None
