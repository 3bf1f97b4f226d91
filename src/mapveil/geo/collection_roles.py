"""Roles of rows in a collection of measurements: a pilot, reports, held-out places, later days."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from mapveil.geo.measurements import LAT, LON, Measurements
from mapveil.geo.projection import METRES_PER_DEGREE
from mapveil_client.arrays import BoolArray, IntArray
from mapveil_client.errors import InputError, check

if TYPE_CHECKING:
    from mapveil_client.randomness.random import Randomness

_DAY_US: Final = 86_400_000_000
_BLOCK_M: Final = 100.0  # side of a held-out place: wider than the error of a phone's location fix
_LEAST_DAYS: Final = 3  # one for each of pilot, reports and later days
_LEAST_USERS: Final = 2  # of a pilot: privatizers tell users apart


class CollectionRoles(NamedTuple):
    """Rows of one table by their role; no row has two. Not private.

    ``places`` and ``later`` are true measurements that no map is made of: maps are judged there.
    """

    pilot: Measurements  # of users who opted in, on the first days; raw
    held_out: (
        Measurements  # of everybody on the days after, outside held-out places: what phones would report
    )
    places: Measurements  # of everybody on those days at held-out places
    later: Measurements  # of everybody on the last days; no rows where the table covers too few days
    notes: tuple[str, ...]


def user_days(measurements: Measurements) -> IntArray:
    """Dense codes of each row's pair of user and day (UTC), shape (rows,); of its user where there are no times."""
    if measurements.time is None:
        return measurements.users
    day = measurements.time // _DAY_US
    key = measurements.users * (int(day.max(initial=0) - day.min(initial=0)) + 1) + day - day.min(initial=0)
    return np.unique(key, return_inverse=True)[1].astype(np.int64)


def collection_roles(
    measurements: Measurements,
    rng: Randomness,
    *,
    pilot: float = 0.3,
    later: float = 0.3,
    places: float = 0.2,
    block_m: float = _BLOCK_M,
) -> CollectionRoles:
    """Divide a table by days, users and places, as a collection would. Run by: the evaluator.

    Whole days are divided so that the first hold about the fraction ``pilot`` of the rows and the last about
    ``later``. Half of the users of the first days, drawn at random (at least two, where there are two), are the pilot.
    On the days between everybody reports, outside a fraction ``places`` of squares of ``block_m``, which are held out
    of the pilot too. A table of fewer than three days, or without times, has no later days: the pilot is then a
    fraction of its users, and the others report.

    Parameters
    ----------
    measurements : Measurements
        The true rows.
    rng : Randomness
        The source of bits.
    pilot, later, places : float
        Fractions between 0 and 1; ``pilot`` and ``later`` together below 1.
    block_m : float
        Side of a square, metres.

    Raises
    ------
    InputError
        One user only, or a role without a row.
    """
    for name, value in (("pilot", pilot), ("later", later), ("places", places)):
        check(0 < value < 1, name, "a fraction between 0 and 1, such as 0.3", value)
    check(pilot + later < 1, "later", f"below {1 - pilot:g} with a pilot of {pilot:g}", later)
    check(block_m > 0, "block_m", "above 0 metres", block_m)
    users = np.unique(measurements.users)
    if users.size < _LEAST_USERS:
        raise InputError(f"{measurements.source}: one user only; roles need rows of at least two users")
    draw = rng.generator()
    held = _held_out_places(measurements, places, block_m, draw)
    first, last, notes = _periods(measurements, pilot, later)
    if last is None:
        count = min(max(round(pilot * users.size), _LEAST_USERS), users.size - 1)
        eligible = np.ones(len(measurements), dtype=np.bool_)
    else:
        users = np.unique(measurements.users[first])
        count = max(round(users.size / 2), min(_LEAST_USERS, users.size))
        eligible = first
    opted = eligible & np.isin(
        measurements.users, _pilot_users(measurements.users, eligible & ~held, users, count, draw)
    )
    between, after = (~opted, ~eligible) if last is None else (~first & ~last, last)
    made = {
        "pilot": opted & ~held,
        "reports": between & ~held,
        "held-out places": between & held,
        "later days": after,
    }
    for name, kept in made.items():
        if not kept.any() and (name != "later days" or last is not None):
            wanted = (
                f"places more than {block_m:g} m apart"
                if name == "held-out places"
                else "more days, users or places"
            )
            raise InputError(f"{measurements.source}: no row is left for {name}; {wanted} are needed")
    parts = [measurements.take(kept) for kept in made.values()]
    return CollectionRoles(parts[0], parts[1], parts[2], parts[3], notes)


def _periods(
    measurements: Measurements, pilot: float, later: float
) -> tuple[BoolArray, BoolArray | None, tuple[str, ...]]:
    """The rows of the first and of the last days; None for the last where there are too few days."""
    nothing = np.zeros(len(measurements), dtype=np.bool_)
    if measurements.time is None:
        return nothing, None, ("later days are not measured: the table has no times",)
    days, at, counts = np.unique(measurements.time // _DAY_US, return_inverse=True, return_counts=True)
    if days.size < _LEAST_DAYS:
        said = "one day" if days.size == 1 else f"{days.size} days"
        return nothing, None, (f"later days are not measured: the table covers {said}",)
    reached = np.cumsum(counts) / len(measurements)
    # The cut after the day that comes nearest to the fraction leaves every period a day.
    first = int(np.abs(reached[: days.size - 2] - pilot).argmin())
    start = int(np.abs(reached[first + 1 : days.size - 1] - (1 - later)).argmin()) + first + 1
    return at <= first, at > start, ()


def _pilot_users(
    codes: IntArray, usable: BoolArray, users: IntArray, count: int, draw: np.random.Generator
) -> IntArray:
    """So many users at random, and more where all of them but one have no usable row."""
    order = draw.permutation(users)
    present = np.isin(order, codes[usable])
    enough = np.flatnonzero(np.cumsum(present) >= _LEAST_USERS)
    return order[: max(count, int(enough[0]) + 1) if enough.size else count]


def _held_out_places(
    measurements: Measurements, fraction: float, block_m: float, draw: np.random.Generator
) -> BoolArray:
    """Whether each row lies in a square that is held out; at least one is, and one is not."""
    lat, lon = measurements.rows[:, LAT], measurements.rows[:, LON]
    north = np.floor(lat * METRES_PER_DEGREE / block_m)
    east = np.floor(lon * METRES_PER_DEGREE * np.cos(np.radians(lat.mean())) / block_m)
    blocks, at = np.unique(np.column_stack([north, east]), axis=0, return_inverse=True)
    count = min(max(round(fraction * len(blocks)), 1), len(blocks) - 1)
    chosen = np.zeros(len(blocks), dtype=np.bool_)
    chosen[draw.permutation(len(blocks))[:count]] = True
    return np.asarray(chosen[at.ravel()])
