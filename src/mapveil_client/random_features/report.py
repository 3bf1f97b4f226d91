r"""The client half of random Fourier features: reports, and the messages between server and device.

For device i with frequencies :math:`\omega_1 \dots \omega_B` at place d the paper sends, for all points g of a grid
(equation 7),

.. math:: G'(g) = \sum_b \cos(\omega_b \cdot (g - d))
          = \sum_b \operatorname{Re}\, e^{i \omega_b \cdot (g - o)} \bar z_b, \qquad z_b = e^{i \omega_b \cdot (d - o)}

where: o is the query's origin. :math:`\omega_b` and :math:`z_b` give all evaluations, and those on a grid give them
(``tests/random_features/solve_grid.py``), up to the sign of both and to frequencies that differ by a multiple of
:math:`2 \pi / \text{step}`. The compact report, :math:`\omega_b` and :math:`z_b`, is folded by that period, so that the
two forms carry the same information.

Every message is one canonical CBOR array (:mod:`mapveil_client.canonical_cbor`, ``random_features.cddl``)::

    [version, 1, crs, kernel, features, bandwidth, low, high, start, step, count]    query
    [version, 2, digest of the query, features]                                      report

Numbers with fractions are 64-bit floats, little-endian, one after another in a byte string. A report holds, for each
feature, its frequency along each axis, then cosine and sine of its phase: (d + 2) B numbers.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil_client import canonical_cbor
from mapveil_client.arrays import ComplexArray, FloatArray, IntArray
from mapveil_client.errors import InputError
from mapveil_client.plane import closed_projection
from mapveil_client.random_features.feature_policy import Policy
from mapveil_client.random_features.frequencies import KeptFrequencies, middles, offsets, squares
from mapveil_client.random_features.query import EvenGrid, Query
from mapveil_client.randomness.random import Randomness


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
        """Each place's fraction of its device's weight; None where each device has one place."""
        if self.starts is None:
            return None
        counted = np.ones(self.places.shape[1]) if self.weights is None else self.weights
        total = np.add.reduceat(counted, self.starts[:-1])
        return np.asarray(counted / np.repeat(total, np.diff(self.starts)))

    def jittered(self, low: tuple[float, ...], jitter_m: float, rng: Randomness) -> Visits:
        """The places as devices report them (:meth:`KeptFrequencies.moved`). Run by: a simulation of clients.

        Parameters
        ----------
        low : tuple of float
            Corner of the query's region, metres.
        jitter_m : float
            Side of the squares, and standard deviation of the offset of each square of each device, metres.
        """
        if not jitter_m:
            return self
        at = squares(self.places, low, jitter_m)
        same: IntArray = np.arange(at.shape[1])
        if self.starts is not None:
            device = np.repeat(np.arange(self.devices), np.diff(self.starts))
            same = np.unique(np.stack([device, *at]), axis=1, return_inverse=True)[1].reshape(-1)
        offset = offsets(int(same.max(initial=-1)) + 1, self.places.shape[0], jitter_m, rng)
        made = self.places.copy()
        made[:2] = middles(at, low, jitter_m) + offset[:2, same]
        return self._replace(places=made)


class Reports(NamedTuple):
    """Compact reports of any number of devices: (dimension + 2) B numbers each."""

    frequencies: FloatArray  # (dimension, devices, features), radians per metre (second)
    projections: ComplexArray  # (devices, features), cosine and sine of the phase; shorter than 1 for a mean


def fold(frequencies: FloatArray, grid: EvenGrid) -> FloatArray:
    r"""Move frequencies by multiples of :math:`2 \pi / \text{step}` into the grid's band, in place.

    Parameters
    ----------
    frequencies : ndarray of float64, shape (dimension, ...)
        Radians per metre.
    grid : EvenGrid
        The points.
    """
    for axis, step in enumerate(grid.step):
        period = 2 * math.pi / abs(step)
        frequencies[axis] -= period * np.rint(frequencies[axis] / period)
    return frequencies


def client_reports(units: FloatArray, visits: Visits, query: Query) -> Reports:
    r"""The random Fourier features of each device's place, or the mean over its places. Run by: each client.

    .. math:: \omega = u / h, \qquad z = \sum_m w_m e^{i \omega \cdot (d_m - o)} \Big/ \sum_m w_m

    where: u are ``units``, h is ``query.bandwidth`` (Algorithm 3 rescales the kept u for each query), and :math:`d_m`,
    :math:`w_m` the device's places and weights.

    Deviation: the paper gives every visit a report of its own, as if of another user. Here each device sends one mean,
    and counts once.

    Parameters
    ----------
    units : ndarray of float64, shape (dimension, devices, features)
        Kept frequencies for bandwidth 1.
    visits : Visits
        Places of each device.
    query : Query
        The query, checked by the policy.

    Raises
    ------
    InputError
        A place that is not a number, or frequencies of another shape.
    """
    if units.shape != (query.dimension, visits.devices, query.features):
        raise InputError(f"frequencies of shape {units.shape} for {visits.devices} devices and this query")
    if visits.places.shape[0] != query.dimension or not bool(np.isfinite(visits.places).all()):
        raise InputError("location must be a finite number on each axis of the query")
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


def grid_reports(reports: Reports, query: Query) -> FloatArray:
    r"""Evaluate each device's features on the query's grid, equation 7, shape (devices, \*grid.count).

    Raises
    ------
    InputError
        The query has no grid.
    """
    grid = query.grid
    if grid is None:
        raise InputError("this query has no grid to evaluate on")
    values = reports.projections.conj()[..., None]
    for axis in range(grid.dimension):
        offset = grid.axis(axis) - query.origin[axis]
        along = np.exp(1j * reports.frequencies[axis][..., None] * offset)
        values = (values[..., None] * along[..., None, :]).reshape(*values.shape[:2], -1)
    return np.asarray(values.real.sum(axis=1).reshape(-1, *grid.count))


class Device:
    """A device that answers queries inside a policy, of the region and bandwidth that it is pinned to.

    Its attribute ``kept`` counts every answer, and is to be saved before the answer is sent.
    """

    def __init__(self, policy: Policy, kept: KeptFrequencies) -> None:
        self.policy, self.kept = policy, kept

    def answer(
        self,
        query: Query,
        lon: npt.ArrayLike,
        lat: npt.ArrayLike,
        *,
        time_s: npt.ArrayLike | None = None,
        weights: npt.ArrayLike | None = None,
    ) -> Reports | None:
        """The report of this device, or None: it abstains outside the region. Run by: the client.

        Errors are decided before the place is read, except for a place that is no number.

        Parameters
        ----------
        query : Query
            The server's query.
        lon, lat : float or array of float
            Places of the device: degrees (coordinates of the plane where the query names no projection).
        time_s : float or array of float, optional
            Times, seconds, for a query with a third axis.
        weights : array of float, optional
            Weight of each place; equal by default.

        Raises
        ------
        PromiseError
            The query is outside the policy, or of another region or bandwidth than its first.
        InputError
            A location is not a finite number.
        """
        self.kept = self.kept.counted(self.policy, query)
        axes = [lon, lat] if time_s is None else [lon, lat, time_s]
        places = np.stack([np.atleast_1d(np.asarray(axis, dtype=np.float64)) for axis in axes])
        counted = np.ones(places.shape[1]) if weights is None else np.asarray(weights, dtype=np.float64)
        if places.shape[0] != query.dimension or not bool(np.isfinite(places).all()):
            raise InputError("location must be a finite number on each axis of the query")
        if counted.shape != places.shape[1:] or not bool((counted > 0).all() and np.isfinite(counted).all()):
            raise InputError("weights must be one number above 0 for each place")
        plane = closed_projection(query.crs)
        if query.crs and plane is not None:
            places[:2] = plane.project(places[0], places[1])
        low, high = (np.asarray(end)[:, None] for end in (query.low, query.high))
        inside = ((places >= low) & (places <= high)).all(axis=0)
        if not inside.any():
            return None
        starts = np.array([0, np.count_nonzero(inside)])
        moved = self.kept.moved(places[:, inside])
        visits = Visits(moved, starts, counted[inside] / math.fsum(counted[inside]))
        return client_reports(self.kept.take(query.features), visits, query)

    def __repr__(self) -> str:
        return f"Device({self.policy!r})"


VERSION: Final = 1
_QUERY, _COMPACT = 1, 2
_ROUNDING: Final = 1e-9


def _pack(values: npt.ArrayLike) -> bytes:
    return np.asarray(values, dtype="<f8").tobytes()


def write_query(query: Query) -> bytes:
    """Encode a query. Run by: the server."""
    grid = query.grid
    return canonical_cbor.encode(
        [
            VERSION,
            _QUERY,
            query.crs.encode(),
            query.kernel.encode(),
            query.features,
            _pack(query.bandwidth),
            _pack(query.low),
            _pack(query.high),
            b"" if grid is None else _pack(grid.start),
            b"" if grid is None else _pack(grid.step),
            b"" if grid is None else np.asarray(grid.count, dtype="<u4").tobytes(),
        ]
    )


def read_query(data: bytes) -> Query:
    """Decode a query. Run by: the client.

    Raises
    ------
    InputError
        It is no query of this version, or one whose parameters are out of range.
    """
    fields = _fields(data, _QUERY, 11)
    crs, kernel, features, bandwidth, low, high, start, step, count = fields
    axes = [_floats(part) for part in (bandwidth, low, high, start, step)]
    if not (isinstance(features, int) and isinstance(count, bytes) and len(count) % 4 == 0):
        raise InputError("a query whose fields are of other types")
    counts = tuple(int(value) for value in np.frombuffer(count, dtype="<u4"))
    grid = EvenGrid(axes[3], axes[4], counts) if counts or axes[3] or axes[4] else None
    return Query(axes[0], axes[1], axes[2], features, _text(kernel), grid, _text(crs))


def digest(query: Query) -> bytes:
    """SHA-256 of the query's encoding, which names the query in a report."""
    return hashlib.sha256(write_query(query)).digest()


