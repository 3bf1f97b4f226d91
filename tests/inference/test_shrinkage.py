from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mapveil.inference.shrinkage import SplitRule, multiscale_shrinkage, pool, spread
from mapveil.inference.split_prior import SplitPrior
from mapveil.inference.threshold_expansion import CutBoxes, ThresholdExpansion
from mapveil_client.errors import ParameterError


def a_city(side: int, users: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    row, col = np.indices((side, side)) / side
    density = sum(
        weight * np.exp(-((row - r) ** 2 + (col - c) ** 2) / (2 * width**2))
        for weight, r, c, width in zip(
            rng.dirichlet(np.ones(6)), rng.random(6), rng.random(6), rng.uniform(0.02, 0.1, 6), strict=True
        )
    )
    return rng.multinomial(users, (density / density.sum()).ravel()).reshape(side, side).astype(float)


squares = st.integers(0, 4).flatmap(
    lambda depth: hnp.arrays(np.float64, (1 << depth, 1 << depth), elements=st.floats(0, 1e4, width=32))
)
masks = st.integers(1, 4).flatmap(
    lambda depth: hnp.arrays(np.int64, (1 << depth, 1 << depth), elements=st.integers(0, 3))
)


@given(squares)
@settings(max_examples=50, deadline=None)
def test_without_noise_variance_the_input_comes_back(square: np.ndarray) -> None:
    np.testing.assert_allclose(multiscale_shrinkage(square, 0.0), square, rtol=1e-9, atol=1e-6)


@given(masks, st.integers(0, 1000))
@settings(max_examples=50, deadline=None)
def test_under_huge_noise_the_split_is_even_over_members(members: np.ndarray, seed: int) -> None:
    noisy = np.random.default_rng(seed).random(members.shape)
    found = multiscale_shrinkage(noisy, 1e18, members)
    total = noisy[members > 0].sum()
    np.testing.assert_allclose(found, total * members / max(members.sum(), 1), rtol=1e-6, atol=1e-9)


@given(masks, st.integers(0, 1000), st.floats(0, 100))
@settings(max_examples=50, deadline=None)
def test_the_result_is_non_negative_keeps_the_total_and_structural_zeros(
    members: np.ndarray, seed: int, variance: float
) -> None:
    noisy = np.random.default_rng(seed).laplace(2, 5, members.shape)
    found = multiscale_shrinkage(noisy, variance, members)
    assert (found >= 0).all()
    assert (found[members == 0] == 0).all()
    assert found.sum() == pytest.approx(max(noisy[members > 0].sum(), 0), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("turn", [np.flipud, np.fliplr])
def test_a_mirrored_input_gives_the_mirrored_result(turn: object) -> None:
    noisy = a_city(16, 500, 3) + np.random.default_rng(1).laplace(size=(16, 16))
    np.testing.assert_allclose(
        multiscale_shrinkage(turn(noisy), 2.0),  # type: ignore[operator]
        turn(multiscale_shrinkage(noisy, 2.0)),  # type: ignore[operator]
        rtol=1e-9,
        atol=1e-9,
    )


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0])
def test_shrinkage_is_nearer_the_truth_than_the_noisy_sums(epsilon: float) -> None:
    truth = a_city(64, 2000, 7)
    noisy = truth + np.random.default_rng(5).laplace(scale=1 / epsilon, size=truth.shape)
    found = multiscale_shrinkage(noisy, 2 / epsilon**2)
    assert np.abs(found - truth).sum() < 0.7 * np.abs(np.maximum(noisy, 0) - truth).sum()


def slow_shrinkage(
    noisy: np.ndarray, variance: float, members: np.ndarray, rule: str = "prior", sampled: bool = False
) -> np.ndarray:
    """Every box by its place, one at a time: sums by slicing, a list of what each parent gives."""
    side = noisy.shape[0]
    if rule == "expansion":
        return slow_descent(noisy, variance, members, range(-side, 1), ThresholdExpansion(), sampled)
    prior = SplitPrior(may_be_flat=True)
    spare = (side - 1) // 2
    slow_descent(noisy, variance, members, range(spare - side, 1 - spare), prior, sampled)
    prior.begin_again()
    return slow_descent(noisy, variance, members, range(-side, 1), prior, sampled)


