"""Drafts: what operators may ask for, and one line that says why not."""

from __future__ import annotations

import contextlib
import json
import tracemalloc
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.collector.rounds.offer import Offer
from mapveil.collector.rounds.specification import read_specification
from mapveil.local.level_design import best_design
from mapveil_client.errors import InputError
from mapveil_client.local.domain import Domain
from mapveil_client.policy import DevicePolicy
from mapveil_client.terms import CollectionTerms
from tests.authority import AUTHORITY

ID = "0123456789abcdef" * 2
BOX = [[-74.03, 40.69], [-73.90, 40.69], [-73.90, 40.83], [-74.03, 40.83], [-74.03, 40.69]]
PLACES = {
    "kind": "places",
    "lon": [-74.0, -73.95, -73.92],
    "lat": [40.7, 40.75, 40.8],
    "names": ["a", "b", "c"],
}


def draft(spec):
    return read_specification(spec, ID, AUTHORITY)


@pytest.mark.parametrize("trust", ["distributed", "local", "random-features"])
def test_a_draft_is_what_was_asked_for_and_has_sensible_defaults(make_spec, trust):
    made = draft(make_spec(trust))
    terms = made.terms
    assert (terms.identifier, terms.trust, terms.devices, terms.minimum) == (ID, trust, 24, 12)
    assert terms.active
    assert (made.join_seconds, made.phase_seconds) == (3600, 60)
    assert terms.epsilon == (None if trust == "random-features" else 2)
    assert CollectionTerms.decode(terms.encode()) == terms
    assert bool(terms.query) == (trust == "random-features")
    assert Offer(terms).mechanism is not None


def test_local_terms_tell_devices_the_levels_for_as_many_reports(make_spec) -> None:
    spec = make_spec("local") | {"method": None, "options": None, "tiling": "quadtree:6", "devices": 50_000}
    terms = draft(spec).terms
    best = best_design(Fraction(2), Domain(Offer(terms).tiling), 50_000)
    assert (terms.method, terms.options) == (
        "olh-h",
        {"growth": best.growth, "site_weight": best.site_weight},
    )
    given = draft(spec | {"options": {"growth": 16, "site_weight": 3}}).terms
    assert given.options == {"growth": 16, "site_weight": 3}


@pytest.mark.parametrize("trust", ["local", "distributed", "random-features"])
def test_a_prior_is_refused_in_words(make_spec, trust) -> None:
    with pytest.raises(InputError, match="estimated without a prior"):
        draft(make_spec(trust, options={"prior": "census.tif"}))


@pytest.mark.parametrize(
    ("epsilon", "exact"),
    [
        ("1", 1),
        (1, 1),
        (0.1, Fraction(1, 10)),
        ("1/3", Fraction(1, 3)),
        ("0.25", Fraction(1, 4)),
        (1e-5, Fraction(1, 10**5)),
    ],
)
def test_epsilon_is_exact(make_spec, epsilon, exact):
    assert draft(make_spec("local", epsilon=epsilon)).terms.epsilon == exact


@pytest.mark.parametrize(
    "region",
    [
        BOX,
        list(reversed(BOX)),
        {"type": "Polygon", "coordinates": [BOX]},
        {"type": "Feature", "properties": {}, "geometry": {"type": "Polygon", "coordinates": [BOX]}},
    ],
)
def test_a_box_may_be_geojson(make_spec, region):
    if isinstance(region, list):
        region = {"type": "Polygon", "coordinates": [region]}
    assert list(draft(make_spec("local", region=region)).terms.cells.region.bbox) == [
        -74.03,
        40.69,
        -73.9,
        40.83,
    ]


@pytest.mark.parametrize("at", range(3))
def test_a_box_may_have_points_on_its_sides_and_begin_at_one(make_spec, at):
    ring = [BOX[0], [-74.0, 40.69], [-73.95, 40.69], BOX[1], [-73.9, 40.7], BOX[2], BOX[3], [-74.03, 40.8]]
    region = {"type": "Polygon", "coordinates": [ring[at:] + ring[: at + 1]]}
    assert draft(make_spec("local", region=region)).terms.cells == draft(make_spec("local")).terms.cells


def test_a_box_with_latitude_first_is_refused_and_as_geojson_is_meant_so(make_spec):
    swapped = [40.69, -74.03, 40.83, -73.9]
    with pytest.raises(InputError, match="longitude and latitude seem to be swapped"):
        draft(make_spec("local", region=swapped))
    ring = [[lat, lon] for lon, lat in BOX]
    made = draft(make_spec("local", region={"type": "Polygon", "coordinates": [ring]}))
    assert list(made.terms.cells.region.bbox) == swapped


