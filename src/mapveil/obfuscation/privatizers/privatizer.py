"""The contract of privatizers: frozen parameters, a fit on a pilot, and the privatization of rows."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from mapveil.geo.measurements import Measurements
from mapveil.obfuscation.privatizers.normalisation import Normalisation
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness, as_randomness

Progress = Callable[[str, float], None]
"""Called with the name of a step and the part done, from 0 to 1."""

SEQUENCES = (1, 5, 10, 20)
"""Lengths of the paper's sequences (Section 6.2)."""

_CHUNK = 1 << 16  # rows privatized at once

Rows = npt.NDArray[np.float64]
State = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class Privatizer(ABC):
    """Parameters of one way to privatize measurements, validated at construction.

    A mechanism says how it is fitted, how it privatizes and what it promises, all in normalised units and for a
    whole sequence at once: a row of width ``sequence`` x features, features of the first measurement first.

    Parameters
    ----------
    sequence : int
        Measurements of one user privatized together (L); 1 privatizes each alone.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    formal: ClassVar[bool]  # whether it has an (epsilon, delta)

    sequence: int = 1

    def __post_init__(self) -> None:
        whole = isinstance(self.sequence, int) and not isinstance(self.sequence, bool)
        self._check(whole and 1 <= self.sequence <= 1000, "sequence", "a whole number from 1 to 1000")

    @abstractmethod
    def learn(
        self, pilot: Rows, users: npt.NDArray[np.int64], rng: Randomness, progress: Progress
    ) -> dict[str, npt.NDArray[Any]]:
        """Learn what the mechanism keeps. Run by: the curator of the pilot.

        Parameters
        ----------
        pilot : ndarray of float64, shape (runs, sequence x features)
            Normalised rows; the first three features of every measurement are latitude, longitude and signal
            strength.
        users : ndarray of int64, shape (runs,)
            Who each run is of.
        rng : Randomness
            The source of bits.
        progress : callable
            Called with a step's name and the part done.

        Returns
        -------
        dict of str to ndarray
            Plain arrays, written into the privatizer's file.
        """

    @abstractmethod
    def privatize(self, state: State, rows: Rows, rng: Randomness) -> Rows:
        """Privatize normalised rows. Run by: the client; the same code for one row and a million.

        Parameters
        ----------
        state : mapping of str to ndarray
            What :meth:`learn` made.
        rows : ndarray of float64, shape (runs, sequence x features)
            Normalised.
        rng : Randomness
            The source of bits.

        Returns
        -------
        ndarray of float64, shape (runs, sequence x features)
        """

    @abstractmethod
    def promise(self, state: State, features: int, *, seeded: bool) -> Guarantee:
        """The guarantee of one report of ``sequence`` measurements."""

    def fit(
        self,
        pilot: Measurements,
        *,
        rng: Randomness | int | None = None,
        progress: Progress | None = None,
    ) -> FittedPrivatizer:
        """Fit on a pilot part. Run by: the curator of the pilot, who sees it raw.

        Parameters
        ----------
        pilot : Measurements
            Rows of people who opted in.
        rng : Randomness or int, optional
            The source of bits; an integer repeats the fit.
        progress : callable, optional
            Called with a step's name and the part done, 0 to 1.

        Raises
        ------
        InputError
            A single user, a constant feature, or too few rows for one sequence.
        """
        if len(np.unique(pilot.users)) < 2:
            raise InputError(f"{pilot.source}: one user only; rows of at least two users are needed")
        normalisation = Normalisation.learn(pilot)
        runs = pilot.sequences(self.sequence)
        if len(runs) < 2:
            raise InputError(
                f"{pilot.source}: {len(runs)} sequences of {self.sequence} rows of one user; at least 2 are needed"
            )
        rows = normalisation.apply(pilot.rows)[runs].reshape(len(runs), -1)
        state = self.learn(rows, pilot.users[runs[:, 0]], as_randomness(rng), progress or _quiet)
        return FittedPrivatizer(self, normalisation, state)

    def parameters(self) -> dict[str, Any]:
        """The parameters as a JSON-ready record; exact fractions as strings."""
        return {
            key: str(value) if isinstance(value, Fraction) else value
            for key, value in dataclasses.asdict(self).items()
        }

    def _check(self, held: bool, name: str, accepted: str) -> None:
        if not held:
            raise ParameterError(f"{name} must be {accepted}, got {getattr(self, name)!r}")


@dataclass(frozen=True, eq=False, repr=False)
class FittedPrivatizer:
    """A privatizer fitted on a pilot, ready to run on clients; rows in and out are in their own units.

    Parameters
    ----------
    privatizer : Privatizer
        The mechanism and its parameters.
    normalisation : Normalisation
        Learnt on the pilot.
    state : mapping of str to ndarray
        What the mechanism learnt.
    """

    privatizer: Privatizer
    normalisation: Normalisation
    state: Mapping[str, npt.NDArray[Any]]

    @property
    def names(self) -> tuple[str, ...]:
        """The features it privatizes, in order."""
        return self.normalisation.names

    def guarantee(self, *, seeded: bool = False) -> Guarantee:
        """The guarantee of one report."""
        return self.privatizer.promise(self.state, len(self.names), seeded=seeded)

    def privatize(
        self, rows: npt.NDArray[np.float64], *, rng: Randomness | int | None = None
    ) -> npt.NDArray[np.float64]:
        """Privatize one row, one run of ``sequence`` rows, or many. Run by: the client.

        Parameters
        ----------
        rows : ndarray of float64, shape (features,) or (rows, features)
            In the features' own units; with ``sequence`` L, consecutive L rows are one user's run.
        rng : Randomness or int, optional
            The source of bits; the operating system's where none is given.

        Returns
        -------
        ndarray of float64, the shape of ``rows``

        Raises
        ------
        InputError
            Another number of features, an incomplete run, or a value that is not finite.
        """
        length, width = self.privatizer.sequence, len(self.names)
        given = np.asarray(rows, dtype=np.float64)
        table = np.atleast_2d(given)
        if table.ndim != 2 or table.shape[1] != width or len(table) % length:
            raise InputError(
                f"rows of shape {given.shape}; expected whole runs of {length} with {width} features "
                f"({', '.join(self.names)})"
            )
        if not np.isfinite(table).all():
            raise InputError("a value is missing or not finite; expected finite numbers")
        stream = as_randomness(rng)
        step = max(_CHUNK // length, 1) * length
        parts = [self._privatize(table[at : at + step], stream) for at in range(0, len(table), step)]
        return (np.concatenate(parts) if parts else table.copy()).reshape(given.shape)

    def privatize_measurements(
        self, measurements: Measurements, *, rng: Randomness | int | None = None
    ) -> Measurements:
        """Privatize a whole table, each user's rows in order of time. Run by: a simulation of the clients.

        A user's last rows that do not fill a run are filled up with copies of the last one, which are dropped
        again; the run is one report all the same.

        Raises
        ------
        InputError
            The columns are not those of the pilot.
        """
        if measurements.names != self.names:
            raise InputError(
                f"{measurements.source}: features {', '.join(measurements.names)}; this privatizer privatizes "
                f"{', '.join(self.names)}"
            )
        length = self.privatizer.sequence
        order = measurements.sequences(1)[:, 0]
        users = measurements.users[order]
        _, counts = np.unique(users, return_counts=True)
        padded = -(-counts // length) * length
        ends = np.cumsum(counts)
        # Each user's slots in the padded table: its own rows, then its last one again and again.
        starts = np.repeat(ends - counts, padded)
        offset = np.arange(padded.sum()) - np.repeat(np.cumsum(padded) - padded, padded)
        source = starts + np.minimum(offset, np.repeat(counts, padded) - 1)
        real = offset < np.repeat(counts, padded)
        privatized = self.privatize(measurements.rows[order[source]], rng=rng)[real]
        rows = np.empty_like(measurements.rows)
        rows[order] = privatized
        return measurements.with_rows(rows)

    def _privatize(self, table: npt.NDArray[np.float64], rng: Randomness) -> npt.NDArray[np.float64]:
        runs = self.normalisation.apply(table).reshape(len(table) // self.privatizer.sequence, -1)
        changed = self.privatizer.privatize(self.state, runs, rng)
        return self.normalisation.undo(changed.reshape(table.shape))

    def __repr__(self) -> str:
        return f"FittedPrivatizer({self.privatizer!r}, features {', '.join(self.names)})"


def _quiet(_step: str, _part: float) -> None:
    pass
