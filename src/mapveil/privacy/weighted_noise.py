r"""The law of a weighted sum of independent noises: its tail and its quantiles.

.. math:: X = \sum_k a_k Z_k, \qquad
    K(s) = \ln \mathrm E\, e^{s X}
         = - \sum_k r_k \ln\left(1 - \frac{\sinh^2(s a_k / 2)}{\sinh^2(\rho_k / 2)}\right), \qquad
    \rho_k = \epsilon_k / \Delta_k

where: :math:`Z_k` is a sum of :math:`r_k` (``terms``) discrete Laplace variables of rate :math:`\rho_k` (``rate``) per
lattice unit, and :math:`a_k` (``step``, at least 0) is the weight, in users per unit. This is the logarithm of the
characteristic function :math:`\prod_k \big((1-p)^2 / (1 - 2 p \cos(a_k t) + p^2)\big)^{r_k}`, :math:`p = e^{-\rho_k}`,
at :math:`t = -is`. The tail is

.. math:: \Pr[X > x] = \frac{1}{2 \pi i} \int_C e^{K(s) - s x}\, \frac{ds}{s},

over a path C that crosses the real axis near the saddle point :math:`K'(c) = x` and bends to the right along the
steepest descent, a hyperbola, where the integrand falls like a Gaussian: the trapezoidal rule, over :math:`\sinh t`
along the path, converges geometrically. The stated error is :data:`ERROR`, relative to the tail, for tails from 1e-12;
tests hold it against exact laws and finer steps. Widths are rounded outward by it and by half a lattice step. A noise
narrower than about three lattice units is replaced by a continuous Laplace variable and half a unit, which dominate it.

Source: Daniels, "Saddlepoint approximations in statistics" (1954), for the path; Trefethen and Weideman, "The
exponentially convergent trapezoidal rule" (2014), for the rule.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import FloatArray
from mapveil_client.errors import check

ERROR: Final = 1e-5
"""Largest relative error of a tail."""

_STEP: Final = 0.25  # of the rule; halving it changes tails by less than 1e-7
_NODES: Final = 32  # to sinh(7.75) = 1,160 deviations
_FINE: Final = 1e-4  # a rate below which the lattice is not seen: an error of rate**2 / 12
_COARSE: Final = 0.5  # a rate above which the law is replaced by a wider continuous one
_LEAST_SADDLE: Final = 0.7  # deviations: the path keeps away from the pole at 0
_NEWTON: Final = 12
_SERVED: Final = 1.25
_FARTHEST: Final = 200.0
_REFINEMENTS: Final = 6
_AT_ONCE: Final = 1 << 12  # tails: two megabytes of a path's points


class WeightedNoise(NamedTuple):
    """A weighted sum of independent noises; arrays of shape (noises,)."""

    step: FloatArray  # a, users per lattice unit, above 0
    rate: FloatArray  # epsilon / sensitivity, per lattice unit
    terms: FloatArray  # discrete Laplace variables in each, from 1/2

    @property
    def variance(self) -> float:
        """Variance, users squared."""
        return float(np.sum(self.terms * self.step**2 / (2 * np.sinh(self.rate / 2) ** 2)))

    @property
    def key(self) -> bytes:
        """A key that equal laws share."""
        return b"".join(np.ascontiguousarray(part).tobytes() for part in self)

    def scaled(self, factor: float) -> WeightedNoise:
        """The law times a number."""
        return self._replace(step=self.step * abs(factor))

    def joined(self, other: WeightedNoise) -> WeightedNoise:
        """The law of the sum with an independent one."""
        return WeightedNoise(*(np.concatenate(both) for both in zip(self, other, strict=True)))


def tail(noise: WeightedNoise, x: FloatArray) -> FloatArray:
    r"""An upper bound of :math:`\Pr[X > x]` within a few hundred-thousandths of it.

    Parameters
    ----------
    noise : WeightedNoise
        The law, symmetric around 0.
    x : ndarray of float64, any shape
        Users.

    Returns
    -------
    ndarray of float64, same shape
        In [0, 1]; without any noise, 1 below 0.
    """
    law = _law_of(noise)
    given = np.asarray(x, dtype=np.float64)
    if not law.scale.size:
        return np.asarray(np.where(given < 0, 1.0, 0.0))
    # Towards the middle: a tail is rounded up on either side.
    shifted = given.ravel() - law.slack
    far = np.abs(shifted)
    made = np.empty(far.size)
    nearest = _LEAST_SADDLE * math.sqrt(law.variance)
    order, at = np.argsort(far), 0
    while at < far.size:  # a path serves what lies near its saddle point
        value = float(far[order[at]])
        path, until = _path(law, max(value * math.sqrt(_SERVED), nearest)), max(value * _SERVED, nearest)
        end = int(np.searchsorted(far, until, side="right", sorter=order))
        while at < end:
            some = order[at : min(end, at + _AT_ONCE)]
            made[some] = path.tail(far[some])[0]
            at += some.size
    made[far == 0] = 0.5
    beyond = np.where(shifted >= 0, made * (1 + ERROR), 1 - made * (1 - ERROR))
    return np.clip(beyond, 0.0, 1.0).reshape(given.shape)


def half_width(noise: WeightedNoise, alpha: float) -> float:
    r"""A number t with :math:`\Pr[|X| > t] \le \alpha`, rounded outward by a few hundred-thousandths.

    Parameters
    ----------
    noise : WeightedNoise
        The law.
    alpha : float
        Probability, from 1e-12 to 0.5.

    Raises
    ------
    ParameterError
        ``alpha`` is outside its range.
    """
    check(1e-12 <= alpha <= 0.5, "alpha", "between 1e-12 and 0.5", alpha)
    law = _law_of(noise)
    if not law.scale.size:
        return 0.0
    wanted = math.log(alpha / 2 / (1 + ERROR))
    deviation = math.sqrt(law.variance)
    x = deviation * max(math.sqrt(-2 * wanted) - 0.5, 1.0)
    for _ in range(_REFINEMENTS):
        path, before = _path(law, max(x, _LEAST_SADDLE * deviation)), x
        for _ in range(_REFINEMENTS):
            beyond, density = map(float, path.tail(np.asarray(x)))
            if beyond <= 0 or density <= 0:  # too far from the path: begin nearer
                x = (x + path.middle) / 2
                continue
            move = (math.log(beyond) - wanted) * beyond / density
            x = max(x + min(max(move, -x / 2), x), 0.05 * deviation)
            if abs(move) <= 1e-9 * x:
                break
        if abs(x - before) <= _SERVED * x - x:
            break
    return x * (1 + ERROR) + law.slack


class _Law(NamedTuple):
    """Noises as a path sees them, shape (noises,)."""

    scale: FloatArray  # a / rate, users: the Laplace scale
    terms: FloatArray
    seen: npt.NDArray[np.bool_]  # noises whose lattice is seen
    step: FloatArray  # a of those
    rate: FloatArray  # of those
    slack: float  # users, added on either side

    @property
    def variance(self) -> float:
        """Variance of the continuous law."""
        return float(np.sum(2 * self.terms * self.scale**2))

    def exponent(self, s: npt.NDArray[np.complex128]) -> npt.NDArray[np.complex128]:
        """K at points of the path."""
        squares = np.square(self.scale[:, None] * s)
        if self.seen.any():
            ratio = np.sinh(self.step[:, None] * s / 2) / np.sinh(self.rate / 2)[:, None]
            squares[self.seen] = np.square(ratio)
        return np.asarray(-(self.terms[:, None] * np.log(1 - squares)).sum(axis=0))


def _law_of(noise: WeightedNoise) -> _Law:
    kept = noise.step * noise.terms > 0
    step, rate, terms = noise.step[kept], noise.rate[kept], noise.terms[kept]
    fine, coarse = rate < _FINE, rate > _COARSE
    seen = ~fine & ~coarse
    slack = float(step[~fine].max(initial=0.0)) / 2 + float(np.sum(step[coarse] * terms[coarse])) / 2
    return _Law(step / rate, terms, seen, step[seen], rate[seen], slack)


class _Path(NamedTuple):
    """Points of a path, and the integrand's exponent there; shape (nodes,)."""

    middle: float  # K'(c)
    s: npt.NDArray[np.complex128]
    exponent: npt.NDArray[np.complex128]  # K(s)
    ds: npt.NDArray[np.complex128]  # with the weights of the trapezoidal rule

    def tail(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Pr[X > x], and the density at x; of the shape of x."""
        value = np.exp(self.exponent - self.s * x[..., None]) * self.ds
        return (value / self.s).imag.sum(axis=-1) / math.pi, value.imag.sum(axis=-1) / math.pi


def _path(law: _Law, x: float) -> _Path:
    """The path whose saddle point belongs to x, by the continuous law."""
    largest = int(np.argmax(law.scale))
    b, r = float(law.scale[largest]), float(law.terms[largest])
    squares = np.square(law.scale)
    weight = 2 * law.terms * squares
    # Above the root, so that Newton's steps on the convex K' come down to it.
    c = min((math.hypot(r * b, x) - r * b) / (x * b), x / float(weight.sum()))
    for _ in range(_NEWTON):
        room = 1 - squares * c * c
        excess = float(np.sum(weight * c / room)) - x
        c -= excess / float(np.sum(weight * (2 - room) / room**2))
        if excess <= 1e-6 * x:
            break
    room = 1 - squares * c * c
    second = float(np.sum(weight * (2 - room) / room**2))
    third = float(np.sum(2 * weight * squares * c * (4 - room) / room**3))
    bend = third / (6 * second**1.5)
    t = _STEP * np.arange(_NODES)
    v = np.sinh(t)
    # The steepest descent near the saddle point; farther off a hyperbola at 63 degrees, where even the many small
    # noises, whose sum is nearly Gaussian, fall.
    root = np.sqrt(1 + np.square(4 * bend * v))
    s = c + (1j * v + 2 * bend * np.square(v) / (1 + root)) / math.sqrt(second)
    ds = (1j + 2 * bend * v / root) * np.cosh(t) / math.sqrt(second) * _STEP
    ds[0] /= 2
    # A lattice's function is periodic: only its first period is the law's. Far to the right nothing is left.
    widest = law.step.max(initial=0.0)
    kept = (s.imag * widest <= math.pi) & (s.real * widest <= _FARTHEST)
    s, ds = s[kept], ds[kept]
    return _Path(float(np.sum(weight * c / room)), s, law.exponent(s), ds)
