from __future__ import annotations

import pytest

from mapveil.evaluation.predicted_errors import plan
from mapveil.geo.grid import Grid
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.metrics.misplaced import MISPLACED
from mapveil_client.errors import ParameterError

REGION = Region.from_bbox(-40.08, 40.0, -39.92, 40.12)
TILING = Quadtree(REGION, 6)


def test_more_users_and_more_budget_are_expected_to_serve_better() -> None:
    def finest(users: int, epsilon: float) -> int:
        return plan(users, TILING, [epsilon], ["multiscale"], trials=2).recommendations[0].rows

    assert finest(100, 0.1) < finest(3000, 2) <= TILING.lattice().side
    assert finest(100, 0.1) <= finest(100, 2)


def test_a_forecast_is_complete_and_repeats() -> None:
    found = plan(500, TILING, ["0.5", 2], ["multiscale", "laplace"], trials=2, seed=3)
    assert found == plan(500, TILING, ["0.5", 2], ["multiscale", "laplace"], trials=2, seed=3)
    assert found != plan(500, TILING, ["0.5", 2], ["multiscale", "laplace"], trials=2, seed=4)
    header, rows = found.table()
    assert header == [
        "epsilon",
        "method",
        "L1, users",
        "EMD (city-block), m",
        "KL, nats",
        "similarity",
        "error per cell",
    ]
    assert [row[:2] for row in rows] == [
        ["0.5", "multiscale"], ["0.5", "laplace"], ["2", "multiscale"], ["2", "laplace"],
    ]  # fmt: skip
    assert [item.epsilon for item in found.recommendations] == [0.5, 2.0]
    assert all(item.method == "multiscale" for item in found.recommendations)
    assert "epsilon 2: take multiscale; readable down to cells of about" in found.text()
    assert found.to_csv().count("\n") == 1 + 2 * 2 * 5
    for item in found.expectations:
        assert item.low <= item.mean <= item.high


def test_nothing_useful_is_said_plainly() -> None:
    found = plan(1, TILING, ["0.01"], ["laplace"], trials=1)
    assert found.recommendations[0].finest_cell_m is None
    assert "no resolution is useful" in found.text()
    assert "fourier-kde: signal to noise" in found.random_features
    assert "too few users (1)" in found.text()
    assert 0 < MISPLACED < 1


def test_a_region_and_a_large_number_of_users_are_accepted() -> None:
    found = plan(1_000_000, Grid(REGION, rows=12, columns=8), [1], ["laplace"], trials=1)
    assert found.tiling == "grid:12x8"
    assert found.recommendations[0].rows >= 8
    assert plan(50, REGION, [1], ["laplace"], trials=1).tiling == "quadtree:4"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"users": 0}, "users must be a whole number from 1"),
        ({"trials": 0}, "trials must be at least 1, got 0"),
        ({"methods": []}, "methods must hold"),
        ({"epsilons": [0]}, "above 0"),
        ({"where": Region.without_georeference(4, 4)}, "must be georeferenced"),
    ],
)
def test_bad_parameters_are_said(change: dict[str, object], message: str) -> None:
    given: dict[str, object] = {
        "users": 10,
        "where": TILING,
        "epsilons": [1],
        "methods": ["laplace"],
    } | change
    with pytest.raises(ParameterError, match=message):
        plan(**given)  # type: ignore[arg-type]
