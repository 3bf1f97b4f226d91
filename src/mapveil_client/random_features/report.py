r"""The client half: a place becomes waves. What a device sends, as the paper sends it and as few numbers.

For device i with frequencies :math:`\omega_1 \dots \omega_B` at place d the paper sends, for all points g of a grid
(equation 7),

.. math:: G'(g) = \sum_b \cos(\omega_b \cdot (g - d))
          = \sum_b \operatorname{Re}\, e^{i \omega_b \cdot (g - o)} \bar z_b, \qquad z_b = e^{i \omega_b \cdot (d - o)}

where: o is the query's origin. Whoever has :math:`\omega_b` and :math:`z_b` has all of it; and whoever has it on a
grid can solve for them (``tests/random_features/solve_grid.py``), up to what no point of the grid can tell: the sign
of both, and
frequencies that differ by a multiple of :math:`2 \pi / \text{step}`. The compact report is folded by that period, so
the two forms carry the same.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import ComplexArray, FloatArray, IntArray
from mapveil_client.errors import InputError
from mapveil_client.plane import closed_projection
from mapveil_client.random_features.frequencies import KeptFrequencies
from mapveil_client.random_features.parameters import Policy
from mapveil_client.random_features.query import EvenGrid, Query


class Visits(NamedTuple):
    """Places of each device in the plane. Not private: never leaves a device."""

    places: FloatArray  # (dimension, visits), metres (seconds)
    starts: IntArray | None = None  # (devices + 1,): device i's are starts[i]:starts[i + 1]; one each without
    weights: FloatArray | None = None  # (visits,), above 0; equal without

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self.places.shape[1] if self.starts is None else self.starts.size - 1

    def shares(self) -> FloatArray | None:
        """What part of its device each place is, None where each device has one."""
        if self.starts is None:
            return None
        counted = np.ones(self.places.shape[1]) if self.weights is None else self.weights
        total = np.add.reduceat(counted, self.starts[:-1])
        return np.asarray(counted / np.repeat(total, np.diff(self.starts)))

    def moved(self, offsets: FloatArray) -> Visits:
        """All places of each device moved by its own offset, shape (dimension, devices), metres."""
        if self.starts is not None:
            offsets = np.repeat(offsets, np.diff(self.starts), axis=1)
        return self._replace(places=self.places + offsets)


class Reports(NamedTuple):
    """Compact reports of any number of devices: (dimension + 2) B numbers each."""

    frequencies: FloatArray  # (dimension, devices, features), radians per metre (second)
    projections: ComplexArray  # (devices, features), cosine and sine of the phase; shorter than 1 for a mean


class GridReports(NamedTuple):
    """The paper's form: every device's evaluations on the query's grid."""

    evaluations: FloatArray  # (devices, *grid.count)


def fold(frequencies: FloatArray, grid: EvenGrid) -> FloatArray:
    r"""Frequencies as the grid shows them: moved by multiples of :math:`2 \pi / \text{step}` into its band.

    Parameters
    ----------
    frequencies : ndarray of float64, shape (dimension, ...)
        Radians per metre; folded in place.
    grid : EvenGrid
        The points.
    """
    for axis, step in enumerate(grid.step):
        period = 2 * math.pi / abs(step)
        frequencies[axis] -= period * np.rint(frequencies[axis] / period)
    return frequencies


def client_reports(units: FloatArray, visits: Visits, query: Query) -> Reports:
    r"""Project each device's place, or the mean over its places, on its own waves. Run by: each client.

    .. math:: \omega = u / h, \qquad z = \sum_m w_m e^{i \omega \cdot (d_m - o)} \Big/ \sum_m w_m

    where: u are ``units``, h is ``query.bandwidth`` (Algorithm 3 rescales the kept u for each query), and :math:`d_m`,
    :math:`w_m` the device's places and weights. The policy is checked before
    (:class:`mapveil_client.random_features.parameters.Policy`).

    Deviation: the paper gives every visit a report of its own, as if of another user. One mean for each device is one
    report however many visits there were, counts each device once, and is computed from what those reports show.

    Parameters
    ----------
    units : ndarray of float64, shape (dimension, devices, features)
        Kept frequencies for bandwidth 1.
    visits : Visits
        Where each device was.
    query : Query
        What is asked.

    Raises
    ------
    InputError
        A place that is not a number, or frequencies of another shape.
    """
    if units.shape != (query.dimension, visits.devices, query.features):
        raise InputError(f"frequencies of shape {units.shape} for {visits.devices} devices and this query")
    if visits.places.shape[0] != query.dimension or not bool(np.isfinite(visits.places).all()):
        raise InputError("a place is not a finite number on each axis of the query; nothing is answered")
    frequencies = np.empty(units.shape)
    for axis, bandwidth in enumerate(query.bandwidth):
        np.divide(units[axis], bandwidth, out=frequencies[axis])
    phase = np.zeros((visits.places.shape[1], query.features))
    for axis, origin in enumerate(query.origin):
        of_visit = frequencies[axis]
        if visits.starts is not None:
            of_visit = np.repeat(of_visit, np.diff(visits.starts), axis=0)
        phase += of_visit * (visits.places[axis] - origin)[:, None]
    projections: ComplexArray = np.empty(phase.shape, dtype=np.complex128)
    np.cos(phase, out=projections.real)
    np.sin(phase, out=projections.imag)
    shares = visits.shares()
    if shares is not None and visits.starts is not None:
        projections *= shares[:, None]
        projections = np.asarray(np.add.reduceat(projections, visits.starts[:-1]))
    if query.grid is not None:
        fold(frequencies, query.grid)
    return Reports(frequencies, projections)


