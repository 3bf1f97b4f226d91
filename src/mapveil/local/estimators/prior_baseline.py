r"""The baseline that a fitted distribution is mixed with: the uniform one, or as much of a prior as reports agree with.

The result for a baseline u is the mixture :math:`(1 - t)\, u + t\, p` of
:mod:`mapveil.local.estimators.smoothed_likelihood`. With a prior distribution there are three results:

- that of the uniform baseline;
- that of the likeliest mixture of the uniform baseline and the prior, of one weight for the whole map;
- that of quarters: a quarter holds what p says, and inside it lies the likeliest mixture of an even part and the
  prior's. A prior can be right of a hot spot and empty of the other half.

A weight w is the one of largest log-likelihood less w, and 0 where it gains less than 6. The result shown is the
one of largest

.. math:: \ell - W - G, \qquad G(f) = 0.4 (f - f_0) \pm \sqrt{|f - f_0|}

where: :math:`\ell` is its log-likelihood, W the sum of its weights (and 6 for the quarters), f its freedom
:math:`t\, \phi f_p`, with :math:`f_p` effective parameters of p, and :math:`f_0` the freedom of the first. G is what
the freedom may gain by chance: a part of it, and its root, so that a prior is used where neither is told to be better.

Source: Mapveil; the optimism of a fitted likelihood is that of Efron, "How biased is the apparent error rate of a
prediction rule?" (1986), with a weight that was chosen by the errors of maps.
"""

import math
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from mapveil.local.estimators.likelihood import TINY
from mapveil_client.arrays import FloatArray, IntArray

# Both chosen by the errors of maps of the role tune, as benchmarks/local_priors.py shows them.
_PRIOR_GAIN: Final = 6.0  # of log-likelihood, from which a prior is used: docs/explanation/choosing-local.md
_OPTIMISM: Final = 0.4  # of freedom, that a fit gains by chance; less trusts priors less
_BISECTIONS: Final = 12  # of the weight of a mixture
_NEAR_BASE: Final = np.linspace(0.0, 1.0, _BISECTIONS) ** 2
"""Weights of the trapezoidal rule: slopes change most near a base without the estimate."""


class Mixture(NamedTuple):
    """Mixtures of a base and an estimate, both of shape (sites,)."""

    users: Callable[[FloatArray], FloatArray]
    base: FloatArray
    estimate: FloatArray

    def at(self, weight: float) -> FloatArray:
        """The mixture in which the estimate has the weight."""
        return np.asarray(self.base + weight * (self.estimate - self.base))

    def slope(self, weight: float) -> float:
        """The derivative of the log-likelihood as the weight grows."""
        mixed = np.maximum(self.at(weight), TINY)
        return float(((self.estimate - self.base) * self.users(mixed) / mixed).sum())

    def best(self, freedom: float) -> float:
        """The weight of the largest log-likelihood less ``freedom`` times the weight."""
        if self.slope(1.0) >= freedom:
            return 1.0
        low, high = 0.0, 1.0 if self.slope(0.0) > freedom else 0.0
        for _ in range(_BISECTIONS if high else 0):
            middle = (low + high) / 2
            low, high = (middle, high) if self.slope(middle) > freedom else (low, middle)
        return (low + high) / 2

    def gain(self, weight: float) -> float:
        """The log-likelihood beyond that of the base, by the trapezoidal rule."""
        at = weight * _NEAR_BASE
        return float(np.trapezoid([self.slope(float(each)) for each in at], at))


class Shown(NamedTuple):
    """An estimate as it is shown beside a baseline."""

    distribution: FloatArray
    freedom: float  # t phi f_p
    told: bool  # whether the reports tell anything but the baseline


