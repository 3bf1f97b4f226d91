r"""The distance of samplers from their laws, counted into delta.

Let M draw its noise from the exact law and M' from the samplers, within total variation D of each other for every
input. If M is :math:`(\epsilon, \delta)`-DP, then for neighbours x, x' and every set S

.. math:: \Pr[M'(x) \in S] \le \Pr[M(x) \in S] + D \le e^\epsilon \Pr[M(x') \in S] + \delta + D
    \le e^\epsilon \Pr[M'(x') \in S] + \delta + (1 + e^\epsilon) D

so M' is :math:`(\epsilon, \delta + (1 + e^\epsilon) D)`-DP. Distances of samples that are drawn one after another add
up, also where the next depends on the last. A plan may adapt the number of its sums to noisy sums, so that their number
is no public constant: D is fixed beforehand as :data:`RELEASE`, and no release exceeds it.

- A curator's samples are within :math:`2^{-60}` each, and there are at most :math:`2^{28}`: a dense map has at most
  :math:`2^{26}` sites, no mechanism draws more than four samples per site, and the curator refuses more.
  So does each of two operators.
- Over secure aggregation a round is within :func:`mapveil_client.randomness.noise_shares.shares_distance`, which
  server and clients keep below :math:`2^{-36}`, and a collection has at most 16 rounds (``check_round`` there).
"""

import decimal
from decimal import Decimal
from fractions import Fraction
from typing import Final

from mapveil_client.randomness.noise_shares import MOST_ROUNDS, ROUND

SAMPLE: Final = Fraction(1, 1 << 60)
"""Total variation between one sample and its law, at most (discrete Laplace, Gaussian, logarithmic)."""

RELEASE: Final = MOST_ROUNDS * ROUND
"""Total variation between all samples of one release and their laws, at most: 2^-32."""

MOST_SAMPLES: Final = int(RELEASE / SAMPLE)
"""Samples of noise that whoever adds the noise of one release draws, at most: 2^28."""

_LARGEST: Final = Decimal(10_000)
"""An epsilon from which on delta is 1 for every distance above 2^-10000."""


def sampling_delta(epsilon: Fraction, distance: Fraction = RELEASE) -> Fraction:
    r"""The slack :math:`(1 + e^\epsilon) D`, rounded up to three digits, at most 1.

    Parameters
    ----------
    epsilon : Fraction
        Epsilon of everything that was released.
    distance : Fraction
        D, the total variation between the samples and their laws.

    Examples
    --------
    >>> float(sampling_delta(Fraction(1)))
    8.66e-10
    """
    with decimal.localcontext(prec=50):
        rate = min(Decimal(epsilon.numerator) / epsilon.denominator, _LARGEST)
        factor = 1 + rate.exp()
        exact = factor * distance.numerator / distance.denominator * (1 + Decimal("1e-40"))
    with decimal.localcontext(prec=3, rounding=decimal.ROUND_UP):
        return min(Fraction(+exact), Fraction(1))
