"""Continuous variates: their laws, with power, and their pairing."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from mapveil_client.random_features.kernels import exponentials, normals, uniforms
from mapveil_client.randomness.random import Randomness

CERTAIN = 1e-9
COUNT = 200_000
LAWS = {
    "uniforms": (uniforms, stats.uniform(), stats.uniform(0, 1.3), stats.uniform(0, 0.7)),
    "exponentials": (exponentials, stats.expon(), stats.expon(scale=1.3), stats.expon(scale=0.7)),
    "normals": (normals, stats.norm(), stats.norm(scale=1.3), stats.norm(scale=0.7)),
}


@pytest.mark.parametrize("name", LAWS)
def test_the_law_fits_and_one_30_per_cent_off_does_not(name):
    draw, law, wider, narrower = LAWS[name]
    drawn = draw(COUNT, Randomness(1))
    assert drawn.shape == (COUNT,)
    assert stats.kstest(drawn, law.cdf).pvalue > CERTAIN
    assert stats.kstest(drawn, wider.cdf).pvalue < CERTAIN
    assert stats.kstest(drawn, narrower.cdf).pvalue < CERTAIN


def test_the_tails_of_normals_have_the_right_weight():
    drawn = np.abs(normals(4_000_000, Randomness(2)))
    for edge in (3.0, 4.0, 4.5):
        beyond = int((drawn > edge).sum())
        assert stats.binomtest(beyond, drawn.size, 2 * stats.norm.sf(edge)).pvalue > CERTAIN
        assert stats.binomtest(beyond, drawn.size, 2 * stats.norm.sf(edge * 1.05)).pvalue < 1e-3


def test_pairs_are_independent():
    drawn = normals(COUNT, Randomness(3))
    first, second = drawn[: COUNT // 2], drawn[COUNT // 2 :]
    corner = np.histogram2d(stats.norm.cdf(first), stats.norm.cdf(second), bins=10, range=[[0, 1], [0, 1]])[0]
    assert stats.chisquare(corner.ravel()).pvalue > CERTAIN
    assert stats.kstest(first**2 + second**2, stats.chi2(2).cdf).pvalue > CERTAIN


class Words:
    """Stands for a ``Randomness`` whose words are prescribed."""

    def __init__(self, word):
        self.word = word

    def words(self, count, dtype):
        return np.full(count, self.word, dtype=dtype)


@pytest.mark.parametrize("word", [0, 1, 2**63, 2**64 - 2, 2**64 - 1])
def test_extreme_words_make_finite_variates(word):
    assert 0 < uniforms(3, Words(word)).min() <= uniforms(3, Words(word)).max() <= 1
    assert np.isfinite(normals(3, Words(word))).all()
    assert (exponentials(3, Words(word)) >= 0).all()
    assert exponentials(1, Words(0))[0] == pytest.approx(64 * np.log(2))


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_any_number_can_be_drawn(count):
    for draw in (uniforms, exponentials, normals):
        assert draw(count, Randomness(1)).shape == (count,)
