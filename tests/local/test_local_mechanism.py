"""Whole collections in one process."""

from __future__ import annotations

import importlib.util
import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import mapveil as mv
from mapveil.geo.counts import Counts
from mapveil.local.randomizers.generalized_response import GeneralizedRandomizedResponse
from mapveil.local.randomizers.staircase_response import StaircaseResponse
from mapveil.local.randomizers.unary_encoding import UnaryEncoding
from mapveil.maps.measurement import EstimatedUsers
from mapveil.privacy.claim import Assumes
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness

spec = importlib.util.spec_from_file_location("local_conftest", Path(__file__).parent / "conftest.py")
common = importlib.util.module_from_spec(spec)
spec.loader.exec_module(common)

ALL = {**common.SYMBOLS, **common.SETS}
OF_ALL = pytest.mark.parametrize("kind", ALL)
TILING = common.scattered(23)


def some_counts(users: int = 3000, tiling=TILING, seed: int = 0) -> Counts:
    generator = np.random.default_rng(seed)
    weights = generator.pareto(1.0, tiling.size) + 1e-3
    return Counts(generator.multinomial(users, weights / weights.sum()).astype(np.int64), tiling)


@OF_ALL
def test_a_release_is_a_map_that_carries_its_promise(kind: str) -> None:
    heat = ALL[kind](epsilon="1.5").release(some_counts(), rng=1)
    assert heat.values.min() >= 0
    assert heat.values.sum() == pytest.approx(3000)
    assert heat.method == kind
    promise = heat.guarantee
    assert (promise.model, promise.epsilon, promise.unit) == ("local", Fraction(3, 2), "user")
    assert sum(share.epsilon for share in promise.shares) == Fraction(3, 2)
    assert promise.seeded
    assert promise.seeded
    assert json.loads(heat.metadata_json())["guarantee"]["epsilon"] == "3/2"


@OF_ALL
def test_a_seed_repeats_and_its_absence_does_not(kind: str) -> None:
    source, mechanism = some_counts(), ALL[kind](epsilon=1)
    first, again, fresh = (mechanism.release(source, rng=rng).values for rng in (4, 4, None))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, fresh)
    assert not mechanism.release(source).guarantee.seeded


@OF_ALL
def test_the_halves_apart_are_the_release(kind: str) -> None:
    source, mechanism = some_counts(), ALL[kind](epsilon=1)
    randomizer = mechanism.on(Domain(TILING))
    cells = np.repeat(np.arange(TILING.size), source.values)
    tally = randomizer.tally(randomizer.randomize(cells, Randomness(9)))
    np.testing.assert_array_equal(
        mechanism.estimate(tally, randomizer, seeded=True).values, mechanism.release(source, rng=9).values
    )


@OF_ALL
def test_nobody_at_all_is_a_map_of_nobody(kind: str) -> None:
    heat = ALL[kind](epsilon=1).release(Counts(np.zeros(TILING.size, dtype=np.int64), TILING), rng=3)
    assert heat.values.tolist() == [0.0] * TILING.size
    assert any("nobody reported" in note for note in heat.notes)


@OF_ALL
def test_error_bounds_cover_the_truth(kind: str) -> None:
    source = some_counts()
    missed = []
    for seed in range(5):
        heat = ALL[kind](epsilon=1).release(source, rng=seed)
        bounds = heat.error(0.1)
        assert (bounds.lower <= bounds.upper).all()
        missed.append(np.mean((source.values < bounds.lower) | (source.values > bounds.upper)))
    assert np.mean(missed) <= 0.1


def test_error_bounds_are_those_of_the_noise() -> None:
    n, tiling = 4000, TILING
    counts = Counts(np.full(tiling.size, n // tiling.size, dtype=np.int64), tiling)
    mechanism = GeneralizedRandomizedResponse(epsilon=1)
    randomizer = mechanism.on(Domain(tiling))
    cells = np.repeat(np.arange(tiling.size), counts.values)

    def estimate(seed: int) -> np.ndarray:
        tally = randomizer.tally(randomizer.randomize(cells, Randomness(seed)))
        return np.asarray(cells.size * randomizer.invert(tally))

    seen = [estimate(seed) for seed in range(300)]
    spread = np.std(seen, axis=0).mean()
    said = mechanism.release(counts, rng=1).measurements[-1]
    assert isinstance(said, EstimatedUsers)
    # 23 sites times 300 runs: the mean deviation is known to two percent.
    assert said.deviation() == pytest.approx(spread, rel=0.1)
    assert said.half_width(0.05) > 1.96 * spread
    assert said.half_width(0.01) > said.half_width(0.1) > 0
    assert math.isfinite(said.half_width(1e-9))


@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), "one", None, True, Fraction(1, 10**9)], ids=str)
def test_a_senseless_epsilon_is_refused(epsilon) -> None:
    for mechanism in ALL.values():
        with pytest.raises(ParameterError, match="epsilon"):
            mechanism(epsilon=epsilon)


