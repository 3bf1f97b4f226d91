r"""Drift of reports: whether a day's reports are like those of the days before, by a test of known false-alarm rate.

Each report is a code: the nearest of some centres of all reports, or empty. With histograms :math:`h_0` of today and
:math:`h_1, \dots, h_n` of the days before,

.. math:: d_i = \frac12 \sum_c \Big| h_i(c) - \frac1n \sum_{j \ne i} h_j(c) \Big|, \qquad
    p = \frac{\#\{i : d_i \ge d_0\}}{n + 1}

If the days are exchangeable, however dependent the reports within one are, p is at most :math:`\alpha` with a
probability of at most :math:`\alpha`. Source: Vovk, Gammerman, Shafer, "Algorithmic learning in a random world" (2005),
proposition 2.4.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mapveil.obfuscation.privatizers.pilot_cells import find_centres, nearest_centre
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import InputError, check
from mapveil_client.randomness.random import Randomness, as_randomness

_CENTRES: Final = 64
_SAMPLE: Final = 1 << 14  # reports that centres are found among, evenly from all days


@dataclass(frozen=True)
class Drift:
    """The result of :func:`drift`.

    Parameters
    ----------
    p_value : float
        Fraction of the days, today among them, that are at least as far from the others as today is.
    distance : float
        Total variation between today's codes and those of the days before, from 0 to 1.
    usual : float
        The median of the same distance of the days before.
    empty : float
        Fraction of today's reports that are empty: rows unlike the pilot.
    false_alarm : float
        Rate at which days like the others are taken for drifted, at most.
    """

    p_value: float
    distance: float
    usual: float
    empty: float
    false_alarm: float

    @property
    def drifted(self) -> bool:
        """Whether today is unlike the days before, at the false-alarm rate."""
        return self.p_value <= self.false_alarm

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record."""
        return {"drifted": self.drifted, **dataclasses.asdict(self)}


def drift(
    today: FloatArray,
    before: Sequence[FloatArray],
    *,
    false_alarm: float = 0.05,
    rng: Randomness | int | None = None,
) -> Drift:
    """Test whether today's reports are like those of the days before. Run by: the server.

    Parameters
    ----------
    today : ndarray of float64, shape (reports, features)
        Reports; a row of NaN is empty.
    before : sequence of ndarray of float64
        Reports of each day before, of the same features.
    false_alarm : float
        Above 0 and below 1; it needs 1 / ``false_alarm`` - 1 days before.
    rng : Randomness or int, optional
        The source of bits of the centres.

    Raises
    ------
    InputError
        Too few days for the rate, a day without reports, or other features.
    """
    check(0 < false_alarm < 1, "false_alarm", "a fraction between 0 and 1", false_alarm)
    days = [today, *before]
    if len(days) * false_alarm < 1 - 1e-9:
        needed = int(np.ceil(1 / false_alarm - 1e-9)) - 1
        raise InputError(
            f"{len(before)} days before; a false-alarm rate of {false_alarm:g} needs at least {needed}"
        )
    if any(day.ndim != 2 or not len(day) or day.shape[1] != today.shape[1] for day in days):
        raise InputError("a day has no reports, or other features than today; expected some of the same")
    counted = _histograms(days, as_randomness(rng).generator())
    others = (counted.sum(axis=0) - counted) / (len(days) - 1)
    distances = np.abs(counted - others).sum(axis=1) / 2
    return Drift(
        p_value=float((distances >= distances[0] - 1e-12).mean()),
        distance=float(distances[0]),
        usual=float(np.median(distances[1:])),
        empty=float(np.isnan(today).all(axis=1).mean()),
        false_alarm=false_alarm,
    )


def _histograms(days: Sequence[FloatArray], generator: np.random.Generator) -> FloatArray:
    """Fractions of each day's reports by code, the empty one last, shape (days, codes); no day is treated apart."""
    full = [day[~np.isnan(day).any(axis=1)] for day in days]
    pooled = np.concatenate(full)
    if not len(pooled):
        return np.ones((len(days), 1))
    spread = pooled.std(axis=0)
    middle, scale = pooled.mean(axis=0), np.where(spread > 0, spread, 1.0)
    sample = [day[generator.permutation(len(day))[: _SAMPLE // len(days) + 1]] for day in full]
    found = ((np.concatenate(sample) - middle) / scale).astype(np.float32)
    centres = find_centres(found, min(_CENTRES, len(found)), generator)[0]
    counted = np.empty((len(days), len(centres) + 1))
    for row, (day, kept) in enumerate(zip(days, full, strict=True)):
        codes = nearest_centre((kept - middle) / scale, centres)
        counted[row, :-1] = np.bincount(codes, minlength=len(centres))
        counted[row, -1] = len(day) - len(kept)
    return np.asarray(counted / counted.sum(axis=1, keepdims=True))