def slow_descent(
    noisy: np.ndarray,
    variance: float,
    members: np.ndarray,
    roots: range,
    rule: SplitPrior | ThresholdExpansion,
    sampled: bool,
) -> np.ndarray:
    """All boxes from those with their first site at the roots down."""
    side = noisy.shape[0]
    noisy = np.where(members > 0, noisy, 0.0)
    spreads = np.where(members > 0, variance, 0.0)

    def within(array: np.ndarray, row: int, col: int, height: int, width: int) -> float:
        rows = slice(max(row, 0), max(row + height, 0))
        return float(array[rows, max(col, 0) : max(col + width, 0)].sum())

    estimate = {(row, col): max(noisy.sum(), 0.0) for row in roots for col in roots}
    height = width = 2 * side
    for step in range(2 * side.bit_length()):
        down = step % 2 == 0
        size, whole = (height, 0) if down else (0, width), (height, width)
        height, width = (height // 2, width) if down else (height, width // 2)
        asked, questions, slopes = [], [], []
        given: dict[tuple[int, int], list[float]] = {}
        for (row, col), parent in estimate.items():
            places = [(row, col), (row + height, col) if down else (row, col + width)]
            (y1, v1, w1), (y2, v2, w2) = (
                [within(array, *place, height, width) for array in (noisy, spreads, members)]
                for place in places
            )
            if w1 and w2:
                share = w1 / (w1 + w2)
                if sampled:
                    v1, v2 = v1 + share * parent, v2 + (1 - share) * parent
                density = []
                for sign in (-1, 1):
                    place = (row + sign * size[0], col + sign * size[1])
                    there = within(members, *place, *whole) if place in estimate else 0.0
                    density.append(estimate[place] / there if there else parent / (w1 + w2))
                slopes.append(share * (1 - share) * (w1 + w2) * (density[0] - density[1]) / 4)
                measured = (v2 * y1 + v1 * (parent - y2)) / (v1 + v2)
                asked.append((places, parent))
                questions.append((parent, measured, v1 * v2 / (v1 + v2), share))
            else:
                given.setdefault(places[0], []).append(parent if w1 else 0.0)
                given.setdefault(places[1], []).append(0.0 if w1 else parent)
        if questions:
            sizes = min(height, side), min(width, side)
            offsets = min(height, len(roots)) * min(width, len(roots))
            columns = np.array(questions).T
            if isinstance(rule, SplitPrior):
                halves = rule.halves(*columns, None, sizes[0] * sizes[1], offsets)
            else:
                halves = rule.halves(CutBoxes(*columns, np.array(slopes), None, offsets))
            for (places, parent), half in zip(asked, halves, strict=True):
                half = min(max(half, 0.0), parent)
                given.setdefault(places[0], []).append(half)
                given.setdefault(places[1], []).append(parent - half)
        estimate = {
            (row, col): float(np.mean(values))
            for (row, col), values in given.items()
            if -height < row < side and -width < col < side
        }
    found = np.array([[estimate[row, col] for col in range(side)] for row in range(side)])
    return np.where(members > 0, found, 0.0)


@pytest.mark.parametrize(
    ("rule", "sampled"), [("prior", False), ("prior", True), ("expansion", False), ("expansion", True)]
)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("side", [1, 2, 4, 8])
def test_the_kernel_agrees_with_every_box_one_at_a_time(
    side: int, seed: int, rule: SplitRule, sampled: bool
) -> None:
    rng = np.random.default_rng(seed)
    members = rng.integers(0, 3, (side, side)) if seed % 2 else np.ones((side, side), dtype=np.int64)
    noisy = rng.gamma(0.3, 30, (side, side)) + rng.laplace(size=(side, side))
    np.testing.assert_allclose(
        multiscale_shrinkage(noisy, 2.0, members, shifts=side, rule=rule, sampled=sampled),
        slow_shrinkage(noisy, 2.0, members, rule, sampled),
        rtol=1e-6,
        atol=1e-6,
    )


def a_slope(side: int, users: int, seed: int) -> np.ndarray:
    """A town that is crowded everywhere, and whose density changes slowly."""
    row, col = np.indices((side, side)) / side
    density = np.exp(np.sin(4 * row + 1) + np.cos(5 * col) + 0.5 * np.sin(9 * (row + col)))
    return np.random.default_rng(seed).poisson(users * density / density.sum()).astype(float)


@given(masks, st.integers(0, 1000), st.floats(0, 100), st.booleans())
@settings(max_examples=50, deadline=None)
def test_the_expansion_keeps_the_total_the_sign_and_structural_zeros(
    members: np.ndarray, seed: int, variance: float, sampled: bool
) -> None:
    noisy = np.random.default_rng(seed).laplace(2, 5, members.shape)
    found = multiscale_shrinkage(noisy, variance, members, rule="expansion", sampled=sampled)
    assert (found >= 0).all()
    assert (found[members == 0] == 0).all()
    assert found.sum() == pytest.approx(max(noisy[members > 0].sum(), 0), rel=1e-9, abs=1e-9)


@given(squares)
@settings(max_examples=50, deadline=None)
def test_the_expansion_gives_the_input_back_without_noise_variance(square: np.ndarray) -> None:
    found = multiscale_shrinkage(square, 0.0, rule="expansion")
    np.testing.assert_allclose(found, square, rtol=1e-9, atol=1e-6)


def test_the_expansion_is_nearer_to_all_people_where_those_counted_are_a_sample() -> None:
    errors: dict[str, list[float]] = {"prior": [], "expansion": []}
    rules: tuple[SplitRule, SplitRule] = ("prior", "expansion")
    density = a_slope(32, 10_000_000, 1)
    density /= density.sum()
    for seed in range(4):
        rng = np.random.default_rng(seed)
        people = rng.multinomial(10_000, density.ravel()).reshape(density.shape)
        noisy = people + rng.laplace(scale=5, size=density.shape)
        for rule in rules:
            found = multiscale_shrinkage(noisy, 50.0, rule=rule, sampled=True)
            errors[rule].append(float(np.square(found / found.sum() - density).mean()))
    assert np.mean(errors["expansion"]) < 0.8 * np.mean(errors["prior"])


@pytest.mark.parametrize("rule", ["prior", "expansion"])
def test_who_knows_that_people_are_a_sample_is_nearer_to_all_of_them(rule: SplitRule) -> None:
    density = a_slope(32, 1_000_000, 1)
    all_of_them = density / density.sum()
    errors: dict[bool, list[float]] = {False: [], True: []}
    for seed in range(4):
        rng = np.random.default_rng(seed)
        people = rng.multinomial(3000, all_of_them.ravel()).reshape(density.shape)
        noisy = people + rng.laplace(scale=0.3, size=people.shape)
        for sampled in errors:
            found = multiscale_shrinkage(noisy, 0.18, rule=rule, sampled=sampled)
            errors[sampled].append(float(np.square(found / found.sum() - all_of_them).mean()))
    assert np.mean(errors[True]) < 0.4 * np.mean(errors[False])


def test_users_who_are_in_several_cells_each_are_no_worse_shrunk_than_as_they_were_counted() -> None:
    # Each is in four neighbouring cells of a flat map, so that cells vary by a quarter of what a sample's cells do.
    rng = np.random.default_rng(6)
    homes = rng.multinomial(20_000, np.full(32 * 32, 1 / 32**2)).reshape(32, 32)
    shared = sum(np.roll(homes, (down, right), (0, 1)) for down in (0, 1) for right in (0, 1)) / 4
    noisy = shared + rng.laplace(size=shared.shape)
    found = multiscale_shrinkage(noisy, 2.0, rule="expansion", sampled=True)
    even = 20_000 / 32**2
    assert np.square(found - even).mean() < 0.2 * np.square(noisy - even).mean()


@pytest.mark.parametrize("shifts", [1, 2, 4, 16])
def test_fewer_shifts_still_keep_total_and_sign(shifts: int) -> None:
    noisy = a_city(32, 800, 2) + np.random.default_rng(2).laplace(scale=2, size=(32, 32))
    found = multiscale_shrinkage(noisy, 8.0, shifts=shifts)
    assert found.sum() == pytest.approx(noisy.sum())
    assert (found >= 0).all()


def test_spread_keeps_block_sums_and_follows_members() -> None:
    members = np.array([[1, 3, 0, 0], [0, 0, 0, 0], [1, 1, 2, 0], [1, 1, 0, 2]])
    found = spread(np.array([[8.0, 5.0], [4.0, 2.0]]), members)
    np.testing.assert_allclose(pool(found, 1), [[8, 0], [4, 2]])
    np.testing.assert_allclose(found[0], [2, 6, 0, 0])


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (4,), (0, 0)])
def test_a_raster_that_is_no_square_of_a_power_of_two_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ParameterError, match="power of two"):
        multiscale_shrinkage(np.zeros(shape), 1.0)
