r"""Mapveil's own estimator: unbiased estimates, shrunk at all scales by what their noise is known to be.

The sites are halved, again and again, into boxes of equal numbers of sites
(:mod:`mapveil.local.estimators.split_trees`). Of a
box's part P of all users, how much is in its first half was measured twice, by that half's estimate and by what the
other's leaves of P:

.. math:: z = w\, \hat{s}_1 + (1 - w)(P - \hat{s}_2), \qquad w = \frac{V_2 + C}{V_1 + V_2 + 2 C}, \qquad
    \tau^2 = w^2 V_1 + (1 - w)^2 V_2 - 2 w (1 - w)\, C

where: :math:`\hat{s}_1, \hat{s}_2` are the sums of the unbiased estimates over the halves, :math:`V_1, V_2` their
variances and C their covariance, which is :math:`(V_{12} - V_1 - V_2) / 2` with the variance of the whole box:
exactly what the randomizer gives them (:mod:`mapveil.local.estimators.covariance`). The estimate is the
posterior mean of the
half given z, of standard deviation :math:`\tau`, under a prior of splits that is learned from all boxes of its size
(:mod:`mapveil.inference.split_prior`). The mean over several trees, each turned against the others, hides
where the boxes'
borders are.

It costs no privacy. Source: Mapveil; multiscale priors for counts after Kolaczyk (1999), the mean over trees after
the cycle spinning of Coifman and Donoho (1995).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from mapveil.inference.split_prior import SplitPrior
from mapveil.local.estimators.covariance import Covariance
from mapveil.local.estimators.split_trees import SiteTree, site_tree
from mapveil_client.arrays import FloatArray

_TREES: Final = 8
_MIN_TREES: Final = 2
_MAX_LEAVES: Final = 1 << 19  # sites of all trees together: bounds time and memory
_GAUSSIAN: Final = 16
_SITES: Final = 1 << 10  # of a box whose noise is Gaussian: every sum of many reports' is


def shrink_estimates(
    unbiased: FloatArray,
    covariance: Covariance,
    reports: int,
    plane: FloatArray,
    usual: Callable[[FloatArray], FloatArray] | None = None,
    *,
    trees: int | None = None,
) -> FloatArray:
    """Shrink unbiased estimates to a distribution. Run by: the server.

    Parameters
    ----------
    unbiased : ndarray of float64, shape (sites,)
        Estimates of the parts of all users.
    covariance : Covariance
        Covariance of one report's worth of the estimates.
    reports : int
        Number of reports.
    plane : ndarray of float64, shape (2, sites)
        Coordinates of the sites, metres.
    usual : callable, optional
        From numbers of sites of a box to the concentration with which it is expected to divide, such as
        :func:`mapveil.local.estimators.split_trees.usual_concentration`; the public weights of the prior by default.
    trees : int, optional
        Number of trees to take the mean of; by default eight, or as few as two for more than 65,536 sites.

    Returns
    -------
    ndarray of float64, shape (sites,)
        Not negative, sums to 1.
    """
    if trees is None:
        trees = min(_TREES, max(_MIN_TREES, _MAX_LEAVES // unbiased.size))
    total = np.zeros(unbiased.size)
    for number in range(trees):
        tree = site_tree(plane, number * math.pi / 2 / trees)
        total[tree.order] += _shrink(unbiased[tree.order], covariance, reports, tree, usual)
    return np.asarray(total / total.sum())


def _shrink(
    estimates: FloatArray,
    covariance: Covariance,
    reports: int,
    tree: SiteTree,
    usual: Callable[[FloatArray], FloatArray] | None,
) -> FloatArray:
    """Estimates in the tree's order."""
    prior = SplitPrior(_GAUSSIAN)
    sums = np.concatenate([[0.0], np.cumsum(estimates)])
    sizes = [level.size for level in tree.levels]
    whole = np.ones(1)
    noise = covariance.of_sums(
        tree.order,
        np.concatenate([level.first for level in tree.levels]),
        np.concatenate(sizes),
    )
    variances = np.split(noise / reports, np.cumsum([size.size for size in sizes])[:-1])
    for above, below, of_whole, of_half in zip(
        tree.levels[:-1], tree.levels[1:], variances[:-1], variances[1:], strict=True
    ):
        cut = above.size > 1
        left = np.cumsum(np.where(cut, 2, 1)) - np.where(cut, 2, 1)
        one, two = left[cut], left[cut] + 1
        measured = sums[below.first + below.size] - sums[below.first]
        found = np.empty(below.size.size)
        found[left[~cut]] = whole[~cut]
        z, spread = _measured(
            whole[cut], measured[one], measured[two], of_half[one], of_half[two], of_whole[cut]
        )
        if usual is not None:
            prior.expect(float(np.mean(usual(above.size[cut].astype(np.float64)))))
        half = prior.halves(whole[cut], z, spread, below.size[one] / above.size[cut], None, _SITES)
        found[one] = np.clip(half, 0.0, whole[cut])
        found[two] = whole[cut] - found[one]
        whole = found
    return whole


def _measured(
    parent: FloatArray,
    first: FloatArray,
    second: FloatArray,
    v1: FloatArray,
    v2: FloatArray,
    both: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """z and its variance, from the variances of the halves and of the whole box."""
    c = (both - v1 - v2) / 2
    # Where the whole is known for sure, both measurements are one.
    known = both <= 1e-9 * (v1 + v2)
    w = np.where(known, 0.5, (v2 + c) / np.where(known, 1.0, both))
    z = w * first + (1 - w) * (parent - second)
    return z, np.maximum(w * w * v1 + (1 - w) ** 2 * v2 - 2 * w * (1 - w) * c, 0.0)
