"""The table of steps: deterministic, complete, and every state on the way from start to end."""

from __future__ import annotations

import pytest

from mapveil_client.secure_sum.states import (
    CLIENT_STEPS,
    SERVER_STEPS,
    ClientState,
    Message,
    ServerState,
    Signal,
    expected_messages,
    find_step,
)

TABLES = [(CLIENT_STEPS, ClientState.FRESH), (SERVER_STEPS, ServerState.KEYS)]


@pytest.mark.parametrize("active", [False, True])
@pytest.mark.parametrize(("table", "start"), TABLES, ids=["client", "server"])
def test_one_step_per_event_and_every_state_leads_to_an_end(table, start, active):
    rows = [step for step in table if step.active in (None, active)]
    assert len({(step.state, step.event) for step in rows}) == len(rows)
    reached, edge = set(), {start}
    while edge:
        reached |= edge
        edge = {step.after for step in rows if step.state in edge} - reached
    skipped = {ClientState.CONSENTED, ServerState.CONSENTS} if not active else set()
    assert reached == set(type(start)) - skipped
    for state in reached:
        final = state.name in ("DONE", "ABORTED")
        assert final == (not [step for step in rows if step.state is state])
        assert final == (find_step(state, Signal.ABORT, active) is None)
        assert final or find_step(state, Signal.ABORT, active).after.name == "ABORTED"


@pytest.mark.parametrize("active", [False, True])
def test_the_two_sides_fit_each_other(active):
    """Each message that one side sends is expected where the other side then is."""
    client, server = ClientState.FRESH, ServerState.KEYS
    sent = find_step(client, Signal.START, active)
    while server is not ServerState.DONE:
        client = sent.after
        assert sent.sends in expected_messages(server, active)
        assert find_step(server, sent.sends, active).after is server
        closed = find_step(server, Signal.CLOSE, active)
        server = closed.after
        if closed.sends is not None:
            assert closed.sends in expected_messages(client, active)
            sent = find_step(client, closed.sends, active)
    assert client is ClientState.DONE


def test_steps_of_the_other_kind_of_round_do_not_exist():
    assert find_step(ClientState.MASKED, Message.SURVIVORS, active=False).sends is Message.ANSWER
    assert find_step(ClientState.MASKED, Message.SURVIVORS, active=True).sends is Message.CONSENT
    assert find_step(ClientState.CONSENTED, Message.CONFIRMATIONS, active=False) is None
    assert find_step(ServerState.CONSENTS, Signal.CLOSE, active=False) is None


def test_nothing_is_expected_at_the_end():
    for state in (ClientState.DONE, ClientState.ABORTED, ServerState.DONE, ServerState.ABORTED):
        for active in (False, True):
            assert expected_messages(state, active) == ()


def test_an_answer_is_sent_once_and_from_nowhere_else():
    for active in (False, True):
        answers = [s for s in CLIENT_STEPS if s.sends is Message.ANSWER and s.active in (None, active)]
        assert [step.after for step in answers] == [ClientState.DONE]
