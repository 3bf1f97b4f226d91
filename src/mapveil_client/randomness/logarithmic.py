r"""Exact logarithmic (log-series) steps with a fair sign, at any scale.

.. math:: \Pr[K = k] = \frac{\beta^{|k|}}{-2 |k| \ln(1 - \beta)}, \quad k \ne 0, \qquad
    \beta = e^{-\epsilon / \Delta}

where: :math:`\epsilon` is ``epsilon`` and :math:`\Delta` is ``sensitivity``, both exact. No floating-point number
decides a sample:

1. The magnitudes are divided into bins: one for each where there are few of them (the noise is narrow), else 32 to an
   octave. A bin :math:`[c, c + 2^j)` is drawn, with the sign, from a table of integers in proportion to
   :math:`2^j \beta^c / c`.
2. Inside the bin a magnitude :math:`c + d`, :math:`d` uniform, is kept with probability
   :math:`a = \beta^d\, c / (c + d)`, else all is drawn again; :math:`a` is above 0.9 almost always. Twelve bits
   decide where they are below the least :math:`a` of the bin; else 64, where floating point proves that they
   are not within :math:`2^{-40}` of :math:`a`; else 128, compared with 80 digits of :math:`a`.

A table (:class:`SlotTable`) draws a finite law exactly from uniform words. Probabilities are integers in units of
:math:`2^{-96}`. A 16-bit word picks one of 65,536 slots; outcome v fills the slots of its leading 16 bits. The slots
left over are escapes: slot number and 80 further bits are compared, as integers, with the cumulated remainders.

The only departures from the stated law are the rounding of probabilities to multiples of :math:`2^{-96}`, of
:math:`a` to :math:`2^{-128}`, and the end of the tail, at a mass below :math:`2^{-66}`: total variation below
:math:`2^{-60}` per sample, at every scale.

Source: Johnson, Kemp, Kotz, "Univariate Discrete Distributions" (2005), chapter 7, for the law; Marsaglia, Tsang, Wang,
"Fast generation of discrete random variables" (2004), for the table.
"""

import decimal
import functools
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness

_SLOT_BITS = 16
_UNIT_BITS = 96
_TIE_BITS = 32
SLOTS: Final = 1 << _SLOT_BITS
DIGITS: Final = decimal.Context(prec=80)
"""Precision of the weights."""
TAIL: Final = Decimal(2) ** -66
"""Mass that a table may leave out of a tail."""


class SlotTable(NamedTuple):
    """The table of one law."""

    values: npt.NDArray[np.int16]  # outcome of each slot; escapes hold 0
    first_escape: int
    outcomes: npt.NDArray[np.int16]  # outcome of each remainder
    cumulated: tuple[int, ...]  # remainders, cumulated, units of 2^-96
    cumulated_high: npt.NDArray[np.uint64]  # the same without their low 32 bits


def slot_table(weights: Sequence[Decimal], outcomes: Sequence[int]) -> SlotTable:
    """The table of a law.

    Parameters
    ----------
    weights : sequence of Decimal
        Unnormalised, not negative, of :data:`DIGITS` precision.
    outcomes : sequence of int
        The outcome of each weight, in 16 bits.
    """
    with decimal.localcontext(DIGITS):
        total = sum(weights)
        unit = Decimal(2) ** _UNIT_BITS
        exact = [int((weight / total * unit).to_integral_value()) for weight in weights]
    exact[int(np.argmax([float(weight) for weight in weights]))] += (1 << _UNIT_BITS) - sum(exact)
    rest_bits = _UNIT_BITS - _SLOT_BITS
    filled = [value >> rest_bits for value in exact]
    first_escape = sum(filled)
    values = np.zeros(SLOTS, dtype=np.int16)
    values[:first_escape] = np.repeat(np.array(outcomes, dtype=np.int16), filled)
    cumulated: list[int] = []
    running = 0
    for value in exact:
        running += value & ((1 << rest_bits) - 1)
        cumulated.append(running)
    high = np.array([min(value >> _TIE_BITS, (1 << 64) - 1) for value in cumulated], dtype=np.uint64)
    return SlotTable(values, first_escape, np.array(outcomes, dtype=np.int16), tuple(cumulated), high)


