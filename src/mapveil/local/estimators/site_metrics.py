"""The utility of an estimated map of sites: site by site, and by distance."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.metrics.emd import emd_of_points
from mapveil.metrics.metrics import kl
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError, check
from mapveil_client.local.domain import Domain

SCALES_M: Final = (0.0, 250.0, 500.0, 1000.0, 2000.0, 5000.0)
"""Sides of the squares in which sites are summed, metres; 0 stands for the sites themselves."""


class ScaleUtility(NamedTuple):
    """The distance of two maps whose sites are summed in squares."""

    scale_m: float  # side of a square, 0: single sites
    areas: int  # squares that hold a site
    l1: float  # 0 to 2
    kl: float  # nats, of the estimate from the truth


class Utility(NamedTuple):
    """The utility of one estimate."""

    scales: tuple[ScaleUtility, ...]
    emd_m: float  # earth mover's distance of the distributions, city-block metres
    hits: dict[int, float]  # k: fraction of the k fullest sites among the k fullest of the estimate
    error: FloatArray  # estimate less truth, fractions of all users, shape (sites,)


def utility(
    domain: Domain,
    truth: npt.ArrayLike,
    estimate: npt.ArrayLike,
    *,
    scales_m: Sequence[float] = SCALES_M,
    top: Sequence[int] = (1, 10, 100),
) -> Utility:
    r"""Compare an estimate with the truth. Run by: the evaluator.

    .. math:: L_1(s) = \sum_A \Big| \sum_{x \in A} (\hat p(x) - p(x)) \Big|, \qquad
        \mathrm{KL}(s) = \sum_A p(A) \ln \frac{p(A)}{\hat p(A)}

    where: A are the squares of side s with at least one site, p and :math:`\hat p` the true and the estimated
    distribution. Of sites that are equally full, the first count as the fuller ones.

    Parameters
    ----------
    domain : Domain
        The sites.
    truth, estimate : array of float, shape (sites,)
        Users, or fractions of all; not negative, not all 0.
    scales_m : sequence of float
        s, metres (cells without georeference).
    top : sequence of int
        k; numbers above that of the sites are left out.

    Raises
    ------
    ParameterError
        The arrays do not fit the domain, or a scale or k makes no sense.

    Examples
    --------
    >>> import mapveil as mv
    >>> domain = Domain(mv.Quadtree(mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83), depth=1))
    >>> made = utility(domain, [4, 0, 0, 0], [3, 1, 0, 0], scales_m=(0, 50_000))
    >>> [round(scale.l1, 3) for scale in made.scales], made.hits
    ([0.5, 0.0], {1: 1.0})
    """
    if not all(scale >= 0 and np.isfinite(scale) for scale in scales_m):
        raise ParameterError(f"scales_m must be metres of at least 0, got {list(scales_m)}")
    check(all(k >= 1 for k in top), "top", "whole numbers of at least 1", list(top))
    p, q = _distribution(truth, domain, "truth"), _distribution(estimate, domain, "estimate")
    x, y = domain.plane
    scales = []
    for scale in scales_m:
        area = np.arange(p.size) if scale == 0 else squares(domain.plane, scale)
        areas = int(area.max()) + 1
        of_p, of_q = (np.bincount(area, weights=part, minlength=areas) for part in (p, q))
        scales.append(ScaleUtility(float(scale), areas, float(np.abs(of_p - of_q).sum()), kl(of_p, of_q)))
    differing = np.flatnonzero(p != q)
    fullest, found = np.argsort(-p, kind="stable"), np.argsort(-q, kind="stable")
    return Utility(
        scales=tuple(scales),
        emd_m=_emd(x[differing], y[differing], (p - q)[differing]),
        hits={k: float(np.isin(fullest[:k], found[:k]).mean()) for k in top if k <= p.size},
        error=q - p,
    )


def _emd(x: FloatArray, y: FloatArray, supply: FloatArray) -> float:
    if supply.size == 0:
        return 0.0
    # Sites at one place have no distance.
    places, number = np.unique(np.stack([x, y], axis=1), axis=0, return_inverse=True)
    moved = np.bincount(number.reshape(-1), weights=supply)
    return emd_of_points(places[:, 0], places[:, 1], moved - moved.mean())


def squares(plane: FloatArray, side: float) -> npt.NDArray[np.int64]:
    """The number of each site's square, from the south-western corner on; ``plane`` has shape (2, sites)."""
    column, row = np.floor((plane - plane.min(axis=1, keepdims=True)) / side).astype(np.int64)
    return np.asarray(np.unique(row * (int(column.max()) + 1) + column, return_inverse=True)[1])


def _distribution(values: npt.ArrayLike, domain: Domain, name: str) -> FloatArray:
    given = np.asarray(values, dtype=np.float64)
    if given.shape != (domain.size,) or not (given >= 0).all() or not 0 < given.sum() < np.inf:
        raise ParameterError(
            f"{name} must be {domain.size} numbers of at least 0, not all 0, got shape {given.shape}"
        )
    return np.asarray(given / given.sum())