def write_reports(reports: Reports, query: Query) -> list[bytes]:
    """Encode each device's compact report. Run by: the client."""
    name = digest(query)
    numbers = np.concatenate(
        [reports.frequencies, reports.projections.real[None], reports.projections.imag[None]]
    )
    rows = np.ascontiguousarray(np.moveaxis(numbers, 0, 2))
    return [canonical_cbor.encode([VERSION, _COMPACT, name, _pack(row)]) for row in rows]


def read_reports(messages: Sequence[bytes], query: Query) -> Reports:
    """Decode and check compact reports. Run by: the server.

    A report changes the surface by at most one user: its projections are no longer than 1, and its frequencies are in
    the grid's band.

    Raises
    ------
    InputError
        A message is not a report of this query, or has a number out of range.
    """
    size = (query.dimension + 2) * query.features
    rows = _rows(messages, _COMPACT, query, size).reshape(len(messages), query.features, query.dimension + 2)
    frequencies = np.ascontiguousarray(np.moveaxis(rows[:, :, : query.dimension], 2, 0))
    projections = rows[:, :, -2] + 1j * rows[:, :, -1]
    longest = np.abs(projections).max(axis=1, initial=0.0)
    _refuse(np.asarray(longest > 1 + _ROUNDING), "a projection longer than 1")
    if query.grid is not None:
        band = np.pi / np.abs(query.grid.step)[:, None, None] * (1 + _ROUNDING)
        _refuse(
            np.asarray((np.abs(frequencies) > band).any(axis=(0, 2))), "a frequency outside the grid's band"
        )
    return Reports(frequencies, projections)


