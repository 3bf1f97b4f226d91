"""The release: what it spends, what it adds, what one user can move, and that it is the density."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.ndimage import gaussian_filter

import mapveil as mv
from mapveil.engines import UNIT, UserSums, user_sums
from mapveil.geo.counts import Counts
from mapveil.geo.tiling import Tiling
from mapveil.mechanisms import private_fourier_kde as module
from mapveil.mechanisms.fourier_features import sum_of_vectors
from mapveil.mechanisms.private_fourier_kde import FeatureSums, PrivateFourierKde, noisy_features
from mapveil.random_features.map_points import map_points
from mapveil.trust.curator import Curator
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness

PLAIN = mv.Grid(mv.Region.without_georeference(64, 64), columns=64, rows=64)
CITY = mv.synthetic.city(users=300, seed=3)


def some_counts(users: int = 20_000, tiling: Tiling = PLAIN, seed: int = 0) -> Counts:
    generator = np.random.default_rng(seed)
    weights = gaussian_filter(generator.pareto(0.8, (64, 64)), 1.5).ravel()[: tiling.size]
    return Counts(generator.multinomial(users, weights / weights.sum()).astype(np.int64), tiling)


def captured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[FeatureSums, float, Any]]:
    """What the server half is given."""
    found: list[tuple[FeatureSums, float, Any]] = []
    server = module.server_density

    def spy(sums: FeatureSums, users: float, features: Any, places: Any) -> Any:
        found.append((sums, users, features))
        return server(sums, users, features, places)

    monkeypatch.setattr(module, "server_density", spy)
    return found


def test_much_budget_is_the_kernel_density_in_a_map_of_all_users() -> None:
    counts = some_counts()
    heat = PrivateFourierKde(epsilon=10**6, bandwidth_m=4.0).release(counts, rng=1)
    assert heat.values.sum() == pytest.approx(20_000, rel=1e-4)
    exact = gaussian_filter(counts.values.reshape(64, 64).astype(float), 4.0, mode="constant", truncate=7)
    wanted = exact / exact.sum() * 20_000
    inner = np.s_[8:-8, 8:-8]
    found = heat.values.reshape(64, 64)
    np.testing.assert_allclose(found[inner], wanted[inner], atol=0.03 * wanted.max())
    assert np.abs(found - wanted).max() < 0.2 * wanted.max(), "the box closes on itself at its edges"


def test_error_falls_with_the_budget() -> None:
    counts = some_counts()
    exact = gaussian_filter(counts.values.reshape(64, 64).astype(float), 6.0, mode="constant", truncate=7)
    truth = exact.ravel() / exact.sum()
    errors = []
    for epsilon in (Fraction(1, 50), Fraction(1, 5), 2):
        maps = [PrivateFourierKde(epsilon=epsilon, bandwidth_m=6.0).release(counts, rng=s) for s in range(4)]
        errors.append(np.mean([np.abs(each.normalised() - truth).sum() for each in maps]))
    assert errors[0] > 2 * errors[1] > 4 * errors[2]
    assert errors[1] < 0.2


def test_the_noise_has_the_scale_of_the_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    found = captured(monkeypatch)
    nobody = Counts(np.zeros(PLAIN.size, dtype=np.int64), PLAIN)
    mechanism = PrivateFourierKde(epsilon=2, bandwidth_m=2.0)
    scaled = []
    for seed in range(240):
        mechanism.release(nobody, rng=seed)
        sums, _, features = found[-1]
        rest = 2 * (1 - mechanism.trust.users_share)
        scaled.append(np.abs(sums.values) * rest / features.limit)
        assert sums.variance == pytest.approx(2 * (features.limit / rest) ** 2, rel=1e-6)
    sample = np.concatenate(scaled)
    assert sample.size > 1_000
    # Absolute values of Laplace noise are exponential: the sum of their doubles is chi-squared.
    low, high = stats.chi2.ppf([5e-10, 1 - 5e-10], 2 * sample.size)
    assert low < 2 * sample.sum() < high
    assert not low < 2 * sample.sum() * 0.7 < high
    assert not low < 2 * sample.sum() * 1.3 < high


@settings(max_examples=6, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, PLAIN.size - 1)), min_size=2, max_size=30),
    st.sampled_from([1.0, 5.0, 20.0]),
)
def test_one_user_moves_the_sums_by_no_more_than_the_bound(rows: list[tuple[int, int]], h: float) -> None:
    lon, lat = PLAIN.centres()

    def sums_of(kept: list[tuple[int, int]]) -> list[int]:
        at = np.array([cell for _, cell in kept], dtype=np.int64)
        table = mv.Points.from_arrays([f"u{who}" for who, _ in kept], lon[at], lat[at])
        exact = user_sums(table, PLAIN).sums
        return sum_of_vectors(where.places, exact, features)

    where = map_points(PLAIN)
    features = PrivateFourierKde(epsilon=1, bandwidth_m=h).features(where, 50.0, 1.0)
    whole = sums_of(rows)
    for user in sorted({who for who, _ in rows})[:3]:
        rest = [row for row in rows if row[0] != user]
        without = sums_of(rest) if rest else [0] * features.length
        assert sum(abs(a - b) for a, b in zip(whole, without, strict=True)) <= UNIT * features.limit


def lower_bound(epsilon: float, runs: int = 4_000) -> float:
    """Of the true epsilon of one feature's noisy sums, by the likelihood ratio of one user and none (99.99 %)."""
    where = map_points(PLAIN)
    features = PrivateFourierKde(epsilon=1, bandwidth_m=5.0, most_features=1).features(where, 50.0, 1.0)
    user = np.zeros(PLAIN.size, dtype=np.int64)
    user[2_000] = UNIT
    present = sum_of_vectors(where.places, user, features)
    rng = Randomness(8)

    def ratios(exact: list[int]) -> np.ndarray:
        drawn = [noisy_features(exact, features, Fraction(epsilon), rng).values for _ in range(runs)]
        noisy = np.array(drawn)
        return np.abs(noisy).sum(axis=1) - np.abs(noisy - np.array(present) / UNIT).sum(axis=1)

    with_one, without = ratios(present), ratios([0] * features.length)
    threshold = 0.999 * float(with_one.max())
    hits, misses = int((with_one >= threshold).sum()), int((without >= threshold).sum())
    low = stats.beta.ppf(5e-5, hits, runs - hits + 1)
    high = stats.beta.ppf(1 - 5e-5, misses + 1, runs - misses)
    return math.log(low / high)


