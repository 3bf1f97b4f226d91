from __future__ import annotations

import numpy as np
import pytest

from mapveil.evaluation.compare import compare, sigma_in_cells
from mapveil.evaluation.sampled_people import UserShares
from mapveil.evaluation.scoring import Scoring
from mapveil.evaluation.trials import UNIFORM, parse_method
from mapveil.geo.counts import Counts
from mapveil.geo.grid import Grid
from mapveil.geo.points import Points
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.metrics.emd import emd
from mapveil.metrics.emd_euclidean import emd_euclidean
from mapveil.synthetic import city
from mapveil_client.errors import ParameterError

CITY = city(users=300, seed=4)
REGION = CITY.region
assert REGION is not None
TILING = Quadtree(REGION, 4)


def test_more_budget_makes_every_metric_better() -> None:
    metrics = ("l1", "kl", "similarity", "pearson", "emd", "emd_m")
    found = compare(CITY, TILING, ["laplace"], [20, "0.1"], 4, metrics=metrics, seed=1)
    assert found.epsilons == (0.1, 20.0)
    assert found.metrics == metrics
    for metric in metrics:
        little, much = (found.values("laplace", metric, epsilon).mean() for epsilon in found.epsilons)
        assert (much > little) == (metric in ("similarity", "pearson"))


def test_it_repeats_and_does_not_depend_on_workers_or_company() -> None:
    def values(methods: list[str], workers: int) -> list[float]:
        found = compare(CITY, TILING, methods, [1], 2, users=50, metrics=["kl"], seed=7, workers=workers)
        return list(found.values("laplace", "kl"))

    alone = values(["laplace"], 1)
    assert alone == values(["laplace:clip=false", "laplace"], 1)
    assert alone == values(["laplace"], 2)
    assert alone[0] != alone[1]


def test_counts_bring_their_cells_and_smoothing_helps_the_noise() -> None:
    grid = Grid(Region.without_georeference(16, 12), rows=12, columns=16)
    counts = Counts(np.random.default_rng(0).integers(0, 40, grid.size), grid)
    rough = compare(counts, None, ["laplace"], [1], 3, metrics=["similarity"])
    smooth = compare(counts, None, ["laplace"], [1], 3, metrics=["similarity"], sigma_cells=2)
    assert (smooth.values("laplace", "similarity") > rough.values("laplace", "similarity")).all()
    with pytest.raises(ParameterError, match="no georeference"):
        compare(counts, None, ["laplace"], [1], 1, metrics=["emd_m"])
    with pytest.raises(ParameterError, match="sigma in metres"):
        compare(counts, None, ["laplace"], [1], 1, sigma_m=100)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": ["nothing"]}, "no central method is called 'nothing'"),
        ({"methods": []}, "methods must hold"),
        ({"methods": ["laplace:clip"]}, "name:key=value"),
        ({"methods": ["laplace:clap=1"]}, "has no option 'clap'; expected one of clip"),
        ({"epsilons": []}, "epsilons must hold"),
        ({"epsilons": [-1]}, "above 0"),
        ({"metrics": ["beauty"]}, "no metric is called 'beauty'"),
        ({"metrics": []}, "no metric is given"),
        ({"trials": 0}, "trials must be at least 1"),
        ({"users": 301}, "1 to 300 users, got 301"),
        ({"sigma_cells": -1.0}, "sigma must be"),
        ({"workers": 0}, "workers must be at least 1"),
    ],
)
def test_bad_parameters_are_said(change: dict[str, object], message: str) -> None:
    given: dict[str, object] = {"methods": ["laplace"], "epsilons": [1], "trials": 1} | change
    with pytest.raises(ParameterError, match=message):
        compare(CITY, TILING, **given)  # type: ignore[arg-type]


def test_scoring_a_map_against_itself_is_perfect() -> None:
    truth = np.random.default_rng(2).uniform(0, 1, TILING.size)
    best = Scoring(("l1", "similarity", "pearson", "kl", "emd", "emd_m"), sigma_cells=1).against(
        truth, TILING
    )(truth)
    assert best == pytest.approx(
        {"l1": 0, "similarity": 1, "pearson": 1, "kl": 0, "emd": 0, "emd_m": 0}, abs=1e-9
    )


def test_distances_are_those_of_the_exact_solver_in_widths_and_metres() -> None:
    rng = np.random.default_rng(5)
    truth, estimate = rng.pareto(1, TILING.size), rng.pareto(1, TILING.size)
    found = Scoring(("emd", "emd_m"), emd_tolerance=1e-4).against(truth, TILING)(estimate)
    lattice = TILING.lattice()
    images = [lattice.to_square(values) for values in (truth, estimate)]
    assert found["emd"] == pytest.approx(emd(*images), rel=1e-4)
    cell = (TILING.region.width_m / 16, TILING.region.height_m / 16)
    assert found["emd_m"] == pytest.approx(emd(*images, cell=cell), rel=1e-3)


