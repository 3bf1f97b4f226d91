"""Worst cases of the laws that are drawn from: probabilities are exact counts of draws, not logits."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from mapveil.geo.measurements import Measurements
from mapveil.obfuscation.export.phone import read_phone_privatizer
from mapveil.obfuscation.export.phone_export import export_privatizer
from mapveil.obfuscation.privatizers.category import Category
from mapveil.obfuscation.privatizers.codebook import FLOOR, ONE, Codebook, choose_codes, code_weights
from mapveil.obfuscation.privatizers.null_code import NULL_EPSILON, NULL_ERROR, NullCode
from mapveil.obfuscation.privatizers.privatizer import FittedPrivatizer
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.randomness.random import Randomness

Tables = Callable[..., Measurements]
Draw = Callable[[FloatArray, Randomness], IntArray]
_DRAWS = 1 << 53  # values of a uniform number, all equally likely


class GivenDraws(Randomness):
    """Uniform numbers m / 2^53 of given m."""

    def __init__(self, numbers: IntArray) -> None:
        self.seeded = True
        self._words = numbers.astype(np.uint64) << np.uint64(11)

    def words(self, count: int, dtype: npt.DTypeLike) -> npt.NDArray[np.unsignedinteger]:
        given, self._words = self._words[:count], self._words[count:]
        assert len(given) == count
        return given.astype(np.dtype(dtype))


def exact_counts(rows: FloatArray, codes: int, draw: Draw) -> IntArray:
    """Number of the 2^53 draws that choose each code, shape (rows, codes); the code rises with the draw."""
    repeated = np.repeat(rows, codes - 1, axis=0)
    target = np.tile(np.arange(codes - 1), len(rows))
    low, high = np.zeros(len(target), dtype=np.int64), np.full(len(target), _DRAWS, dtype=np.int64)
    while (low < high).any():
        middle = (low + high) // 2
        beyond = draw(repeated, GivenDraws(np.minimum(middle, _DRAWS - 1))) > target
        low, high = np.where(beyond, low, np.minimum(middle + 1, high)), np.where(beyond, middle, high)
    ends = low.reshape(len(rows), codes - 1)
    return np.diff(ends, axis=1, prepend=0, append=_DRAWS)


def chosen_by(privatize: Callable[[FloatArray, Randomness], FloatArray], fitted: FittedPrivatizer) -> Draw:
    """The number of the code that is sent for each row."""
    codes = fitted.state["codes"][:, 0]

    def draw(rows: FloatArray, rng: Randomness) -> IntArray:
        sent = fitted.normalisation.standardise(privatize(rows, rng))
        return np.asarray(np.abs(sent[:, None] - codes).sum(axis=2).argmin(axis=1))

    return draw


def rows_of(fitted: FittedPrivatizer, table: Measurements) -> FloatArray:
    """Corners of the box, rows of the pilot, rows near codes and rows far outside."""
    learnt = fitted.normalisation
    sides = np.random.default_rng(4).random((10, len(learnt.names))) < 0.5
    near = learnt.undo(fitted.state["codes"][:3, 0].astype(np.float64))
    return np.concatenate(
        [np.where(sides, learnt.low, learnt.high), table.rows[:4], near, 10 * learnt.high[None]]
    )


@pytest.mark.parametrize("further", [0, 2, 9])
@pytest.mark.parametrize("mu", [0.1, 0.6, 3.0, 10.0, 200.0])
def test_the_codebook_s_worst_case_holds_of_what_phones_draw(
    made_up: Tables, tmp_path: Path, mu: float, further: int
) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    table = made_up(800, further=further)
    fitted = Codebook(mu=mu, size=20).fit(table, rng=1)
    export_privatizer(fitted, tmp_path / "a.onnx")
    phone = read_phone_privatizer(tmp_path / "a.onnx")
    rows = rows_of(fitted, table)
    drawn = [
        exact_counts(rows, 20, chosen_by(privatize, fitted))
        for privatize in (
            lambda given, rng: fitted.privatize(given, rng=rng),
            lambda given, rng: phone.privatize(given, rng=rng),
        )
    ]
    for counts in drawn:
        assert (counts > 0).all()
        assert (counts.sum(axis=1) == _DRAWS).all()
        found = math.log(max(Fraction(int(c.max()), int(c.min())) for c in counts.T))
        assert found <= fitted.worst_epsilon
        # Nor is the statement far from what is reached.
        assert found > (0.1 * fitted.worst_epsilon if mu < 10 else 14)
    # The phone and the Python client draw from one law, but for the last bits of distances and exponentials.
    np.testing.assert_allclose(drawn[0], drawn[1], rtol=2.0**-10)
    assert phone.report_cost.covers(fitted.report_cost)


def test_the_most_codes_keep_a_probability_that_draws_resolve() -> None:
    # The largest sum that weights can have, and a code without any weight but the floor.
    weights = code_weights(np.zeros((1, 1 << 16)))
    weights[0, 77] = FLOOR
    total = int(weights.sum())
    assert ONE < total < _DRAWS
    reached = np.cumsum(weights[0])

    def first(bound: float) -> int:
        low, high = 0, _DRAWS
        while low < high:
            middle = (low + high) // 2
            passed = choose_codes(weights, GivenDraws(np.array([middle])))[0] >= bound
            low, high = (low, middle) if passed else (middle + 1, high)
        return low

    assert int(reached[-1]) == total
    count = first(78) - first(77)
    assert abs(Fraction(count, _DRAWS) - Fraction(FLOOR, total)) * _DRAWS < 2


def test_the_null_code_is_drawn_within_its_epsilon() -> None:
    null = NullCode(np.zeros((1, 2), dtype=np.float32), np.array(1.0))
    rows = np.array([[0.5, 0.0], [3.0, 0.0]])
    edge = math.ceil(Fraction(NULL_ERROR) * _DRAWS)  # draws m below it have m / 2^53 < NULL_ERROR
    for number, empty in ((0, [True, False]), (edge - 1, [True, False]), (edge, [False, True])):
        assert null.empty(rows, np.full(2, number * 2.0**-53)).tolist() == empty
    # exp of the statement, as a fraction not above its value.
    claimed = Fraction(math.exp(NULL_EPSILON)) * (1 + Fraction(1, 1 << 48))
    assert Fraction(_DRAWS - edge, edge) <= claimed


@pytest.mark.parametrize("epsilon", ["1/1000", "1", "3", "20"])
@pytest.mark.parametrize("values", [1, 7])
def test_a_category_is_drawn_within_its_epsilon(epsilon: str, values: int) -> None:
    category = Category(0, np.arange(values, dtype=np.float64), Fraction(epsilon))
    more, less = category.weights
    # A draw below the surplus is the true value; the rest is every value B times, in turn.
    starts = np.array([0, more - less - 1, *(more - less + np.arange(category.size) * less)])
    ends = np.array([*starts[2:] + less - 1])
    assert ends[-1] == category.total - 1
    for true in range(category.size):
        given = float(true) if true < values else 99.0
        names = np.array([*category.values, np.nan])
        for draws, expected in (
            (starts, np.array([true, true, *range(category.size)])),
            (ends, np.arange(category.size)),
        ):
            np.testing.assert_array_equal(
                category.respond(np.full(len(draws), given), draws), names[expected]
            )
    # So the true value has A draws, any other B.
    assert math.log(Fraction(more, less)) <= float(category.epsilon) * (1 + 2.0**-50)