def test_places_may_be_listed(make_spec):
    terms = draft(make_spec("local", tiling=PLACES, devices=24)).terms
    assert terms.cells.size == 3
    assert list(terms.cells.names) == ["a", "b", "c"]


WRONG = {
    "unknown key": {"colour": "red"},
    "unknown trust": {"trust": "central"},
    "no title": {"title": " "},
    "long title": {"title": "x" * 201},
    "control characters": {"title": "a\x00b"},
    "lone surrogate": {"title": "\ud800"},
    "title of another kind": {"title": 3},
    "unknown method": {"method": "magic"},
    "method of another trust": {"method": "adaptive"},
    "options of another kind": {"options": [1]},
    "unknown option": {"options": {"colour": 1}},
    "option of another kind": {"options": {"estimator": 3}},
    "nested option": {"options": {"estimator": {"a": 1}}},
    "huge option": {"options": {"estimator": 1 << 60}},
    "no epsilon": {"epsilon": None},
    "epsilon 0": {"epsilon": 0},
    "negative epsilon": {"epsilon": -1},
    "epsilon as a power": {"epsilon": "1e999999999"},
    "epsilon by zero": {"epsilon": "1/0"},
    "huge epsilon": {"epsilon": "99999"},
    "tiny epsilon": {"epsilon": "1/99999999"},
    "true epsilon": {"epsilon": True},
    "large epsilon": {"epsilon": 21},
    "large epsilon of rounds": {"epsilon": "20.5", "trust": "distributed", "method": None, "options": None},
    "large delta of rounds": {"epsilon": "17.6", "trust": "distributed", "method": None, "options": None},
    "not a number": {"epsilon": float("nan")},
    "no region": {"region": None},
    "three numbers": {"region": [1, 2, 3]},
    "swapped": {"region": [-73.9, 40.69, -74.03, 40.83]},
    "off the Earth": {"region": [-74, 40, -73, 140]},
    "infinite": {"region": [-74, 40, -73, float("inf")]},
    "texts": {"region": ["-74", "40", "-73", "41"]},
    "triangle": {"region": {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}},
    "slanted": {"region": {"type": "Polygon", "coordinates": [[[0, 0], [1, 0.1], [1, 1], [0, 1], [0, 0]]]}},
    "bow": {"region": {"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]]}},
    "open ring": {"region": {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1], [0, 2]]]}},
    "notched": {
        "region": {
            "type": "Polygon",
            "coordinates": [[[0, 0], [2, 0], [2, 1], [1, 1], [1, 2], [0, 2], [0, 0]]],
        }
    },
    "a point beyond a side": {
        "region": {"type": "Polygon", "coordinates": [[[0, 0], [2, 0], [1, 0], [1, 1], [0, 1], [0, 0]]]}
    },
    "a point twice": {
        "region": {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 0], [1, 1], [0, 1], [0, 0]]]}
    },
    "all on a side": {
        "region": {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [2, 0], [1, 0], [0, 0]]]}
    },
    "holes": {"region": {"type": "Polygon", "coordinates": [BOX, BOX]}},
    "no geometry": {"region": {"type": "Polygon"}},
    "hexagons": {"tiling": "h3:8"},
    "a file": {"tiling": "places:/etc/passwd"},
    "too many cells": {"tiling": "quadtree:12"},
    "far too many cells": {"tiling": "grid:99999x99999"},
    "no cells": {"tiling": "grid:0x4"},
    "no tiling": {"tiling": None},
    "a tiling's list": {"tiling": [1]},
    "another record": {"tiling": {"kind": "grid", "rows": 2, "columns": 2}},
    "one place": {"tiling": {"kind": "places", "lon": [-74.0], "lat": [40.7]}},
    "unequal places": {"tiling": {**PLACES, "lat": [40.7]}},
    "places off the region": {"tiling": {**PLACES, "lon": [10.0, 11.0, 12.0]}},
    "places with a far away": {"tiling": {**PLACES, "max_distance_m": -1}},
    "unnamed places": {"tiling": {**PLACES, "names": ["a"]}},
    "two devices": {"devices": 2},
    "no devices": {"devices": None},
    "half a device": {"devices": 24.5},
    "true devices": {"devices": True},
    "minimum above": {"minimum": 25},
    "minimum below": {"minimum": 2},
    "active of another kind": {"active": "yes"},
    "no time": {"phase_seconds": 0},
    "for ever": {"join_seconds": 1 << 40},
}


@pytest.mark.parametrize("changes", WRONG.values(), ids=WRONG)
def test_a_wrong_draft_is_one_line_of_why(make_spec, changes):
    with pytest.raises(InputError) as caught:
        draft(make_spec("local") | changes)
    assert "\n" not in str(caught.value)


