"""The graph of a round, and whether what is left of it is in one piece. Oracle: a walk over the edges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil_client.secure_sum.graph import harary_graph, make_ring, permutation


def in_one_piece(neighbours, included) -> bool:
    left = set(np.flatnonzero(included).tolist())
    if not left:
        return True
    reached, edge = set(), {min(left)}
    while edge:
        reached |= edge
        edge = {int(j) for i in edge for j in neighbours[i] if int(j) in left} - reached
    return reached == left


@given(st.integers(3, 30), st.data())
def test_connected_is_what_a_walk_finds(clients, data):
    even = list(range(2, clients, 2))
    slots = data.draw(st.sampled_from([*even, clients - 1]))
    ring = make_ring(clients, slots, data.draw(st.binary(min_size=32, max_size=32)))
    included = np.array(data.draw(st.lists(st.booleans(), min_size=clients, max_size=clients)))
    assert ring.connected(included) == in_one_piece(ring.neighbours, included)


def test_two_wide_gaps_part_the_ring():
    ring = make_ring(20, 4, bytes(32))
    included = np.ones(20, dtype=np.bool_)
    included[ring.order[[0, 1]]] = False
    assert ring.connected(included)
    included[ring.order[10]] = False
    assert ring.connected(included)
    included[ring.order[11]] = False
    assert not ring.connected(included)


def test_it_is_the_graph_of_the_seed_shared_and_read_only():
    seed = bytes(range(32))
    ring = make_ring(9, 4, seed)
    assert ring is make_ring(9, 4, seed)
    assert ring.neighbours.tolist() == harary_graph(9, 4, permutation(9, seed)).tolist()
    with pytest.raises(ValueError, match="read-only"):
        ring.neighbours[0, 0] = 1