class Fit(NamedTuple):
    """A distribution that was fitted to reports."""

    users: Callable[[FloatArray], FloatArray]  # of the likelihood
    distribution: FloatArray  # shape (sites,)
    peak: FloatArray  # the fraction of its own that each site has
    freedom: float  # phi f_p
    chance: float  # slope of the log-likelihood that a fit to chance reaches

    def shown(self, base: FloatArray) -> Shown:
        """The mixture with a baseline, or the baseline alone."""
        if Mixture(self.users, base, self.distribution).slope(0.0) <= self.chance:
            return Shown(base, 0.0, False)
        mixture = Mixture(self.users, self.peak + (1 - float(self.peak.sum())) * base, self.distribution)
        weight = mixture.best(self.freedom)
        return Shown(mixture.at(weight), weight * self.freedom, True)


def leaning_to(fit: Fit, prior: FloatArray, plain: Shown, quarter: IntArray) -> tuple[Shown, float]:
    """The result of the module's header, and the weight of the prior in its baseline. Run by: the server.

    Parameters
    ----------
    fit : Fit
        The fitted distribution.
    prior : ndarray of float64, shape (sites,)
        A public distribution of the users.
    plain : Shown
        The result without the prior.
    quarter : ndarray of int64, shape (sites,)
        Number of each site's quarter.
    """
    best, weight, most = plain, 0.0, 0.0
    even = np.full(prior.size, 1 / prior.size)
    for number, (base, weights, held) in enumerate((_whole(fit, even, prior), _parted(fit, prior, quarter))):
        if not weights.any():
            continue
        found = fit.shown(base)
        gained = Mixture(fit.users, plain.distribution, found.distribution).gain(1.0)
        value = gained - _chance(found.freedom - plain.freedom) - float(weights.sum()) - number * _PRIOR_GAIN
        if value > most:
            best, weight, most = found, float(held @ weights), value
    return best, weight


def _chance(freedom: float) -> float:
    """G of the module's header."""
    return _OPTIMISM * freedom + math.copysign(math.sqrt(abs(freedom)), freedom)


class _Baseline(NamedTuple):
    """A baseline, and the weights of a prior in its parts."""

    distribution: FloatArray  # shape (sites,)
    weights: FloatArray  # shape (parts,)
    held: FloatArray  # fraction of all users in each part


def _whole(fit: Fit, even: FloatArray, prior: FloatArray) -> _Baseline:
    """The uniform baseline, with as much of the prior in it as the reports agree with."""
    mixture = Mixture(fit.users, even, prior)
    weight = mixture.best(1.0)
    weight = weight if mixture.gain(weight) > _PRIOR_GAIN else 0.0
    return _Baseline(mixture.at(weight), np.array([weight]), np.ones(1))


def _parted(fit: Fit, prior: FloatArray, quarter: IntArray) -> _Baseline:
    """The baseline of quarters; all their weights are searched at once, as none moves users between quarters."""
    quarters = int(quarter.max()) + 1
    held: FloatArray = np.asarray(np.bincount(quarter, fit.distribution, quarters), dtype=np.float64)
    even = (held / np.bincount(quarter, minlength=quarters))[quarter]
    known = np.bincount(quarter, prior, quarters)
    ratio = np.divide(held, known, out=np.zeros(quarters), where=known > 0)
    change = np.where(known[quarter] > 0, prior * ratio[quarter], even) - even

    def at(weights: FloatArray) -> FloatArray:
        return np.asarray(even + weights[quarter] * change)

    def slope(weights: FloatArray) -> FloatArray:
        mixed = np.maximum(at(weights), TINY)
        return np.asarray(np.bincount(quarter, change * fit.users(mixed) / mixed, quarters), dtype=np.float64)

    low, high = np.zeros(quarters), np.ones(quarters)
    low = np.where(slope(high) >= 1.0, high, low)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        rising = slope(middle) > 1.0
        low, high = np.where(rising, middle, low), np.where(rising, high, np.maximum(middle, low))
    weights = (low + high) / 2
    gained = np.trapezoid([slope(weights * each) * weights for each in _NEAR_BASE], _NEAR_BASE, axis=0)
    weights = np.where(gained > _PRIOR_GAIN, weights, 0.0)
    return _Baseline(at(weights), weights, held)
