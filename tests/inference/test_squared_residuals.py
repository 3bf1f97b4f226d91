"""The law of a sum of squared residuals, against draws."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mapveil.inference.squared_residuals import SquaredResiduals
from mapveil.maps.measurement import Law

DRAWS = 20_000


@pytest.mark.parametrize(("blocks", "cells", "rate"), [(1, 4, 0.05), (1, 1, 0.05), (2, 1, 1.0)])
def test_its_tails_hold_as_often_as_they_say(blocks: int, cells: int, rate: float) -> None:
    law = SquaredResiduals(
        (Law(0.5, rate, 1.0), Law(0.25, rate, 1.0)), np.array([[blocks], [cells]]), np.array([64])
    )
    rng, success = np.random.default_rng(1), -math.expm1(-rate)

    def noise(count: int) -> np.ndarray:
        first, second = rng.geometric(success, (2, DRAWS, 64, count))
        return np.asarray((first - second).sum(axis=2))

    totals = ((noise(blocks) / 2 - noise(cells) / 4) ** 2).sum(axis=1)
    assert law.moments()[:2] == pytest.approx((totals.mean(), totals.var()), rel=0.05)
    for level in (0.01, 0.001):
        off = 4 * math.sqrt(level / DRAWS)
        for quantile, side in ((level, 0), (1 - level, 1)):
            tail = law.tails(float(np.quantile(totals, quantile)))[side]
            assert tail == pytest.approx(level, abs=off, rel=0.1)


def test_its_upper_tail_is_too_light_by_less_than_verify_allows() -> None:
    """The gamma law calls a sum of 1 in 2,000 one of more than 1 in 10,000: the level of noise that is too large."""
    rate, draws = 0.05, 200_000
    law = SquaredResiduals((Law(1.0, rate, 1.0),) * 2, np.array([[1], [1]]), np.array([64]))
    rng, totals = np.random.default_rng(2), np.zeros(draws)
    for _ in range(64):
        up, down = (rng.geometric(-math.expm1(-rate), (2, draws)) for _ in range(2))
        totals += (up - down).sum(axis=0) ** 2.0
    assert law.tails(float(np.quantile(totals, 1 - 5e-4)))[1] > 1e-4


def test_residuals_of_nothing_are_impossible() -> None:
    law = SquaredResiduals((Law(1.0, 0.1, 1.0),) * 2, np.array([[1], [1]]), np.array([64]))
    assert law.tails(0.0)[0] < 1e-60
