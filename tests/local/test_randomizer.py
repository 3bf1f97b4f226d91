"""The laws of every randomizer: its probabilities, its exact epsilon, its estimate and the noise of that."""

from __future__ import annotations

import importlib.util
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import mapveil as mv
from mapveil.local.randomizers.randomizer import Tally
from mapveil_client.epsilon import power
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.local.randomizer import Reports
from mapveil_client.randomness.random import Randomness

spec = importlib.util.spec_from_file_location("local_conftest", Path(__file__).parent / "conftest.py")
common = importlib.util.module_from_spec(spec)
spec.loader.exec_module(common)

OF_SYMBOLS = pytest.mark.parametrize("kind", common.SYMBOLS)
OF_SETS = pytest.mark.parametrize("kind", common.SETS)
OF_ALL = pytest.mark.parametrize("kind", [*common.SYMBOLS, *common.SETS])


def make(kind: str, domain: Domain, epsilon: Fraction):
    mechanism = {**common.SYMBOLS, **common.SETS}[kind]
    return mechanism(epsilon=epsilon).on(domain)


def a_distribution(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(size, 0.5))


@OF_SYMBOLS
def test_probabilities_sum_to_one_and_multiply_as_the_matrix_does(kind, domain, epsilon) -> None:
    randomizer = make(kind, domain, epsilon)
    matrix = randomizer.transition_matrix()
    assert matrix.shape == (domain.size, randomizer.symbols)
    assert matrix.min() > 0
    np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-12)
    p, r = a_distribution(domain.size), np.random.default_rng(1).normal(size=randomizer.symbols)
    np.testing.assert_allclose(randomizer.forward(p), p @ matrix, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(randomizer.backward(r), matrix @ r, rtol=1e-9, atol=1e-12)


@OF_SYMBOLS
def test_the_exact_epsilon_is_the_worst_ratio_of_the_matrix_and_the_claim(kind, domain, epsilon) -> None:
    randomizer = make(kind, domain, epsilon)
    matrix = randomizer.transition_matrix()
    worst = float((matrix.max(axis=0) / matrix.min(axis=0)).max())
    assert float(randomizer.worst_ratio()) == pytest.approx(worst, rel=1e-9)
    assert randomizer.worst_ratio() <= power(epsilon)
    assert randomizer.exact_epsilon() <= float(epsilon)
    if kind != "disk" or domain.size > 2:  # two overlapping disks tell less than they may
        assert randomizer.exact_epsilon() == pytest.approx(float(epsilon), rel=3e-6)


@OF_SETS
@pytest.mark.parametrize("options", [{}, {"variant": "symmetric"}, {"subset": 2}], ids=str)
def test_the_exact_epsilon_of_sets_is_that_of_all_of_them(kind, options, epsilon) -> None:
    mechanism = common.SETS[kind]
    if not set(options) <= set(mechanism(epsilon=1).parameters()):
        pytest.skip("another mechanism's option")
    randomizer = mechanism(epsilon=epsilon, **options).on(Domain(mv.Grid(common.REGION, rows=2, columns=3)))
    law = common.set_law(randomizer)
    np.testing.assert_allclose(law.sum(axis=1), 1, rtol=1e-12)
    some = law.max(axis=0) > 0
    worst = (law[:, some].max(axis=0) / law[:, some].min(axis=0)).max()
    assert float(randomizer.worst_ratio()) == pytest.approx(worst, rel=1e-9)
    assert randomizer.worst_ratio() <= power(epsilon)
    assert randomizer.exact_epsilon() == pytest.approx(float(epsilon), rel=1e-6)


def drawn(randomizer, users: int, seed: int) -> np.ndarray:
    """How often each report came from each site."""
    cells = np.repeat(randomizer.domain.cells, users)
    values = randomizer.randomize(cells, Randomness(seed)).values
    if values.ndim == 2:
        bits = np.unpackbits(values, axis=1, count=randomizer.size)
        values = bits @ (1 << np.arange(randomizer.size)[::-1])
        symbols = 1 << randomizer.size
    else:
        symbols = randomizer.symbols
    counts = np.zeros((randomizer.size, symbols))
    np.add.at(counts, (np.repeat(np.arange(randomizer.size), users), values), 1)
    return counts


@OF_ALL
def test_reports_follow_their_law_and_no_other(kind) -> None:
    tiling = mv.Grid(common.REGION, rows=2, columns=3) if kind in common.SETS else common.scattered(11)
    claimed, less, more = (make(kind, Domain(tiling), Fraction(k, 10)) for k in (10, 7, 13))
    counts = drawn(claimed, 60_000, seed=3)

    def law(randomizer) -> np.ndarray:
        return common.set_law(randomizer) if kind in common.SETS else randomizer.transition_matrix()

    assert abs(common.chi_square_excess(counts, law(claimed))) < 6
    for other in (less, more):
        if law(other).shape == counts.shape:
            assert common.chi_square_excess(counts, law(other)) > 6


@OF_ALL
def test_the_inverse_is_unbiased(kind, domain, epsilon) -> None:
    if kind == "disk" and domain.tiling.spec == "places:23":
        pytest.skip("two of its sites lie in one pixel")
    randomizer = make(kind, domain, epsilon)
    p = a_distribution(domain.size, seed=2)
    if kind in common.SETS:
        expected = p * randomizer.held + (1 - p) * randomizer.other
    else:
        expected = randomizer.forward(p)
    np.testing.assert_allclose(randomizer.invert(Tally(expected * 1e6, 10**6)), p, atol=1e-6)


@pytest.mark.parametrize("kind", ["grr", "srr", "hr", "olh", "planar-laplace"])
def test_the_noise_of_the_estimates_is_that_of_the_matrix(kind, domain, epsilon) -> None:
    randomizer = make(kind, domain, epsilon)
    matrix, p = randomizer.transition_matrix(), a_distribution(domain.size, seed=4)
    rows = np.stack([randomizer.invert(Tally(row, 1)) for row in np.eye(randomizer.symbols)], axis=1)
    covariance = np.zeros((domain.size, domain.size))
    for part, law in zip(p, matrix, strict=True):
        mean = rows @ law
        covariance += part * ((rows * law) @ rows.T - np.outer(mean, mean))
    noise = randomizer.site_noise(p)
    np.testing.assert_allclose(noise.variance, np.diag(covariance), rtol=1e-8)
    assert noise.step >= (np.abs(rows).max() - 1e-9) * (1 - 1e-9)
    order = np.random.default_rng(5).permutation(domain.size)
    first, size = np.array([0, 0, 1]), np.array([1, domain.size // 2, domain.size - 1])
    sums = randomizer.covariance(p).of_sums(order, first, size)
    for got, start, count in zip(sums, first, size, strict=True):
        box = order[start : start + count]
        wanted = covariance[np.ix_(box, box)].sum()
        # Of hashing it is that of an average group: test_local_hashing.
        if kind != "olh" or count == 1:
            assert got == pytest.approx(wanted, rel=1e-7)


@OF_SETS
def test_the_noise_of_sets_is_that_of_all_of_them(kind, epsilon) -> None:
    randomizer = make(kind, Domain(mv.Grid(common.REGION, rows=2, columns=3)), epsilon)
    law, bits, p = common.set_law(randomizer), common.all_sets(6), a_distribution(6, seed=4)
    rows = (bits.T - randomizer.other) / (randomizer.held - randomizer.other)
    covariance = np.zeros((6, 6))
    for part, row in zip(p, law, strict=True):
        mean = rows @ row
        covariance += part * ((rows * row) @ rows.T - np.outer(mean, mean))
    np.testing.assert_allclose(randomizer.site_noise(p).variance, np.diag(covariance), rtol=1e-9)
    order, first, size = np.array([3, 1, 5, 0, 2, 4]), np.array([0, 1, 2]), np.array([2, 4, 1])
    wanted = [
        covariance[np.ix_(order[a : a + n], order[a : a + n])].sum() for a, n in zip(first, size, strict=True)
    ]
    np.testing.assert_allclose(randomizer.covariance(p).of_sums(order, first, size), wanted, rtol=1e-9)


@OF_ALL
def test_one_phone_and_many_take_the_same_path(kind, domain) -> None:
    randomizer = make(kind, domain, Fraction(1))
    one = randomizer.randomize(int(domain.cells[0]), Randomness(1))
    none = randomizer.randomize(np.zeros(0, dtype=np.int64), Randomness(1))
    assert one.count == 1
    assert none.count == 0
    assert randomizer.tally(none).counts.shape == (randomizer.symbols,)
    total = randomizer.tally(one) + randomizer.tally(none)
    assert total.reports == 1
    assert "1" in repr(one)
    assert str(one.values) not in repr(one)


@OF_ALL
@pytest.mark.parametrize("cells", [-1, 10**6, 1.5, np.array([0, -1])], ids=str)
def test_a_place_outside_the_domain_has_no_report(kind, cells) -> None:
    randomizer = make(kind, Domain(common.TILINGS["oblong"]), Fraction(1))
    with pytest.raises(InputError, match=r"not among the 21 sites|whole numbers"):
        randomizer.randomize(cells, Randomness(1))


@OF_ALL
def test_foreign_reports_are_not_counted(kind, domain) -> None:
    randomizer = make(kind, domain, Fraction(1))
    if kind in common.SETS:
        foreign = [np.zeros((3, randomizer.bytes + 1), dtype=np.uint8), np.zeros(3, dtype=np.int64)]
        if domain.size % 8:
            foreign.append(np.full((1, randomizer.bytes), 255, dtype=np.uint8))
    else:
        foreign = [np.array([0, randomizer.symbols]), np.array([-1]), np.zeros((2, 2)), np.zeros(2)]
    for values in foreign:
        with pytest.raises(InputError, match="report"):
            randomizer.tally(Reports(values))


@OF_ALL
def test_an_epsilon_beyond_all_weights_spends_less_and_reports_the_place(kind) -> None:
    domain = Domain(common.TILINGS["oblong"])
    randomizer = make(kind, domain, Fraction(10**5))
    assert 20 < randomizer.exact_epsilon() < 10**5
    p = a_distribution(domain.size)
    cells = np.random.default_rng(0).choice(domain.size, 4000, p=p)
    estimate = randomizer.invert(randomizer.tally(randomizer.randomize(cells, Randomness(1))))
    truth = np.bincount(cells, minlength=domain.size) / 4000
    # Optimized bits hold their own place half of the time, whatever the epsilon.
    tolerance = 0.05 if kind in ("unary", "olh", "olh-h") else 1e-4
    assert np.abs(estimate - truth).max() < tolerance


@pytest.mark.parametrize("kind", ["grr", "srr", "hr", "unary", "subset", "olh", "planar-laplace", "disk"])
def test_an_epsilon_too_small_to_tell_is_refused(kind, domain) -> None:
    with pytest.raises(ParameterError, match="epsilon"):
        make(kind, domain, Fraction(1, 10**30))


def test_a_matrix_too_large_to_write_out_is_refused() -> None:
    randomizer = make("grr", Domain(mv.Quadtree(common.REGION, depth=7)), Fraction(1))
    with pytest.raises(ParameterError, match=r"2\*\*26"):
        randomizer.transition_matrix()


@OF_ALL
def test_its_identity_tells_epsilons_apart(kind, domain) -> None:
    one, other, again = (make(kind, domain, Fraction(k)) for k in (1, 2, 1))
    assert one.identity() == again.identity()
    assert one.identity() != other.identity()
    assert math.isfinite(one.exact_epsilon())
