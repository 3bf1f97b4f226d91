r"""Noise shares: enough clients together add discrete Laplace noise.

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

The number of events is drawn from a table of integers; a mean above 256 is divided among equal independent parts,
whose counts add up.

The share that each client must carry, so that the noise of those who stay suffices, has the shape

.. math:: \alpha = 1 / h, \qquad h = S - \lfloor \delta S \rfloor - \lfloor \gamma S \rfloor

where: :math:`S` is ``shard_size``, :math:`\delta` is ``dropout``, the largest fraction of the shard that drops out, and
:math:`\gamma` is ``corrupt``, the largest fraction that colludes with the server; :math:`h` is the least number of
honest survivors. All are exact: a float means the decimal number it prints as. With fewer than
:math:`S - \lfloor \delta S \rfloor` survivors nothing is released.

Deviation: the paper takes :math:`\alpha = 1 / ((1 - \delta) S)` (its Algorithm 1 prints 0.95 for a dropout of 0.05).
The noise of a corrupt client hides nothing from the server that it colludes with, so it is not counted; with
``corrupt`` = 0 both agree up to the rounding to whole clients.

Source: Bagdasaryan et al., "Towards Sparse Federated Analytics: Location Heatmaps under Distributed Differential
Privacy with Secure Aggregation" (2022), section 4, Definition 4.1, Theorem 4.1 and equations 1 to 4; Johnson, Kemp,
Kotz, "Univariate Discrete Distributions" (2005), section 5.4, for the Poisson sum.
"""

import decimal
import functools
import math
from decimal import Decimal
from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil_client.epsilon import EpsilonLike, exact_number
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.logarithmic import (
    DIGITS,
    TAIL,
    SlotTable,
    draw_slots,
    logarithmic_rate,
    signed_logarithmic,
    slot_table,
)
from mapveil_client.randomness.random import Randomness, uniform_below


def promised_survivors(shard_size: int, dropout: EpsilonLike) -> int:
    r"""The least number of clients whose sum may be released, :math:`S - \lfloor \delta S \rfloor`.

    Parameters
    ----------
    shard_size : int
        Clients that begin, at least 1.
    dropout : int, float, str, Decimal or Fraction
        The fraction that may drop out, in [0, 1).

    Raises
    ------
    ParameterError
        A number is outside its range.
    """
    if shard_size < 1:
        raise ParameterError(f"shard_size must be 1 or more, got {shard_size}")
    return shard_size - int(exact_fraction(dropout, "dropout") * shard_size)


def share_shape(shard_size: int, dropout: EpsilonLike, corrupt: EpsilonLike = 0) -> Fraction:
    r"""The shape :math:`\alpha = 1 / h` of each client's noise share. Run by: the server, which publishes it.

    Parameters
    ----------
    shard_size, dropout
        As for :func:`promised_survivors`.
    corrupt : int, float, str, Decimal or Fraction
        The fraction that may collude with the server, in [0, 1).

    Raises
    ------
    ParameterError
        A number is outside its range, or nobody honest might be left.

    Examples
    --------
    >>> share_shape(10_000, 0.05)
    Fraction(1, 9500)
    """
    honest = promised_survivors(shard_size, dropout) - int(exact_fraction(corrupt, "corrupt") * shard_size)
    if honest < 1:
        raise ParameterError(
            f"dropout and corrupt must leave an honest client of {shard_size}, got {dropout} and {corrupt}"
        )
    return Fraction(1, honest)


def exact_fraction(value: EpsilonLike, name: str) -> Fraction:
    """Read a fraction of a whole, in [0, 1), exactly: a float is the shortest decimal that prints it."""
    exact = exact_number(value)
    if exact is None or not 0 <= exact < 1:
        raise ParameterError(f"{name} must be a number from 0 to below 1, such as 0.05, got {value!r}")
    return exact


MOST_ROUNDS: Final = 16
"""Rounds of one collection, at most."""

ROUND: Final = Fraction(1, 1 << 36)
"""Total variation between the noise of one round's promised survivors and its law, at most."""