def draw_slots(table: SlotTable, count: int, rng: Randomness) -> npt.NDArray[np.int16]:
    """Draw ``count`` samples of a law."""
    slots = rng.words(count, np.uint16)
    drawn = np.take(table.values, slots)
    if table.first_escape == SLOTS:
        return drawn
    escaped = np.flatnonzero(slots >= table.first_escape)
    if escaped.size:
        which = slots[escaped].astype(np.uint64) - np.uint64(table.first_escape)
        more = rng.words(escaped.size, np.uint64) >> np.uint64(_SLOT_BITS)
        key = (which << np.uint64(64 - _SLOT_BITS)) | more
        chosen = np.searchsorted(table.cumulated_high, key, side="right")
        tied = np.flatnonzero(table.cumulated_high[np.maximum(chosen - 1, 0)] == key)
        for at in tied:  # once in about 2^48 samples: the last 32 bits decide
            whole = (int(key[at]) << _TIE_BITS) | int(rng.words(1, np.uint32)[0])
            chosen[at] = next(i for i, bound in enumerate(table.cumulated) if whole < bound)
        drawn[escaped] = table.outcomes[chosen]
    return drawn


_SINGLE_VALUES = 1 << 10  # magnitudes with a bin each, at most
_BINS_PER_OCTAVE = 32
_SURE_BITS = 12
_SURE_MASK = np.uint16((1 << _SURE_BITS) - 1)
_LARGEST_WIDTH = 64 - _SURE_BITS
_MARGIN = 2.0**-40
_CHUNK = 1 << 16  # samples at a time


class _Sampler(NamedTuple):
    bins: SlotTable  # of bins, those of positive values first; of the values themselves if each has its own
    single: bool  # whether each value has its own bin
    lowest: npt.NDArray[np.int64]  # value of each bin: c, or -(c + 2^j - 1)
    spare: npt.NDArray[np.uint64]  # 64 - j
    sure: npt.NDArray[np.uint16]  # lower bound of a in the bin, units of 2^-12
    rate: Decimal  # epsilon / sensitivity


def logarithmic_rate(epsilon: Fraction, sensitivity: int) -> Decimal:
    r"""The mean number of events of a Polya variable of shape 1, :math:`-\ln(1 - \beta)`, to 60 decimal places."""
    with decimal.localcontext(DIGITS):
        return -(1 - (-noise_rate(epsilon, sensitivity)).exp()).ln()


def noise_rate(epsilon: Fraction, sensitivity: int) -> Decimal:
    r""":math:`\epsilon / \Delta`, in the precision of the context.

    Raises
    ------
    ParameterError
        One of the two is not above 0.
    """
    if epsilon <= 0 or sensitivity <= 0:
        raise ParameterError(f"epsilon and sensitivity must be above 0, got {epsilon} and {sensitivity}")
    return Decimal(epsilon.numerator) / Decimal(epsilon.denominator * sensitivity)


@functools.lru_cache(maxsize=64)
def _sampler(epsilon: Fraction, sensitivity: int) -> _Sampler:
    """The bins and their table."""
    with decimal.localcontext(DIGITS):
        rate = noise_rate(epsilon, sensitivity)
        beta = (-rate).exp()
        # Weights are relative to the first, so their sum is at least 1; beyond k they are below a geometric series.
        allowed = TAIL * (1 - beta)
        starts, widths, weights = list[int](), list[int](), list[Decimal]()
        power = Decimal(1)
        for k in range(1, _SINGLE_VALUES + 1):
            starts.append(k)
            widths.append(0)
            weights.append(power / k)
            power *= beta
            if power < allowed * k:
                break
        single = len(weights) < _SINGLE_VALUES
        if not single:
            for column in (starts, widths, weights):
                del column[_BINS_PER_OCTAVE - 1 :]
            width, power = 0, Decimal(1)
            while power >= allowed * starts[-1]:
                if width > _LARGEST_WIDTH:
                    raise ParameterError(
                        f"the noise must be narrower than 2^{64 - _SURE_BITS + 6}, got epsilon {float(epsilon):g} at "
                        f"sensitivity {sensitivity}; use a larger epsilon"
                    )
                for c in range(_BINS_PER_OCTAVE << width, 2 * _BINS_PER_OCTAVE << width, 1 << width):
                    power = (-rate * (c - 1)).exp()
                    starts.append(c)
                    widths.append(width)
                    weights.append(power / c * (1 << width))
                width += 1
        outcomes = [*starts, *(-c for c in starts)] if single else range(2 * len(starts))
        table = slot_table(weights + weights, outcomes)
        lasts = [(1 << width) - 1 for width in widths]
        sure = [
            int((-rate * last).exp() * c / (c + last) * (1 << _SURE_BITS))
            for c, last in zip(starts, lasts, strict=True)
        ]
    lowest = starts + [-c - last for c, last in zip(starts, lasts, strict=True)]
    return _Sampler(
        bins=table,
        single=single,
        lowest=np.array(lowest, dtype=np.int64),
        spare=np.array([64 - width for width in widths * 2], dtype=np.uint64),
        sure=np.array(sure * 2, dtype=np.uint16),
        rate=rate,
    )


