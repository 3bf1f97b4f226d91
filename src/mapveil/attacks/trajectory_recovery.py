r"""Trajectories recovered from counts of people per cell in successive windows.

The adversary has the counts of every window and knows the number N of people, nothing else. From each window's map it
makes N positions, and links those of successive windows by the assignment of least total cost (Hungarian method):

.. math:: \min_\pi \sum_{i=1}^N \lVert x_i^w - x_{\pi(i)}^{w+1} \rVert \quad\text{within a day}, \qquad
          \min_\pi \sum_{i=1}^N H\big(\tfrac{p_i + q_{\pi(i)}}{2}\big) - \tfrac12 H(p_i) - \tfrac12 H(q_{\pi(i)})
          \quad\text{between two days}

where: :math:`x_i^w` is the centre of the cell of position i in window w, :math:`p_i` and :math:`q_j` are the shares of
windows that a track of one day and a track of the next spend in each cell, and H is the entropy in bits, so that the
second cost is the information gain of telling the two tracks apart. The truth is matched to the tracks by the
assignment with the most windows right.

Deviations: (1) people stay near where they were at all hours; the paper's constant velocity by day needs local time,
and windows much shorter than a trip. (2) With windows of a day or more a "day" is seven of them. (3) A person who is
not seen in a window is where they were seen last. (4) A map of real numbers is read as
the whole counts of N people that are nearest to it (:func:`nearest_positions`).

Source: Xu et al., "Trajectory Recovery From Ash: User Privacy Is NOT Preserved in Aggregated Mobility Data" (WWW 2017).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from mapveil.attacks.membership import Publishing, relabelled
from mapveil.attacks.roc import Estimate95
from mapveil.engines import UNIT
from mapveil.engines.contributions import user_cells
from mapveil.inference.normal_interval import NORMAL_95
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import InputError, check

if TYPE_CHECKING:
    from mapveil.geo.points import Points
    from mapveil.geo.tiling import Tiling
    from mapveil_client.randomness.random import Randomness

_NO_TIME: Final = -(1 << 62)
_WINDOW_SQL: Final = """COALESCE(CAST(FLOOR(COALESCE(TRY_CAST(CAST({time} AS VARCHAR) AS DOUBLE),
EPOCH(TRY_CAST(CAST({time} AS VARCHAR) AS TIMESTAMP))) / {seconds}) AS BIGINT), {none})"""


@dataclass(frozen=True)
class Recovery:
    """Success of the recovery from one way of publishing."""

    published: str
    right: Estimate95  # fraction of windows in which a track is in the cell of its person
    unique: float  # fraction of people whose track is right in half of the windows, and in fewer of anybody else's


def people_in_windows(
    points: Points, tiling: Tiling, hours: float, windows: int, users: int, rng: np.random.Generator
) -> IntArray:
    """Cells of people in the successive windows that see the most of them, shape (people, windows). Not private.

    Each is seen in half of the windows or more, mostly in that cell.

    Raises
    ------
    InputError
        The table has no times, a row has none, or fewer than two people are seen in half of the windows.
    """
    check(windows >= 2, "windows", "at least 2", windows)
    check(1 / 60 <= hours < 1e6, "window_hours", "a number of hours from 1/60", hours)
    if points.expressions.time is None:
        raise InputError(
            f"{points.source}: trajectories need a column of times; name it, or leave out windows"
        )
    window = _WINDOW_SQL.format(time=points.expressions.time, seconds=hours * 3600, none=_NO_TIME)
    found = user_cells(relabelled(points, window), tiling)
    at = np.asarray(found.labels, dtype=np.int64)
    if at.size == 0 or at.min() == _NO_TIME:
        raise InputError(f"{points.source}: every row needs a time: a timestamp or a number of seconds")
    user = np.repeat(np.arange(found.starts.size - 1), np.diff(found.starts))
    order = np.lexsort((-found.weights, at, user))
    first = np.append(True, (np.diff(user[order]) != 0) | (np.diff(at[order]) != 0))
    user, at, cells = user[order][first], at[order][first], found.cells[order][first]
    starts, seen = np.unique(at, return_counts=True)
    before = np.append(0, np.cumsum(seen))
    start = starts[np.argmax(before[np.searchsorted(starts, starts + windows)] - before[:-1])]
    inside = (at >= start) & (at < start + windows)
    table = np.full((found.starts.size - 1, windows), -1, dtype=np.int64)
    table[user[inside], at[inside] - start] = cells[inside]
    table = table[2 * (table >= 0).sum(axis=1) >= windows]
    if len(table) < 2:
        raise InputError(
            f"{points.source}: trajectories need two users seen in half of {windows} windows of {hours:g} h, "
            f"got {len(table)}; use longer windows"
        )
    if len(table) > users:
        table = table[rng.choice(len(table), users, replace=False)]
    latest = np.maximum.accumulate(np.where(table >= 0, np.arange(windows), 0), axis=1)
    return np.take_along_axis(table, np.maximum(latest, np.argmax(table >= 0, axis=1)[:, None]), axis=1)


def attack_windows(
    truth: IntArray, tiling: Tiling, hours: float, way: Publishing | None, rng: Randomness
) -> Recovery:
    """Publish the people of every window, recover tracks, and compare; without a way, positions are linked at random.

    An epsilon is divided evenly among the windows.
    """
    people, windows = truth.shape
    if way is not None and way.mechanism is not None:
        share = Fraction(way.mechanism.budget, windows)
        way = dataclasses.replace(way, mechanism=dataclasses.replace(way.mechanism, epsilon=share))
    links = rng.child("chance").generator()
    positions = np.empty_like(truth)
    for window in range(windows):
        counts = np.bincount(truth[:, window], minlength=tiling.size)
        if way is None:
            positions[:, window] = links.permutation(truth[:, window])
            continue
        shown = way.publish(counts, counts * UNIT, tiling, rng.child(f"window {window}"))
        positions[:, window] = nearest_positions(shown, people)
    tracks = positions if way is None else _linked(positions, tiling, round(24 / hours) if hours < 24 else 7)
    agree = sum(
        (tracks[:, window, None] == truth[None, :, window]).astype(np.int64) for window in range(windows)
    )
    track, person = linear_sum_assignment(-np.asarray(agree))
    right = agree[track, person] / windows
    others = agree.copy()
    others[track, person] = -1
    mean, margin = float(right.mean()), NORMAL_95 * float(right.std()) / people**0.5
    return Recovery(
        "positions linked at random" if way is None else way.name,
        Estimate95(mean, max(mean - margin, 0.0), min(mean + margin, 1.0)),
        float(((right >= 0.5) & (agree[track, person] > others[track].max(axis=1))).mean()),
    )


def nearest_positions(shown: FloatArray, people: int) -> IntArray:
    r"""Cells of N people whose counts are nearest to a map in least squares, shape (people,).

    .. math:: \min_n \sum_c (n_c - a_c)^2 \quad\text{where}\quad \sum_c n_c = N

    The k-th person in cell c adds :math:`2 (k - \tfrac12 - a_c)`, so that the N least such terms are best.

    Examples
    --------
    >>> nearest_positions(np.array([0.1, 2.2, 0.4, 1.1]), 4).tolist()
    [1, 1, 2, 3]
    """
    kept = min(people, shown.size)
    cells = np.sort(np.argpartition(-shown, kept - 1)[:kept])
    worth = shown[cells, None] - np.arange(people)
    return np.sort(cells[np.argsort(-worth, axis=None, kind="stable")[:people] // people])


def _linked(positions: IntArray, tiling: Tiling, day: int) -> IntArray:
    """Tracks, (people, windows), of unordered positions in each window."""
    place = np.stack(tiling.centres(), axis=1)
    if tiling.region.georeferenced:
        place = np.stack(tiling.region.metric_projection.project(*place.T), axis=1)
    tracks = positions.copy()
    for window in range(1, positions.shape[1]):
        if window % day:
            cost = cdist(place[tracks[:, window - 1]], place[positions[:, window]])
            tracks[:, window] = positions[linear_sum_assignment(cost)[1], window]
    for start in range(day, positions.shape[1], day):
        yesterday, today = tracks[:, start - day : start], tracks[:, start : start + day]
        tracks[:, start : start + day] = today[linear_sum_assignment(_information_gain(yesterday, today))[1]]
    return tracks


def _information_gain(first: IntArray, second: IntArray) -> FloatArray:
    """The cost of the module's header for all pairs of tracks: only cells that both visit take from one bit."""
    a, b = (
        np.stack([(each == each[:, [w]]).mean(axis=1) for w in range(each.shape[1])], axis=1)
        for each in (first, second)
    )
    gain = np.ones((len(first), len(second)))
    for v in range(first.shape[1]):
        for w in range(second.shape[1]):
            i, j = np.nonzero(first[:, v, None] == second[None, :, w])
            p, q = a[i, v], b[j, w]
            mean = (p + q) / 2
            shared = mean + mean * np.log2(mean) - (p * np.log2(p) + q * np.log2(q)) / 2
            gain[i, j] -= shared / (p * first.shape[1] * q * second.shape[1])
    return gain
