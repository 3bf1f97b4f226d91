"""Faults name the client, are promises broken, and travel between processes."""

from __future__ import annotations

import pickle

import pytest

from mapveil_client.errors import PromiseError
from mapveil_client.secure_sum.states import Abort, OwnFault, PeerFault, ProtocolError


@pytest.mark.parametrize("kind", [PeerFault, OwnFault, Abort])
def test_each_kind_is_a_broken_promise_and_survives_a_pipe(kind):
    raised = kind("what was wrong", 7)
    assert isinstance(raised, ProtocolError)
    assert isinstance(raised, PromiseError)
    assert raised.exit_code == 1
    assert (raised.client, str(raised)) == (7, "what was wrong")
    again = pickle.loads(pickle.dumps(raised))  # noqa: S301
    assert (type(again), again.client, str(again)) == (kind, 7, "what was wrong")
    assert kind("alone").client is None
