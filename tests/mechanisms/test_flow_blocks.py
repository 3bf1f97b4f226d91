"""Flows from noisy sums: near the truth, nothing but noisy sums used, and nothing charged where trips are refused."""

from __future__ import annotations

import numpy as np
import pytest

import mapveil as mv
from mapveil.analysis.trips import Trips
from mapveil.engines import UNIT, UserSums, user_sums
from mapveil.engines.contributions import user_cells
from mapveil.geo.zone_order import zone_order
from mapveil.maps.flow_map import FlowMap
from mapveil.mechanisms.flow_blocks import FlowBlocks
from mapveil.trust.secure_aggregation.model import SecureAggregation
from mapveil_client.errors import CuratorWarning, InputError, ParameterError
from mapveil_client.morton import deinterleave

REGION = mv.Region.from_bbox(-8.70, 41.10, -8.52, 41.22)
ZONES = mv.Quadtree(REGION, depth=2)


def hub_trips(users: int = 3000, seed: int = 0) -> Trips:
    """A trip of each user: most between two hubs, some anywhere."""
    generator = np.random.default_rng(seed)
    hubs = np.array([[-8.67, 41.12], [-8.55, 41.20], [-8.55, 41.12]])
    first = generator.choice(3, users, p=[0.7, 0.2, 0.1])
    second = (first + generator.choice(2, users, p=[0.8, 0.2]) + 1) % 3
    ends = np.hstack([hubs[first], hubs[second]]) + generator.normal(0, 0.008, (users, 4))
    x, y, u, v = ends.T
    return Trips(np.arange(users), x, y, u, v)


def l1(flows: FlowMap, trips: Trips) -> float:
    """L1 between the true and the estimated trips of all pairs, over the true ones."""
    true = user_sums(trips.as_points(), flows.tiling).sums / UNIT
    made = flows.matrix().toarray().ravel()
    return float(np.abs(made - true).sum() / true.sum())


@pytest.mark.parametrize("trust", ["central", "distributed", "operators"])
@pytest.mark.parametrize("pair_signal", [0.01, 1e6])
def test_finds_the_flows_under_every_trust_model(trust: str, pair_signal: float) -> None:
    trips = hub_trips()
    options = {"pair_signal": pair_signal}
    flows = mv.flows(trips, ZONES, epsilon=2, trust=trust, options=options, account=None)
    assert l1(flows, trips) < 0.15
    assert flows.guarantee.epsilon == 2
    assert sum(share.epsilon for share in flows.guarantee.shares) <= 2
    assert flows.guarantee.simulated == (trust != "central")
    assert flows.sums is not None
    assert bool(flows.sums.margins) == (pair_signal > 1)


def test_one_user_moves_the_sums_of_all_pairs_by_one_at_most() -> None:
    generator = np.random.default_rng(1)
    rows, users = 60_000, 10_000
    user = np.minimum(generator.zipf(1.3, rows), users)
    lon, to_lon = generator.uniform(-8.72, -8.50, (2, rows))
    lat, to_lat = generator.uniform(41.08, 41.24, (2, rows))
    trips = mv.Points.from_arrays(user, lon, lat, to_lon=to_lon, to_lat=to_lat)
    # Sums are those of users, each of whose parts are integers.
    cells = user_cells(trips, ZONES)
    whole = np.add.reduceat(cells.shares, cells.starts[:-1])
    assert 0 < whole.min() <= whole.max() <= UNIT
    assert cells.shares.min() >= 0
    sums = np.bincount(cells.cells, cells.shares, ZONES.size**2).astype(np.int64)
    assert (sums == user_sums(trips, ZONES).sums).all()


def test_a_pair_counts_by_both_of_its_ends() -> None:
    generator = np.random.default_rng(2)
    user = generator.integers(0, 4, 40)
    lon, to_lon = generator.uniform(-8.72, -8.50, (2, 40))
    lat, to_lat = generator.uniform(41.08, 41.24, (2, 40))
    trips = mv.Points.from_arrays(user, lon, lat, to_lon=to_lon, to_lat=to_lat)
    slow = np.zeros(ZONES.size**2, dtype=np.int64)
    ends = zip(user, ZONES.locate(lon, lat), ZONES.locate(to_lon, to_lat), strict=True)
    pairs = [(who, int(a) * ZONES.size + int(b)) for who, a, b in ends if a >= 0 and b >= 0]
    for who, pair in pairs:
        slow[pair] += UNIT // sum(each == who for each, _ in pairs)
    assert (user_sums(trips, ZONES).sums == slow).all()