@pytest.mark.parametrize(
    "options", [{"estimator": "magic"}, {"place": "home"}, {"outside": "maybe"}], ids=str
)
def test_senseless_options_are_refused(options: dict) -> None:
    for mechanism in ALL.values():
        with pytest.raises(ParameterError, match=r"must be|accepted"):
            mechanism(epsilon=1, **options)


@OF_ALL
def test_parameters_round_trip(kind: str) -> None:
    mechanism = ALL[kind](epsilon="1/3", outside="nearest")
    assert type(mechanism)(**json.loads(json.dumps(mechanism.parameters()))) == mechanism


def test_a_table_of_visits_is_one_report_of_each_user() -> None:
    city = mv.synthetic.city(users=200, seed=3)
    heat = StaircaseResponse(epsilon=2).release(city, mv.Quadtree(city.region, depth=4), rng=6)
    assert heat.values.sum() <= 200 + 1e-6
    assert Assumes.PARTICIPATION_PUBLIC() in heat.guarantee.assumptions
    near = StaircaseResponse(epsilon=2, outside="nearest").release(
        city, mv.Quadtree(city.region, depth=4), rng=6
    )
    assert near.values.sum() == pytest.approx(200)
    assert Assumes.PARTICIPATION_PUBLIC() not in near.guarantee.assumptions


def test_cells_outside_a_polygon_hold_nobody() -> None:
    import shapely

    region = mv.Region.from_polygon(shapely.Polygon([(0, 0), (4, 0), (0, 4)]))
    tiling = mv.Grid(region, rows=4, columns=4)
    inside = tiling.lattice().inside
    counts = Counts(np.where(inside, 50, 0).astype(np.int64), tiling)
    for mechanism in ALL.values():
        heat = mechanism(epsilon=1).release(counts, rng=1)
        assert (heat.values[~inside] == 0).all()
        assert heat.values.sum() == pytest.approx(counts.values.sum())


def test_progress_is_told_between_zero_and_one() -> None:
    told: list[tuple[str, float]] = []
    StaircaseResponse(epsilon=1).release(some_counts(), rng=1, progress=lambda *step: told.append(step))
    assert {step for step, _ in told} == {"collect reports", "estimate"}
    assert all(0 <= done <= 1 for _, done in told)


def test_what_has_no_matrix_says_why() -> None:
    assert StaircaseResponse(epsilon=1).transition_matrix(TILING).shape == (23, 23)
    with pytest.raises(ParameterError, match="set of sites"):
        UnaryEncoding(epsilon=1).transition_matrix(TILING)


def test_fewer_than_two_sites_are_refused() -> None:
    with pytest.raises(InputError, match="two or more"):
        StaircaseResponse(epsilon=1).release(
            some_counts(10, mv.Grid(common.REGION, rows=1, columns=1)), rng=1
        )


def test_a_map_says_below_which_scale_its_reports_tell_nothing() -> None:
    cells = mv.Quadtree(mv.Region.from_bbox(0, 0, 0.16, 0.16), depth=4)  # of 0.01 degrees
    values = np.zeros(cells.size, dtype=np.int64)
    values[100] = 3000
    heat = mv.release(Counts(values, cells), epsilon=4, trust="local", account=None, rng=1)
    told = (
        "the blocks above the noise floor are 1.1 km wide; how users are spread within a block, or outside all, is the "
        "estimator's and not confirmed by the reports"
    )
    assert told in heat.notes
    assert heat.supported().size == 1
    few = mv.release(Counts(np.ones_like(values), cells), epsilon=1, trust="local", account=None, rng=1)
    assert "no block of cells is above the noise floor: the noise is larger than the counts" in few.notes
    assert few.supported().size == 0
    whole = mv.release(Counts(np.ones_like(values), cells), epsilon=0.1, trust="local", account=None, rng=1)
    assert not any("noise floor" in note for note in whole.notes), "no report was about less than the map"
