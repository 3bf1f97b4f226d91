"""How good neighbours are, against lists compared user by user."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mapveil as mv
from mapveil.analysis.nearest_users import nearest_users
from mapveil.analysis.quality import neighbour_quality
from mapveil_client.errors import ParameterError

CITY = mv.Grid(mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83), rows=4, columns=5)
PLANE = np.stack(CITY.region.metric_projection.project(*CITY.centres()), axis=1)
MAPS = st.lists(st.integers(0, 6), min_size=CITY.size, max_size=CITY.size).filter(
    lambda users: sum(users) > 8
)


def by_hand(truth, estimate, k):
    """Every user of the true map in turn."""
    n = sum(truth)
    people = np.repeat(np.arange(CITY.size), truth)
    apart = ((PLANE[people][:, None] - PLANE[people][None, :]) ** 2).sum(axis=2).mean()
    scaled = np.array(estimate) * (n / sum(estimate))
    error, precision, recall, common = [], [], [], []
    for place in people:
        known = nearest_users(truth, CITY, k, places=[place]).cell[0].tolist()
        found = nearest_users(scaled, CITY, k, places=[place]).cell[0].tolist()
        for a, b in zip(known, found, strict=True):
            error.append(((PLANE[a] - PLANE[b]) ** 2).sum() if a >= 0 and b >= 0 else apart * (a != b))
        known, found = ([at for at in cells if at >= 0] for cells in (known, found))
        both = len(set(known) & set(found))
        precision.append(both / max(len(set(found)), 1))
        recall.append(both / max(len(set(known)), 1))
        common.append((Counter(known) & Counter(found)).total() / k)
    return np.mean(error) / apart if apart else 0.0, *map(np.mean, (precision, recall, common))


@given(truth=MAPS, estimate=MAPS, k=st.integers(1, 6))
@settings(max_examples=12, deadline=None)
def test_figures_are_those_of_every_user_in_turn(truth: list[int], estimate: list[int], k: int) -> None:
    np.testing.assert_allclose(
        neighbour_quality(truth, estimate, CITY, k), by_hand(truth, estimate, k), atol=1e-9
    )


@given(truth=MAPS, scale=st.floats(0.1, 10))
@settings(max_examples=20, deadline=None)
def test_the_truth_is_perfect_at_any_scale(truth: list[int], scale: float) -> None:
    found = neighbour_quality(truth, np.array(truth) * scale, CITY, 3)
    assert found.normalised_mse < 0.05
    assert min(found.precision, found.recall, found.common) > 0.9
    np.testing.assert_allclose(neighbour_quality(truth, truth, CITY, 3), (0, 1, 1, 1), atol=1e-12)


def test_a_map_turned_over_is_much_worse_than_a_noisy_one() -> None:
    generator = np.random.default_rng(3)
    truth = np.round(60 * np.exp(-np.arange(CITY.size) / 3))
    noisy = np.maximum(truth + generator.normal(0, 2, CITY.size), 0)
    near, far = (neighbour_quality(truth, made, CITY, 10) for made in (noisy, truth[::-1]))
    assert near.normalised_mse < far.normalised_mse / 3
    assert near.common > far.common + 0.3
    assert far.normalised_mse > 0.5


@pytest.mark.parametrize(
    ("k", "estimate", "said"), [(0, 1, "k must be"), (20, 1, "fewer than"), (3, 0, "nobody")]
)
def test_what_is_refused(k: int, estimate: float, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        neighbour_quality(np.ones(CITY.size), np.full(CITY.size, estimate), CITY, k)