def _rows(messages: Sequence[bytes], kind: int, query: Query, size: int) -> FloatArray:
    """The numbers of each message, shape (messages, size), all finite."""
    name = digest(query)
    rows = np.empty((len(messages), size))
    for at, data in enumerate(messages):
        try:
            answered, numbers = _fields(data, kind, 4)
        except InputError as error:
            raise InputError(f"report {at}: {error}") from None
        if answered != name:
            raise InputError(f"report {at}: answers another query")
        if not isinstance(numbers, bytes) or len(numbers) != 8 * size:
            raise InputError(f"report {at} must be {size} numbers of 64 bits for this query")
        rows[at] = np.frombuffer(numbers, dtype="<f8")
    _refuse(np.asarray(~np.isfinite(rows).all(axis=1)), "a number that is not finite")
    return rows


def _refuse(bad: npt.NDArray[np.bool_], what: str) -> None:
    """Name the first report with a fault."""
    if bad.any():
        raise InputError(f"report {int(np.argmax(bad))}: {what}")


def _fields(data: bytes, kind: int, count: int) -> list[int | bytes]:
    try:
        values = canonical_cbor.decode(bytes(data))
    except canonical_cbor.NotCanonical as error:
        raise InputError(f"is no message of this version ({error})") from None
    if len(values) != count or values[0] != VERSION or values[1] != kind:
        raise InputError(f"is no message of version {VERSION}, kind {kind}, with {count} fields")
    return values[2:]


def _floats(data: int | bytes) -> tuple[float, ...]:
    if not isinstance(data, bytes) or len(data) % 8:
        raise InputError("a query whose fields are of other types")
    return tuple(np.frombuffer(data, dtype="<f8").tolist())


def _text(data: int | bytes) -> str:
    try:
        return data.decode() if isinstance(data, bytes) else ""
    except UnicodeDecodeError:
        raise InputError("a query whose names are not text") from None
