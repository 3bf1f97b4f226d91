"""The level that is shown: the estimate of its error is unbiased, and the choice follows it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil.mechanisms.level_choice import LevelSums, choose_levels, require_level, show_levels
from mapveil_client.errors import ParameterError
from mapveil_client.level_encoding import level_members

DEPTH = 3
SITES = 4**DEPTH


def cases(seed):
    """A raster with empty sites, people on it, and noisy sums of every level."""
    generator = np.random.default_rng(seed)
    members = generator.integers(0, 3, SITES)
    members[generator.integers(SITES)] = 1
    people = generator.poisson(generator.gamma(0.3, 20, SITES)) * (members > 0)
    variances = generator.uniform(0.5, 200, DEPTH + 1)
    measured = [
        LevelSums(
            level,
            people.reshape(4**level, -1).sum(axis=1) + generator.normal(0, variances[level] ** 0.5, 4**level),
            variances[level],
        )
        for level in range(DEPTH + 1)
    ]
    return members, people, measured


def risk_slowly(measured, held, nodes):
    return sum(
        (2 * measured.variance - measured.sums[node] ** 2) / held[node] for node in nodes if held[node] > 0
    )


@given(st.integers(0, 2**32), st.integers(0, DEPTH + 1), st.integers(0, DEPTH))
def test_the_level_of_least_estimated_error_is_chosen(seed, subregions, coarsest):
    members, _, measured = cases(seed)
    measured = measured[coarsest:]
    held = level_members(members)
    cut = min(subregions, DEPTH)
    chosen = choose_levels(measured, members, subregions)
    assert chosen.shape == (4**cut,)
    for subregion, level in enumerate(chosen.tolist()):
        risks = {}
        for each in measured:
            if each.level >= cut:
                below = 4 ** (each.level - cut)
                nodes = range(subregion * below, (subregion + 1) * below)
                risks[each.level] = risk_slowly(each, held[each.level], nodes)
        assert risks[level] == pytest.approx(min(risks.values()))


@given(st.integers(0, 2**32), st.integers(0, DEPTH))
def test_every_site_shows_its_part_of_its_node(seed, cut):
    members, _, measured = cases(seed)
    chosen = np.random.default_rng(seed).integers(cut, DEPTH + 1, 4**cut)
    held = level_members(members)
    values = show_levels(measured, members, chosen)
    for site in range(SITES):
        level = int(chosen[site >> 2 * (DEPTH - cut)])
        node = site >> 2 * (DEPTH - level)
        density = max(measured[level].sums[node], 0) / held[level][node] if held[level][node] else 0
        assert values[site] == pytest.approx(density * members[site])


def test_the_estimate_of_the_error_is_unbiased():
    # Over many draws of the noise the estimated risk of a level, plus the sum of squares, is the error it makes.
    generator = np.random.default_rng(1)
    people = generator.poisson(generator.gamma(0.5, 2, SITES))
    repeats = 20_000
    for level, sigma in ((0, 50.0), (1, 20.0), (2, 10.0), (3, 3.0)):
        size = SITES // 4**level
        sums = people.reshape(4**level, -1).sum(axis=1) + generator.normal(0, sigma, (repeats, 4**level))
        estimated = ((2 * sigma**2 - sums**2) / size).sum(axis=1) + np.square(people).sum()
        error = np.square((sums / size).repeat(size, axis=1) - people).sum(axis=1)
        apart = estimated - error
        assert abs(apart.mean()) < 6 * apart.std() / np.sqrt(repeats)
        wrong = (
            0.3 * 2 * sigma**2 / size * 4**level
        )  # what the variance taken 30 % too small or large would do
        assert wrong > 12 * apart.std() / np.sqrt(repeats)


def test_an_even_crowd_is_shown_coarse_and_a_peak_fine():
    members = np.ones(SITES, dtype=np.int64)
    people = np.full(SITES, 3.0)
    people[SITES - 4] = 5000
    measured = [
        LevelSums(level, people.reshape(4**level, -1).sum(axis=1) + 0.5, 100.0)
        for level in range(1, DEPTH + 1)
    ]
    assert choose_levels(measured, members, 1).tolist() == [1, 1, 1, 3]


def test_a_level_that_was_not_measured_is_refused():
    require_level(None, range(1, 4))
    require_level(3, range(1, 4))
    with pytest.raises(ParameterError, match="level must be from 1 to 3 on this map, got 4"):
        require_level(4, range(1, 4))
