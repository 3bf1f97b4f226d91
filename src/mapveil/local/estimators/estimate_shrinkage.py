r"""Mapveil's shrinkage of unbiased estimates at all scales, by the known covariance of their noise.

The sites are halved again and again into boxes of equal numbers of sites
(:mod:`mapveil.local.estimators.split_trees`). Let P be the fraction of all users in a box. The fraction in its first
half is measured by that half's estimate, and by P less the other's:

.. math:: z = w\, \hat{s}_1 + (1 - w)(P - \hat{s}_2), \qquad w = \frac{V_2 + C}{V_1 + V_2 + 2 C}, \qquad
    \tau^2 = w^2 V_1 + (1 - w)^2 V_2 - 2 w (1 - w)\, C

where: :math:`\hat{s}_1, \hat{s}_2` are the sums of the unbiased estimates over the halves, :math:`V_1, V_2` their
variances and C their covariance, :math:`(V_{12} - V_1 - V_2) / 2` with the variance of the whole box
(:mod:`mapveil.local.estimators.covariance`). The estimate is the posterior mean of the half given z, of standard
deviation :math:`\tau`, under a prior of splits that is learned from all boxes of its size
(:mod:`mapveil.inference.split_prior`). The mean over several trees, each rotated against the others, hides the borders
of the boxes.

Source: Mapveil; multiscale priors for counts after Kolaczyk (1999), the mean over trees after
the cycle spinning of Coifman and Donoho (1995).
"""

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from mapveil.inference.split_prior import SplitPrior
from mapveil.local.estimators.covariance import Covariance
from mapveil.local.estimators.split_trees import SiteTree, site_tree
from mapveil_client.arrays import FloatArray

_TREES: Final = (
    8  # 2: +3.5 % of the error, 16: -0.7 % in twice the time (docs/reference/mechanism-constants.md)
)
_MIN_TREES: Final = 2  # of the largest domains; eight up to 65,536 sites
_MAX_LEAVES: Final = 1 << 19  # sites of all trees together: bounds time and memory
_GAUSSIAN: Final = 16  # from so many sites on SplitPrior takes the noise of a box for Gaussian
_SITES: Final = 1 << 10  # passed to SplitPrior as every box's size: sums over many reports are Gaussian


def shrink_estimates(
    unbiased: FloatArray,
    covariance: Covariance,
    reports: int,
    plane: FloatArray,
    usual: Callable[[FloatArray], FloatArray] | None = None,
) -> FloatArray:
    """Shrink unbiased estimates to a distribution. Run by: the server.

    Parameters
    ----------
    unbiased : ndarray of float64, shape (sites,)
        Estimates of the fractions of all users.
    covariance : Covariance
        Covariance of one report's worth of the estimates.
    reports : int
        Number of reports.
    plane : ndarray of float64, shape (2, sites)
        Coordinates of the sites, metres.
    usual : callable, optional
        Expected concentration of the division of a box, from its number of sites, such as
        :func:`mapveil.local.estimators.split_trees.usual_concentration`; the public weights of the prior by default.

    Returns
    -------
    ndarray of float64, shape (sites,)
        Not negative, sums to 1.
    """
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
        tree.order, np.concatenate([level.first for level in tree.levels]), np.concatenate(sizes)
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
    # Where the whole box is known exactly, both measurements are one.
    known = both <= 1e-9 * (v1 + v2)
    w = np.where(known, 0.5, (v2 + c) / np.where(known, 1.0, both))
    z = w * first + (1 - w) * (parent - second)
    return z, np.maximum(w * w * v1 + (1 - w) ** 2 * v2 - 2 * w * (1 - w) * c, 0.0)