LARGEST_MEAN: Final = 1 << 32
"""Largest mean number of events: more do not fit into memory."""
_LARGEST_PART = 256
_TERMS = 4096
_CHUNK = 1 << 16  # table draws at a time


@functools.lru_cache(maxsize=64)
def _table(mean: Decimal) -> SlotTable:
    """The table of one part."""
    with decimal.localcontext(DIGITS):
        weights, total = [Decimal(1)], Decimal(1)
        # Beyond n the tail is below a geometric series of ratio mean / (n + 1).
        while (n := len(weights)) <= mean or weights[-1] * mean > TAIL * total * (n - mean):
            weights.append(weights[-1] * mean / n)
            total += weights[-1]
    return slot_table(weights, range(len(weights)))


def poisson(count: int, mean: Decimal, rng: Randomness) -> npt.NDArray[np.int64]:
    """Draw independent Poisson counts, shape (count,).

    Parameters
    ----------
    count : int
        Number of samples.
    mean : Decimal
        From 0 to :data:`LARGEST_MEAN`, of some 60 digits or more where it is not exact.
    rng : Randomness
        The source of bits.

    Raises
    ------
    ParameterError
        The mean is outside its range.
    """
    if not 0 <= mean <= LARGEST_MEAN:
        raise ParameterError(f"the mean of a Poisson count must be 0 to {LARGEST_MEAN}, got {float(mean):g}")
    parts = max(1, -int(-mean // _LARGEST_PART))
    with decimal.localcontext(DIGITS):
        table = _table(mean / parts)
    counts = np.empty(count, dtype=np.int64)
    rows = max(1, _CHUNK // parts)
    for start in range(0, count, rows):
        some = counts[start : start + rows]
        drawn = draw_slots(table, some.size * parts, rng)
        some[:] = drawn if parts == 1 else drawn.reshape(-1, parts).sum(axis=1, dtype=np.int64)
    return counts


class NoiseEntries(NamedTuple):
    """Noise of many clients as its few nonzero entries; repeated positions add up."""

    client: npt.NDArray[np.int64]  # (entries,), ascending, from 0
    position: npt.NDArray[np.int64]  # (entries,), the coordinate
    value: npt.NDArray[np.int64]  # (entries,), lattice units, signed, never 0


@functools.lru_cache(maxsize=64)
def _mean_events(length: int, alpha: Fraction, epsilon: Fraction, sensitivity: int) -> Decimal:
    """The mean number of events of a client."""
    with decimal.localcontext(DIGITS):
        shape = Decimal(alpha.numerator) / Decimal(alpha.denominator)
        return 2 * length * shape * logarithmic_rate(epsilon, sensitivity)


def noise_shares(
    clients: int, length: int, alpha: Fraction | float, epsilon: Fraction, sensitivity: int, rng: Randomness
) -> NoiseEntries:
    """Draw the noise shares of clients. Run by: the client (``clients`` = 1), or a simulation of many.

    Memory follows the events, not the coordinates.

    Parameters
    ----------
    clients : int
        Number of clients, which draw independently.
    length : int
        Coordinates of each client's vector.
    alpha : Fraction or float
        Shape of one client's share, above zero, such as :func:`share_shape`. Shares add
        up, so the noise of a whole shard is one share of the summed shape.
    epsilon, sensitivity, rng
        As for :func:`mapveil_client.randomness.logarithmic.signed_logarithmic`.

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
            f"clients must be 0 or more and length 1 or more, got {clients} clients with vectors of {length}"
        )
    shape = as_shape(alpha)
    mean = _mean_events(length, shape, Fraction(epsilon), int(sensitivity))
    if clients * mean > LARGEST_MEAN:
        raise ParameterError(
            f"noise events must be {LARGEST_MEAN} at most, got about {float(clients * mean):.2g} of {clients} "
            "clients: use fewer clients, or shorter vectors"
        )
    events = poisson(clients, mean, rng)
    total = int(events.sum())
    return NoiseEntries(
        client=np.repeat(np.arange(clients), events),
        position=uniform_below(total, length, rng),
        value=signed_logarithmic(total, epsilon, sensitivity, rng),
    )


def shares_distance(length: int, alpha: Fraction, epsilon: Fraction, sensitivity: int) -> Fraction:
    r"""A bound on the total variation between the noise of enough clients and its law.

    .. math:: n \left(\lceil m / 256 \rceil 2^{-64} + m\, 2^{-60}\right), \qquad n = \lceil 1 / \alpha \rceil

    where: m is the mean number of a client's events. The noise of n clients suffices for the guarantee; that of more is
    post-processing. See :func:`noise_shares` for the parameters.
    """
    mean, clients = _mean_events(length, alpha, Fraction(epsilon), int(sensitivity)), math.ceil(1 / alpha)
    numbers = Fraction(clients * -(-math.ceil(mean) // _LARGEST_PART), 1 << 64)
    # The mean of all clients together: a client's own may be far below one event.
    return numbers + Fraction(math.ceil(clients * mean), 1 << 60)


def own_epsilon(alpha: Fraction, epsilon: Fraction, sensitivity: int) -> float:
    r"""The worst-case epsilon of one client's report where everybody else is corrupt: its own share is all its noise.

    .. math:: \Delta \ln \frac{f(0)}{f(1)}, \qquad
        \frac{f(0)}{f(1)} = \frac{\sum_j a_j^2}{\sum_j a_j a_{j+1}}, \qquad a_j = \frac{(\alpha)_j}{j!} \beta^j

    where: :math:`f` is the law of a share :math:`Z`. It is log-convex on both sides of 0 for
    :math:`\alpha \le 1`, a sum of the log-convex :math:`k \mapsto a_j a_{j + k}`, so that no step costs more than that
    from 0 to 1. A contribution of one unit at each of :math:`\Delta` coordinates reaches it: the figure is exact where
    the vector is as long, and no less than the truth elsewhere. It is finite, with no delta but the sampler's distance;
    for :math:`\alpha = 1` it is epsilon. Cutting the sums where the rest is bounded by a geometric series leaves it an
    upper bound.

    Parameters
    ----------
    alpha : Fraction
        Shape of the share, above 0 and at most 1.
    epsilon, sensitivity
        See :func:`noise_shares`.

    Examples
    --------
    >>> [round(own_epsilon(alpha, Fraction(1), 1), 2) for alpha in (Fraction(1, 850), Fraction(1))]
    [7.75, 1.0]
    """
    shape, step = float(alpha), float(epsilon / sensitivity)
    j = np.arange(_TERMS, dtype=np.float64)
    ratios = (shape + j) / (j + 1)  # of a_{j + 1} to a_j, less beta
    logs = np.concatenate([[0.0], np.cumsum(np.log(ratios[:-1]) - step)])
    squares = np.exp(2 * logs)
    rest = squares[-1] / -math.expm1(2 * (math.log(ratios[-1]) - step))
    squares[-1] = rest  # and all after, whose ratios are at least the last
    return sensitivity * (step + math.log(squares.sum() / (squares @ ratios)))


def check_round(number: int, length: int, alpha: Fraction, epsilon: Fraction, sensitivity: int) -> None:
    """Refuse a round whose noise could be farther than :data:`ROUND` from its law. Run by: the server and each client.

    Parameters
    ----------
    number : int
        Number of the round, from 1.
    length, alpha, epsilon, sensitivity
        See :func:`noise_shares`.

    Raises
    ------
    ParameterError
        The collection has too many rounds, or the round too many coordinates.
    """
    if number > MOST_ROUNDS:
        raise ParameterError(f"a collection must have at most {MOST_ROUNDS} rounds, got round {number}")
    if shares_distance(length, alpha, epsilon, sensitivity) > ROUND:
        raise ParameterError(
            f"a round of {length} coordinates at epsilon {float(epsilon):g} would draw too many samples for its delta: "
            "ask a coarser level, or raise epsilon"
        )


def as_shape(alpha: Fraction | float) -> Fraction:
    """Read the shape of a share exactly; refuse all but finite numbers above 0."""
    try:
        shape = Fraction(alpha)
    except (TypeError, ValueError, OverflowError):
        shape = Fraction(0)
    if shape <= 0:
        raise ParameterError(f"the shape of a noise share must be a finite number above 0, got {alpha!r}")
    return shape
