"""Stored maps come back whole: values, guarantee, rounds, and the sums that bounds are made of."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import mapveil as mv
from mapveil.collector.rounds.results import StoredMap
from mapveil.local.randomizers.hierarchical_hashing import HierarchicalHashing
from mapveil.mechanisms.multiscale import Multiscale
from mapveil.random_features.fourier_kde import FourierKde
from mapveil.trust.secure_aggregation.model import SecureAggregation
from mapveil_client.errors import InputError

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
MECHANISMS = {
    "distributed": Multiscale(epsilon=1, trust=SecureAggregation(shard_size=200)),
    "local": HierarchicalHashing(epsilon=2),
    "random-features": FourierKde(bandwidth_m=150),
}


@pytest.mark.parametrize("trust", MECHANISMS)
def test_a_map_comes_back_whole(trust):
    city = mv.synthetic.city(users=400, seed=1)
    heat = MECHANISMS[trust].release(city, mv.Grid(city.region, 16, 16), rng=1)
    stored = StoredMap.encode(heat)
    assert stored.geoparquet[:4] == stored.geoparquet[-4:] == b"PAR1"
    back = stored.decode()
    for item in dataclasses.fields(heat):
        before, after = getattr(heat, item.name), getattr(back, item.name)
        if item.name == "values":
            assert np.array_equal(before, after)
        elif item.name == "tiling":
            assert before.to_dict() == after.to_dict()
        elif item.name == "measurements":
            assert [type(each) for each in before] == [type(each) for each in after]
        elif item.name == "rounds":
            assert [each.to_dict() for each in before] == [each.to_dict() for each in after]
        else:
            assert before == after, item.name
    if heat.measurements:
        for bound in ("lower", "upper"):
            before, after = getattr(heat.error(), bound), getattr(back.error(), bound)
            # Noisy sums in files are rounded by a 64th of their deviation at most.
            assert np.allclose(before, after, rtol=0.01, atol=0.5)


def test_what_is_no_map_is_refused():
    with pytest.raises(InputError):
        StoredMap(b"PAR1 nonsense PAR1", b"").decode()