def test_every_pair_of_zones_has_a_site_of_its_own() -> None:
    grid = mv.Grid(REGION, rows=3, columns=5)
    order = zone_order(grid)
    raster = FlowBlocks(epsilon=1).raster(order)
    assert np.unique(raster.site).size == grid.size**2
    row, col = deinterleave(raster.site)
    assert (order.cell[row] == np.repeat(np.arange(grid.size), grid.size)).all()
    assert (order.cell[col] == np.tile(np.arange(grid.size), grid.size)).all()


def test_a_half_of_the_line_of_places_is_a_half_of_the_region() -> None:
    order = zone_order(ZONES)
    west = ZONES.centres().lon < -8.61
    assert {bool(place < 8) for place in order.place[west]} == {True}
    assert {bool(place < 8) for place in order.place[~west]} == {False}


@pytest.mark.parametrize("declared", [500, 1000, 4000])
def test_a_declared_number_of_users_bounds_no_flow(declared: int) -> None:
    """It is an estimate that the plan starts from; only clients of secure sums are known to be no more."""
    options = {"users": declared}
    flows = mv.flows(hub_trips(1000), ZONES, epsilon=2, trust="central", options=options, account=None, rng=1)
    assert flows.all_trips == pytest.approx(1000, abs=60)
    noted = [note for note in flows.notes if "declared number of users" in note]
    assert len(noted) == (declared != 1000)
    assert all("the blocks follow the declared number" in note for note in noted)


def test_devices_send_no_more_coordinates_than_longest() -> None:
    trust = SecureAggregation()
    mechanism = FlowBlocks(epsilon=8, trust=trust, longest=64, pair_signal=1e6)
    sums = mechanism.release(hub_trips(1000).as_points(), ZONES, account=None, rng=1).sums
    assert sums is not None
    assert 32 < sum(each.noisy.size for each in sums.blocks) <= 64


def test_a_table_without_destinations_and_too_many_zones_are_refused() -> None:
    with pytest.raises(InputError, match="destination in every row"):
        FlowBlocks(epsilon=1).release(mv.synthetic.city(users=5, seed=1), ZONES, account=None)
    with pytest.raises(ParameterError, match="at most 4096"):
        FlowBlocks(epsilon=1).release(hub_trips(5).as_points(), mv.Quadtree(REGION, depth=7), account=None)


def test_nobody_inside_is_released_as_noise() -> None:
    trips = Trips(np.arange(3), *(np.full(3, each) for each in (0.0, 0.0, 1.0, 1.0)))
    with pytest.warns(CuratorWarning, match="so the map is about nobody"):
        flows = mv.flows(trips, ZONES, epsilon=1, trust="central", account=None)
    assert flows.all_trips < 100


def test_options_of_the_local_model_are_refused_for_sums() -> None:
    for given_option in ({"estimator": "lasso"}, {"method": "grr"}, {"unit": "trip"}):
        with pytest.raises(ParameterError, match="under trust local only"):
            mv.flows(hub_trips(5), ZONES, epsilon=1, trust="central", account=None, **given_option)
    with pytest.raises(ParameterError, match="zones"):
        mv.flows(hub_trips(5), epsilon=1, trust="central", account=None)
    with pytest.raises(ParameterError, match="dropout is for trust"):
        mv.flows(hub_trips(5), ZONES, epsilon=1, dropout=0.1, account=None)


def test_sums_of_another_tiling_are_refused() -> None:
    sums = UserSums(np.zeros(ZONES.size**2, dtype=np.int64), mv.Quadtree(REGION, depth=1))
    with pytest.raises(InputError, match="counts must be on the cells"):
        user_sums(sums, ZONES)
