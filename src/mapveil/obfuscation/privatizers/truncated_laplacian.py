"""The truncated Laplacian mechanism on clipped rows: noise that ends."""

import decimal
import functools
import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar, Final

import numpy as np

from mapveil.obfuscation.privatizers.clipping import SLACK, ClippedNoise, clip_rows
from mapveil.obfuscation.privatizers.lattice_noise import add_laplacian
from mapveil.obfuscation.privatizers.privatizer import Progress, State
from mapveil.privacy.claim import ContributionBound, Norm, Reveals
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.randomness.logarithmic import DIGITS
from mapveil_client.randomness.random import Randomness

_GRAIN: Final = 10**6  # a stated epsilon is a multiple of 1 / 10^6
_MARGIN: Final = 2.0**-40  # far more than the rounding of a scale


@dataclass(frozen=True, kw_only=True)
class TruncatedLaplacian(ClippedNoise):
    r"""Clip a report in L1 and add independent Laplacian noise that is cut at a distance.

    .. math:: y = x \min(1, C / \|x\|_1) + X, \qquad f(X_j) = B e^{-|X_j| / \lambda} \text{ on } [-A, A], \qquad
        \lambda = \frac{\Delta}{\epsilon}, \quad A = \lambda \ln\left(1 + \frac{e^\epsilon - 1}{2 \delta}\right)

    where: x is a report (``sequence`` rows of all features, one vector of k numbers), C is ``clip`` or the pilot's
    quantile of :math:`\|x\|_1`, :math:`\Delta = 2 C` is the most two clipped reports differ by in L1, and B makes the
    density's integral 1.

    The whole report is :math:`(\epsilon, \delta)`-LDP with the one-dimensional A; :math:`\delta` need not be divided
    over the k features. Let two reports differ by d. Where both outputs are possible, their densities' ratio is at most
    :math:`e^{\|d\|_1 / \lambda} \le e^\epsilon`. So :math:`\delta(d)` is the probability of an output that the other
    report cannot give,

    .. math:: \delta(d) = 1 - \prod_j \left(1 - q\,(e^{|d_j| / \lambda} - 1)\right), \qquad
        q = \frac{1}{2 (e^{A / \lambda} - 1)} = \frac{\delta}{e^\epsilon - 1}

    and each :math:`-\ln(1 - q (e^t - 1))` is convex in t and 0 at 0: over all d of L1 norm :math:`\Delta` the product
    is smallest when one feature differs alone, which gives :math:`\delta` exactly.

    Deviation: the paper clips in L2 and takes :math:`\Delta = 2 C` of that ball for every feature.
    ``calibration="paper"`` does so. A report's L1 distance is then up to :math:`\sqrt{k} \Delta`, and what holds is
    :math:`\epsilon' = \sqrt{k}\,\epsilon` with
    :math:`\delta' = \delta (1 + (\sqrt{k} - 1)\,\epsilon / (e^\epsilon - 1))`, because
    :math:`\sum_j (e^{t_j} - 1) \le \sqrt{k}\,\epsilon + e^\epsilon - 1 - \epsilon` for
    :math:`\sum_j t_j^2 \le \epsilon^2`: the guarantee states these.

    Source: Section 5.2 of Zhang et al. 2022, equations 15 and 16; Geng, Ding, Guo, Kumar 2018, theorem 1, for one
    dimension.
    """

    name: ClassVar[str] = "truncated-laplacian"

    @functools.cached_property
    def span(self) -> Decimal:
        """A in units of lambda."""
        with decimal.localcontext(DIGITS):
            epsilon = Decimal(self.budget.numerator) / self.budget.denominator
            return (1 + (epsilon.exp() - 1) / (2 * Decimal(self.delta))).ln()

    def learn(self, pilot: FloatArray, users: IntArray, rng: Randomness, progress: Progress) -> State:
        """See :class:`Privatizer`: the radius, and the scale that follows from it."""
        radius = self._radius(pilot, self._order)
        scale = 2 * radius / float(self.budget) * (1 + _MARGIN)
        return {"radius": np.array(radius), "scale": np.array(scale)}

    def privatize(self, state: State, rows: FloatArray, rng: Randomness) -> FloatArray:
        """See :class:`Privatizer`."""
        clipped = clip_rows(rows, float(state["radius"]), self._order)
        return add_laplacian(clipped, float(state["scale"]), self.span, rng)

    def promise(self, state: State, features: int) -> Guarantee:
        """See :class:`Privatizer`: of the whole report, all its features together."""
        radius, scale = float(state["radius"]), float(state["scale"])
        epsilon, delta = self.budget, self.delta
        reached = 2 * radius / scale
        if reached > float(epsilon) * (1 + SLACK):
            # A state of less noise than learn makes: what holds of it, by the same argument.
            claimed = float(epsilon)
            delta *= math.expm1(-reached)
            delta = min(delta / math.expm1(-claimed) * math.exp(reached - claimed), 1.0)
            epsilon = Fraction(math.ceil(reached * _GRAIN), _GRAIN)
        if self.calibration == "paper":
            root = math.sqrt(features * self.sequence)
            asked = float(epsilon)
            epsilon = Fraction(math.ceil(root * asked * _GRAIN), _GRAIN)
            delta = min(delta * (1 + (root - 1) * asked / math.expm1(min(asked, 700.0))), 1.0)
        return self._guarantee(
            epsilon,
            delta,
            ContributionBound(Norm.L1 if self._order == 1 else Norm.L2, Fraction(radius)),
            Reveals.CLIPPED_LAPLACIAN(
                scale=scale, reach=float(self.span) * scale, measurements=self.sequence
            ),
            features * self.sequence,
        )

    @property
    def _order(self) -> int:
        return 1 if self.calibration == "exact" else 2
