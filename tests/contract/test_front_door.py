"""Every release through the front door charges a real account exactly its claim, and never less than it revealed."""

from __future__ import annotations

import pytest

from mapveil.mechanisms.methods import METHODS

from .front_door import WAYS, check_front_door, check_refusal

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*has no rows in the cells:mapveil_client.errors.CuratorWarning"
)  # a table elsewhere must change nothing
FREE = [f"{method.trust} {method.name}" for method in METHODS if not method.has_budget]


@pytest.mark.parametrize("way", WAYS)
def test_the_account_is_charged_what_the_replies_cost_and_the_guarantee_claims(way: str) -> None:
    check_front_door(way)


@pytest.mark.parametrize("way", [way for way in WAYS if way not in FREE])
def test_too_small_a_budget_refuses_before_anything_is_asked(way: str) -> None:
    check_refusal(way)
