"""Utilities of privatized rows, beside the formulas written out row by row."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil.obfuscation.utility import distortion_utility, linear_parameters, map_utility, utility
from mapveil_client.errors import InputError


def rows_of(seed: int, count: int = 200, features: int = 5) -> np.ndarray:
    draw = np.random.default_rng(seed)
    return draw.normal(size=(count, features)) @ draw.normal(size=(features, features))


@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_distortion_is_the_mean_length_of_the_change(seed: int, features: int) -> None:
    draw = np.random.default_rng(seed)
    x, y = draw.normal(size=(2, 7, features))
    slow = sum(math.dist(a, b) for a, b in zip(x, y, strict=True)) / 7
    assert distortion_utility(x, y) == pytest.approx(-slow)


@given(st.integers(0, 2**32 - 1), st.integers(3, 8))
def test_linear_parameters_are_those_of_least_squares(seed: int, features: int) -> None:
    rows = rows_of(seed, features=features) + 3.0
    others = np.delete(rows, 2, axis=1)
    expected = np.linalg.lstsq(np.column_stack([np.ones(len(rows)), others]), rows[:, 2], rcond=None)[0]
    np.testing.assert_allclose(linear_parameters(rows), expected, rtol=1e-5, atol=1e-6)


def test_features_that_depend_on_each_other_get_the_parameters_of_least_norm() -> None:
    rows = rows_of(3)
    doubled = np.column_stack([rows, rows[:, 0], np.ones(len(rows))])  # a copy, and a second intercept
    design = np.column_stack([np.ones(len(rows)), np.delete(doubled, 2, axis=1)])
    expected = np.linalg.lstsq(design, doubled[:, 2], rcond=None)[0]
    np.testing.assert_allclose(linear_parameters(doubled), expected, atol=1e-8)
    found = linear_parameters(doubled)
    assert found[0] == pytest.approx(found[-1])
    assert found[1] == pytest.approx(found[-2])


def test_a_known_map_error() -> None:
    draw = np.random.default_rng(1)
    x = draw.normal(size=(500, 4))
    x[:, 2] = 0.5 + 2 * x[:, 0] - x[:, 3]
    y = x.copy()
    y[:, 2] = 0.25 + 2 * x[:, 0] + x[:, 1] - x[:, 3]
    assert map_utility(x, y) == pytest.approx(-(0.25 + 1.0))


def test_the_whole_weighs_its_parts_and_faithful_rows_lose_nothing() -> None:
    x, y = rows_of(5), rows_of(6)
    found = utility(x, y, weights=(2.0, 0.5))
    assert found.total == pytest.approx(2 * distortion_utility(x, y) + 0.5 * map_utility(x, y))
    assert utility(x, x) == (0, 0, 0)


@pytest.mark.parametrize("shapes", [((3, 4), (4, 4)), ((0, 4), (0, 4)), ((5,), (5,))])
def test_tables_that_are_no_pair_are_refused(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    with pytest.raises(InputError, match="two tables of one shape"):
        distortion_utility(np.zeros(shapes[0]), np.zeros(shapes[1]))


def test_a_model_needs_a_signal_strength() -> None:
    with pytest.raises(InputError, match="at least 3 features"):
        linear_parameters(np.zeros((5, 2)))
