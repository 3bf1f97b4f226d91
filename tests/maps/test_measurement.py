"""The law that stands for the noise of estimates from randomized reports, beside the law of the reports themselves."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from mapveil.maps.measurement import EstimatedUsers
from mapveil.privacy.weighted_noise import WeightedNoise, half_width


@pytest.mark.parametrize("chance", [0.2, 1 / 56, 1 / 404])
@pytest.mark.parametrize("reports", [83, 500, 20_000])
@pytest.mark.parametrize("alpha", [0.05, 1e-2, 1e-3, 1e-5, 1e-8])
def test_intervals_hold_far_out_in_the_tails_of_a_binomial(chance: float, reports: int, alpha: float) -> None:
    """Reports support a node by chance: at 83 reports and 1 in 56 a Gaussian's tail is 200 times too thin."""
    variance, step = chance * (1 - chance), 1 - chance
    noise = {"reports": reports, "variance": variance, "step": step, "independent": True}
    law = EstimatedUsers(np.zeros(1, dtype=np.int64), np.zeros(1), Fraction(4), 1, **noise).law()
    width = half_width(WeightedNoise(*(np.array([part]) for part in law)), alpha)
    count, mean = stats.binom(reports, chance), reports * chance
    outside = count.sf(np.ceil(mean + width) - 1) + count.cdf(np.floor(mean - width))
    # One lattice step of the count may be as likely as all that is promised: it is left out where few are expected.
    assert outside <= 1.4 * alpha or (mean < 1 and count.sf(np.ceil(mean + width)) <= alpha)
