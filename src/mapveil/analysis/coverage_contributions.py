"""The contribution of a phone to a coverage map: where it measured, and how far from a published map."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from mapveil.geo.collection_roles import user_days
from mapveil.geo.measurements import LAT, LON, RSS, Measurements
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil.mechanisms.signal_sums import STRONG, WEAK
from mapveil.privacy.claim import Unit
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.contribution import WEIGHT_UNITS
from mapveil_client.errors import InputError, check

CLIPS_DB: Final = (0.01, 200.0)
"""Least and most of a clip: strengths lie between -160 and 0 dBm, so more says nothing more."""


class Visits(NamedTuple):
    """The cells of each unit."""

    unit: IntArray  # code
    cell: IntArray
    row: IntArray  # the first of the unit in the cell
    weight: FloatArray  # an even part of 1
    strong: FloatArray  # the part of it that is strong, 0 to 1


def strong_part(residual_db: FloatArray, clip_db: float) -> FloatArray:
    """The part of a contribution that is strong: 0 at a residual of minus the clip or less, 1 at the clip or more."""
    return 0.5 * (1 + np.clip(residual_db, -clip_db, clip_db) / clip_db)


def visits(
    measurements: Measurements, tiling: Tiling, reference_dbm: FloatArray, clip_db: float, codes: IntArray
) -> Visits:
    """The cells that each unit measured, by the units' codes, shape (rows,); see :func:`coverage_contributions`."""
    cell = tiling.locate(measurements.rows[:, LON], measurements.rows[:, LAT])
    inside = np.flatnonzero(cell >= 0)
    key = codes[inside] * np.int64(tiling.size) + cell[inside]
    _, first, visit = np.unique(key, return_index=True, return_inverse=True)
    strong = strong_part(measurements.rows[inside, RSS] - reference_dbm[cell[inside]], clip_db)
    mean = np.bincount(visit, strong, first.size) / np.maximum(np.bincount(visit, minlength=first.size), 1)
    rows = inside[first]
    unit = codes[rows]
    return Visits(unit, cell[rows], rows, 1 / np.bincount(unit)[unit], mean)


def coverage_contributions(
    measurements: Measurements,
    tiling: Tiling,
    reference_dbm: FloatArray,
    clip_db: float,
    *,
    unit: Unit = Unit.USER,
) -> Points:
    r"""Every unit's places, each with a weak and a strong part. Run by: the client, or a curator for it.

    .. math:: r_{uc} = \frac{1}{n_{uc}} \sum_{i:\, u_i = u,\, c_i = c} \max(-B, \min(B, x_i - m_c))

    where: :math:`x_i` is the strength of row i of unit :math:`u_i` in cell :math:`c_i`, :math:`m_c` is
    ``reference_dbm``, B is ``clip_db`` and :math:`n_{uc}` the number of the unit's rows in the cell. The unit divides
    its weight evenly over the cells it measured: a phone on a desk counts as one that passes by. The weight of a cell
    is divided as :class:`~mapveil.mechanisms.signal_sums.SignalSums` says.

    Parameters
    ----------
    measurements : Measurements
        The true rows; those outside the tiling contribute nothing.
    tiling : Tiling
        The cells of the map.
    reference_dbm : ndarray of float64, shape (tiling.size,)
        The published map that residuals are taken from, dBm; finite.
    clip_db : float
        Largest residual that counts, dB, above 0.
    unit : Unit
        A user, a user's day, or a trace (the users of a table of traces).

    Returns
    -------
    Points
        Two rows for each cell of each unit, with weights and labels.

    Raises
    ------
    InputError
        The unit is a user's day, and there are no times.
    """
    least, most = CLIPS_DB
    check(least <= clip_db <= most, "clip_db (--clip-db)", f"from {least:g} to {most:g} dB", clip_db)
    if unit is Unit.DAY and measurements.time is None:
        raise InputError(
            f"{measurements.source}: a promise about a user's day needs times (--time), and there are none"
        )
    check(unit in (Unit.USER, Unit.DAY, Unit.TRACE), "unit (--unit)", "user, user's day or trace", unit)
    codes = user_days(measurements) if unit is Unit.DAY else measurements.users
    found = visits(measurements, tiling, reference_dbm, clip_db, codes)
    # Arrays of text drop a NUL at the end of an id: two users would share one weight.
    names = (
        np.array(measurements.user_ids, dtype=object)
        if unit is not Unit.DAY
        else np.arange(codes.max(initial=0) + 1)
    )
    weight = np.concatenate([1 - found.strong, found.strong])
    label = np.repeat(np.array([WEAK, STRONG], dtype=np.int64), found.row.size)
    # A part below a unit of weight rounds to nothing.
    kept = np.flatnonzero(weight * WEIGHT_UNITS >= 1)
    rows = np.tile(found.row, 2)[kept]
    return Points.from_arrays(
        names[codes[rows]],
        measurements.rows[rows, LON],
        measurements.rows[rows, LAT],
        weight=weight[kept],
        label=label[kept],
        source=measurements.source,
    )
