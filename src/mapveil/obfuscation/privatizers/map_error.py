"""The error of a map made of reports, learnt by the pilot's rows sent through the same privatizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.geo.collection_roles import user_days
from mapveil.geo.measurements import LAT, LON, RSS, Measurements
from mapveil.geo.projection import METRES_PER_DEGREE
from mapveil.inference.normal_interval import NORMAL_95, few_groups_factor
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import check

_NEAREST: Final = (
    30  # reports averaged around a place: their own spread is then 1/30 of the error that is measured
)
_BLOCK_M: Final = 100.0  # side of a place of a visit, as that of a held-out place
_LEVEL: Final = 0.95  # of the intervals that the error is for
_LEAST_USERS: Final = 4  # two in each half: of one user alone a map errs by that user's own error
USERS: Final = "users"
"""The halves have no user in common."""
USER_DAYS: Final = "users' days"
"""The halves have no day of a user in common, but may share users."""


class MapError(NamedTuple):
    r"""Deviations of the truth from a map of reports, dB.

    .. math:: k \max\Big(\sqrt{\textstyle\sum_i w_i e_i^2},\ q_{0.95}(|e|) / 1.96\Big), \qquad
              e_i = x_i - \bar y(s_i)

    where: :math:`x_i` is the true strength of pilot row i at place :math:`s_i`, :math:`\bar y(s)` the mean of the 30
    reported strengths whose *reported* places are nearest to s, those of the other half of the users alone (of the
    users' days, where the pilot has fewer than four users), :math:`w_i` the weight of a row, under which every visit
    counts the same (of a row: or every row, where that is more), q the quantile and k the factor of
    :func:`~mapveil.inference.normal_interval.few_groups_factor` of the users' days: a few tell little of days to come.
    """

    row_db: float  # of one measurement
    visit_db: float  # of the mean of one user's day in one block of 100 m
    split: str = USER_DAYS  # unit of which the halves consist: users, or users' days

    @classmethod
    def of_record(cls, record: Mapping[str, Any] | None) -> MapError | None:
        """Read a JSON-ready record; None for None, a ParameterError where it is no error."""
        if record is None:
            return None
        made = cls(float(record["row_db"]), float(record["visit_db"]), record.get("split", USER_DAYS))
        for name, value in (("row_db", made.row_db), ("visit_db", made.visit_db)):
            check(0 <= value < np.inf, name, "a finite number of at least 0", value)
        check(made.split in (USERS, USER_DAYS), "split", f"{USERS} or {USER_DAYS}", made.split)
        return made


def learn_map_error(true: Measurements, reports: FloatArray, rng: np.random.Generator) -> MapError | None:
    """Learn the error of a map of such reports. Run by: the curator of the pilot, who sees both.

    Parameters
    ----------
    true : Measurements
        The pilot's rows.
    reports : ndarray of float64, shape (rows, features)
        The report on each; NaN where it is empty.
    rng : numpy.random.Generator
        The source of the two halves: no noise that a promise rests on.

    Returns
    -------
    MapError or None
        None where one half has fewer than 30 reports that are not empty.
    """
    rows, sent, day = true.rows, reports, user_days(true)
    split = USERS if np.unique(true.users).size >= _LEAST_USERS else USER_DAYS
    unit = true.users if split == USERS else day
    units = np.unique(unit)
    if len(units) < 2:
        return None
    half = np.isin(unit, rng.permutation(units)[: len(units) // 2])
    middle = float(np.median(rows[:, LAT]))
    places, reported = _metres(rows, middle), _metres(sent, middle)
    full = np.isfinite(sent[:, : RSS + 1]).all(axis=1)
    errors = np.empty(len(rows))
    for side in (half, ~half):
        known = ~side & full
        if known.sum() < _NEAREST:
            return None
        errors[side] = rows[side, RSS] - _nearest_mean(reported[known], sent[known, RSS], places[side])
    blocks = np.floor(places / _BLOCK_M).astype(np.int64)
    visit = np.unique(np.column_stack([blocks, day]), axis=0, return_inverse=True)[1].ravel()
    size = np.bincount(visit).astype(np.float64)
    squares = np.bincount(visit, np.square(errors)) / size  # mean over the rows of each visit
    row = max(_deviation(errors), float(np.sqrt(squares.mean())))
    widened = few_groups_factor(day)
    return MapError(widened * row, widened * _deviation(np.bincount(visit, errors) / size), split)


def _nearest_mean(places: FloatArray, values: FloatArray, asked: FloatArray) -> FloatArray:
    from scipy.spatial import cKDTree

    nearest = cKDTree(places).query(asked, k=_NEAREST)[1]
    return np.asarray(values[nearest].mean(axis=1))


def _metres(rows: FloatArray, lat: float) -> FloatArray:
    east = METRES_PER_DEGREE * np.cos(np.radians(lat)) * rows[:, LON]
    return np.stack([east, METRES_PER_DEGREE * rows[:, LAT]], axis=1)


def _deviation(errors: npt.NDArray[np.float64]) -> float:
    tail = float(np.quantile(np.abs(errors), _LEVEL)) / NORMAL_95
    return max(float(np.sqrt(np.square(errors).mean())), tail)
