r"""Totals of users that are linear in noisy sums: their errors, sums, differences and ratios.

A ratio has a confidence set by Fieller's argument, for the exact law of the noise,

.. math:: \{ r \ge 0 : |\hat n - r \hat d| \le t_\alpha(n - r d) \}

where: :math:`\hat n` and :math:`\hat d` are the estimates of numerator and denominator, and :math:`t_\alpha` is the
half width of the exact law of the error of :math:`\hat n - r \hat d`. The set has coverage 1 - alpha whatever the
truth is. Where the denominator cannot be told from 0 it has no upper end, and says so.

Source: Fieller, "Some Problems in Interval Estimation" (1954).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

from mapveil.inference.nested_sums import LinearError
from mapveil.maps.measurement import INTERVAL_ALPHA
from mapveil.privacy.weighted_noise import WeightedNoise, half_width
from mapveil_client.arrays import BoolArray, FloatArray, IntArray
from mapveil_client.errors import InputError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MOSTLY: Final = 0.5
"""Fraction of an estimate above which its zone is marked as placed by the model."""

LEAST_ALPHA: Final = 1e-12
"""Least probability that a law's quantile is known of."""

_PRECISION: Final = 1e-4  # of an end, relative; ends are rounded outward by it
_LARGEST: Final = 2.0**60
_OVERLAID: Final = 1e-9  # of a leaf: fractions of an overlay are less exact


class LinearSums(Protocol):
    """Noisy sums that estimate linear functionals: nested ones, or with those of rows and columns."""

    @property
    def estimate(self) -> FloatArray:
        """Estimates that a functional weighs, users, shape (weights,)."""

    def errors(self, weights: csr_array) -> Iterator[LinearError]:
        """The error of the estimate of each functional, of shape (functionals, weights)."""

    def is_same(self, other: object) -> bool:
        """Whether both are of one release, so that they share all errors."""

    def has_window(self, other: object) -> bool:
        """Whether the other's measurements are of reports that these are of too."""


@dataclass(frozen=True, eq=False)
class LinearTotal:
    """A weighted sum of users, estimated from noisy sums of one or several maps.

    Totals add and subtract, and a number multiplies them: the errors of one release's noisy sums, which several
    totals share, are counted once. Those of a series of reports and of its windows, whose errors are neither the same
    nor independent, are not added.

    Parameters
    ----------
    parts : tuple of (LinearSums, csr_array of shape (1, weights))
        The noisy sums of each release, and the weights of their estimates; no release twice.
    """

    parts: tuple[tuple[LinearSums, csr_array], ...]

    @cached_property
    def estimate(self) -> float:
        """Least-squares estimate, users; of whole measured cells it is unbiased, so it may be negative."""
        return float(sum(float((weights @ sums.estimate)[0]) for sums, weights in self.parts))

    @cached_property
    def error(self) -> LinearError:
        """The estimate's error: its variance and its law."""
        # At weights of up to 1: far smaller ones would be taken for rounding errors.
        most = max((float(np.abs(weights.data).max(initial=0.0)) for _, weights in self.parts), default=0.0)
        largest = most or 1.0
        found = [next(iter(sums.errors(weights * (1 / largest)))) for sums, weights in self.parts]
        noise = found[0].noise
        for each in found[1:]:
            noise = noise.joined(each.noise)
        return LinearError(largest**2 * sum(each.variance for each in found), noise.scaled(largest))

    @property
    def deviation(self) -> float:
        """Standard deviation of the estimate over the noise, users."""
        return math.sqrt(self.error.variance)

    def interval(self, alpha: float = INTERVAL_ALPHA) -> tuple[float, float]:
        """Bounds that hold with probability at least 1 - alpha over the noise; a bound may be negative."""
        width = half_width(self.error.noise, alpha)
        return self.estimate - width, self.estimate + width

    def __mul__(self, factor: float) -> LinearTotal:
        return LinearTotal(tuple((sums, weights * factor) for sums, weights in self.parts))

    __rmul__ = __mul__

    def __add__(self, other: LinearTotal) -> LinearTotal:
        parts = list(self.parts)
        for sums, weights in other.parts:
            same = [held.is_same(sums) for held, _ in parts]
            at = same.index(True) if any(same) else None
            # The sums of a series of one window are those of the window.
            others = [held for (held, _), is_same in zip(parts, same, strict=True) if not is_same]
            if any(held.has_window(sums) or sums.has_window(held) for held in others):
                raise InputError(
                    "totals of a series and of its windows are of the same reports or noisy sums, so the error of "
                    "their sum is not known; add up totals of windows instead"
                )
            if at is None:
                parts.append((sums, weights))
            else:
                held, before = parts[at]
                parts[at] = held, without_rounding(before + weights)
        return LinearTotal(tuple(parts))

    def __sub__(self, other: LinearTotal) -> LinearTotal:
        return self + other * -1.0

    def __truediv__(self, other: LinearTotal) -> Ratio:
        return ratio(self, other)

    def __repr__(self) -> str:
        low, high = self.interval()
        return f"{self.estimate:,.1f} users (95 %: {low:,.1f} to {high:,.1f})"


