r"""Randomizer and resolution of flows from randomized reports, chosen from public numbers alone.

The standard deviation of an unbiased estimate of one pair's trips is :math:`\varphi_c \sqrt n`, where n is the number
of trips reported and c that of cells: up to 64 cells of one report with all of epsilon
(:meth:`mapveil.analysis.trip_reports.TripChannel.deviation`), above of a report of each end with half of it.
By default c is the largest power of 4 for which

.. math:: \frac n c \ge \frac 1 3\, \varphi_c \sqrt n

where: n / c is about the size of the largest flows. The factor 1/3 was chosen on tables of the tune role, among several
(``benchmarks/flow_resolution.py`` measures them, on tables of the test role too).

Source: Wang, Blocki, Li, Jha, "Locally Differentially Private Protocols for Frequency Estimation" (2017), for variances
that do not depend on the number of cells, and for generalized randomized response on few.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from mapveil.analysis.trip_reports import MOST_CELLS, TripReports
from mapveil.geo.grid import Grid
from mapveil.geo.region import Region
from mapveil.inference.supported_blocks import FALSE_RATE
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.local.randomizers.generalized_response import GeneralizedRandomizedResponse
from mapveil.local.randomizers.hadamard_response import HadamardResponse
from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Domain

if TYPE_CHECKING:
    from mapveil.privacy.weighted_noise import WeightedNoise

FlowDesign = Literal["default", "mixed", "pair", "ends"]
"""Reports of a client: one of a pair or of an end; one of a pair; one of each end. By default mixed up to 64
cells, and ends on more."""

FLOW_SIGNAL: Final = 1 / 3
"""Deviations that n / c is at least; see the module."""

_DEEPEST: Final = 6  # 4,096 cells


def best_depth(
    trips: int, epsilon: Fraction, design: FlowDesign = "default", *, signal: float = FLOW_SIGNAL
) -> int:
    """Depth of the quadtree whose number of cells is the module's c, from 1 to 6. Run by: the server.

    Parameters
    ----------
    trips : int
        n, which the server counts.
    epsilon : Fraction
        Of all reports about a trip.
    design : str
        What is reported.
    signal : float
        Deviations of one pair that n / c is at least.

    Raises
    ------
    ParameterError
        There is no trip, or epsilon is not above 0.

    Examples
    --------
    >>> [best_depth(trips, Fraction(1)) for trips in (1_000, 30_000, 10_000_000)]
    [2, 3, 4]
    """
    if trips < 1 or epsilon <= 0:
        raise ParameterError(f"{trips} trips and epsilon {epsilon}; expected at least one, and above 0")
    deepest = 3 if design in ("mixed", "pair") else _DEEPEST
    for depth in range(2, deepest + 1):
        if math.sqrt(trips) < signal * 4**depth * deviation_factor(4**depth, epsilon, design):
            return depth - 1
    return deepest


@cache
def best_mechanism(sites: int, epsilon: Fraction) -> LocalMechanism:
    """The randomizer of one report with the smallest variance, of users that are everywhere.

    Generalized randomized response or a Hadamard response: that has a few more symbols than sites, in numbers that
    depend on its blocks, so that all numbers of blocks are tried.

    Parameters
    ----------
    sites : int
        Values that are reported: cells, or pairs of them.
    epsilon : Fraction
        Of one report.

    Examples
    --------
    >>> best_mechanism(4, Fraction(1)).name, best_mechanism(256, Fraction(1)).name
    ('grr', 'hr')
    """
    domain = Domain(Grid(Region.without_georeference(sites, 1), rows=1, columns=sites))
    tried: list[LocalMechanism] = [GeneralizedRandomizedResponse(epsilon=epsilon, accept_large_epsilon=True)]
    tried += [
        HadamardResponse(epsilon=epsilon, accept_large_epsilon=True, blocks=1 << number)
        for number in range((sites - 1).bit_length() + 1)
    ]
    return min(tried, key=lambda each: _variance(each, domain))


def _variance(mechanism: LocalMechanism, domain: Domain) -> float:
    """Mean variance of one report in the unbiased estimate of a site, of users that are everywhere."""
    noise = mechanism.on(domain).site_noise(np.full(domain.size, 1 / domain.size))
    return float(noise.variance.mean())


@cache
def deviation_factor(cells: int, epsilon: Fraction, design: FlowDesign = "default") -> float:
    r""":math:`\varphi_c`: the deviation of one pair's unbiased estimate, over :math:`\sqrt n`, of even flows.

    Parameters
    ----------
    cells : int
        c.
    epsilon : Fraction
        Of all reports about a trip.
    design : str
        What is reported, with the randomizers of :func:`best_mechanism`.

    Examples
    --------
    >>> round(deviation_factor(64, Fraction(1)), 1), round(deviation_factor(256, Fraction(1)), 1)
    (3.7, 16.7)
    """
    domain = Domain(Grid(Region.without_georeference(cells, 1), rows=1, columns=cells))
    if design in ("mixed", "pair") or (design == "default" and cells <= MOST_CELLS):
        pair, end = (best_mechanism(number, epsilon) for number in (cells**2, cells))
        channel = TripReports(mechanism=pair, ends=end, share=1.0 if design == "pair" else None).on(domain)
        even = np.full((cells, cells), 1 / cells**2)
        return float(channel.deviation(even, 1, channel.shares[0]).mean())
    # The terms of both ends are independent: their mean squares multiply.
    square = _variance(best_mechanism(cells, epsilon / 2), domain) + 1 / cells
    return math.sqrt(square**2 - 1 / cells**2)


def least_told(noise: WeightedNoise | float, cells: int) -> float:
    r"""Number of trips or users from which on a pair is likelier told from zero than not, were it the only one.

    .. math:: t \text{ with } \Pr[\eta > t] = q / c^2

    where: :math:`\eta` is the noise of the pair's estimate, q is the false discovery rate of
    :meth:`mapveil.maps.flow_map.FlowMap.told_from_zero` and c is the number of cells.

    Parameters
    ----------
    noise : WeightedNoise or float
        The law of a noisy sum's noise; or the standard deviation of an estimate from many reports, of a normal law.
    cells : int
        Cells between which flows are.

    Examples
    --------
    >>> round(least_told(10.0, 64))
    42
    """
    from scipy.special import ndtri

    from mapveil.privacy.weighted_noise import WeightedNoise, half_width

    chance = max(FALSE_RATE / cells**2, 1e-12)
    if isinstance(noise, WeightedNoise):
        return half_width(noise, 2 * chance)
    return float(-ndtri(chance) * noise)
