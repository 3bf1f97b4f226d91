"""Measurements: rows of a user, a location, a signal strength and further features, as one matrix."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.geo.text_categories import TextNumbers
from mapveil_client.errors import InputError, check

if TYPE_CHECKING:
    from mapveil_client.randomness.random import Randomness

LAT, LON, RSS = 0, 1, 2
"""Columns of the matrix that every table has: x_1, x_2 and x_3 of the paper."""


class MeasurementSplit(NamedTuple):
    """Two parts of one table."""

    pilot: Measurements  # opted in: privatizers are fitted and adversaries trained on it
    held_out: Measurements  # privatized and attacked


@dataclass(frozen=True, eq=False, repr=False)
class Measurements:
    """Rows of signal measurements, held whole. Made by :func:`mapveil.read_measurements`.

    Parameters
    ----------
    rows : ndarray of float64, shape (rows, features)
        Columns 0, 1 and 2 are latitude (degrees), longitude (degrees) and signal strength (dBm); the further ones are
        other features, in their own units. No value is missing.
    names : tuple of str
        Names of the columns of ``rows`` in the source.
    users : ndarray of int64, shape (rows,)
        Dense codes of the users, 0 .. ``len(user_ids) - 1``. Private: never part of a report.
    user_ids : tuple of str
        Ids of the users in the source.
    time : ndarray of int64, shape (rows,), optional
        Microseconds since 1970 UTC; only used to put a user's rows in order and to split.
    positions : ndarray of int64, shape (rows,)
        Number of each row in the source, from 0.
    source : str
        Name of the table in messages.
    notes : tuple of str
        Omissions when the table was read, one line each.
    categories : tuple of int
        Columns of ``rows`` whose numbers are names: privatized as categories, never averaged.
    texts : mapping of str to mapping
        By the name of a column of text, a category, the number that stands for each text in ``rows``; -1 is any other.
    """

    rows: npt.NDArray[np.float64]
    names: tuple[str, ...]
    users: npt.NDArray[np.int64]
    user_ids: tuple[str, ...]
    time: npt.NDArray[np.int64] | None
    positions: npt.NDArray[np.int64]
    source: str = "measurements"
    notes: tuple[str, ...] = ()
    categories: tuple[int, ...] = ()
    texts: TextNumbers = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = (len(self.users), len(self.names))
        if self.rows.shape != shape or len(self.names) <= RSS:
            raise InputError(
                f"{self.source}: rows of shape {self.rows.shape}; expected {shape}, at least 3 wide"
            )
        if not np.isfinite(self.rows).all():
            raise InputError(f"{self.source}: a value is missing or not finite; expected finite numbers")

    def __len__(self) -> int:
        return len(self.users)

    @property
    def features(self) -> int:
        """Number of features of a report, location and signal strength included (m of the paper)."""
        return len(self.names)

    @property
    def numeric(self) -> list[int]:
        """Columns of ``rows`` that hold numbers, not categories."""
        return [at for at in range(self.features) if at not in self.categories]

    def take(self, kept: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> Measurements:
        """Some of the rows; users keep their codes, so that parts of one table agree about them."""
        time = None if self.time is None else self.time[kept]
        return replace(
            self, rows=self.rows[kept], users=self.users[kept], time=time, positions=self.positions[kept]
        )

    def with_rows(self, rows: npt.NDArray[np.float64]) -> Measurements:
        """The same users and times with other values, such as privatized ones."""
        return replace(self, rows=rows)

    def sample(self, rows: int | None, rng: Randomness, *, length: int = 1) -> Measurements:
        """At most so many rows (None: all), drawn at random in whole runs of ``length`` rows of one user."""
        if rows is None or rows >= len(self):
            return self
        check(rows >= 1, "rows", "at least 1", rows)
        runs = self.sequences(length)
        kept = rng.generator().permutation(len(runs))[: max(rows // length, 1)]
        return self.take(runs[kept].ravel())

    def split(self, how: str, rng: Randomness, *, pilot: float = 0.7) -> MeasurementSplit:
        """Divide into a pilot, a fraction of the rows or users, and the rest.

        "random": rows, as the paper splits (70 % and 30 %); "time": early rows and late rows, as in a collection;
        "user": whole users, so that no user of the pilot is held out.
        """
        check(0 < pilot < 1, "pilot", "a fraction between 0 and 1, such as 0.7", pilot)
        check(how in ("random", "time", "user"), "split", "one of random, time, user", how)
        if len(self) < 2:
            raise InputError(f"{self.source}: {len(self)} rows; at least two can be split")
        if how == "user":
            present = np.unique(self.users)
            if len(present) < 2:
                raise InputError(f"{self.source}: one user only; a split by user needs at least two")
            count = min(max(round(pilot * len(present)), 1), len(present) - 1)
            chosen = np.isin(self.users, rng.generator().permutation(present)[:count])
            return MeasurementSplit(self.take(chosen), self.take(~chosen))
        if how == "random":
            order = rng.generator().permutation(len(self))
        elif self.time is None:
            raise InputError(f"{self.source}: no column of times; a split by time needs one")
        else:
            order = np.argsort(self.time, kind="stable")
        cut = round(pilot * len(self))
        return MeasurementSplit(self.take(np.sort(order[:cut])), self.take(np.sort(order[cut:])))

    def sequences(self, length: int) -> npt.NDArray[np.int64]:
        """Row numbers of runs of ``length`` rows of one user, in order of time, shape (runs, length).

        A user's last rows that do not fill a run are in none.
        """
        check(length >= 1, "length", "at least 1", length)
        time = np.arange(len(self)) if self.time is None else self.time
        order = np.lexsort((time, self.users))
        counts = np.bincount(self.users, minlength=len(self.user_ids))
        rank = np.arange(len(self)) - np.repeat(np.cumsum(counts) - counts, counts)
        whole = rank < np.repeat(counts // length * length, counts)
        return order[whole].reshape(-1, length).astype(np.int64)

    def __repr__(self) -> str:
        # No rows: a repr ends up in logs.
        return f"Measurements({self.source}: {', '.join(self.names)})"


def joined(first: Measurements, second: Measurements) -> Measurements:
    """The rows of two tables of the same columns, one after the other; users' codes must agree.

    Raises
    ------
    InputError
        The columns differ.
    """
    if first.names != second.names:
        raise InputError(
            f"{second.source}: columns {', '.join(second.names)}; expected {', '.join(first.names)}"
        )
    no_times = first.time is None or second.time is None
    if first.texts != second.texts:
        raise InputError(f"{second.source}: its texts are numbered otherwise than those of {first.source}")
    time = None if no_times else np.concatenate([np.asarray(first.time), np.asarray(second.time)])
    return replace(
        first,
        rows=np.concatenate([first.rows, second.rows]),
        users=np.concatenate([first.users, second.users]),
        user_ids=max(first.user_ids, second.user_ids, key=len),
        time=time,
        positions=np.concatenate([first.positions, second.positions]),
    )