def test_a_distance_over_blocks_keeps_its_bound() -> None:
    rng = np.random.default_rng(6)
    truth, estimate = (values / values.sum() for values in rng.pareto(1, (2, TILING.size)))
    whole = Scoring(("emd",), emd_tolerance=1e-4).against(truth, TILING)(estimate)["emd"]
    for side in (8, 5, 4):
        block = -(-16 // side)
        found = Scoring(("emd",), emd_tolerance=1e-4, emd_side=side).against(truth, TILING)(estimate)["emd"]
        bound = (block - 1) / 2 * (2 / 16) * np.abs(truth - estimate).sum()
        assert found != whole
        assert abs(found - whole) <= bound + 1e-4


def test_negative_estimates_count_for_values_and_not_for_distributions() -> None:
    truth = np.zeros(TILING.size)
    truth[0] = 2.0
    estimate = truth.copy()
    estimate[1] = -3.0
    found = Scoring(("l1", "similarity")).against(truth, TILING)(estimate)
    assert found == pytest.approx({"l1": 3.0, "similarity": 1.0})


def test_a_sigma_in_metres_is_so_many_cells() -> None:
    assert sigma_in_cells(TILING, 1000) == pytest.approx(
        1000 / np.sqrt(TILING.region.area_m2 / TILING.size), rel=1e-9
    )


def test_declared_users_go_to_mechanisms_that_want_them() -> None:
    spec = parse_method("multiscale:depth=3")
    assert spec.options == (("depth", 3),)
    from fractions import Fraction

    assert spec.mechanism(Fraction(1), 200).parameters()["users"] == 200
    assert parse_method("multiscale:users=5").mechanism(Fraction(1), 200).parameters()["users"] == 5
    assert parse_method("multiscale").mechanism(Fraction(1)).parameters()["users"] is None
    assert parse_method("distributed/laplace").mechanism(Fraction(1), 200).parameters().get("users") is None


def test_euclidean_metres_and_squares_of_2_km() -> None:
    rng = np.random.default_rng(8)
    truth, estimate = rng.pareto(1, (2, TILING.size))
    scoring = Scoring(("emd_m", "emd_euclidean_m", "l1_2km"))
    found = scoring.against(truth, TILING)(estimate)
    lattice = TILING.lattice()
    images = [lattice.to_square(values) for values in (truth, estimate)]
    cell = (TILING.region.width_m / 16, TILING.region.height_m / 16)
    assert found["emd_euclidean_m"] == pytest.approx(emd_euclidean(*images, cell=cell), rel=1e-3)
    assert found["emd_m"] / np.sqrt(2) < found["emd_euclidean_m"] < found["emd_m"]
    # Cells of 0.85 km: what stays within a square is no error there, what leaves it is.
    point, near, far = (np.zeros(TILING.size) for _ in range(3))
    order = lattice.to_square(np.arange(TILING.size))
    point[order[15, 0]], near[order[14, 0]], far[order[11, 0]] = 1, 1, 1
    measure = Scoring(("l1_2km",)).against(point, TILING)
    assert [measure(each)["l1_2km"] for each in (near, far)] == [0.0, 2.0]
    # Rounding is no error: paired trials would take it for a difference.
    assert Scoring(("l1_2km",)).against(truth, TILING)(truth * 0.1)["l1_2km"] == 0


def test_secure_sums_say_how_long_their_vectors_are_and_a_curator_has_none() -> None:
    methods = ["laplace", "distributed/laplace"]
    found = compare(CITY, TILING, methods, [1], 2, users=100, metrics=["density_mse"], of_everybody=True)
    assert {row.method: row.length for row in found.rows} == {
        "laplace": 0,
        "distributed/laplace": TILING.size,
    }
    assert found.settings["true map"] == "of all users"
    assert str(found.settings["counted"]).startswith("people, not visits")


def test_the_uniform_baseline_is_measured_once_per_trial_and_epsilon() -> None:
    found = compare(CITY, TILING, ["laplace"], [1, 2], 2, metrics=["similarity"], uniform=True)
    values = found.values(UNIFORM, "similarity")
    assert len(values) == 4
    assert len(set(values)) == 1
    assert 0 < values[0] < found.values("laplace", "similarity", 2).mean()


def test_a_local_method_is_given_the_cell_that_each_user_visits_most() -> None:
    where = [TILING.centres(np.array([cell])) for cell in (3, 7, 9)]
    user = [0, 0, 0, 1, 1]
    at = [where[0], where[1], where[1], where[2], where[0]]
    points = Points.from_arrays(user, [float(c.lon[0]) for c in at], [float(c.lat[0]) for c in at])
    homes = UserShares.from_points(points, TILING).most_visited().values
    assert np.flatnonzero(homes).tolist() == [3, 7]  # of equal ones the first
    assert homes.sum() == 2
    found = compare(CITY, TILING, ["local/grr"], [4], 1, metrics=["kl"])
    assert len(found.rows) == 1
