"""Unmasking: the masks that were added are taken off, and nothing is tried with too few shares."""

from __future__ import annotations

import numpy as np
import pytest

from mapveil.secure_sum.server_unmask import Collected, recover, unmask
from mapveil_client.secure_sum.states import Abort, ServerState

VECTORS = np.arange(30).reshape(6, 5)


def test_the_masked_sum_is_left_as_it_is(local_round, make_parameters):
    p = make_parameters(threshold=3)
    made = local_round(p, VECTORS, stays=[9, 9, 9, 2, 9, 9]).until(ServerState.ANSWERS)
    made.deliver()
    server = made.server
    masked = server._sum.copy()
    collected = Collected(
        keys=server._keys,
        commitments=server._dealt.commitments,
        sharing=server._sharing,
        included=server._included,
        held=server._dealt.held,
        given=server._given,
        shares=server._shares,
    )
    total = unmask(p, server._ring, server._sum, collected, recover(p, server._ring, collected))
    assert server._sum.tolist() == masked.tolist() != total.tolist()
    assert total.tolist() == made.true_sum().tolist()


def test_fewer_than_t_shares_are_never_tried(local_round, make_parameters):
    p = make_parameters(threshold=4)
    made = local_round(p, VECTORS).until(ServerState.ANSWERS)
    made.pending = {i: made.pending[i] for i in (0, 1, 2)}
    made.deliver()
    with pytest.raises(Abort, match="2 neighbours of client 0 gave their share; 4 are needed"):
        made.close()
