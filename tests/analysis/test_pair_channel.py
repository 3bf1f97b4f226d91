"""The channel of pairs, against the whole Kronecker matrix of small domains."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mapveil as mv
from mapveil.analysis.pair_channel import MOST_SITES, PairChannel, pair_channel
from mapveil.local.randomizers.disk_area import DiskArea
from mapveil.local.randomizers.generalized_response import GeneralizedRandomizedResponse
from mapveil.local.randomizers.hadamard_response import HadamardResponse
from mapveil.local.randomizers.staircase_response import StaircaseResponse
from mapveil.local.randomizers.subset_selection import SubsetSelection
from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Domain

REGION = mv.Region.from_bbox(-8.70, 41.10, -8.52, 41.22)
PLACE = np.random.default_rng(0).uniform([-8.69, 41.11], [-8.53, 41.21], (11, 2))
TILINGS = {
    "square": mv.Quadtree(REGION, depth=2),
    "oblong": mv.Grid(REGION, rows=3, columns=5),
    "scattered": mv.Places(PLACE[:, 0], PLACE[:, 1], REGION),
    "two": mv.Grid(REGION, rows=1, columns=2),
}
MECHANISMS = {
    "grr": GeneralizedRandomizedResponse(epsilon=2),
    "srr": StaircaseResponse(epsilon=2, groups=3),
    "srr, coarse": StaircaseResponse(epsilon=2, groups=2),
    "hr": HadamardResponse(epsilon=2),
    "disk": DiskArea(epsilon=2),
}


def by_kronecker(randomizer, channel: PairChannel) -> np.ndarray:
    """The matrix of pairs, d^2 rows and s^2 columns, in the channel's order."""
    matrix = randomizer.transition_matrix()[np.ix_(channel.site_order, channel.symbol_order)]
    return np.kron(matrix, matrix)


# Three groups need more levels than two sites have, and disks the cells of a raster.
PAIRS = [(m, t) for m in MECHANISMS for t in TILINGS if (m, t) not in (("srr", "two"), ("disk", "scattered"))]


@pytest.fixture(params=PAIRS, ids=lambda pair: f"{pair[0]} on {pair[1]}")
def pair(request: pytest.FixtureRequest):
    name, tiling = request.param
    randomizer = MECHANISMS[name].on(Domain(TILINGS[tiling]))
    return randomizer, pair_channel(randomizer)


def test_products_are_those_of_the_kronecker_matrix(pair) -> None:
    randomizer, channel = pair
    whole = by_kronecker(randomizer, channel)
    generator = np.random.default_rng(1)
    joint = generator.random((channel.sites, channel.sites))
    ratio = generator.random((channel.symbols, channel.symbols))
    np.testing.assert_allclose(channel.forward(joint).ravel(), joint.ravel() @ whole, rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(channel.backward(ratio).ravel(), whole @ ratio.ravel(), rtol=1e-9, atol=1e-13)


def test_the_two_products_are_adjoint_and_keep_the_sum(pair) -> None:
    _, channel = pair
    generator = np.random.default_rng(2)
    joint = generator.random((channel.sites, channel.sites))
    ratio = generator.random((channel.symbols, channel.symbols))
    left, right = (channel.forward(joint) * ratio).sum(), (joint * channel.backward(ratio)).sum()
    assert left == pytest.approx(right, rel=1e-10)
    assert channel.forward(joint).sum() == pytest.approx(joint.sum(), rel=1e-10)


def test_orders_are_undone(pair) -> None:
    _, channel = pair
    joint = np.random.default_rng(3).random((channel.sites, channel.sites))
    np.testing.assert_array_equal(channel.out_of_site_order(channel.in_site_order(joint)), joint)
    np.testing.assert_array_equal(channel.symbol_order[channel.symbol_rank], np.arange(channel.symbols))


@given(sites=st.integers(2, 40), epsilon=st.fractions(Fraction(1, 4), 6, max_denominator=8))
@settings(max_examples=20, deadline=None)
def test_hadamard_blocks_fit_any_number_of_sites(sites: int, epsilon: Fraction) -> None:
    randomizer = HadamardResponse(epsilon=epsilon).on(Domain(mv.Grid(REGION, rows=1, columns=sites)))
    channel = pair_channel(randomizer)
    matrix = randomizer.transition_matrix()
    joint = np.random.default_rng(sites).random((sites, sites))
    np.testing.assert_allclose(channel.forward(joint), matrix.T @ joint @ matrix, rtol=1e-9, atol=1e-13)


def test_sets_of_sites_have_no_pairs_to_count() -> None:
    with pytest.raises(ParameterError, match="lasso"):
        pair_channel(SubsetSelection(epsilon=1).on(Domain(TILINGS["square"])))


def test_too_many_sites_are_refused() -> None:
    many = Domain(mv.Grid(REGION, rows=1, columns=MOST_SITES + 1))
    with pytest.raises(ParameterError, match=f"at most {MOST_SITES}"):
        pair_channel(GeneralizedRandomizedResponse(epsilon=1).on(many))
