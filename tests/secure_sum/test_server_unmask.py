"""Unmasking: altered shares never make a wrong sum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.secure_sum.server_unmask import Collected, Fault, FaultKind, _blamed, recover, unmask
from mapveil_client.canonical_cbor import decode as decode_values
from mapveil_client.secure_sum.messages import SHARE_BYTES, encode, read_set, write_set
from mapveil_client.secure_sum.shamir import PRIME
from mapveil_client.secure_sum.states import Abort, Message, ServerState

VECTORS = np.arange(30).reshape(6, 5)


def altered(p, data: bytes, slot: int, change) -> bytes:
    _, _, _, client, given, shares = decode_values(data)
    rows = np.frombuffer(shares, dtype="<u2").reshape(-1, 17).copy()
    rows[slot] = change(rows[slot].astype(int)) % PRIME
    return encode(p, Message.ANSWER, client, given, rows.tobytes())


@settings(max_examples=60)
@given(
    wrong=st.lists(
        st.tuples(
            st.sampled_from([0, 1, 2, 4, 5]), st.integers(0, 4), st.integers(0, 16), st.integers(1, PRIME - 1)
        ),
        min_size=1,
        max_size=4,
        unique_by=lambda x: x[:2],
    )
)
def test_altered_shares_give_the_sum_or_an_abort(local_round, make_parameters, wrong):
    p = make_parameters(threshold=3)
    made = local_round(p, VECTORS, stays=[9, 9, 9, 2, 9, 9]).until(ServerState.ANSWERS)
    for client, slot, digit, by in wrong:
        made.pending[client] = altered(
            p, made.pending[client], slot, lambda row, d=digit, b=by: bump(row, d, b)
        )
    made.deliver()
    spoilt = {int(made.server._ring.neighbours[client, slot]) for client, slot, _, _ in wrong}
    blamed = None
    try:
        made.close()
    except Abort as abort:
        blamed = abort.client
    if blamed is None:
        assert made.server.total.tolist() == made.true_sum().tolist()
    assert blamed in {None, *spoilt}
    liars = {client for client, *_ in wrong}
    assert {fault.client for fault in made.server.faults} <= spoilt | liars


def bump(row, digit, by):
    row[digit] += by
    return row


@pytest.mark.parametrize("digit", [0, 16])
def test_a_wrong_share_with_one_to_spare_ends_the_sum(local_round, make_parameters, digit):
    # The lowest digit makes another secret, which the commitment gives away; the highest no secret of 32 bytes.
    p = make_parameters(threshold=3)
    made = local_round(p, VECTORS, stays=[9, 9, 9, 2, 9, 9]).until(ServerState.ANSWERS)
    owner, holder = 0, int(made.server._ring.neighbours[0, 0])
    slot = int(np.flatnonzero(made.server._ring.neighbours[holder] == owner)[0])
    made.pending[holder] = altered(p, made.pending[holder], slot, lambda row: bump(row, digit, 1))
    made.deliver()
    with pytest.raises(Abort, match=f"shares of client {owner} give back no secret") as caught:
        made.close()
    assert caught.value.client == owner
    assert made.server.faults == [
        Fault(owner, FaultKind.SHARES, 1)
    ]  # a lie of one neighbour explains it as well
    assert made.server.state is ServerState.ABORTED


@pytest.mark.parametrize("digit", [0, 16])
def test_a_wrong_share_with_two_to_spare_is_found(local_round, make_parameters, digit):
    # Client 3 dropped out: five neighbours gave a share of its mask key, three are needed.
    p = make_parameters(threshold=3)
    made = local_round(p, VECTORS, stays=[9, 9, 9, 2, 9, 9]).until(ServerState.ANSWERS)
    holder = int(made.server._ring.neighbours[3, 0])
    slot = int(np.flatnonzero(made.server._ring.neighbours[holder] == 3)[0])
    made.pending[holder] = altered(p, made.pending[holder], slot, lambda row: bump(row, digit, 1))
    made.deliver()
    made.close()
    assert made.server.total.tolist() == made.true_sum().tolist()
    assert made.server.faults == [Fault(holder, FaultKind.ANSWERS, 1)]


@pytest.mark.parametrize("threshold", [3, 5])
def test_a_commitment_to_another_seed_stands_only_against_spare_shares(
    local_round, make_parameters, threshold
):
    p = make_parameters(threshold=threshold)
    made = local_round(p, VECTORS).until(ServerState.INPUTS)
    vector = decode_values(made.pending[2])[5]
    made.pending[2] = encode(p, Message.MASKED_INPUT, 2, bytes(32), vector, b"")
    if threshold == 5:
        with pytest.raises(Abort, match="client 2 do not give back"):
            made.run()
    else:
        assert made.run().tolist() == made.true_sum().tolist()
    assert made.server.faults == [Fault(2, FaultKind.COMMITMENT, 6 - threshold)]


def test_a_polynomial_of_another_secret_blames_nobody_who_is_off_it(local_round, make_parameters):
    p = make_parameters(threshold=3)
    made = local_round(p, VECTORS).until(ServerState.INPUTS)
    made.pending[2] = encode(p, Message.MASKED_INPUT, 2, bytes(32), decode_values(made.pending[2])[5], b"")
    made.until(ServerState.ANSWERS)
    holder = int(made.server._ring.neighbours[2, 0])
    slot = int(np.flatnonzero(made.server._ring.neighbours[holder] == 2)[0])
    made.pending[holder] = altered(p, made.pending[holder], slot, lambda row: bump(row, 0, 1))
    made.deliver()
    made.close()
    assert made.server.total.tolist() == made.true_sum().tolist()
    assert made.server.faults == [Fault(2, FaultKind.COMMITMENT, 2)]


def test_the_most_contradicted_are_named_first_and_what_they_explain_counts_no_more():
    # Owner 7 against 1, 2, 3; holder 1 against 7, 8, 9; owner 9 against 1 and 4.
    pairs = {(7, 1), (7, 2), (7, 3), (8, 1), (9, 1), (9, 4)}
    assert _blamed(pairs) == [
        Fault(1, FaultKind.ANSWERS, 3),
        Fault(7, FaultKind.SHARES, 2),
        Fault(4, FaultKind.ANSWERS, 1),
    ]


def test_any_t_of_the_shares_will_do(local_round, make_parameters):
    # Whoever keeps back the share of one neighbour, the others' shares give the same sum.
    p = make_parameters(threshold=3)
    for left_out in range(5):
        made = local_round(p, VECTORS, stays=[9, 9, 9, 2, 9, 9]).until(ServerState.ANSWERS)
        for client, data in made.pending.items():
            given, shares = decode_values(data)[4:]
            slots = read_set(given, 5)
            slots[left_out] = False
            kept = shares[: left_out * SHARE_BYTES] + shares[(left_out + 1) * SHARE_BYTES :]
            made.pending[client] = encode(p, Message.ANSWER, client, write_set(slots), kept)
        made.deliver()
        made.close()
        assert made.server.total.tolist() == made.true_sum().tolist()


def test_the_masked_sum_is_left_as_it_is(local_round, make_parameters):
    p = make_parameters(threshold=3)
    made = local_round(p, VECTORS, stays=[9, 9, 9, 2, 9, 9]).until(ServerState.ANSWERS)
    made.deliver()
    server = made.server
    masked = server._sum.copy()
    collected = Collected(
        server._keys, server._commitments, server._sharing, server._included, server._given, server._shares
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
