"""What mechanisms over secure sums share: the trust boundary, the release, the promise."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

import mapveil as mv
from mapveil.geo.counts import Counts
from mapveil.mechanisms.hierarchical_histogram import HierarchicalHistogram
from mapveil.mechanisms.laplace_histogram import LaplaceHistogram
from mapveil.mechanisms.methods import METHODS
from mapveil.privacy.claim import Assumes, Share
from mapveil.secure_sum.drivers import IdealSum
from mapveil.secure_sum.protocol_sum import ProtocolSum
from mapveil.trust.queries import Execution
from mapveil.trust.secure_aggregation.model import SecureAggregation
from mapveil_client.contribution import Devices
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.morton import interleave
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.states import Abort

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
QUADTREE = mv.Quadtree(REGION, depth=4)
MUCH = 10**9

ROWS = [method for method in METHODS if method.trust == "distributed"]
OF_MECHANISM = pytest.mark.parametrize("method", ROWS, ids=lambda each: each.name)


def some_counts(tiling=QUADTREE, users=300, seed=0):
    generator = np.random.default_rng(seed)
    weights = generator.pareto(1.0, tiling.size) + 1e-3
    return Counts(generator.multinomial(users, weights / weights.sum()).astype(np.int64), tiling)


def test_a_table_and_its_devices_and_its_counts_agree_without_noise():
    generator = np.random.default_rng(2)
    lon, lat = generator.uniform(-74.02, -73.91, 80), generator.uniform(40.70, 40.82, 80)
    points = mv.Points.from_arrays(np.arange(80), lon, lat)
    cell = QUADTREE.locate(lon, lat)
    lattice = QUADTREE.lattice()
    site = interleave(lattice.row, lattice.col)
    counts = Counts(np.bincount(cell, minlength=QUADTREE.size), QUADTREE)
    mechanism = LaplaceHistogram(epsilon=MUCH, trust=SecureAggregation())
    for source in (points, counts, Devices(site[cell])):
        tiling = None if source is counts else QUADTREE
        np.testing.assert_array_equal(mechanism.release(source, tiling, rng=1).values, counts.values)


def test_a_user_of_many_rows_counts_one():
    points = mv.Points.from_arrays(
        ["a"] * 9 + ["b"], np.array([-74.02] * 6 + [-73.95] * 3 + [-73.95]), np.full(10, 40.7)
    )
    heat = LaplaceHistogram(epsilon=MUCH, trust=SecureAggregation(scale=3000)).release(
        points, QUADTREE, rng=1
    )
    here, there = QUADTREE.locate(np.array([-74.02, -73.95]), np.array([40.7, 40.7]))
    assert heat.values[here] == pytest.approx(2 / 3)
    assert heat.values[there] == pytest.approx(4 / 3)
    assert heat.values.sum() == pytest.approx(2)
    # With one unit, each is where it was most.
    heat = LaplaceHistogram(epsilon=MUCH, trust=SecureAggregation(scale=1)).release(points, QUADTREE, rng=1)
    assert (heat.values[here], heat.values[there]) == (1, 1)


def test_cells_that_share_a_site_share_its_people_and_cells_outside_have_none():
    places = mv.Places(
        lon=np.array([-74.0, -73.99999999, -73.92]), lat=np.array([40.7, 40.7, 40.82]), region=REGION
    )
    assert places.lattice().members().max() == 2
    heat = LaplaceHistogram(epsilon=MUCH, trust=SecureAggregation()).release(
        Counts(np.array([4, 2, 5]), places), rng=1
    )
    assert heat.values.tolist() == [3, 3, 5]


def test_cells_outside_a_polygon_are_empty():
    from shapely.geometry import Polygon

    region = mv.Region.from_polygon(Polygon([(-74.03, 40.69), (-73.90, 40.69), (-73.90, 40.83)]))
    tiling = mv.Grid(region, rows=9, columns=7)
    inside = tiling.inside()
    assert 0 < inside.sum() < inside.size
    heat = LaplaceHistogram(epsilon=1, trust=SecureAggregation()).release(Counts(inside * 5, tiling), rng=1)
    assert not heat.values[~inside].any()
    assert (heat.measurements[0].groups[~inside] == -1).all()
    assert heat.rounds[0].length == inside.sum()  # nobody is asked about the others


def test_the_guarantee_lists_what_each_round_revealed():
    told = []
    execution = Execution(Randomness(1), before_reveal=told.append)
    heat = HierarchicalHistogram(epsilon="1/3", trust=SecureAggregation()).execute(
        some_counts(), QUADTREE, execution
    )
    assert heat.guarantee.shares == tuple(told) == (Share("every level", Fraction(1, 3)),)
    assert heat.guarantee.epsilon == Fraction(1, 3)
    assert heat.guarantee.model == "distributed"
    assert heat.guarantee.seeded
    assert Assumes.DROPOUT(tolerated=0.1, corrupt=0.05) in heat.guarantee.assumptions
    assert heat.guarantee.simulated
    assert len(heat.rounds) == 1
    assert json.loads(heat.metadata_json())["rounds"][0]["length"] == sum(4**level for level in range(1, 5))
    assert (
        "1 round of 300 devices, at least 300 of them in every sum; 340 coordinates sent by each"
        in heat.notes
    )


def test_too_many_dropouts_release_nothing():
    told = []
    with pytest.raises(Abort, match="nothing was revealed") as refused:
        LaplaceHistogram(epsilon=1, trust=SecureAggregation()).execute(
            some_counts(), QUADTREE, Execution(Randomness(1), before_reveal=told.append, dropout=0.3)
        )
    assert refused.value.exit_code == 1
    assert told == []


def test_tolerated_dropouts_are_survived():
    heat = LaplaceHistogram(epsilon=MUCH, trust=SecureAggregation(tolerated_dropout=0.3)).release(
        some_counts(), rng=1, dropout=0.3
    )
    assert heat.values.sum() == 210
    assert any("at least 210 of them in every sum" in note for note in heat.notes)


def test_ideal_and_protocol_release_the_same_map():
    trust = SecureAggregation(shard_size=12, tolerated_dropout=0.2)
    counts = some_counts(mv.Quadtree(REGION, depth=2), users=24)
    made = [
        HierarchicalHistogram(epsilon=1, trust=trust).release(counts, rng=3, dropout=0.1, secure_sum=driver)
        for driver in (IdealSum(), ProtocolSum())
    ]
    np.testing.assert_array_equal(made[0].values, made[1].values)
    assert made[0].values.any()


def test_devices_need_their_tiling():
    with pytest.raises(InputError, match="tiling"):
        LaplaceHistogram(epsilon=1, trust=SecureAggregation()).release(Devices(np.array([1])))
    with pytest.raises(InputError, match="tiling"):
        LaplaceHistogram(epsilon=1, trust=SecureAggregation()).release(mv.synthetic.city(users=3, seed=1))


@OF_MECHANISM
def test_parameters_come_back(method):
    made = method.make(Fraction(1, 3), {"tolerated_dropout": 0.2, "shard_size": 50})
    record = json.loads(json.dumps(made.parameters()))
    assert record.pop("epsilon") == "1/3"
    assert method.make(Fraction(1, 3), record) == made


@pytest.mark.parametrize(
    "wrong",
    [
        {"shard_size": 0},
        {"tolerated_dropout": -0.1},
        {"tolerated_dropout": 1},
        {"corrupt": 1},
        {"corrupt": 0.5, "tolerated_dropout": 0.5},
        {"sample": 0},
        {"scale": 0},
        {"scale": 2**28 + 1},
        {"rounding": "up"},
        {"bits": 0},
        {"bits": 65},
        {"overflow": "ignore"},
    ],
)
def test_senseless_parameters_are_refused(wrong):
    with pytest.raises(ParameterError, match=f"{next(iter(wrong))} must be"):
        SecureAggregation(**wrong)


def test_tells_its_progress_and_never_a_place():
    told = []
    LaplaceHistogram(epsilon=1, trust=SecureAggregation(shard_size=50)).release(
        some_counts(), rng=1, progress=lambda step, done: told.append((step, done))
    )
    assert told[0] == ("place the devices", 0.0)
    assert told[-1] == ("every cell", 1.0)
    assert all(0 <= done <= 1 for _, done in told)
