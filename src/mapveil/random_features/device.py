"""A real device: its policy, its kept frequencies, and the one thing that leaves it."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import numpy.typing as npt

from mapveil.geo.projection import projection_of
from mapveil.random_features.frequencies import Kept
from mapveil.random_features.policy import Policy
from mapveil.random_features.query import Query
from mapveil.random_features.report import Reports, Visits, client_reports
from mapveil_client.errors import InputError


class Frequencies(Protocol):
    """What keeps a device's frequencies: a :class:`~mapveil.random_features.frequencies.FrequencyStore`, or an
    app's own."""

    def take(self, features: int) -> Kept:
        """The first ``features`` frequencies, and the offset: the same ones each time."""
        ...


class Device:
    """Answers queries inside a policy with the same frequencies each time, wherever it is.

    Parameters
    ----------
    policy : Policy
        What it answers.
    store : Frequencies
        Its frequencies, of the same policy.
    """

    def __init__(self, policy: Policy, store: Frequencies) -> None:
        self.policy, self._store = policy, store

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
            The query is outside the policy, or the device answered its one query.
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
        if query.crs:
            places[:2] = projection_of(query.crs).project(places[0], places[1])
        low, high = (np.asarray(end)[:, None] for end in (query.low, query.high))
        inside = ((places >= low) & (places <= high)).all(axis=0)
        if not inside.any():
            return None
        starts = np.array([0, np.count_nonzero(inside)])
        kept = self._store.take(query.features)
        visits = Visits(places[:, inside], starts, counted[inside] / math.fsum(counted[inside]))
        return client_reports(kept.units, visits.moved(kept.offset), query)

    def __repr__(self) -> str:
        return f"Device({self.policy!r})"
