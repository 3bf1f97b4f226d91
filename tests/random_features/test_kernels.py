"""Kernels: the mean of the cosines is the kernel (Bochner), in every dimension, and not one of another bandwidth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, special, stats

from mapveil_client.errors import ParameterError
from mapveil_client.random_features.kernels import KERNELS, Cauchy, Gaussian, Matern, kernel_named
from mapveil_client.randomness.random import Randomness

COUNT = 400_000
CERTAIN = 6.2  # standard errors: two-sided 1e-9
EVERY = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())
DIMENSION = pytest.mark.parametrize("dimension", [1, 2, 3])


def scores(kernel, dimension, factor):
    """Standard errors between the mean of the cosines and the kernel of another bandwidth, at several offsets."""
    units = kernel.frequencies(COUNT, dimension, Randomness(7))
    found = []
    for length in (0.3, 0.8, 1.5, 2.5):
        direction = np.arange(1, dimension + 1) / np.linalg.norm(np.arange(1, dimension + 1))
        cosines = np.cos(length * direction @ units)
        wanted = kernel.values(np.array([length / factor]), dimension)[0]
        found.append(abs(cosines.mean() - wanted) / (cosines.std() / math.sqrt(COUNT)))
    return np.array(found)


@EVERY
@DIMENSION
def test_the_mean_of_cosines_is_the_kernel_and_the_test_has_power(kernel, dimension):
    assert scores(kernel, dimension, 1.0).max() < CERTAIN
    assert scores(kernel, dimension, 1.3).max() > CERTAIN
    assert scores(kernel, dimension, 0.7).max() > CERTAIN


@EVERY
@DIMENSION
def test_lengths_follow_their_law_and_directions_none(kernel, dimension):
    units = kernel.frequencies(COUNT, dimension, Randomness(8))
    assert units.shape == (dimension, COUNT)
    length = np.sqrt(np.square(units).sum(axis=0))
    for probability in (0.01, 0.05, 0.3, 0.5, 0.9, 0.99):
        edge = kernel.length_quantile(probability, dimension)
        below = int((length < edge).sum())
        assert stats.binomtest(below, COUNT, probability).pvalue > 1e-9
        assert stats.binomtest(int((length < 1.3 * edge).sum()), COUNT, probability).pvalue < 1e-9
    signs = np.zeros(COUNT, dtype=np.int64)
    for row in units:
        signs = 2 * signs + (row > 0)
    assert stats.chisquare(np.bincount(signs, minlength=2**dimension)).pvalue > 1e-9
    if dimension == 2:
        angle = np.arctan2(units[1], units[0])
        assert stats.kstest(angle, stats.uniform(-math.pi, 2 * math.pi).cdf).pvalue > 1e-9


@EVERY
@DIMENSION
def test_the_integral_is_the_integral(kernel, dimension):
    sphere = {1: 2.0, 2: 2 * math.pi, 3: 4 * math.pi}[dimension]

    def shell(r):
        return sphere * r ** (dimension - 1) * float(kernel.values(np.array([r]), dimension)[0])

    parts = [integrate.quad(shell, *ends, limit=200)[0] for ends in ((0, 1), (1, 10), (10, np.inf))]
    assert kernel.integral(dimension) == pytest.approx(sum(parts), rel=1e-7)


@EVERY
@DIMENSION
def test_a_kernel_is_one_at_zero_and_falls(kernel, dimension):
    values = kernel.values(np.linspace(0, 20, 400), dimension)
    assert values[0] == pytest.approx(1.0)
    assert (np.diff(values) < 0).all()
    assert (values > 0).all()


@pytest.mark.parametrize("order", range(4))
def test_matern_is_the_bessel_form(order):
    nu, r = order + 0.5, np.linspace(0.05, 6, 50)
    s = np.sqrt(2 * nu) * r
    wanted = 2 ** (1 - nu) / special.gamma(nu) * s**nu * special.kv(nu, s)
    np.testing.assert_allclose(Matern(order).values(r, 2), wanted, rtol=1e-12)


def test_names_are_read_back_and_others_listed():
    assert len(set(KERNELS.values())) == len(KERNELS) == 6
    for name, kernel in KERNELS.items():
        assert kernel_named(name) == kernel
    with pytest.raises(ParameterError, match="gaussian, laplace, cauchy, matern-3/2"):
        kernel_named("epanechnikov")
    with pytest.raises(ParameterError, match="0 to 3"):
        Matern(4)


@EVERY
@pytest.mark.parametrize("probability", [1e-6, 0.0488, 0.5, 0.999])
@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_lengths_have_the_quantiles_of_the_libraries_laws(kernel, probability, dimension) -> None:
    if isinstance(kernel, Gaussian):
        right = stats.chi2.ppf(probability, dimension) ** 0.5
    elif isinstance(kernel, Cauchy):
        right = stats.gamma.ppf(probability, dimension)
    else:
        right = (dimension * stats.f.ppf(probability, dimension, 2 * kernel.order + 1)) ** 0.5
    assert kernel.length_quantile(probability, dimension) == pytest.approx(right, rel=1e-8)
