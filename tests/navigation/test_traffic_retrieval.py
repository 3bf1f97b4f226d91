"""Fetching traffic privately: what comes back is the map, and what is sent says nothing of where."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mapveil as mv
from mapveil.geo.tiling import Tiling
from mapveil.maps.density_map import DensityMap
from mapveil.navigation.traffic_retrieval import TrafficClient, traffic_blocks, traffic_database
from mapveil.privacy.claim import Adversary, TrustModel
from mapveil.privacy.guarantee import Guarantee
from mapveil.retrieval.pir_server import Server
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness

REGION = mv.Region.from_bbox(-40.08, 40.0, -39.92, 40.12)


def map_of(tiling: Tiling, seed: int = 1) -> DensityMap:
    guarantee = Guarantee(model=TrustModel.LOCAL, epsilon=None, adversary=Adversary.REPORTS)
    values = np.random.default_rng(seed).gamma(0.3, 50, tiling.size)
    return DensityMap(values=values, tiling=tiling, guarantee=guarantee, method="test", parameters={})


@pytest.fixture(scope="module")
def parties() -> tuple[DensityMap, Server, TrafficClient]:
    traffic = map_of(mv.Grid(REGION, rows=13, columns=7))
    server = Server(traffic_database(traffic, queries=3))
    return traffic, server, TrafficClient.connect(server, traffic.tiling, queries=3)


def test_every_block_comes_back_as_the_plain_map_has_it(parties) -> None:
    traffic, server, client = parties
    rng = Randomness(3)
    plain = traffic.values.astype(np.float32)
    for block in range(client.blocks.cells.shape[0]):
        fetched = client.fetch([block], server.answer, rng)
        known = client.blocks.of_cell == block
        assert np.array_equal(fetched[known], plain[known])
        others = ~known & (client.blocks.of_cell != 0)  # what is missing is filled up with block 0
        assert np.isnan(fetched[others]).all()


@pytest.mark.parametrize("wanted", [[], [4], [4, 1], [4, 1, 2], [4, 1, 2, 0, 3]])
def test_as_many_queries_go_out_whatever_is_wanted_and_none_repeats(parties, wanted) -> None:
    _, server, client = parties
    seen: list[bytes] = []

    def answer(query: bytes) -> bytes:
        seen.append(query)
        return server.answer(query)

    client.fetch(wanted, answer)
    assert len(seen) == 3
    assert len({len(query) for query in seen}) == 1
    assert len(set(seen)) == 3, "a query sent twice would say that it is for the same block"


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 9))
def test_blocks_hold_every_cell_once(size: int, rows: int, columns: int) -> None:
    tiling = mv.Grid(REGION, rows=rows, columns=columns)
    blocks = traffic_blocks(tiling, size)
    assert sorted(blocks.cells[blocks.cells >= 0].tolist()) == list(range(tiling.size))
    assert blocks.cells.shape == (-(-tiling.size // size), size)
    for block, cells in enumerate(blocks.cells):
        assert (blocks.of_cell[cells[cells >= 0]] == block).all()


def test_blocks_are_of_neighbours() -> None:
    tiling = mv.Quadtree(REGION, depth=4)
    lattice = tiling.lattice()
    for cells in traffic_blocks(tiling, 16).cells:
        assert np.ptp(lattice.row[cells]) == 3
        assert np.ptp(lattice.col[cells]) == 3


def test_the_cost_counts_what_passes(parties) -> None:
    traffic, server, client = parties
    cost = client.client.offer.shape.traffic()
    query = client.client.query(0)
    # The messages' heads come on top.
    assert 0 <= len(query.message) - cost.query < 200
    assert 0 <= len(server.answer(query.message)) - cost.answer < 200
    assert cost.database >= 4 * traffic.values.size


def test_another_tiling_is_refused(parties) -> None:
    _, server, _ = parties
    with pytest.raises(InputError, match="blocks"):
        TrafficClient.connect(server, mv.Quadtree(REGION, depth=5))


@pytest.mark.parametrize("queries", [0, -1])
def test_senseless_numbers_are_refused(parties, queries: int) -> None:
    traffic, server, _ = parties
    with pytest.raises(ParameterError, match="at least 1"):
        TrafficClient.connect(server, traffic.tiling, queries=queries)
    with pytest.raises(ParameterError, match="at least 1"):
        traffic_blocks(traffic.tiling, queries)


def test_a_new_map_makes_an_old_hint_an_error(parties) -> None:
    traffic, _, client = parties
    newer = Server(traffic_database(map_of(traffic.tiling, seed=2), queries=3))
    with pytest.raises(InputError):
        client.fetch([1], newer.answer)
