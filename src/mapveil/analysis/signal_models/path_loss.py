"""Log-distance path loss, with the transmitter's place fitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

import numpy as np

from mapveil.analysis.signal_models.signal_model import (
    FittedSignalModel,
    LocalPlane,
    SignalModel,
    SignalPrediction,
)
from mapveil.geo.measurements import RSS, Measurements
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import InputError, check
from mapveil_client.randomness.random import Randomness, as_randomness

_STARTS: Final = 15  # candidate places along each side
_REFINED: Final = 3
_FEWEST: Final = 10  # rows of a transmitter
_NEAREST: Final = 15  # measurements that say who serves a place


class Transmitter(NamedTuple):
    """One fitted transmitter."""

    key: float  # value of the feature ``by``; NaN where there is one transmitter
    lat: float  # degrees
    lon: float
    at_1m_dbm: float
    exponent: float
    deviation_db: float  # of what is left: shadowing
    rows: int


@dataclass(frozen=True, kw_only=True)
class PathLoss(SignalModel):
    r"""Strength falls with the logarithm of the distance from a transmitter.

    .. math:: x_3 = a - 10\, n \log_{10} \max(d, d_0)

    where: d is the distance to the transmitter (metres), whose place is fitted with :math:`a` (dBm at 1 m) and the
    exponent n by least squares: for a given place a and n are linear, the place is searched on a grid over
    the measurements and refined by Nelder and Mead. :math:`0 \le n \le` ``steepest``; :math:`d_0` is ``nearest_m``.
    With ``by``, each value of that feature has a transmitter of its own, and a place without a known value is served
    by those of the 15 measurements nearest to it, in their shares: the strongest fitted one would often be one that
    was never heard there.

    Parameters
    ----------
    by : str, optional
        The feature that names transmitters, such as ``"cell_id"``.
    nearest_m : float
        Distances below count as this.
    steepest : float
        Largest exponent.
    most_rows : int
        Rows of a transmitter beyond so many are sampled.

    Source: the path loss model of Section 3.6 of Zhang et al. 2022, who leave it aside for its accuracy.
    """

    name: ClassVar[str] = "path-loss"

    by: str | None = None
    nearest_m: float = 10.0
    steepest: float = 8.0
    most_rows: int = 20_000

    def __post_init__(self) -> None:
        check(self.nearest_m > 0, "nearest_m", "a distance above 0", self.nearest_m)
        check(self.steepest > 0, "steepest", "an exponent above 0", self.steepest)
        check(self.most_rows >= _FEWEST, "most_rows", f"at least {_FEWEST}", self.most_rows)

    def fit(self, measurements: Measurements, *, rng: Randomness | int | None = None) -> FittedPathLoss:
        """Find every transmitter.

        Raises
        ------
        InputError
            Too few rows, or no such feature.
        """
        self._check_rows(measurements, _FEWEST)
        rows, names = measurements.rows, measurements.names
        column = None
        if self.by is not None:
            if self.by not in names[RSS + 1 :]:
                raise InputError(
                    f"no further feature {self.by!r}; there are {', '.join(names[RSS + 1 :]) or 'none'}"
                )
            column = names.index(self.by)
        plane = LocalPlane.around(rows)
        draw = as_randomness(rng).generator()
        keys = np.full(len(rows), np.nan) if column is None else np.rint(rows[:, column])
        found: list[Transmitter] = []
        heard: list[FloatArray] = []
        for key in np.unique(keys):
            at = np.flatnonzero(keys == key) if column is not None else np.arange(len(rows))
            if len(at) < _FEWEST:
                continue
            chosen = at[draw.permutation(len(at))[: self.most_rows]]
            found.append(self._transmitter(float(key), plane, rows[chosen], len(at)))
            heard.append(plane.metres(rows[chosen]))
        if not found:
            raise InputError(
                f"{measurements.source}: no value of {self.by} has {_FEWEST} rows; at least one is needed"
            )
        return FittedPathLoss(
            names,
            np.full(len(names), np.nan),  # a place alone names no transmitter
            plane,
            tuple(found),
            np.concatenate(heard),
            np.repeat(np.arange(len(heard)), [len(each) for each in heard]),
            column,
            self.nearest_m,
        )

    def _transmitter(self, key: float, plane: LocalPlane, rows: FloatArray, count: int) -> Transmitter:
        from scipy.optimize import minimize

        places, strength = plane.metres(rows), rows[:, RSS]

        def loss(place: FloatArray) -> float:
            return self._at(place, places, strength)[2]

        low, high = np.quantile(places, [0.01, 0.99], axis=0)
        margin = 0.5 * np.maximum(high - low, 50.0)
        east, north = (
            np.linspace(low[axis] - margin[axis], high[axis] + margin[axis], _STARTS) for axis in (0, 1)
        )
        starts = np.stack(np.meshgrid(east, north), axis=-1).reshape(-1, 2)
        losses = np.array([loss(start) for start in starts])
        step = float(max(east[1] - east[0], north[1] - north[0])) / 2
        best: FloatArray = starts[int(losses.argmin())]
        for start in starts[np.argsort(losses)[:_REFINED]]:
            simplex = start + np.array([[0.0, 0.0], [step, 0.0], [0.0, step]])
            tried = minimize(
                loss,
                start,
                method="Nelder-Mead",
                options={"initial_simplex": simplex, "xatol": 0.5, "fatol": 1e-9},
            )
            # A transmitter far off is a plane in disguise: its distance is not determined.
            inside = bool(np.all(np.abs(tried.x) < 1e6))
            if inside and tried.fun < loss(best):
                best = np.asarray(tried.x)
        level, exponent, left = self._at(best, places, strength)
        return Transmitter(
            key,
            plane.lat + float(best[1]) / plane.metres_per_lat,
            plane.lon + float(best[0]) / plane.metres_per_lon,
            level,
            exponent,
            float(np.sqrt(left * len(rows) / max(len(rows) - 4, 1))),
            count,
        )

    def _at(self, place: FloatArray, places: FloatArray, strength: FloatArray) -> tuple[float, float, float]:
        """Level, exponent and mean squared error for a transmitter at a place."""
        decades = -10 * np.log10(np.maximum(np.hypot(*(places - place).T), self.nearest_m))
        middle, level = decades.mean(), strength.mean()
        spread = float(np.square(decades - middle).mean())
        slope = float(((decades - middle) * (strength - level)).mean()) / spread if spread > 0 else 0.0
        slope = min(max(slope, 0.0), self.steepest)
        left = strength - level - slope * (decades - middle)
        return float(level - slope * middle), slope, float(np.square(left).mean())


@dataclass(frozen=True, eq=False, repr=False)
class FittedPathLoss(FittedSignalModel):
    """Fitted transmitters."""

    plane: LocalPlane
    transmitters: tuple[Transmitter, ...]  # by ascending key
    heard: FloatArray  # places of measurements, metres, shape (measurements, 2)
    served: IntArray  # the transmitter that each of them heard
    column: int | None  # of the feature that names transmitters
    nearest_m: float

    def predict(self, rows: FloatArray) -> SignalPrediction:
        """Each row by its transmitter, or by those heard around it where it names none that is known."""
        places = self.plane.metres(rows)
        every = np.empty((len(rows), len(self.transmitters)))
        for at, each in enumerate(self.transmitters):
            own = self.plane.metres(np.array([[each.lat, each.lon]]))
            away = np.maximum(np.hypot(*(places - own).T), self.nearest_m)
            every[:, at] = each.at_1m_dbm - 10 * each.exponent * np.log10(away)
        shares = np.zeros_like(every)
        open_ = np.ones(len(rows), dtype=np.bool_)
        if self.column is not None:
            keys = np.array([each.key for each in self.transmitters])
            named = np.rint(rows[:, self.column])
            nearest = np.searchsorted(keys, named).clip(0, len(keys) - 1)
            known = named == keys[nearest]
            shares[np.flatnonzero(known), nearest[known]] = 1.0
            open_ = ~known
        if open_.any():
            shares[open_] = self._shares(places[open_])
        variance = np.square([each.deviation_db for each in self.transmitters])
        mean = (shares * every).sum(axis=1)
        spread = (shares * (variance + np.square(every - mean[:, None]))).sum(axis=1)
        return SignalPrediction(mean, np.sqrt(spread))

    def _shares(self, places: FloatArray) -> FloatArray:
        """Fractions of the nearest measurements that heard each transmitter."""
        count = len(self.transmitters)
        if count == 1:
            return np.ones((len(places), 1))
        from scipy.spatial import cKDTree

        near = min(_NEAREST, len(self.heard))
        found = np.asarray(cKDTree(self.heard).query(places, k=np.arange(1, near + 1))[1])
        cell = np.arange(len(places))[:, None] * count + self.served[found]
        counted = np.bincount(cell.ravel(), minlength=len(places) * count).reshape(-1, count)
        return np.asarray(counted / near)
