"""Evidence for adversaries of privatized measurements, and the truth behind it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from mapveil.geo.measurements import LAT, LON, Measurements
from mapveil.obfuscation.privatizers.normalisation import Normalisation
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import InputError, check
from mapveil_client.randomness.random import Randomness

_EARTH_RADIUS_M: Final = 6371008.8  # mean radius; half a percent from the ellipsoid's at worst


@dataclass(frozen=True, eq=False, repr=False)
class SignalEvidence:
    """Runs of privatized measurements beside the users and places they came from.

    Parameters
    ----------
    observed : ndarray of float64, shape (runs, length, features)
        What the server was sent, normalised; each run is of one user (length 1: every measurement alone).
    users : ndarray of int64, shape (runs,)
        The true user of each run, 0 .. ``user_count - 1``. Private.
    places : ndarray of float64, shape (runs, length, 2)
        The true latitude and longitude, normalised. Private.
    user_count : int
        How many users there are to tell apart.
    middle, scale : ndarray of float64, shape (2,)
        Degrees of normalised 0, and degrees of one unit: latitude, longitude.
    """

    observed: FloatArray
    users: IntArray
    places: FloatArray
    user_count: int
    middle: FloatArray
    scale: FloatArray

    def __post_init__(self) -> None:
        shape = self.observed.shape
        if len(shape) != 3 or self.places.shape != (*shape[:2], 2) or self.users.shape != shape[:1]:
            raise InputError(
                f"evidence of shapes {shape}, {self.users.shape} and {self.places.shape}; expected (runs, "
                "length, features), (runs,) and (runs, length, 2)"
            )
        if not len(self.users):
            raise InputError("no runs to attack; expected at least one user with a whole run")
        if not np.isfinite(self.observed).all():
            raise InputError("a privatized value is missing or not finite; expected finite numbers")

    @classmethod
    def of(
        cls,
        original: Measurements,
        privatized: Measurements,
        normalisation: Normalisation,
        *,
        length: int = 1,
        step: int | None = None,
        cut: bool = True,
    ) -> SignalEvidence:
        """Pair a table with its privatized rows.

        Parameters
        ----------
        original, privatized : Measurements
            The same rows before and after; their own units.
        normalisation : Normalisation
            Of the privatizer, or learnt on the pilot.
        length : int
            Measurements of one user that the adversary sees together (L).
        step : int, optional
            A run begins at every so many rows of a user; L by default, which parts the rows end to end. Fewer make
            runs that overlap: more to train on, never to judge by.
        cut : bool
            Whether true places beyond the pilot's range are brought into it. Cut, places of another region are all one.

        Raises
        ------
        InputError
            The tables differ in rows or columns, or no user has a whole run.
        """
        if original.names != privatized.names or len(original) != len(privatized):
            raise InputError(
                f"{privatized.source}: {len(privatized)} rows of {', '.join(privatized.names)}; expected the "
                f"{len(original)} rows of {', '.join(original.names)} that were privatized"
            )
        check(step is None or 1 <= step <= length, "step", f"1 to the sequence length {length}", step)
        runs = original.sequences(length) if step in (None, length) else _overlapping(original, length, step)
        if not len(runs):
            raise InputError(f"{original.source}: no user has {length} rows; expected a shorter sequence")
        place = [LAT, LON]
        return cls(
            normalisation.standardise(privatized.rows)[runs],
            original.users[runs[:, 0]],
            (normalisation.apply if cut else normalisation.standardise)(original.rows)[:, place][runs],
            len(original.user_ids),
            normalisation.mean[place],
            normalisation.scale[place],
        )

    def __len__(self) -> int:
        return len(self.users)

    @property
    def length(self) -> int:
        """Measurements of a run (L)."""
        return int(self.observed.shape[1])

    @property
    def inputs(self) -> FloatArray:
        """Every run as one row, shape (runs, length x features)."""
        return self.observed.reshape(len(self), -1)

    def take(self, kept: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> SignalEvidence:
        """Some of the runs."""
        return replace(self, observed=self.observed[kept], users=self.users[kept], places=self.places[kept])

    def sample(self, most: int, rng: Randomness) -> SignalEvidence:
        """At most so many runs, at random."""
        check(most >= 1, "most", "at least 1 run", most)
        if most >= len(self):
            return self
        return self.take(np.sort(rng.generator().permutation(len(self))[:most]))

    def parted(self, part: float, rng: Randomness) -> tuple[SignalEvidence, SignalEvidence]:
        """The runs less a random part, and that part: to learn on, and to choose by."""
        order = rng.generator().permutation(len(self))
        cut = min(max(round(part * len(self)), 1), len(self) - 1) if len(self) > 1 else 0
        chosen = np.sort(order[:cut] if cut else order)
        return self.take(np.sort(order[cut:])), self.take(chosen)

    def metres_from(self, places: FloatArray) -> FloatArray:
        """Great-circle distances between guessed and true locations, metres, shape (runs, length).

        Parameters
        ----------
        places : ndarray of float64, shape (runs, length, 2)
            Normalised; latitudes beyond a pole count as the pole.
        """
        true, guess = (np.radians(each * self.scale + self.middle) for each in (self.places, places))
        lat, other = true[..., 0], np.clip(guess[..., 0], -np.pi / 2, np.pi / 2)
        half = np.sin((other - lat) / 2) ** 2
        half += np.cos(lat) * np.cos(other) * np.sin((guess[..., 1] - true[..., 1]) / 2) ** 2
        return np.asarray(2 * _EARTH_RADIUS_M * np.arcsin(np.sqrt(np.clip(half, 0.0, 1.0))))

    def __repr__(self) -> str:
        # No rows: a repr ends up in logs.
        return f"SignalEvidence({len(self)} runs of {self.length})"


def _overlapping(measurements: Measurements, length: int, step: int) -> IntArray:
    """Row numbers of runs that begin at every ``step`` rows of a user, shape (runs, length)."""
    order = measurements.sequences(1)[:, 0]
    users = measurements.users[order]
    first = np.searchsorted(users, users)  # where each row's user begins: rows are in order of users
    rank = np.arange(len(order)) - first
    last = np.arange(len(order)) + length - 1
    whole = last < len(order)
    whole[whole] = users[last[whole]] == users[whole]
    starts = np.flatnonzero(whole & (rank % step == 0))
    return np.asarray(order[starts[:, None] + np.arange(length)])
