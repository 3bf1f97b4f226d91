"""What every mechanism promises, tested over the one table: joining is adding a row."""

from __future__ import annotations

import dataclasses
import json
import re
from fractions import Fraction

import numpy as np
import pytest

import mapveil as mv
from mapveil.engines import UserSums, user_sums
from mapveil.geo.counts import Counts
from mapveil.geo.tiling import Tiling
from mapveil.mechanisms.mechanism import Mechanism
from mapveil.mechanisms.methods import METHODS, Method, find_method
from mapveil.trust.secure_aggregation.clients import devices_of
from mapveil_client.contribution import Devices
from mapveil_client.errors import InputError, ParameterError

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
TILINGS: dict[str, Tiling] = {
    "quadtree": mv.Quadtree(REGION, depth=5),
    "oblong grid": mv.Grid(REGION, columns=23, rows=9),
    "one row": mv.Grid(REGION, columns=7, rows=1),
    "hexagons": mv.Hexagons(REGION, resolution=7),
    "tiles": mv.WebMercatorTiles(REGION, zoom=13),
    "places": mv.Places(lon=np.linspace(-74.0, -73.92, 11), lat=np.linspace(40.70, 40.82, 11), region=REGION),
}
# Of those that need labels the tests of their own files hold the same; of those without a budget, their wing's.
TESTED = [method for method in METHODS if not method.labels and method.has_budget]
OF_METHOD = pytest.mark.parametrize("method", TESTED, ids=lambda method: f"{method.trust} {method.name}")
OF_TILING = pytest.mark.parametrize("tiling", TILINGS.values(), ids=TILINGS.keys())


def make(method: Method, epsilon: object = 1) -> Mechanism:
    return method.make(epsilon)  # type: ignore[arg-type, return-value]


def some_counts(tiling: Tiling, users: int = 400, seed: int = 0) -> Counts:
    generator = np.random.default_rng(seed)
    weights = generator.pareto(1.0, tiling.size) + 1e-3
    return Counts(generator.multinomial(users, weights / weights.sum()).astype(np.int64), tiling)


@OF_METHOD
@OF_TILING
def test_release_is_a_finite_map_that_carries_its_promise(method: Method, tiling: Tiling) -> None:
    heat = make(method).release(some_counts(tiling), rng=1)
    assert heat.values.shape == (tiling.size,)
    assert heat.values.dtype == np.float64
    assert np.isfinite(heat.values).all()
    assert heat.values.min() >= 0
    assert heat.method == method.name
    assert heat.guarantee.model == method.trust
    assert heat.guarantee.epsilon == 1
    assert heat.guarantee.seeded
    assert "not for release" in repr(heat.guarantee)
    assert json.loads(heat.metadata_json())["guarantee"]["epsilon"] == "1"


@OF_METHOD
@OF_TILING
def test_spends_at_most_its_budget_and_says_on_what(method: Method, tiling: Tiling) -> None:
    epsilon = Fraction(7, 10)
    guarantee = make(method, epsilon).release(some_counts(tiling), rng=2).guarantee
    assert guarantee.shares
    assert all(share.epsilon > 0 for share in guarantee.shares)
    spent = sum(share.epsilon for share in guarantee.shares)
    assert spent <= epsilon
    assert spent > epsilon * Fraction(999, 1000), "a budget that is not spent is accuracy thrown away"


@OF_METHOD
def test_a_seed_repeats_and_its_absence_does_not(method: Method) -> None:
    tiling = TILINGS["quadtree"]
    sums = some_counts(tiling)
    np.testing.assert_array_equal(*(make(method).release(sums, rng=5).values for _ in range(2)))
    # Of local reports much is needed for an estimator not to fall back on the one map that says nothing.
    local = method.trust == "local"
    sums = some_counts(tiling, users=4000) if local else sums
    fresh = make(method, 4 if local else 1)
    first = fresh.release(sums, account=None)
    # A map of few values may come twice: half of all thresholded maps are one and the same.
    assert any(not np.array_equal(first.values, fresh.release(sums, account=None).values) for _ in range(64))
    assert not first.guarantee.seeded