@dataclass(frozen=True, eq=False, repr=False)
class Total(LinearTotal):
    """The users of one zone; see :mod:`mapveil.analysis.zone_totals`.

    Parameters
    ----------
    parts
        As for :class:`LinearTotal`: one map.
    inside, touched : LinearTotal
        The leaves wholly inside the zone, and all leaves that it touches.
    shown : float
        Users that the map shows in the zone: its model's placement.
    covered : float
        Fraction of the zone's area that lies in the map's cells.
    """

    inside: LinearTotal
    touched: LinearTotal
    shown: float
    covered: float

    @property
    def placed(self) -> float:
        """Fraction of the estimate that lies in leaves which the zone cuts: placed by the model, not measured."""
        return float(placed_fraction(np.array([self.estimate]), np.array([self.inside.estimate]))[0])

    @property
    def modelled(self) -> bool:
        """Whether the model places most of the estimate, so that only :meth:`certain` bounds hold."""
        estimate, inside, placed = (np.array([x]) for x in (self.estimate, self.inside.estimate, self.placed))
        return bool(mostly_placed(estimate, inside, placed)[0])

    def certain(self, alpha: float = INTERVAL_ALPHA) -> tuple[float, float]:
        """Bounds that hold wherever in the cut leaves people are, with probability at least 1 - alpha."""
        return self.inside.interval(alpha)[0], self.touched.interval(alpha)[1]

    def __repr__(self) -> str:
        if not self.modelled:
            return super().__repr__()
        low, high = self.certain()
        return (
            f"{self.estimate:,.1f} users, {100 * self.placed:.0f} % of them placed by the model "
            f"(95 %, wherever in the cut cells they are: {low:,.1f} to {high:,.1f})"
        )


class Ratio(NamedTuple):
    """A ratio of totals, at least 0."""

    estimate: float  # NaN where the denominator's estimate is not above 0
    low: float
    high: float  # infinite where the set has no upper end
    alpha: float

    @property
    def bounded(self) -> bool:
        """Whether the set has an upper end: the denominator can be told from 0."""
        return math.isfinite(self.high)

    def __repr__(self) -> str:
        coverage = f"{100 * (1 - self.alpha):g} %"
        if self.bounded:
            return f"{self.estimate:.4g} ({coverage}: {self.low:.4g} to {self.high:.4g})"
        return f"{self.estimate:.4g} ({coverage}: from {self.low:.4g}, unbounded: the denominator may be 0)"


def ratio(numerator: LinearTotal, denominator: LinearTotal, alpha: float = INTERVAL_ALPHA) -> Ratio:
    """The ratio of two totals, of one map or of two. Run by: anybody who holds the maps; costs no privacy.

    Parameters
    ----------
    numerator, denominator : LinearTotal
        Totals; their common errors cancel.
    alpha : float
        Largest probability, over the noise, that the set misses the true ratio; from 1e-12 to 0.5.
    """

    above, below = numerator.estimate, denominator.estimate
    # No ratio is below 0: a numerator below 0 is taken as 0, which widens the set, and leaves none empty.
    lifted = max(-above, 0.0)

    def excess(r: float) -> float:
        """Above 0 where r is not in the set."""
        apart = numerator - denominator * r
        return abs(apart.estimate + lifted) - half_width(apart.error.noise, alpha)

    estimate = max(above, 0.0) / below if below > 0 else math.nan
    bounded = below > half_width(denominator.error.noise, alpha)
    if not bounded and math.isnan(estimate):
        return Ratio(estimate, 0.0, math.inf, alpha)
    low = 0.0 if excess(0.0) <= 0 else _end(excess, estimate, 0.0) * (1 - _PRECISION)
    if not bounded:
        return Ratio(estimate, low, math.inf, alpha)
    step = max(estimate, 1e-12)
    far = estimate + step
    while excess(far) <= 0 and far < _LARGEST:
        step *= 2
        far = estimate + step
    return Ratio(estimate, low, _end(excess, estimate, far) * (1 + _PRECISION), alpha)


def without_rounding(weights: csr_array) -> csr_array:
    """Differences of the weights of two overlays, less those that are rounding: two drawings of one zone are one."""
    made = weights.copy()
    made.data[np.abs(made.data) < _OVERLAID] = 0.0
    made.eliminate_zeros()
    return made


def _end(excess: Callable[[float], float], inside: float, outside: float) -> float:
    """The end of the set between a ratio in it and one outside."""
    from scipy.optimize import brentq

    if excess(inside) >= 0:  # by rounding
        return inside
    return float(brentq(excess, inside, outside, xtol=1e-12, rtol=_PRECISION / 2))


def half_widths(laws: Sequence[WeightedNoise], alpha: float) -> FloatArray:
    """The half width of each law, shape (laws,)."""
    apart = {law.key: law for law in laws}
    width = {key: half_width(law, alpha) for key, law in apart.items()}
    return np.array([width[law.key] for law in laws], dtype=np.float64)


def half_widths_of_chosen(laws: Sequence[WeightedNoise], alpha: float, chosen: IntArray) -> FloatArray:
    r"""Half widths of coverage 1 - alpha, but :math:`1 - \alpha R / m` of the R of m laws that noise chose.

    A fraction of about alpha of the R intervals is then expected to miss; of intervals that hold for a given zone
    more would, since zones are chosen where noise is large.

    Source: Benjamini and Yekutieli, "False discovery rate-adjusted multiple confidence intervals" (2005), section 3,
    for independent estimates.
    """
    width = half_widths(laws, alpha)
    level = max(alpha * chosen.size / max(len(laws), 1), LEAST_ALPHA)
    width[chosen] = half_widths([laws[zone] for zone in chosen], level)
    return width


def placed_fraction(estimate: FloatArray, inside: FloatArray) -> FloatArray:
    """The fraction of each estimate that is not in leaves wholly inside, 1 where nothing is estimated."""
    part = np.divide(estimate - inside, estimate, out=np.ones(estimate.shape), where=estimate > 0)
    return np.clip(part, 0.0, 1.0)


def mostly_placed(estimate: FloatArray, inside: FloatArray, placed: FloatArray) -> BoolArray:
    """Where the model places most; of an estimate that is not above 0, where no measured cell lies wholly inside."""
    return np.asarray((placed > MOSTLY) & ((estimate > 0) | (inside == 0)))