def grid_reports(reports: Reports, query: Query) -> GridReports:
    """Evaluate each device's waves on the query's grid, equation 7. Run by: each client that sends the paper's form.

    Raises
    ------
    InputError
        The query has no grid.
    """
    grid = query.grid
    if grid is None:
        raise InputError("this query has no grid to evaluate on")
    waves = reports.projections.conj()[..., None]
    for axis in range(grid.dimension):
        offset = grid.axis(axis) - query.origin[axis]
        along = np.exp(1j * reports.frequencies[axis][..., None] * offset)
        waves = (waves[..., None] * along[..., None, :]).reshape(*waves.shape[:2], -1)
    return GridReports(waves.real.sum(axis=1).reshape(-1, *grid.count))


class Device:
    """Answers queries inside a policy with the same frequencies each time, wherever it is.

    Parameters
    ----------
    policy : Policy
        What it answers.
    kept : KeptFrequencies
        Its frequencies, drawn under the same policy.
    """

    def __init__(self, policy: Policy, kept: KeptFrequencies) -> None:
        self.policy, self._kept = policy, kept

    def answer(
        self,
        query: Query,
        lon: npt.ArrayLike,
        lat: npt.ArrayLike,
        *,
        time_s: npt.ArrayLike | None = None,
        weights: npt.ArrayLike | None = None,
    ) -> Reports | None:
        """The report of this device, or None: it stays silent outside the region. Run by: the client.

        Silence tells the server what asking the devices in a region tells anyway. Everything else that is not an answer
        is an error that says nothing of the place, and is decided before the place is looked at, but for a place that
        is no number.

        Parameters
        ----------
        query : Query
            What the server asks.
        lon, lat : float or array of float
            Where the device is, or was: degrees (coordinates of the plane where the query names no projection).
        time_s : float or array of float, optional
            When, seconds, for a query with a third axis.
        weights : array of float, optional
            How much each place counts; equally by default.

        Raises
        ------
        PromiseError
            The query is outside the policy.
        InputError
            A place is not a finite number; nothing is answered and nothing is used up.
        """
        self.policy.check(query)
        axes = [lon, lat] if time_s is None else [lon, lat, time_s]
        places = np.stack([np.atleast_1d(np.asarray(axis, dtype=np.float64)) for axis in axes])
        counted = np.ones(places.shape[1]) if weights is None else np.asarray(weights, dtype=np.float64)
        if places.shape[0] != query.dimension or not bool(np.isfinite(places).all()):
            raise InputError("a place is not a finite number on each axis of the query; nothing is answered")
        if counted.shape != places.shape[1:] or not bool((counted > 0).all() and np.isfinite(counted).all()):
            raise InputError("weights are one number above 0 for each place; nothing is answered")
        plane = closed_projection(query.crs)
        if query.crs and plane is not None:
            places[:2] = plane.project(places[0], places[1])
        low, high = (np.asarray(end)[:, None] for end in (query.low, query.high))
        inside = ((places >= low) & (places <= high)).all(axis=0)
        if not inside.any():
            return None
        starts = np.array([0, np.count_nonzero(inside)])
        kept = self._kept.take(query.features)
        visits = Visits(places[:, inside], starts, counted[inside] / math.fsum(counted[inside]))
        return client_reports(kept.units, visits.moved(kept.offset), query)

    def __repr__(self) -> str:
        return f"Device({self.policy!r})"
