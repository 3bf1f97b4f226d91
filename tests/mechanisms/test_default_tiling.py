"""The default cells follow from public or bought numbers only, and get finer with users and epsilon."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mapveil as mv
from mapveil.mechanisms.default_tiling import declared_tiling, default_tiling, quadtree_for
from mapveil.mechanisms.methods import find_method
from mapveil_client.errors import ParameterError

CITY = mv.synthetic.city(users=767, seed=3)
REGION = cast("mv.Region", CITY.region)


def depth(spec: str) -> int:
    return int(spec.removeprefix("quadtree:"))


@given(
    users=st.floats(0, 1e9), more=st.floats(1, 1e3), deviation=st.floats(1e-3, 1e3), crowding=st.floats(1, 64)
)
def test_more_users_or_less_noise_never_make_coarser_cells(
    users: float, more: float, deviation: float, crowding: float
) -> None:
    least = depth(quadtree_for(users, 1, deviation, crowding).spec)
    assert 3 <= least <= depth(quadtree_for(users * more, 1, deviation, crowding).spec) <= 10
    assert least <= depth(quadtree_for(users, 1, deviation / more, crowding).spec)


def test_the_reason_names_the_depth_the_users_and_epsilon() -> None:
    chosen = declared_tiling(767, Fraction(2))
    assert (chosen.spec, chosen.reason[:50]) == (
        "quadtree:6",
        "depth 6, because of about 767 users at epsilon 2: ",
    )


@pytest.mark.parametrize(
    ("users", "start", "which"),
    [
        (1, "depth 3, because of about 1 user at epsilon 1: ", "the least there is, above one at which"),
        (10**9, "depth 10, because of about 1,000,000,000 users ", "the most there is, below one at which"),
    ],
)
def test_a_depth_that_is_bounded_is_not_called_the_nearest(users: int, start: str, which: str) -> None:
    reason = declared_tiling(users, Fraction(1)).reason
    assert reason.startswith(start)
    assert which in reason
    assert "nearest" not in reason


@pytest.mark.parametrize("options", [{"users": 767}, {}])
def test_a_curator_s_table_is_not_looked_at_for_the_cells(options: dict[str, Any]) -> None:
    mechanism = find_method("laplace", "central").make(1, options)
    assert default_tiling(mechanism, cast("mv.Points", None), REGION).spec == (
        "quadtree:6" if options else "quadtree:8"
    )


def test_a_curator_s_number_of_users_is_bought_once_and_decides() -> None:
    made = mv.release(CITY, region=REGION, epsilon=2, account=None, rng=1)
    noisy = float(made.measurements[0].noisy[0])
    assert made.tiling.spec == declared_tiling(round(noisy), Fraction(2)).spec
    assert noisy != 767
    assert [share.purpose for share in made.guarantee.shares].count("number of users") == 1
    assert sum(share.epsilon for share in made.guarantee.shares) == made.guarantee.epsilon == 2
    assert f"because of a first noisy count of {noisy:,.0f} (95 % interval" in made.notes[-1]


@pytest.mark.parametrize("options", [{}, {"users": 767}, {"users": 40_000}])
def test_the_users_of_a_map_are_those_of_all_its_noisy_sums(options: dict[str, Any]) -> None:
    made = mv.release(CITY, region=REGION, epsilon=0.5, options=options, account=None, rng=2)
    low, high = made.total().interval()
    said = (
        f"about {made.total().estimate:,.0f} users are in the cells, 95 % interval {low:,.0f} to {high:,.0f}"
    )
    assert any(note.startswith(f"{said}, by all noisy sums together") for note in made.notes)
    rough = made.measurements[0].half_width(0.05)
    assert high - low < rough, "less than half as wide as the first count's"
    assert sum(share.epsilon for share in made.guarantee.shares) == Fraction(1, 2)


def test_the_users_of_a_map_in_one_block_are_said_too() -> None:
    given = {"region": REGION, "epsilon": "0.001", "account": None, "rng": 3}
    made = mv.release(CITY, options={"users": 5}, **given)
    assert {each.noisy.size for each in made.measurements} == {1}
    assert any("users are in the cells, 95 % interval" in note for note in made.notes)


@pytest.mark.parametrize("declared", [8, 76_700])
def test_cells_do_not_follow_a_declared_number_that_the_noisy_one_contradicts(declared: int) -> None:
    made, right, without = (
        mv.release(CITY, region=REGION, epsilon=1, options=options, account=None, rng=1)
        for options in ({"users": declared}, {"users": 767}, {})
    )
    assert made.tiling.spec == right.tiling.spec == without.tiling.spec
    assert f", too far from the declared {declared:,}, at epsilon 1" in made.notes[-1]
    assert "too far" not in right.notes[-1]
    assert [share.purpose for share in made.guarantee.shares].count("number of users") == 1
    assert sum(share.epsilon for share in made.guarantee.shares) == made.guarantee.epsilon == 1


@pytest.mark.parametrize("trust", ["distributed", "local"])
def test_clients_are_counted_because_who_takes_part_is_public(trust: str) -> None:
    made = mv.release(CITY, region=REGION, epsilon=2, trust=trust, account=None, rng=1)
    assert "because of about 767 users at epsilon 2" in made.notes[-1]
    assert depth(made.tiling.spec) < 8


def test_the_cells_and_notes_do_not_tell_who_is_inside_where_everybody_reports() -> None:
    west, south, east, north = REGION.bbox
    told = set()
    for inside in (940, 943):
        lon = np.where(np.arange(2000) < inside, (west + east) / 2, east + 1)
        people = mv.Points.from_arrays(np.arange(2000), lon, np.full(2000, (south + north) / 2))
        made = mv.release(
            people,
            region=REGION,
            epsilon=1,
            trust="local",
            options={"outside": "nearest"},
            account=None,
            rng=1,
        )
        told.add((made.tiling.spec, made.notes[-1]))
    assert len(told) == 1


def test_the_account_is_charged_the_whole_epsilon_once(tmp_path: Path) -> None:
    ledger = mv.Ledger(tmp_path / "ledger.sqlite")
    made = mv.release(CITY, region=REGION, epsilon=1, account=mv.Account(ledger=ledger))
    assert [entry.epsilon for entry in ledger.entries()] == [1]
    assert made.guarantee.epsilon == 1
    assert [entry.tiling for entry in ledger.entries()] == ["quadtree"]


def test_a_box_that_is_no_region_is_named() -> None:
    with pytest.raises(ParameterError, match=r"region must be a Region, such as Region.from_bbox"):
        mv.release(mv.synthetic.city(users=9, seed=1), "quadtree:3", region=(8, 47, 9, 48), epsilon=1)


def test_a_region_that_is_found_has_cells_of_the_rest_of_epsilon() -> None:
    many = mv.synthetic.city(users=20_000, seed=5)
    made = mv.release(many, epsilon=2, account=None, rng=2)
    noisy = float(made.measurements[0].noisy[0])
    assert made.tiling.spec == declared_tiling(round(noisy), Fraction(9, 5)).spec
    assert made.guarantee.epsilon <= 2
