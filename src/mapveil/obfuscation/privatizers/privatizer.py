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
from mapveil.obfuscation.privatizers.fitted import FittedPrivatizer
from mapveil.obfuscation.privatizers.normalisation import Normalisation
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness, as_randomness

Progress = Callable[[str, float], None]
"""Called with the name of a step and the part done, from 0 to 1."""

SEQUENCES = (1, 5, 10, 20)
"""Lengths of the paper's sequences (Section 6.2)."""

Rows = npt.NDArray[np.float64]
State = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class Privatizer(ABC):
    """Parameters of one way to rewrite measurements, validated at construction.

    A mechanism says how it is fitted, how it rewrites and what it promises, all in normalised units and for a
    whole sequence at once: a row of width ``sequence`` x features, features of the first measurement first.

    Parameters
    ----------
    sequence : int
        Measurements of one user rewritten together (L); 1 rewrites each alone.
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
    def rewrite(self, state: State, rows: Rows, rng: Randomness) -> Rows:
        """Rewrite normalised rows. Run by: the client; the same code for one row and a million.

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
            raise ParameterError(f"{name} is {getattr(self, name)!r}; {accepted} is accepted")


def _quiet(_step: str, _part: float) -> None:
    pass
