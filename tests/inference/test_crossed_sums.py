"""Functionals of a matrix from noisy blocks and margins: dense least squares, coverage, and errors of either part."""

from __future__ import annotations

from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np
import pytest
from scipy.sparse import csr_array

from mapveil.inference.crossed_sums import CrossedSums, Margin
from mapveil.inference.nested_sums import NestedSums
from mapveil.maps.measurement import Measurement
from mapveil.privacy.weighted_noise import half_width
from mapveil_client.arrays import FloatArray, IntArray

UNIT: Final = 1 << 10
ZONES: Final = 4
CUT: Final = np.array([[0, 1, 2, 2], [3, 4, 2, 2], [5, 5, 6, 7], [5, 5, 8, 9]])
ALONE: Final = np.arange(ZONES**2).reshape(ZONES, ZONES)
QUARTERS: Final = np.array([[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3], [2, 2, 3, 3]])


class Design(NamedTuple):
    """Groups of pairs, the coarsest first and the leaves last, with the epsilon of each and of the margins."""

    blocks: tuple[tuple[IntArray, Fraction], ...]
    margins: Fraction
    line_class: IntArray  # of origins and of destinations


EACH: Final = np.arange(ZONES)
DESIGNS: Final = {
    "a window of few zones": Design(((ALONE, Fraction(3, 4)),), Fraction(1, 8), EACH),
    "a window with cut blocks": Design(((CUT, Fraction(3, 4)),), Fraction(1, 4), np.array([0, 0, 1, 1])),
    "three rounds": Design(
        ((0 * CUT, Fraction(1, 20)), (QUARTERS, Fraction(1, 5)), (CUT, Fraction(3, 5))),
        Fraction(1, 10),
        np.array([0, 0, 1, 1]),
    ),
    "good margins": Design(((QUARTERS, Fraction(1, 5)), (ALONE, Fraction(1, 5))), Fraction(1), EACH),
}
TRUE: Final = np.array(
    [[9.0, 20.0, 0.0, 1.0], [12.0, 90.0, 2.0, 0.0], [0.0, 3.0, 14.0, 2.0], [1.0, 0.0, 1.0, 5.0]]
)


def made(design: Design, rng: np.random.Generator) -> CrossedSums:
    """Noisy sums of the true matrix."""

    def noisy(groups: IntArray, users: FloatArray, epsilon: Fraction) -> Measurement:
        chance = -np.expm1(-float(epsilon) / UNIT)
        exact = np.bincount(groups, users)
        noise = (rng.geometric(chance, exact.size) - rng.geometric(chance, exact.size)) / UNIT
        return Measurement(groups, exact + noise, epsilon, UNIT)

    leaf = design.blocks[-1][0]
    _, first = np.unique(leaf, return_index=True)
    below = np.bincount(leaf.ravel(), TRUE.ravel())
    blocks = [noisy(groups.ravel()[first], below, epsilon) for groups, epsilon in design.blocks]
    ends = [
        Margin(
            noisy(EACH, TRUE.sum(axis=1 - axis), design.margins),
            design.line_class,
            design.line_class[np.divmod(first, ZONES)[axis]],
        )
        for axis in (0, 1)
    ]
    return CrossedSums(NestedSums(blocks, np.ones(first.size, dtype=bool)), *ends)


def functionals(sums: CrossedSums) -> csr_array:
    """Every leaf, every origin, every destination, all, and two sums of several."""
    leaves, _, size = sums.starts
    several = np.zeros((3, size))
    several[0, :leaves] = 1
    several[1, leaves : leaves + 3] = 1
    several[2, : leaves + 2] = -0.5
    return csr_array(np.vstack([np.eye(size), several]))


