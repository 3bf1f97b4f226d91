"""The policy: every rule refuses what it is for, names it, and lets the rest through."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from mapveil.geo.grid import Grid
from mapveil.geo.places import Places
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil_client.errors import ParameterError
from mapveil_client.policy import DevicePolicy
from mapveil_client.randomness.noise_shares import MOST_ROUNDS, share_shape
from tests.authority import NAMED

REGION = Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
CORNERS = {"type": "Polygon", "coordinates": [[[-74, 40.7], [-73.9, 40.7], [-73.95, 40.8], [-74, 40.7]]]}

REFUSED = {
    "the trust": ({}, {"trusts": ("local",)}, "trust must be local, got distributed"),
    "the price": ({"epsilon": Fraction(3)}, {}, "epsilon must be at most 2, got 3"),
    "too few devices": ({"minimum": 19}, {}, "minimum must be at least 20, got 19"),
    "its own noise": (
        {"options": {"scale": 1}}, {"most_own_epsilon": 4.0}, "every other device corrupt must be at most 4, got 4.04",
    ),
    "its own noise, untold": ({"own_epsilon": None}, {}, "own_epsilon must be 3069.44 or more, got 0"),
    "its own noise, embellished": ({"own_epsilon": Fraction(1)}, {}, "own_epsilon must be 3069.44 or more, got 1"),
    "passive sums": ({"active": False}, {}, "a malicious server"),
    "nobody corrupt": ({"options": {"corrupt": 0.04}}, {}, "corrupt must be at least 0.05, got 0.04"),
    "too many dropouts": ({"options": {"tolerated_dropout": 0.3}}, {}, "must be at most 0.25, got 0.3"),
    "small shards": ({"options": {"shard_size": 19}}, {}, "shard_size must be at least 20, got 19"),
    "overflow": ({"options": {"overflow": "wrap"}}, {}, "overflow must be refuse, got wrap"),
    "labels": ({"method": "proportions", "options": {"labels": 2}}, {}, "label of every location"),
    "small cells": ({}, {"smallest_cell_m": 2000.0}, "cell side in metres must be at least 2000, got 1632.96"),
    "too many cells": ({}, {"most_cells": 63}, "number of cells must be at most 63, got 64"),
    "a polygon": (
        {"tiling": Quadtree(Region.from_polygon(CORNERS), 3).to_dict()}, {}, "polygon",
    ),
    "another plane": (
        {"tiling": Grid(Region.from_bounds_in("EPSG:26918", 580000, 4500000, 590000, 4510000), 8, 8).to_dict()},
        {},
        "a plane that this device projects",
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", REFUSED)
def test_each_rule_refuses_what_it_is_for(new_terms, rule: str) -> None:
    terms, policy, match = REFUSED[rule]
    refusal = DevicePolicy(authority=NAMED, **policy).refusal(new_terms(**terms))
    assert refusal is not None
    assert match in refusal


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"epsilon": Fraction(2)},
        {"method": "adaptive"},
        {"options": {"corrupt": 0.05, "tolerated_dropout": 0.25, "shard_size": 20}},
        {"trust": "local", "method": "olh-h"},
        {"trust": "local", "method": "disk", "tiling": Quadtree(REGION, 2).to_dict()},
        {"tiling": Grid(REGION, 5, 9).to_dict()},
        {"tiling": Places(np.array([-74.0, -73.95]), np.array([40.7, 40.8]), REGION).to_dict()},
    ],
)
def test_what_keeps_every_rule_is_answered(new_terms, changes) -> None:
    assert DevicePolicy(authority=NAMED).refusal(new_terms(**changes)) is None


def test_a_randomizer_that_breaks_its_promise_is_refused(new_terms, monkeypatch: pytest.MonkeyPatch) -> None:
    terms = new_terms(trust="local", method="grr", epsilon=Fraction(1))
    monkeypatch.setattr(type(terms.randomizer), "worst_ratio", lambda self: Fraction(28, 10))
    assert "do not keep the epsilon" in str(DevicePolicy(authority=NAMED).refusal(terms))


@pytest.mark.parametrize(
    ("size", "dropout", "corrupt"), [(24, "0.1", "0.05"), (200, "0.2", "0.1"), (37, "0", "0.3")]
)
def test_the_share_of_noise_is_the_one_that_the_shard_needs(
    new_terms, new_announcement, size: int, dropout: str, corrupt: str
) -> None:
    options = {"tolerated_dropout": float(dropout), "corrupt": float(corrupt)}
    terms = new_terms(devices=size, options=options)
    needed = share_shape(size, dropout, corrupt)
    for alpha, answered in ((needed, True), (needed * Fraction(999, 1000), False), (Fraction(1), True)):
        refusal = DevicePolicy(authority=NAMED).refusal_of_round(terms, new_announcement(terms, alpha=alpha))
        assert (refusal is None) == answered
    assert DevicePolicy(authority=NAMED).refusal_of_round(terms, new_announcement(terms, alpha=Fraction(2)))


def test_the_rounds_of_a_collection_stay_within_the_bound_on_its_own_noise(
    new_terms, new_announcement
) -> None:
    terms = new_terms(options={"scale": 1})
    half = new_announcement(terms, epsilon=Fraction(1, 2), scale=1)
    # Half the budget: 3.5 of the 4.04 that the whole would cost, for ln(1 / alpha) is paid for every sum.
    for most, answered in ((4.05, False), (7.1, True)):
        policy = DevicePolicy(authority=NAMED, most_own_epsilon=most)
        assert policy.refusal(terms) is None
        refusal = policy.refusal_of_round(terms, half)
        assert (refusal is None) == answered
        assert answered or f"at most {most / 2:.3g}, got 3.53" in refusal
    whole = new_terms(method="local-laplace", options={"scale": 1})
    assert float(whole.own_epsilon) == 1
    policy = DevicePolicy(authority=NAMED, most_own_epsilon=1.0)
    assert policy.refusal(whole) is None
    assert policy.refusal_of_round(whole, new_announcement(whole, alpha=Fraction(1), scale=1)) is None


def test_whole_noise_of_every_device_is_asked_where_the_method_promises_it(
    new_terms, new_announcement
) -> None:
    terms = new_terms(method="local-laplace")
    assert "noise share" in str(
        DevicePolicy(authority=NAMED).refusal_of_round(terms, new_announcement(terms))
    )
    assert (
        DevicePolicy(authority=NAMED).refusal_of_round(terms, new_announcement(terms, alpha=Fraction(1)))
        is None
    )


def test_a_round_of_reports_is_refused(new_terms, new_announcement) -> None:
    reports = new_terms(trust="local", method="grr")
    assert "has no rounds" in str(
        DevicePolicy(authority=NAMED).refusal_of_round(reports, new_announcement(new_terms()))
    )


@pytest.mark.parametrize(
    "rule",
    [
        {"most_own_epsilon": 0.0},
        {"most_per_collection": Fraction(-1)},
        {"least_shard": 2},
        {"least_corrupt": Fraction(1)},
        {"most_dropout": Fraction(-1, 2)},
        {"trusts": ("central",)},
        {"smallest_cell_m": float("nan")},
        {"most_cells": 0},
    ],
)
def test_a_rule_outside_its_range_is_named(rule) -> None:
    with pytest.raises(ParameterError, match=f"^{next(iter(rule))} must be"):
        DevicePolicy(authority=NAMED, **rule)


def test_a_round_that_could_leave_the_promised_delta_is_refused(
    new_terms, new_announcement, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = new_terms()
    assert (
        DevicePolicy(authority=NAMED).refusal_of_round(terms, new_announcement(terms, number=MOST_ROUNDS))
        is None
    )
    late = DevicePolicy(authority=NAMED).refusal_of_round(
        terms, new_announcement(terms, number=MOST_ROUNDS + 1)
    )
    assert "at most 16 rounds, got round 17" in str(late)
    monkeypatch.setattr("mapveil_client.randomness.noise_shares.ROUND", Fraction(1, 1 << 60))
    long = DevicePolicy(authority=NAMED).refusal_of_round(terms, new_announcement(terms))
    assert "too many samples" in str(long)