def test_an_audit_finds_no_more_than_the_promise_and_catches_half_the_noise() -> None:
    assert 0.6 < lower_bound(1.0) <= 1.0
    assert lower_bound(2.0) > 1.0


def test_spends_its_budget_on_the_number_and_the_features(monkeypatch: pytest.MonkeyPatch) -> None:
    found = captured(monkeypatch)
    heat = PrivateFourierKde(epsilon="0.7", bandwidth_m=5.0, trust=Curator(users_share=0.2)).release(
        some_counts(), rng=2
    )
    number, features = heat.guarantee.shares
    assert number.purpose == "number of users"
    assert features.purpose == f"{found[0][2].count} Fourier features"
    assert float(number.epsilon) == pytest.approx(0.14)
    assert (
        Fraction(699, 1000) < number.epsilon + features.epsilon <= Fraction(7, 10) == heat.guarantee.epsilon
    )
    assert heat.guarantee.model == "central"
    assert found[0][1] == pytest.approx(20_000, rel=0.02)
    assert heat.values.sum() == pytest.approx(float(heat.measurements[0].noisy[0]))


def test_the_noise_in_the_notes_is_what_maps_of_nobody_show(monkeypatch: pytest.MonkeyPatch) -> None:
    found = captured(monkeypatch)
    heat = PrivateFourierKde(epsilon=1, bandwidth_m=5.0).release(some_counts(), rng=2)
    sums, _, features = found[0]
    # Var of a surface of independent noise, feature by feature.
    by_feature = sum(
        sums.variance * (2 * w / a / math.prod(features.period)) ** 2
        for w, a in zip(features.weights, features.amplitude, strict=True)
    )
    assert f"({math.sqrt(by_feature) * 1e6:.3g} before the shrinkage" in heat.notes[1]


def test_a_table_its_sums_and_a_seed_give_one_map() -> None:
    tiling = mv.Quadtree(CITY.region, depth=4)
    mechanism = PrivateFourierKde(epsilon=1)
    first = mechanism.release(CITY, tiling, rng=6)
    again = mechanism.release(user_sums(CITY, tiling), tiling, rng=6)
    np.testing.assert_array_equal(first.values, again.values)
    assert first.guarantee.seeded
    fresh = [mechanism.release(CITY, tiling, account=None) for _ in range(2)]
    assert not np.array_equal(fresh[0].values, fresh[1].values)
    assert not fresh[0].guarantee.seeded


@pytest.mark.parametrize(
    "tiling",
    [
        mv.Hexagons(CITY.region, resolution=8),
        mv.Grid(CITY.region, columns=7, rows=1),
        mv.WebMercatorTiles(CITY.region, zoom=13),
    ],
    ids=["hexagons", "one row", "tiles"],
)
def test_any_tiling_will_do(tiling: Tiling) -> None:
    heat = PrivateFourierKde(epsilon=50).release(CITY, tiling, rng=3)
    assert np.isfinite(heat.values).all()
    assert heat.values.min() >= 0
    assert heat.values.sum() == pytest.approx(user_sums(CITY, tiling).sums.sum() / UNIT, rel=0.02)
    assert heat.error(0.1).upper.max() >= heat.values.max()


def test_nobody_is_outside_a_polygon_and_nobody_at_all_is_a_map() -> None:
    west, south, east, north = CITY.region.bbox
    triangle = {
        "type": "Polygon",
        "coordinates": [[[west, south], [east, south], [west, north], [west, south]]],
    }
    tiling = mv.Grid(mv.Region.from_polygon(triangle), columns=20, rows=20)
    heat = PrivateFourierKde(epsilon=5).release(CITY, tiling, rng=3)
    outside = ~tiling.inside()
    assert outside.any()
    assert (heat.values[outside] == 0).all()
    assert heat.values.sum() > 10
    nobody = UserSums(np.zeros(PLAIN.size, dtype=np.int64), PLAIN)
    empty = PrivateFourierKde(epsilon=1).release(nobody, PLAIN, rng=3)
    assert np.isfinite(empty.normalised()).all()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("bandwidth_m", 0),
        ("bandwidth_m", -3.0),
        ("bandwidth_m", math.nan),
        ("bandwidth_m", True),
        ("most_features", 0),
        ("most_features", 2.5),
    ],
)
def test_senseless_options_are_refused(option: str, value: object) -> None:
    with pytest.raises(ParameterError, match=option):
        PrivateFourierKde(epsilon=1, **{option: value})  # type: ignore[arg-type]


def test_degrees_for_metres_are_refused_before_anything_is_read() -> None:
    with pytest.raises(InputError, match="degrees"):
        PrivateFourierKde(epsilon=1, bandwidth_m=0.007).release(CITY, mv.Quadtree(CITY.region, depth=4))