@pytest.mark.parametrize("name", list(DESIGNS))
def test_estimates_and_variances_are_those_of_dense_least_squares(name: str) -> None:
    design = DESIGNS[name]
    sums = made(design, np.random.default_rng(1))
    pair, leaf = np.arange(ZONES**2), design.blocks[-1][0].ravel()
    leaves, first, size = sums.starts
    measured = [
        (groups.ravel(), each)
        for (groups, _), each in zip(design.blocks, sums._blocks._measurements, strict=True)
    ]
    measured += zip(np.divmod(pair, ZONES), (each.measurement for each in sums._margins), strict=True)
    a = np.vstack([np.eye(each.noisy.size)[:, groups] for groups, each in measured])
    y = np.concatenate([each.noisy for _, each in measured])
    variance = np.concatenate([np.full(each.noisy.size, each.deviation() ** 2) for _, each in measured])
    weighted = a.T / variance
    covariance = np.linalg.pinv(weighted @ a)
    asked = np.zeros((size, pair.size))
    asked[leaf, pair] = 1
    asked[leaves + pair // ZONES, pair] = 1
    asked[first + pair % ZONES, pair] = 1
    np.testing.assert_allclose(sums.estimate, asked @ covariance @ weighted @ y, atol=1e-8)
    weights = functionals(sums)
    asked = weights @ asked
    wanted = np.einsum("ij,jk,ik->i", asked, covariance, asked)
    found = list(sums.errors(weights))
    np.testing.assert_allclose([each.variance for each in found], wanted, rtol=1e-9)
    # The law's coefficients are rounded up by 2.2 % at most.
    law = np.array([each.noise.variance for each in found])
    assert (wanted * (1 - 1e-9) <= law).all()
    assert (law <= wanted * 1.05).all()


@pytest.mark.parametrize("name", list(DESIGNS))
def test_intervals_cover_as_stated_and_errors_are_no_larger_than_of_either_part(name: str) -> None:
    """95 % intervals of every origin and destination and of all, over 1000 draws.

    Of a coverage of exactly 95 % each of the nine numbers of misses is from 26 to 78 but with probability 5e-4. Were
    intervals narrower or wider by a fifth, 117 and 19 would be expected: each is found with probability above 95 %.
    """
    design, rng, draws = DESIGNS[name], np.random.default_rng(2), 1000
    leaves, _, size = made(design, rng).starts
    rows = np.zeros((2 * ZONES + 1, size))
    rows[:-1, leaves:] = np.eye(2 * ZONES)
    rows[-1, :leaves] = 1
    weights = csr_array(rows)
    true = np.concatenate([TRUE.sum(axis=1), TRUE.sum(axis=0), [TRUE.sum()]])
    apart, margins, blocks = np.empty((3, draws, 2 * ZONES + 1))
    for draw in range(draws):
        sums = made(design, rng)
        apart[draw] = weights @ sums.estimate - true
        own = [each.measurement.noisy for each in sums._margins]
        margins[draw] = np.concatenate([*own, [own[0].sum()]]) - true
        blocks[draw] = sums._blocks.estimate.sum() - true[-1]
        if design.line_class is EACH:
            pairs = sums._blocks.estimate.reshape(ZONES, ZONES)
            blocks[draw, :-1] = np.concatenate([pairs.sum(axis=1), pairs.sum(axis=0)]) - true[:-1]
        else:
            blocks[draw, :-1] = np.inf  # no sum of whole blocks is a zone's
    errors = list(sums.errors(weights))
    width = np.array([half_width(each.noise, 0.05) for each in errors])
    missed = (np.abs(apart) > width).sum(axis=0)
    assert (missed >= 26).all()
    assert (missed <= 78).all()
    stated = np.sqrt([each.variance for each in errors])
    found = np.sqrt(np.mean(apart**2, axis=0))
    np.testing.assert_allclose(found, stated, rtol=0.12)  # of 1000 draws of a Laplace law: three deviations
    for part in (margins, blocks):
        assert (found <= 1.03 * np.sqrt(np.mean(part**2, axis=0))).all()
    assert np.abs(apart.mean(axis=0) / stated).max() < 4 / np.sqrt(draws)


def test_the_margins_of_pairs_measured_alone_are_nearly_as_good_as_their_pairs() -> None:
    """Of four pairs of epsilon 3/4 and a margin of epsilon 1/8: the pairs' sum, and less."""
    sums = made(DESIGNS["a window of few zones"], np.random.default_rng(3))
    leaves, _, size = sums.starts
    error = next(sums.errors(csr_array(np.eye(size)[leaves : leaves + 1])))
    pairs = ZONES * sums._blocks._measurements[-1].deviation() ** 2
    margin = sums._margins[0].measurement.deviation() ** 2
    assert error.variance < 1 / (1 / pairs + 1 / margin)  # of the two alone: other margins help too
    assert error.variance > 0.8 / (1 / pairs + 1 / margin)


def test_a_release_is_the_same_as_itself_only() -> None:
    one, two = (made(DESIGNS["three rounds"], np.random.default_rng(seed)) for seed in (1, 2))
    again = made(DESIGNS["three rounds"], np.random.default_rng(1))
    assert one.is_same(again)
    assert not one.is_same(two)
    assert not one.is_same(one._blocks)
    assert not one._blocks.is_same(one)
    assert not one.has_window(two)