WRONG_ROUNDS = {
    "sample": {"options": {"sample": 5}},
    "redraw": {"options": {"redraw": True}},
    "wrapping": {"options": {"overflow": "wrap"}},
    "labels": {"method": "proportions", "options": {}},
    "tiny shards": {"options": {"shard_size": 2}},
    "a modulus too small": {"options": {"shard_size": 12, "bits": 2}},
    "dropouts that the graph cannot bear": {
        "options": {"shard_size": 12, "tolerated_dropout": 0.9, "corrupt": 0.09}
    },
}


@pytest.mark.parametrize(("method", "estimator"), [("olh", "candidate-sets"), ("subset", "em")])
def test_an_estimator_that_cannot_read_the_reports_is_refused(make_spec, method, estimator):
    with pytest.raises(InputError, match=estimator):
        draft(make_spec("local", method=method, options={"estimator": estimator}))


@pytest.mark.parametrize("changes", WRONG_ROUNDS.values(), ids=WRONG_ROUNDS)
def test_a_collection_of_rounds_that_could_not_be_held_is_refused_before_anybody_is_asked(make_spec, changes):
    with pytest.raises(InputError):
        draft(make_spec("distributed", **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": "1"},
        {"method": "federated-kde", "options": {"bandwidth_m": 100}},
        {"method": "planar-laplace"},
        {"options": {"bandwidth_rule": "neighbours"}},
        {"options": {"bandwidth_m": 100_000}},
        {"options": {"bandwidth_m": 0.001}},
        {"options": {"population": "people.npz"}},
    ],
)
def test_a_projection_that_devices_would_refuse_is_refused_before_they_are_asked(make_spec, changes):
    with pytest.raises(InputError):
        draft(make_spec("random-features", **changes))


def test_a_projection_of_chance_is_refused_before_devices_are_asked(make_spec):
    few = make_spec("random-features", options={}, devices=200)
    with pytest.raises(
        InputError, match=r"answer in vain: .* too few users \(200\): about [\d,]+ are needed"
    ):
        draft(few)
    draft(few | {"options": {"least_signal": 0}})
    draft(few | {"devices": 10_000})


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=10), inner, max_size=5),
    max_leaves=10,
)


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(["title", "trust", "method", "epsilon", "options", "region", "tiling", "devices",
                             "minimum", "active", "join_seconds", "phase_seconds"]), value=ANYTHING)  # fmt: skip
def test_whatever_is_sent_is_a_draft_or_an_error_of_ours(make_spec, name, value):
    spec = make_spec("local", tiling="grid:2x2", method="grr") | {name: value}
    with contextlib.suppress(InputError):  # and nothing else
        json.loads(draft(spec).terms.encode())


@pytest.mark.parametrize("tiling", ["grid:1x99999", "grid:4097x3", "tiles:13"])
@pytest.mark.parametrize("trust", ["distributed", "local"])
def test_a_raster_that_would_fill_the_memory_is_refused_before_it_is_made(make_spec, tiling, trust):
    with pytest.raises(InputError, match=r"cells|narrow"):
        draft(make_spec(trust, tiling=tiling, region=[-180, -85, 180, 85]))
    assert draft(make_spec(trust, tiling="grid:1x4096")).terms.cells.lattice().depth == 12


def test_a_long_grid_takes_little_more_memory_than_its_raster(make_spec) -> None:
    spec = make_spec("distributed", method="adaptive-grid", options={"c2": 10}, tiling="grid:1x1024")
    draft(spec)  # imports
    tracemalloc.start()
    draft(spec)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    raster = 8 * 1024**2
    assert peak < 3 * raster


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"epsilon": "4"}, "epsilon must be at most 2, got 4"),
        ({"minimum": 12}, "minimum must be at least 20, got 12"),
        ({"trust": "distributed", "active": False}, "protected against a malicious server"),
        (
            {"trust": "distributed", "options": {"corrupt": 0}},
            "corrupt must be at least 0.05",
        ),
    ],
)
def test_what_the_default_policy_of_devices_refuses_is_refused_before_anybody_is_asked(
    make_spec, changes, says
) -> None:
    spec = make_spec(**{"trust": "local", "devices": 100, "options": {}, **changes})
    assert draft(spec).terms.epsilon in (2, 4)
    del spec["accept_custom_policy"]
    with pytest.raises(InputError, match=f"default policy of devices refuses.*{says}.*accept_custom_policy"):
        draft(spec)


def test_what_the_default_policy_allows_needs_no_word(make_spec) -> None:
    for trust in ("local", "distributed"):
        spec = make_spec(trust, devices=100, options={})
        del spec["accept_custom_policy"]
        terms = draft(spec).terms
        assert DevicePolicy(authority=terms.authority).refusal(terms) is None
    features = make_spec("random-features")
    del features["accept_custom_policy"]
    assert draft(features)
