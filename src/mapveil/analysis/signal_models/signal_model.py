"""The contract of signal models: fitted on measurements, they predict dBm with a standard deviation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.geo.measurements import LAT, LON, RSS, Measurements
from mapveil.registry import Row, find_row
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import InputError
from mapveil_client.randomness.random import Randomness

_ROOM: Final = "mapveil.analysis.signal_models"

SIGNAL_MODELS: Final[tuple[Row[SignalModel], ...]] = (
    Row("linear", f"{_ROOM}.linear:LinearSignal"),
    Row("path-loss", f"{_ROOM}.path_loss:PathLoss"),
    Row("random-forest", f"{_ROOM}.random_forest:ForestSignal"),
    Row("kriging", f"{_ROOM}.kriging:Kriging"),
)


def signal_model(name: str, options: Mapping[str, Any] | None = None) -> SignalModel:
    """Make the model of a name, which looks at locations alone unless the option ``features`` says otherwise.

    Raises
    ------
    ParameterError
        No such model or option, or a value outside its range.

    Examples
    --------
    >>> signal_model("kriging", {"blocks": 500})
    Kriging(features=(), blocks=500)
    """
    return find_row(SIGNAL_MODELS, name, "signal model").make({"features": (), **(options or {})})


class SignalPrediction(NamedTuple):
    """Predicted signal strength; every array has shape (places,)."""

    mean_dbm: FloatArray
    deviation_db: FloatArray  # of one new measurement there


class LocalPlane(NamedTuple):
    """Metres east and north of a middle place, on the ellipsoid's tangent.

    Any number is accepted as a degree: privatized places may lie beyond the poles. At 100 km from the middle the
    error is about 1 %.
    """

    lat: float  # of the middle, degrees
    lon: float
    metres_per_lat: float
    metres_per_lon: float

    @classmethod
    def around(cls, rows: FloatArray) -> LocalPlane:
        """The plane whose middle is the median place of rows."""
        lat, lon = float(np.median(rows[:, LAT])), float(np.median(rows[:, LON]))
        # Radii of curvature of WGS84 along and across the meridian.
        squeeze = 1 - 0.00669437999014 * np.sin(np.radians(lat)) ** 2
        along = 6378137.0 * (1 - 0.00669437999014) / squeeze**1.5
        across = 6378137.0 / np.sqrt(squeeze) * np.cos(np.radians(lat))
        return cls(lat, lon, float(np.radians(along)), float(np.radians(across)))

    def metres(self, rows: FloatArray) -> FloatArray:
        """East and north of the middle, metres, shape (rows, 2)."""
        east = (rows[:, LON] - self.lon) * self.metres_per_lon
        return np.stack([east, (rows[:, LAT] - self.lat) * self.metres_per_lat], axis=1)

    def degrees(self, metres: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Latitude and longitude of places of shape (places, 2): the inverse of :meth:`metres`."""
        return self.lat + metres[:, 1] / self.metres_per_lat, self.lon + metres[:, 0] / self.metres_per_lon


@dataclass(frozen=True, eq=False, repr=False)
class FittedSignalModel(ABC):
    """A model that is ready to predict.

    Parameters
    ----------
    names : tuple of str
        Columns of the rows it predicts from.
    mean : ndarray of float64, shape (columns,)
        Their values at a place of which nothing else is known.
    """

    names: tuple[str, ...]
    mean: FloatArray

    @abstractmethod
    def predict(self, rows: FloatArray) -> SignalPrediction:
        """Signal strength at rows. Run by: the server.

        Parameters
        ----------
        rows : ndarray of float64, shape (places, features)
            The columns the model was fitted on, in their own units; signal strength is ignored.
        """

    def interval_factor(self) -> float:
        """The factor by which an interval is wider than the deviation's normal one, as the variances were learnt."""
        return 1.0

    def mean_dbm(self, rows: FloatArray) -> FloatArray:
        """The mean of :meth:`predict` alone, shape (places,)."""
        return self.predict(rows).mean_dbm

    def at(self, lat: npt.ArrayLike, lon: npt.ArrayLike) -> SignalPrediction:
        """Signal strength at places, every other feature at its mean.

        Parameters
        ----------
        lat, lon : array_like, shape (places,)
            Degrees.
        """
        rows = np.tile(self.mean, (np.size(lat), 1))
        rows[:, LAT], rows[:, LON] = lat, lon
        return self.predict(rows)

    def rmse_dbm(self, measurements: Measurements) -> float:
        r"""Error at held-out places, dB.

        .. math:: \sqrt{\frac1n \sum_{i=1}^n (\hat x_{3i} - x_{3i})^2}

        where: :math:`x_{3i}` is the signal strength of row i and :math:`\hat x_{3i}` the prediction from its other
        columns. Judge on measurements that were not privatized: the map is of the world, not of the reports.

        Parameters
        ----------
        measurements : Measurements
            True rows with the columns the model was fitted on.

        Raises
        ------
        InputError
            Other columns, or no rows.

        Source: Table 5 of Zhang et al. 2022.
        """
        if measurements.names != self.names:
            raise InputError(
                f"{measurements.source}: columns {', '.join(measurements.names)}; the model was fitted on "
                f"{', '.join(self.names)}"
            )
        if not len(measurements):
            raise InputError(f"{measurements.source}: no rows; at least one is needed to judge a model")
        errors = self.mean_dbm(measurements.rows) - measurements.rows[:, RSS]
        return float(np.sqrt(np.square(errors).mean()))


@dataclass(frozen=True, kw_only=True)
class SignalModel(ABC):
    """Parameters of one model of signal strength, validated at construction.

    Parameters
    ----------
    features : tuple of str, optional
        Features it uses besides latitude and longitude; none by default, which is what a map can be drawn from;
        ``None`` for all there are, as the paper's linear model does.
    """

    name: ClassVar[str]

    features: tuple[str, ...] | None = ()

    @abstractmethod
    def fit(self, measurements: Measurements, *, rng: Randomness | int | None = None) -> FittedSignalModel:
        """Fit on measurements. Run by: the server.

        Parameters
        ----------
        measurements : Measurements
            Measurements, privatized or not.
        rng : Randomness or int, optional
            The source of bits, where the model needs any.

        Raises
        ------
        InputError
            Too few rows, or no such feature.
        """

    def columns(self, names: tuple[str, ...]) -> IntArray:
        """Indices of the columns that the model uses: latitude, longitude, then the features.

        Raises
        ------
        InputError
            A feature does not exist, or is the signal strength.
        """
        further = tuple(names[RSS + 1 :]) if self.features is None else self.features
        unknown = [name for name in further if name not in names or name in names[: RSS + 1]]
        if unknown:
            raise InputError(
                f"no further feature {', '.join(map(repr, unknown))}; there are {', '.join(names[RSS + 1 :]) or 'none'}"
            )
        return np.array([LAT, LON, *(names.index(name) for name in further)])

    def _check_rows(self, measurements: Measurements, least: int) -> None:
        if len(measurements) < least:
            raise InputError(
                f"{measurements.source}: {len(measurements)} rows; a {self.name} model needs {least}"
            )
