"""The adversary on noisy sums who knows everybody else: where the unit was whose contribution is left.

It subtracts all other contributions from what was revealed, knows the law of the noise, and the places of labelled
rows. It takes the unit to have been in one square only. Not private.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from mapveil.analysis.coverage_contributions import Visits
from mapveil.attacks.signal_adversary import geometric_median
from mapveil.attacks.signal_evidence import SignalEvidence
from mapveil.attacks.signal_score import AdversaryScore, privacy
from mapveil.maps.proportion_map import LabelMeasurement
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.randomness.random import Randomness

_DRAWS: Final = 4  # of the noise on each unit's contribution
_UNITS: Final = 256  # judged at once
_UNSEEN: Final = 0.5  # labelled rows of a square, beside those seen
_TWO: Final = 1.5  # terms of the noise from which on it is that of two


class SummedRows(NamedTuple):
    """Rows, and what their units contribute to the sums."""

    evidence: SignalEvidence  # runs of one row: their places
    unit: IntArray  # of each row, 0 .. units - 1
    cell: IntArray  # of each row; -1 outside
    visits: Visits  # of the units of the rows inside


def attack_sums(
    revealed: Sequence[LabelMeasurement],
    known: SummedRows,
    judged: SummedRows,
    centres: FloatArray,
    p1: float,
    rng: Randomness,
) -> AdversaryScore:
    r"""Judge an adversary who knows all contributions to sums but one.

    .. math:: \hat x(y) = \arg\min_z \sum_s p_s \, \ell(y - h_s) \, \lVert c_s - z \rVert_2

    where: y is the unit's contribution with the sums' noise, of which :math:`\ell` is the density, :math:`h_s` the
    contribution of a unit in square s of the finest sums alone, with the residual that is usual there, :math:`p_s` the
    fraction of labelled rows in s, half a row added, :math:`c_s` their mean place with as much of the square's middle,
    and z one of these places or the one nearest to all labelled rows. It asks about one person at a time: sums name
    nobody.

    Parameters
    ----------
    revealed : sequence of LabelMeasurement
        The sums: their nodes and their noise; of their values nothing is used.
    known, judged : SummedRows
        Labelled rows, and those whose units are attacked, in the same cells.
    centres : ndarray of float64, shape (cells, 2)
        Normalised latitude and longitude of the cells' centres.
    p1 : float
        Error of its guess of a user, that without the sums.
    rng : Randomness
        The source of bits for the noise.

    Source: R. Shokri et al., "Protecting location privacy: optimal strategy against localization attacks" (CCS 2012).
    """
    finest = max(revealed, key=lambda each: each.noisy.size).groups
    squares, first, own = np.unique(finest, return_index=True, return_inverse=True)
    middle = _means(own, centres, np.bincount(own).astype(np.float64))
    inside = known.cell >= 0
    at, places = own[known.cell[inside]], known.evidence.places[:, 0]
    count = np.asarray(np.bincount(at, minlength=squares.size) + _UNSEEN, dtype=np.float64)
    mean = _means(at, places[inside], count, squares.size) + middle * (_UNSEEN / count)[:, None]
    candidates = np.concatenate([mean, geometric_median(places)[None]])
    cost = count[:, None] * np.hypot(
        *(mean[:, None] - candidates).transpose(2, 0, 1)
    )  # (squares, candidates)
    usual = _usual(own[known.visits.cell], known.visits.strong, squares.size)
    units = int(judged.unit.max()) + 1
    answers = np.zeros((units, len(candidates)))
    for draw in range(_DRAWS):
        noise = rng.child(f"draw {draw}").generator()
        for start in range(0, units, _UNITS):
            fits = np.zeros((min(_UNITS, units - start), squares.size))
            for level in revealed:
                fits += _fit(level, judged.visits, start, len(fits), (level.groups[first], usual), noise)
            likely = np.exp(fits - fits.max(axis=1, keepdims=True))
            answer = (likely @ cost).argmin(axis=1)
            answers[np.arange(start, start + len(fits)), answer] += 1 / _DRAWS
    apart = metres = 0.0
    for column, place in enumerate(candidates):
        weight = answers[judged.unit, column]
        guess = np.broadcast_to(place, judged.evidence.places.shape)
        apart += float(weight @ np.hypot(*(judged.evidence.places[:, 0] - place).T))
        metres += float(weight @ judged.evidence.metres_from(guess)[:, 0])
    rows = len(judged.unit)
    p2 = apart / rows
    return AdversaryScore("knows the others", "own", p1, math.nan, p2, metres / rows, privacy(p1, p2), rows)


def _means(at: IntArray, places: FloatArray, count: FloatArray, size: int = 0) -> FloatArray:
    """Sums of places by square, over a count, shape (squares, 2)."""
    return np.stack([np.bincount(at, each, size) / count for each in places.T], axis=1)


def _usual(at: IntArray, strong: FloatArray, size: int) -> FloatArray:
    """The mean part that is strong of labelled units in each square, a half with half the weight of a unit."""
    return np.asarray(
        (np.bincount(at, strong, size) + _UNSEEN / 2) / (np.bincount(at, minlength=size) + _UNSEEN)
    )


def _fit(
    level: LabelMeasurement,
    visits: Visits,
    start: int,
    count: int,
    supposed: tuple[IntArray, FloatArray],
    noise: np.random.Generator,
) -> FloatArray:
    """Log likelihood of each supposed square and its usual residual, for so many units, up to a term of the unit."""
    nodes, usual = supposed
    own = (visits.unit >= start) & (visits.unit < start + count)
    given = np.zeros((count, level.noisy.size, 2))
    for label, part in enumerate((1 - visits.strong[own], visits.strong[own])):
        at = visits.unit[own] - start, level.groups[visits.cell[own]]
        np.add.at(given[:, :, label], at, visits.weight[own] * part)
    single = level.of_one_label
    terms = 2 if float(single.terms) > _TWO else 1
    scale = single.deviation() / math.sqrt(2 * terms)
    given += noise.laplace(0.0, scale, (terms, *given.shape)).sum(axis=0)
    fit = np.zeros((count, nodes.size))
    for label, part in enumerate((1 - usual, usual)):
        seen = given[:, nodes, label]
        fit += _log_density(seen - part, scale, terms) - _log_density(seen, scale, terms)
    return fit


def _log_density(noise: FloatArray, scale: float, terms: int) -> FloatArray:
    """Of the sum of one or two Laplace variables, without its constant."""
    size = np.abs(noise) / scale
    return np.asarray(np.log1p(size) - size if terms > 1 else -size)