@OF_METHOD
def test_no_rng_argument_means_the_operating_system(method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def urandom(size: int) -> bytes:
        asked.append(size)
        return bytes(size)

    sums = some_counts(TILINGS["quadtree"])
    monkeypatch.setattr("mapveil_client.randomness.random.os.urandom", urandom)
    make(method).release(sums, account=None, rng=1)  # a design that is simulated by a fixed seed is kept
    monkeypatch.setattr(np.random, "default_rng", None)
    first, again = (make(method).release(sums, account=None).values for _ in range(2))
    assert asked
    assert set(asked) == {32}
    np.testing.assert_array_equal(first, again)  # the key is all the randomness there is


@OF_METHOD
@OF_TILING
def test_nobody_at_all_is_a_map_too(method: Method, tiling: Tiling) -> None:
    # Devices that hold nothing take part all the same: how many there are is public.
    nobody: Counts | Devices = (
        Devices(np.full(50, -1))
        if method.trust in ("distributed", "operators")
        else Counts(np.zeros(tiling.size, dtype=np.int64), tiling)
    )
    heat = make(method).release(nobody, tiling, rng=3)
    assert np.isfinite(heat.values).all()
    assert np.isfinite(heat.normalised()).all()


@OF_METHOD
@OF_TILING
def test_much_budget_gives_the_plain_answer(method: Method, tiling: Tiling) -> None:
    # Every mechanism converges where its resolution is the tiling's; the total does everywhere.
    sums = some_counts(tiling, users=100_000)
    heat = make(method, 10**5).release(sums, rng=4)
    total = sums.values.sum()
    if method.name == "thresholded":
        assert heat.values.max() == pytest.approx(sums.values.max(), rel=1e-3)
    elif method.name == "emd":
        assert heat.values.sum() <= total * 1.001
        assert heat.values.sum() > 0.1 * total
    else:
        assert heat.values.sum() == pytest.approx(total, rel=0.02)


@OF_METHOD
@OF_TILING
def test_error_bounds_cover_the_truth(method: Method, tiling: Tiling) -> None:
    sums = some_counts(tiling)
    truth = sums.values
    if not make(method).release(sums, rng=0).measurements:
        with pytest.raises(ParameterError, match="no error bounds"):
            make(method).release(sums, rng=0).error(0.1)
        return
    missed = []
    for seed in range(6):
        bounds = make(method).release(sums, rng=seed).error(0.1)
        assert (bounds.lower <= bounds.upper).all()
        assert (bounds.lower >= 0).all()
        missed.append(np.mean((truth < bounds.lower - 1e-9) | (truth > bounds.upper + 1e-9)))
    # Nodes share noise, so the missed part of one map varies; over six maps it stays near 10 %.
    assert np.mean(missed) < 0.3


@OF_METHOD
@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf"), "one", None, True, "1/0"])
def test_a_senseless_epsilon_is_refused(method: Method, epsilon: object) -> None:
    with pytest.raises(ParameterError, match="epsilon"):
        make(method, epsilon)


@OF_METHOD
def test_is_frozen_described_and_json_ready(method: Method) -> None:
    mechanism = make(method)
    with pytest.raises(dataclasses.FrozenInstanceError):
        mechanism.epsilon = 2  # type: ignore[misc]
    assert mechanism.name == method.name
    assert len(mechanism.summary) > 10
    assert re.search(r"\b(19|20)\d\d\b|Mapveil", mechanism.source)
    assert json.loads(json.dumps(mechanism.parameters()))["epsilon"] == "1"
    record = mechanism.parameters()
    assert method.make(record.pop("epsilon"), record) == mechanism


@OF_METHOD
def test_counts_of_another_tiling_are_refused(method: Method) -> None:
    with pytest.raises(InputError, match="counts must be on the cells of"):
        make(method).release(some_counts(TILINGS["quadtree"]), TILINGS["oblong grid"])


@pytest.mark.parametrize(
    "method",
    [method for method in TESTED if method.trust in ("central", "distributed", "operators")],
    ids=lambda method: f"{method.trust} {method.name}",
)
def test_a_table_and_what_it_is_summed_to_agree(method: Method) -> None:
    city = mv.synthetic.city(users=300, seed=3)
    tiling = mv.Quadtree(city.region, depth=4)
    by_table = make(method).release(city, tiling, rng=6).values
    ready: UserSums | Devices = (
        user_sums(city, tiling) if method.trust == "central" else devices_of(city, tiling)
    )
    np.testing.assert_array_equal(by_table, make(method).release(ready, tiling, rng=6).values)


@OF_METHOD
def test_tells_its_progress_between_zero_and_one(method: Method) -> None:
    told: list[tuple[str, float]] = []
    city = mv.synthetic.city(users=50, seed=3)
    make(method).release(
        city, mv.Quadtree(city.region, depth=4), rng=6, progress=lambda step, done: told.append((step, done))
    )
    assert told
    assert all(0 <= done <= 1 and step for step, done in told)


def test_too_many_cells_are_refused_before_anything_is_read() -> None:
    with pytest.raises(InputError, match="dense map"):
        find_method("laplace").make(1).release(
            mv.synthetic.city(users=10, seed=1), mv.Quadtree(REGION, depth=20)
        )


def test_names_are_unique_and_an_unknown_one_lists_them() -> None:
    assert len({(method.trust, method.name) for method in METHODS}) == len(METHODS)
    with pytest.raises(ParameterError, match="multiscale"):
        find_method("heat")
