"""A simulated city of phones that measure a known field of signal strength."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from mapveil.geo.measurements import Measurements
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import check

SEA: Final = (40.05, -40.0)
"""Latitude and longitude of the city's middle: open Atlantic, so that nobody takes it for a real one."""

_DAY_US: Final = 86_400_000_000
_FIRST_DAY: Final = 20_000  # days since 1970
_METRES_PER_DEGREE: Final = 111_195.0
_GRID_M: Final = 20.0  # of the field: a quarter of the shortest correlation length
_FLOOR_DBM: Final = -140.0  # a phone reports nothing weaker
_STREET_M: Final = 40.0  # between measurements along a way


@dataclass(frozen=True, kw_only=True)
class City:
    r"""A square city, its base stations, and the field of their signal.

    .. math:: x(s) = \max_b \Big( a - 10\, n \log_{10} \frac{\lVert s - b \rVert}{1\,\mathrm{m}} + S_b(s) \Big),
              \qquad \operatorname{cov}[S_b(s), S_b(s')] = \sigma^2 e^{-\lVert s - s' \rVert / \ell}

    where: b are the stations, a is ``at_1m_dbm``, n is ``exponent``, :math:`\sigma` is ``shadowing_db`` and
    :math:`\ell` is ``length_m``. A measurement adds an offset of its phone, of deviation ``phone_db``, and one of its
    own, of deviation ``fading_db``, and is rounded to whole dBm.

    Source: the correlation of shadowing is that of M. Gudmundson, "Correlation model for shadow fading in mobile radio
    systems", Electronics Letters 27(23), 1991.
    """

    side_m: float = 4000.0
    stations: int = 6
    at_1m_dbm: float = -15.0
    exponent: float = 3.2
    shadowing_db: float = 8.0
    length_m: float = 150.0
    phone_db: float = 2.0
    fading_db: float = 4.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("side_m", "length_m", "exponent"):
            check(getattr(self, name) > 0, name, "above 0", getattr(self, name))
        check(self.stations >= 1, "stations", "at least 1", self.stations)

    def field(self) -> FloatArray:
        """Signal strength in squares of 20 m, dBm, rows northwards, shape (n, n)."""
        draw = np.random.default_rng([self.seed, 1])
        count = round(self.side_m / _GRID_M)
        middles = (np.arange(count) + 0.5) * _GRID_M
        places = draw.uniform(0.1, 0.9, (self.stations, 2)) * self.side_m
        best = np.full((count, count), -np.inf)
        for east, north in places:
            away = np.hypot(middles[None, :] - east, middles[:, None] - north)
            loss = self.at_1m_dbm - 10 * self.exponent * np.log10(np.maximum(away, 10.0))
            best = np.maximum(best, loss + self._shadowing(count, draw))
        return np.asarray(np.maximum(best, _FLOOR_DBM))

    def squares(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Latitude, longitude and strength of the field's squares, shape (squares,)."""
        field = self.field()
        middles = (np.arange(len(field)) + 0.5) * _GRID_M
        east, north = np.meshgrid(middles, middles)
        return *self.degrees(np.stack([east.ravel(), north.ravel()], axis=1)), field.ravel()

    def _shadowing(self, count: int, draw: np.random.Generator) -> FloatArray:
        """A field of exponential correlation on a torus of twice the side, of which a quarter is used."""
        size = 2 * count
        steps = np.minimum(np.arange(size), size - np.arange(size)) * _GRID_M
        covariance = self.shadowing_db**2 * np.exp(-np.hypot(steps[:, None], steps[None, :]) / self.length_m)
        power = np.maximum(np.fft.fft2(covariance).real, 0.0)
        noise = draw.normal(size=(size, size)) + 1j * draw.normal(size=(size, size))
        return np.asarray(np.fft.fft2(np.sqrt(power) * noise).real[:count, :count] / size)

    def measure(self, phones: int, days: int, *, first_day: int = 0, seed: int = 0) -> Measurements:
        """Rows of phones that go to a few of their places each day, by straight ways.

        Parameters
        ----------
        phones, days : int
            Each phone measures on each day.
        first_day : int
            Number of the first day.
        seed : int
            Which phones: the same seed gives the same people on other days.
        """
        draw = np.random.default_rng([self.seed, 2, seed])
        homes = _people(draw, (phones, 1), self.side_m)
        own = np.clip(
            homes + draw.normal(scale=0.15 * self.side_m, size=(phones, 6, 2)), 0, self.side_m - 1e-6
        )
        offset = draw.normal(scale=self.phone_db, size=phones)
        draw = np.random.default_rng([self.seed, 3, seed, first_day])
        stops = np.take_along_axis(own[:, None], draw.integers(6, size=(phones, days, 4))[..., None], axis=2)
        count = int(self.side_m * np.sqrt(2) / _STREET_M)
        legs = stops[:, :, 1:] - stops[:, :, :-1]
        steps = np.minimum((np.hypot(*np.moveaxis(legs, -1, 0)) / _STREET_M).astype(np.int64) + 1, count)
        phone, day, leg = (np.repeat(each.ravel(), steps.ravel()) for each in np.indices(steps.shape))
        ends = np.cumsum(steps.ravel())
        at = (np.arange(ends[-1]) - np.repeat(ends - steps.ravel(), steps.ravel())) / np.repeat(
            steps.ravel(), steps.ravel()
        )
        metres = stops[phone, day, leg] + at[:, None] * legs[phone, day, leg]
        metres = np.clip(metres + draw.normal(scale=10.0, size=metres.shape), 0, self.side_m - 1e-6)
        column, row = (metres // _GRID_M).astype(np.int64).T
        strength = (
            self.field()[row, column] + offset[phone] + draw.normal(scale=self.fading_db, size=phone.size)
        )
        rows = np.column_stack([*self.degrees(metres), np.clip(np.rint(strength), _FLOOR_DBM, 0.0)])
        time = (_FIRST_DAY + first_day + day) * _DAY_US + np.arange(phone.size)
        order = np.arange(phone.size, dtype=np.int64)
        ids = tuple(f"{seed}-{at}" for at in range(phones))
        return Measurements(
            rows,
            ("lat", "lon", "rss_dbm"),
            phone.astype(np.int64),
            ids,
            time.astype(np.int64),
            order,
            "simulated city",
        )

    def degrees(self, metres: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Latitude and longitude of metres east and north of the south-western corner."""
        apart = metres - self.side_m / 2
        lat = SEA[0] + apart[:, 1] / _METRES_PER_DEGREE
        return lat, SEA[1] + apart[:, 0] / (_METRES_PER_DEGREE * np.cos(np.radians(SEA[0])))

    @property
    def box(self) -> tuple[float, float, float, float]:
        """West, south, east, north, degrees."""
        lat, lon = self.degrees(np.array([[0.0, 0.0], [self.side_m, self.side_m]]))
        return float(lon[0]), float(lat[0]), float(lon[1]), float(lat[1])


def _people(draw: np.random.Generator, shape: tuple[int, ...], side_m: float) -> FloatArray:
    """Homes: half of them around the middle, half anywhere."""
    anywhere = draw.uniform(size=(*shape, 2))
    middle = np.clip(draw.normal(0.5, 0.15, size=(*shape, 2)), 0.01, 0.99)
    return np.where(draw.random((*shape, 1)) < 0.5, anywhere, middle) * side_m
