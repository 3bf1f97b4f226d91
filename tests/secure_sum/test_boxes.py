"""The boxes of shares: what their receiver opens, and what a complaint shows of one that is wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil_client.secure_sum.boxes import (
    check_complaint,
    complain,
    open_box,
    seal_box,
    sealing_key,
    share_digest,
    share_digests,
)
from mapveil_client.secure_sum.masks import open_sealed
from mapveil_client.secure_sum.messages import (
    BOX_BYTES,
    BOX_TAG,
    COMPLAINT_BYTES,
    DELIVERED_BYTES,
    PAIR_DIGEST,
    SEALED_BYTES,
    SHARE_BYTES,
)
from mapveil_client.secure_sum.states import PeerFault

GRAPH, PAIR = bytes(range(32)), bytes(range(32, 64))
SHARES = bytes(range(2 * SHARE_BYTES))
DEALER, HOLDER = 4, 2


@pytest.fixture
def p(make_parameters):
    return make_parameters()


def made(p, shares: bytes = SHARES, pair: bytes = PAIR) -> bytes:
    return seal_box(p, GRAPH, pair, DEALER, HOLDER, shares)


def opened(p, box: bytes, pair: bytes = PAIR) -> bytes:
    key = sealing_key(pair, DEALER, HOLDER)
    return open_box(p, GRAPH, key, DEALER, HOLDER, box[PAIR_DIGEST.stop :])


def complaint(p, box: bytes, pair: bytes = PAIR) -> bytes:
    return complain(p, pair, DEALER, HOLDER, box[PAIR_DIGEST.stop :])


def check(p, box: bytes, data: bytes) -> None:
    check_complaint(p, GRAPH, DEALER, HOLDER, box, data)


def retagged(p, box: bytes, change) -> bytes:
    """The box as a dealer makes it who changes what follows the tag, and tags that."""
    import hmac

    from mapveil_client.secure_sum.boxes import tag_key

    rest = change(box[BOX_TAG.stop :])
    tag = hmac.digest(tag_key(p, sealing_key(PAIR, DEALER, HOLDER)), rest, "sha256")
    return box[: PAIR_DIGEST.stop] + tag[:16] + rest


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_a_box_gives_its_shares_to_the_holder_of_its_key(p):
    box = made(p)
    assert len(box) == BOX_BYTES
    assert len(box[PAIR_DIGEST.stop :]) == DELIVERED_BYTES
    assert opened(p, box) == SHARES
    assert SHARES[:8] not in box


def test_both_of_a_pair_write_the_same_digest_and_nobody_else_does(p):
    back = seal_box(p, GRAPH, PAIR, HOLDER, DEALER, SHARES)
    assert back[PAIR_DIGEST] == made(p)[PAIR_DIGEST]
    assert made(p, pair=bytes(32))[PAIR_DIGEST] != made(p)[PAIR_DIGEST]


@given(at=st.integers(PAIR_DIGEST.stop, BOX_BYTES - 1))
def test_a_box_that_was_altered_on_its_way_is_not_opened_and_its_key_stays_secret(make_parameters, at):
    p = make_parameters()
    right = made(p)
    box = flip(right, at)
    with pytest.raises(PeerFault, match="not as client 4 tagged it"):
        opened(p, box)
    shown = complaint(p, box)
    assert len(shown) == COMPLAINT_BYTES
    check(p, box, shown)
    # The server has the box as it was dealt; nothing that was shown opens that.
    for key in (shown[:32], shown[32:]):
        with pytest.raises(PeerFault):
            open_sealed(key, right[-SEALED_BYTES:], p.digest, p.cipher)
    with pytest.raises(PeerFault, match="which is right"):
        check(p, right, shown)


@pytest.mark.parametrize(
    "change",
    [
        lambda rest: flip(rest, 0),  # the digest of the seed's share
        lambda rest: flip(rest, 31),  # the digest of the mask key's share
        lambda rest: flip(rest, 40),  # the sealed shares
        lambda rest: bytes(len(rest)),
    ],
)
def test_a_box_that_its_dealer_made_wrong_is_shown_to_be(p, change):
    box = retagged(p, made(p), change)
    with pytest.raises(PeerFault):
        opened(p, box)
    shown = complaint(p, box)
    assert shown[:32] == sealing_key(PAIR, DEALER, HOLDER)
    check(p, box, shown)


def test_shares_outside_the_field_are_wrong(p):
    box = made(p, b"\xff" * len(SHARES))
    with pytest.raises(PeerFault, match="65521 or above"):
        opened(p, box)
    check(p, box, complaint(p, box))


def test_a_complaint_about_a_right_box_is_refused_whichever_key_it_shows(p):
    box = made(p)
    tag_key_shown = complaint(p, flip(box, BOX_BYTES - 1))
    sealing_key_shown = sealing_key(PAIR, DEALER, HOLDER) + tag_key_shown[32:]
    for shown in (tag_key_shown, sealing_key_shown):
        with pytest.raises(PeerFault, match="client 4, which is right"):
            check(p, box, shown)


@given(at=st.integers(0, COMPLAINT_BYTES - 1))
def test_no_other_key_is_taken_for_the_pairs(make_parameters, at):
    p = make_parameters()
    box = flip(made(p), BOX_BYTES - 1)
    with pytest.raises(PeerFault, match="not their pair's"):
        check(p, box, flip(complaint(p, box), at))


def test_a_complaint_with_another_pairs_key_is_refused(p):
    box = flip(made(p), BOX_BYTES - 1)
    with pytest.raises(PeerFault, match="not their pair's"):
        check(p, box, complaint(p, box, pair=bytes(32)))


def test_a_digest_is_of_one_share_of_one_dealer_holder_secret_and_graph(p):
    right = (GRAPH, DEALER, HOLDER, 0, SHARES[:SHARE_BYTES])
    others = [
        (bytes(32), *right[1:]),
        (GRAPH, 3, *right[2:]),
        (GRAPH, DEALER, 3, *right[3:]),
        (*right[:3], 1, right[4]),
        (*right[:4], SHARES[SHARE_BYTES:]),
    ]
    digests = {share_digest(p, *each) for each in (right, *others)}
    assert len(digests) == 1 + len(others)


@given(
    st.lists(
        st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 1), st.binary(min_size=34, max_size=34)),
        max_size=9,
    )
)
def test_many_digests_are_those_of_each(make_parameters, some):
    p = make_parameters()
    shares = np.array([list(share) for _, _, share in some], dtype=np.uint8).reshape(-1, SHARE_BYTES)
    dealers, secrets = (np.array([each[at] for each in some], dtype=np.int64) for at in (0, 1))
    made = share_digests(p, GRAPH, dealers, HOLDER, secrets, shares)
    assert [row.tobytes() for row in made] == [
        share_digest(p, GRAPH, dealer, HOLDER, secret, share) for dealer, secret, share in some
    ]
