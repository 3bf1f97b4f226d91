"""Synthetic cities: plausible tables of people in places, for tests and tutorials.

A city has centres, places drawn around them with popularities of a heavy tail, and users with a home:
each goes to a few places, mostly popular ones near home, and to the same ones again. Nothing here is
about real people, and nothing here is for a release: the randomness is NumPy's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from mapveil.geo.points import Points
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError, check

if TYPE_CHECKING:
    from mapveil.geo.region import Region


SEA_BOX: Final = (-40.08, 40.0, -39.92, 40.12)
"""Default box of a city: 14 x 13 km of open Atlantic, so that no reader takes it for a real one."""

_SLOTS: Final = 32
_PROPOSALS: Final = 4
_DAYS: Final = 90
_FIRST_DAY: Final = np.datetime64("2025-01-01")
_TRIES: Final = 1000


def city(
    users: int,
    seed: int,
    *,
    region: Region | None = None,
    centres: int = 6,
    places: int = 2000,
    rows_per_user: float = 8.0,
    reach_m: float = 2500.0,
) -> Points:
    """A table of a synthetic city's people: user, lon, lat and the day.

    Parameters
    ----------
    users : int
        Number of users, each with at least one row.
    seed : int
        The same seed and parameters give the same city.
    region : Region, optional
        Where it stands, :data:`SEA_BOX` by default; every row lies inside.
    centres, places : int
        Number of its centres and of the places people go to.
    rows_per_user : float
        Mean number of rows of a user, at least 1; the law has a heavy tail (a few users have hundreds).
    reach_m : float
        A place twice this far from home is e times less likely than one this far, metres.

    Returns
    -------
    Points
        With ``region`` set.

    Raises
    ------
    ParameterError
        A parameter is outside its range.

    Examples
    --------
    >>> city(users=100, seed=1)
    Points(synthetic city: user=user, lon=lon, lat=lat, time=time, weight=none)
    """
    for name, value, least in (
        ("users", users, 1),
        ("centres", centres, 1),
        ("places", places, 1),
        ("rows_per_user", rows_per_user, 1),
        ("reach_m", reach_m, 1),
    ):
        check(least <= value < np.inf, name, f"a number of at least {least}", value)
    if region is None:
        from mapveil.geo.region import Region

        region = Region.from_bbox(*SEA_BOX)
    rng = np.random.default_rng(seed)
    middle, spread, weight = _centres(rng, region, centres)
    site = _around(rng, region, places, middle, spread, weight)
    popularity = rng.pareto(1.1, places) + 0.05
    home = _around(rng, region, users, middle, spread * 2.5, weight)
    user = np.repeat(np.arange(users), _row_counts(rng, users, rows_per_user))
    # The k-th favourite of a user is one place for all visits; slot 0 is home.
    slot = np.minimum(rng.zipf(1.6, user.size) - 1, _SLOTS - 1)
    favourite, visit = np.unique(user * _SLOTS + slot, return_inverse=True)
    owner = favourite // _SLOTS
    at = np.where(
        (favourite % _SLOTS == 0)[:, None],
        home[owner],
        site[_choose(rng, region, home[owner], site, popularity / popularity.sum(), reach_m)],
    )
    rows = _inside(
        region, at[visit] + rng.normal(0.0, 1.0, (user.size, 2)) * 12.0 * _degrees(region), at[visit]
    )
    return Points.from_arrays(
        user,
        np.round(rows[:, 0], 6),
        np.round(rows[:, 1], 6),
        time=_FIRST_DAY + rng.integers(0, _DAYS, user.size),
        region=region,
        source="synthetic city",
    )


def _centres(
    rng: np.random.Generator, region: Region, count: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Middle (degrees), spread (metres) and share of each centre."""
    middle = _uniform(rng, region, count)
    side = min(region.area_m2**0.5, 60_000.0)
    spread = side * 0.06 * rng.lognormal(0.0, 0.4, count)
    weight = 1.0 / np.arange(1, count + 1)
    return middle, spread, weight / weight.sum()


def _around(
    rng: np.random.Generator,
    region: Region,
    count: int,
    middle: FloatArray,
    spread: FloatArray,
    weight: FloatArray,
) -> FloatArray:
    """Places scattered around centres, one in eight anywhere, all inside the region, degrees."""
    centre = rng.choice(weight.size, count, p=weight)
    radius = rng.exponential(1.0, count) * spread[centre]
    angle = rng.uniform(0.0, 2 * np.pi, count)
    offset = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    anywhere = _uniform(rng, region, count)
    return _inside(
        region,
        np.where(rng.random(count)[:, None] < 0.125, anywhere, middle[centre] + offset * _degrees(region)),
        anywhere,
    )


def _choose(
    rng: np.random.Generator,
    region: Region,
    home: FloatArray,
    site: FloatArray,
    popularity: FloatArray,
    reach_m: float,
) -> npt.NDArray[np.int64]:
    """A place for each home: popular ones are proposed, near ones are taken."""
    proposals = rng.choice(popularity.size, (home.shape[0], _PROPOSALS), p=popularity)
    offset = (site[proposals] - home[:, None, :]) / _degrees(region)
    distance = np.hypot(offset[..., 0], offset[..., 1])
    taken = rng.random(distance.shape) < np.exp(-distance / reach_m)
    first = np.where(taken.any(axis=1), taken.argmax(axis=1), distance.argmin(axis=1))
    return np.asarray(np.take_along_axis(proposals, first[:, None], axis=1)[:, 0])


def _row_counts(rng: np.random.Generator, users: int, mean: float) -> npt.NDArray[np.int64]:
    """Rows of each user, at least one, of a log-normal tail with the given mean."""
    sigma = 1.2
    more = rng.lognormal(np.log(max(mean - 1.0, 1e-9)) - sigma**2 / 2, sigma, users)
    return 1 + rng.poisson(more)


def _uniform(rng: np.random.Generator, region: Region, count: int) -> FloatArray:
    """Places anywhere in the region, degrees, shape (count, 2)."""
    west, south, east, north = region.bbox
    found = np.empty((0, 2))
    for _ in range(_TRIES):
        lon, lat = rng.uniform(west, east, count), rng.uniform(south, north, count)
        held = region.contains(lon, lat)
        found = np.concatenate([found, np.stack([lon[held], lat[held]], axis=1)])
        if len(found) >= count:
            return found[:count]
    raise ParameterError(f"region {region} has hardly any area in its box; expected a more compact one")


def _inside(region: Region, wanted: FloatArray, otherwise: FloatArray) -> FloatArray:
    held: Any = region.contains(wanted[:, 0], wanted[:, 1])
    return np.where(held[:, None], wanted, otherwise)


def _degrees(region: Region) -> FloatArray:
    """Degrees of longitude and of latitude per metre in the middle of the region."""
    latitude = np.radians((region.bbox[1] + region.bbox[3]) / 2)
    return np.array([1.0 / (111_320.0 * np.cos(latitude)), 1.0 / 110_950.0])
