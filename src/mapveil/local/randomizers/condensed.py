r"""Condensed LDP, for the paper's comparison of relaxed notions only: the farther two places, the less is promised.

.. math:: q(y \mid x) \propto e^{-\alpha\, d(x, y) / 2}, \qquad \frac{q(y \mid x)}{q(y \mid x')} \le e^{\alpha d(x, x')}

where: d is the distance in metres. **Not** the same promise to everybody: places far apart are told apart by much
more than :math:`e^\epsilon`. For a given :math:`\epsilon`, :math:`\alpha` is the one with which an adversary who
takes all places for equally likely is at most as sure of one of them as after a report of generalized randomized
response with :math:`\epsilon`:

.. math:: \max_{x, y} \frac{q(y \mid x)}{\sum_{x'} q(y \mid x')} = \frac{e^\epsilon}{e^\epsilon + d - 1}

Source: Gursoy, Tamersoy, Truex, Wei, Liu, "Secure and Utility-Aware Data Collection with Condensed Local Differential
Privacy" (2019), the exponential mechanism and the conversion by equal confidence; Wang et al. (2022), section 5,
Table 1.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from mapveil.local.randomizers.weight_table import TableRandomizer
from mapveil_client.arrays import FloatArray
from mapveil_client.local.domain import Domain
from mapveil_client.local.planar_laplace import distances_m, exponential_weights

_STEPS = 60


def greatest_confidence(channel: FloatArray) -> float:
    """The greatest posterior probability of any place under an even prior, after any report."""
    return float((channel / channel.sum(axis=0)).max())


def matching_rate(distance: FloatArray, epsilon: Fraction) -> float:
    r""":math:`\alpha / 2` per metre with the confidence of the module's header.

    Parameters
    ----------
    distance : ndarray of float64, shape (sites, sites)
        Metres.
    epsilon : Fraction
        Of the generalized randomized response to match.
    """
    e = math.exp(float(epsilon))
    goal = e / (e + distance.shape[0] - 1)

    def confidence(rate: float) -> float:
        made = np.exp(-rate * distance)
        return greatest_confidence(made / made.sum(axis=1, keepdims=True))

    low, high = 0.0, 1 / float(distance.max())
    while confidence(high) < goal:
        high *= 2
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if confidence(middle) <= goal else (low, middle)
    return low


def condensed_randomizer(domain: Domain, epsilon: Fraction) -> TableRandomizer:
    """The exponential mechanism on a small domain, with the converted alpha. Its exact epsilon is its own.

    Parameters
    ----------
    domain : Domain
        Of at most 4,096 sites.
    epsilon : Fraction
        What the confidence is matched to; **not** kept for all pairs.
    """
    TableRandomizer.check_size(domain.size, "condensed LDP")
    distance = distances_m(domain.plane)
    return TableRandomizer(domain, epsilon, exponential_weights(distance, matching_rate(distance, epsilon)))


def geo_randomizer(domain: Domain, epsilon: Fraction) -> TableRandomizer:
    r"""Geo-indistinguishability on a small domain: :math:`e^{\epsilon d(x, x') / D}` for two places d(x, x') apart.

    where: D is the distance of the two farthest sites. The rate is half of :math:`\epsilon / D`, for the places'
    different sums cost as much again: so that the promise holds for all pairs.

    Parameters
    ----------
    domain : Domain
        Of at most 4,096 sites.
    epsilon : Fraction
        Of the two farthest sites.
    """
    TableRandomizer.check_size(domain.size, "geo-indistinguishability")
    distance = distances_m(domain.plane)
    rate = float(epsilon) / (2 * float(distance.max()))
    return TableRandomizer(domain, epsilon, exponential_weights(distance, rate))