def signed_logarithmic(
    count: int, epsilon: Fraction, sensitivity: int, rng: Randomness
) -> npt.NDArray[np.int64]:
    """Draw independent logarithmic magnitudes, each with a fair sign. Run by: the client.

    Parameters
    ----------
    count : int
        Number of samples.
    epsilon : Fraction
        The exact privacy parameter, above zero.
    sensitivity : int
        The L1 sensitivity, in units of the lattice, above zero.
    rng : Randomness
        The source of bits.

    Returns
    -------
    ndarray of int64, shape (count,)
        In units of the lattice, never 0.

    Raises
    ------
    ParameterError
        Not above zero, or the scale would leave 58 bits.
    """
    sampler = _sampler(Fraction(epsilon), int(sensitivity))
    steps = np.empty(count, dtype=np.int64)
    doubts = []
    for start in range(0, count, _CHUNK):
        part = steps[start : start + _CHUNK]
        drawn = draw_slots(sampler.bins, part.size, rng)
        if sampler.single:
            part[:] = drawn
        else:
            doubt = _within(part, drawn, sampler, rng)
            doubts.append(doubt._replace(at=doubt.at + start))
    if doubts:
        doubt = _Doubt(*(np.concatenate(column) for column in zip(*doubts, strict=True)))
        c = sampler.lowest[doubt.bins % (sampler.lowest.size // 2)]  # of the same bin of positive values
        kept = _keep(c, np.abs(steps[doubt.at]) - c, doubt.first, sampler.rate, rng)
        again = doubt.at[~kept]
        if again.size:
            steps[again] = signed_logarithmic(again.size, epsilon, sensitivity, rng)
    return steps


class _Doubt(NamedTuple):
    """Values that their first twelve bits do not decide."""

    at: npt.NDArray[np.intp]
    bins: npt.NDArray[np.int16]
    first: npt.NDArray[np.uint16]


def _within(
    values: npt.NDArray[np.int64], bins: npt.NDArray[np.int16], sampler: _Sampler, rng: Randomness
) -> _Doubt:
    """Fill in uniform values of the given bins, and return those that are not kept for sure."""
    words = rng.words(bins.size, np.uint64)
    first = words.astype(np.uint16) & _SURE_MASK
    of = bins.astype(np.intp)
    # Shifts of 64 leave 0; bins are never out of range, and "clip" spares the look.
    words >>= np.take(sampler.spare, of, mode="clip")
    np.add(words.view(np.int64), np.take(sampler.lowest, of, mode="clip"), out=values)
    at = np.flatnonzero(first >= np.take(sampler.sure, of, mode="clip"))
    return _Doubt(at, bins[at], first[at])


def _keep(
    start: npt.NDArray[np.int64],
    inside: npt.NDArray[np.int64],
    first: npt.NDArray[np.uint16],
    rate: Decimal,
    rng: Randomness,
) -> npt.NDArray[np.bool_]:
    """Whether each magnitude is kept, given the first bits of the uniform number that decides."""
    more = rng.words(first.size, np.uint64) >> np.uint64(_SURE_BITS)
    whole = (first.astype(np.uint64) << np.uint64(64 - _SURE_BITS)) | more
    uniform = whole * 2.0**-64
    kept = np.exp(-float(rate) * inside) * (start / (start + inside))
    decided = uniform < kept
    for at in np.flatnonzero(np.abs(uniform - kept) < _MARGIN):  # once in about 2^44 samples
        bits = (int(whole[at]) << 64) | int(rng.words(1, np.uint64)[0])
        c, d = int(start[at]), int(inside[at])
        with decimal.localcontext(DIGITS):
            decided[at] = bits < (-rate * d).exp() * c / (c + d) * (1 << 128)
    return np.asarray(decided, dtype=np.bool_)
