r"""Interval of a proportion of trials that come in groups, such as reports of users.

.. math:: n' = \frac{p (1 - p)}{s^2}, \qquad s^2 = \frac{g - 1}{g} \sum_u (p_{-u} - p)^2

where: p is the proportion in all trials, :math:`p_{-u}` that without group u, g the number of groups and s the
jackknife's deviation. The interval is Wilson's for :math:`n'` trials, with the quantile of Student's distribution of
:math:`g - 1` degrees of freedom. :math:`n'` is at most the number of trials, and the number of groups where all trials
agree: the jackknife then has deviation 0, which is no certainty.

Source: Korn and Graubard, "Confidence intervals for proportions with small expected number of positive counts" (1998),
for :math:`n'`; Wilson (1927).
"""

import numpy as np

from mapveil_client.arrays import BoolArray, IntArray


def clustered_proportion(happened: BoolArray, groups: IntArray) -> tuple[float, float]:
    """The 95 % interval of the proportion of trials in which something happened; [0, 1] for fewer than two groups.

    Parameters
    ----------
    happened : ndarray of bool, shape (trials,)
        Outcomes.
    groups : ndarray of int64, shape (trials,)
        The group of each trial; groups are independent of each other.
    """
    from scipy.special import stdtrit

    _, at = np.unique(groups, return_inverse=True)
    size = np.bincount(at).astype(np.float64)
    count = size.size
    if count < 2:
        return 0.0, 1.0
    hits = np.bincount(at, weights=happened)
    rate = float(hits.sum() / size.sum())
    without = (hits.sum() - hits) / (size.sum() - size)
    variance = (count - 1) / count * float(np.square(without - rate).sum())
    trials = float(count)
    if 0 < rate < 1 and variance > 0:
        trials = min(rate * (1 - rate) / variance, float(size.sum()))
    over = float(stdtrit(count - 1, 0.975)) ** 2 / trials
    middle = (rate + over / 2) / (1 + over)
    half = float(np.sqrt(over * rate * (1 - rate) + over**2 / 4)) / (1 + over)
    return max(middle - half, 0.0), min(middle + half, 1.0)
