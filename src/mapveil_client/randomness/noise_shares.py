r"""Noise in shares: each client adds a little, and enough clients together add discrete Laplace noise.

.. math:: Z = X - Y, \qquad
    \Pr[X = k] = \Pr[Y = k] = \binom{\alpha + k - 1}{k} \beta^k (1 - \beta)^\alpha, \quad k \ge 0, \qquad
    \beta = e^{-\epsilon / \Delta}

where: :math:`\alpha` is ``alpha``, the shape of one client's share; :math:`\epsilon` is ``epsilon`` and
:math:`\Delta` is ``sensitivity``. Shapes add up: the shares of :math:`1 / \alpha` clients sum to the discrete
Laplace law of :mod:`mapveil.privacy.discrete_laplace`, and more clients to more noise.

A Polya variable is a Poisson number, of mean :math:`-\alpha \ln(1 - \beta)`, of logarithmic steps. All coordinates
of one client, X and Y together, are therefore one Poisson number of events, of mean
:math:`-2 \ell \alpha \ln(1 - \beta)`, each at a uniform coordinate, of logarithmic size and fair sign: tens of
draws for a vector of a million.

The number of a client's events is within :math:`\lceil m / 256 \rceil 2^{-64}` of its law in total variation, m
its mean; a position is exactly uniform; a size is within :math:`2^{-60}`.

Deviation: Algorithm 1 draws a gamma and a Poisson variable per coordinate; this is the same law, drawn sparsely.

Source: Bagdasaryan et al., "Towards Sparse Federated Analytics: Location Heatmaps under Distributed Differential
Privacy with Secure Aggregation" (2022), Definition 4.1, Theorem 4.1 and equations 1 to 4; Johnson, Kemp, Kotz,
"Univariate Discrete Distributions" (2005), section 5.4, for the Poisson sum.
"""

from __future__ import annotations

import decimal
import functools
import math
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil_client.errors import ParameterError
from mapveil_client.randomness.logarithmic import logarithmic_rate, signed_logarithmic
from mapveil_client.randomness.poisson import LARGEST_MEAN, poisson
from mapveil_client.randomness.random import Randomness
from mapveil_client.randomness.slot_table import DIGITS
from mapveil_client.randomness.uniform import uniform_below


class NoiseEntries(NamedTuple):
    """Noise of many clients as its few entries; repeated positions add up."""

    client: npt.NDArray[np.int64]  # (entries,), ascending, from 0
    position: npt.NDArray[np.int64]  # (entries,), the coordinate
    value: npt.NDArray[np.int64]  # (entries,), lattice units, signed, never 0


@functools.lru_cache(maxsize=64)
def _mean_events(length: int, alpha: Fraction, epsilon: Fraction, sensitivity: int) -> Decimal:
    """How many events a client draws on average."""
    with decimal.localcontext(DIGITS):
        shape = Decimal(alpha.numerator) / Decimal(alpha.denominator)
        return 2 * length * shape * logarithmic_rate(epsilon, sensitivity)


def noise_shares(
    clients: int,
    length: int,
    alpha: Fraction | float,
    epsilon: Fraction,
    sensitivity: int,
    rng: Randomness,
) -> NoiseEntries:
    """Draw the noise shares of clients. Run by: the client (``clients`` = 1), or a simulation of many.

    The law is in the module's header.

    Parameters
    ----------
    clients : int
        How many clients draw, independently.
    length : int
        Coordinates of each client's vector.
    alpha : Fraction or float
        Shape of one client's share, above zero, such as :func:`mapveil_client.provision.share_shape`. Shares add
        up, so the noise of a whole shard is one share of the summed shape.
    epsilon : Fraction
        The exact privacy parameter, above zero.
    sensitivity : int
        The L1 sensitivity, in units of the lattice, above zero.
    rng : Randomness
        The source of bits.

    Returns
    -------
    NoiseEntries
        int64 entries. Memory follows the events, not the coordinates.

    Raises
    ------
    ParameterError
        A number is outside its range, or there would be more than 2^32 events.

    Examples
    --------
    >>> noise = noise_shares(1, 1_000_000, Fraction(1, 10_000), Fraction(1), 1, Randomness(seed=1))
    >>> 50 < noise.value.size < 150
    True
    """
    if clients < 0 or length < 1:
        raise ParameterError(
            f"{clients} clients with vectors of {length}; 0 or more, and 1 or more, are accepted"
        )
    shape = as_shape(alpha)
    mean = _mean_events(length, shape, Fraction(epsilon), int(sensitivity))
    if clients * mean > LARGEST_MEAN:
        raise ParameterError(
            f"{clients} clients would draw about {float(clients * mean):.2g} noise events; "
            f"up to {LARGEST_MEAN} at once are accepted: fewer clients, or shorter vectors"
        )
    events = poisson(clients, mean, rng)
    total = int(events.sum())
    return NoiseEntries(
        client=np.repeat(np.arange(clients), events),
        position=uniform_below(total, length, rng),
        value=signed_logarithmic(total, epsilon, sensitivity, rng),
    )


def shares_distance(length: int, alpha: Fraction, epsilon: Fraction, sensitivity: int) -> Fraction:
    r"""Total variation between the noise of enough clients and its law, at most.

    .. math:: n \left(\lceil m / 256 \rceil 2^{-64} + m\, 2^{-60}\right), \qquad n = \lceil 1 / \alpha \rceil

    where: m is the mean number of a client's events. The noise of n clients suffices for the guarantee; that of more is
    post-processing. See :func:`noise_shares` for the parameters.
    """
    events = math.ceil(_mean_events(length, alpha, Fraction(epsilon), int(sensitivity)))
    clients = math.ceil(1 / alpha)
    numbers = Fraction(clients * -(-events // 256), 1 << 64)
    # The mean of all clients together: a client's own may be far below one event.
    sizes = math.ceil(clients * _mean_events(length, alpha, Fraction(epsilon), int(sensitivity)))
    return numbers + Fraction(sizes, 1 << 60)


def as_shape(alpha: Fraction | float) -> Fraction:
    """Read the shape of a share exactly.

    Raises
    ------
    ParameterError
        It is not a finite number above 0.
    """
    try:
        shape = Fraction(alpha)
    except (TypeError, ValueError, OverflowError):
        shape = Fraction(0)
    if shape <= 0:
        raise ParameterError(f"the shape of a noise share is {alpha!r}; a finite number above 0 is accepted")
    return shape
