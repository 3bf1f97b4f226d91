"""An empirical epsilon of released sums with the fewest survivors allowed: below the claim, and not far below.

Two neighbouring shards, one with a device more at a coordinate, are summed many times with the noise of the honest
survivors only: what a server knows that colludes with all corrupt devices. The event is chosen on one half of the
runs and judged on the other; Clopper-Pearson bounds make the bound on epsilon one that holds with 99.9 % confidence.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from mapveil_client.randomness.noise_shares import noise_shares, share_shape
from mapveil_client.randomness.random import Randomness

RUNS = 60_000
ERROR = 0.0005  # each side
SHARD = 40
DROPOUT, CORRUPT = Fraction(1, 10), Fraction(1, 20)


def released(runs, survivors, alpha, epsilon, sensitivity, vector, seed):
    """Noisy sums of a shard, shape (runs, coordinates)."""
    length = len(vector)
    noise = noise_shares(runs * survivors, length, alpha, epsilon, sensitivity, Randomness(seed))
    sums = np.zeros((runs, length), dtype=np.int64)
    np.add.at(sums, (noise.client // survivors, noise.position), noise.value)
    return sums + np.asarray(vector)


def bound(likely, rare, runs):
    """A lower bound of the logarithm of the ratio of two probabilities."""
    lower = stats.beta.ppf(ERROR, likely, runs - likely + 1) if likely else 0.0
    upper = stats.beta.ppf(1 - ERROR, rare + 1, runs - rare) if rare < runs else 1.0
    return math.log(lower / upper) if lower else -math.inf


def epsilon_bound(survivors, alpha, epsilon, sensitivity, seed):
    """Epsilon is above this, by events of the log likelihood ratio of the claimed law and of single values."""
    without = [0, 3 * sensitivity]
    present = [sensitivity, 3 * sensitivity]
    law = survivors, alpha, epsilon, sensitivity

    def statistics(vector, seed):
        sums = released(RUNS, *law, vector, seed)
        return (np.abs(sums[:, 0] - without[0]) - np.abs(sums[:, 0] - present[0])), sums[:, 0]

    def counts(runs, statistic, event):
        below, value = event
        column = runs[statistic]
        return int((column <= value).sum() if below else (column >= value).sum())

    first = statistics(present, seed), statistics(without, seed + 1)
    events = [
        (statistic, (below, value), swapped)
        for statistic in (0, 1)
        for value in np.unique(
            np.quantile(first[0][statistic], np.linspace(0.02, 0.98, 30), method="nearest")
        )
        for below in (False, True)
        for swapped in (False, True)
    ]

    def judge(runs, candidate):
        statistic, event, swapped = candidate
        likely, rare = (counts(side, statistic, event) for side in (runs[::-1] if swapped else runs))
        return bound(likely, rare, RUNS)

    best = max(events, key=lambda candidate: judge(first, candidate))
    return judge((statistics(present, seed + 2), statistics(without, seed + 3)), best)


@pytest.mark.parametrize(
    ("epsilon", "sensitivity"), [(Fraction(1), 1), (Fraction(1, 2), 1), (Fraction(1), 50)]
)
def test_the_fewest_honest_survivors_keep_the_promise_and_half_the_shape_is_caught(epsilon, sensitivity):
    alpha = share_shape(SHARD, DROPOUT, CORRUPT)
    honest = int(1 / alpha)
    assert honest == 34
    kept = epsilon_bound(honest, alpha, epsilon, sensitivity, 60)
    assert 0.85 * epsilon < kept <= epsilon  # tight: the audit sees nearly all there is
    assert epsilon_bound(honest, alpha / 2, epsilon, sensitivity, 70) > epsilon


def test_shares_provisioned_as_if_nobody_were_corrupt_or_left_are_caught():
    # Of a shard of 40, 20 leave or collude; shares of 1 / 40 would do if all stayed honest.
    assert epsilon_bound(20, Fraction(1, 40), Fraction(1), 1, 80) > 1
    assert epsilon_bound(40, Fraction(1, 40), Fraction(1), 1, 90) <= 1
