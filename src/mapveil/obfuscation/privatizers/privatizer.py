"""The contract of privatizers: frozen parameters, a fit on a pilot, and the privatization of rows."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from mapveil.geo.measurements import Measurements
from mapveil.obfuscation.privatizers.normalisation import Normalisation
from mapveil.privacy.claim import Adversary, Assumption, Disclosure, Measured, TrustModel, Unit
from mapveil.privacy.guarantee import Guarantee
from mapveil.registry import Row, find_row
from mapveil_client import __version__
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import Checked, InputError, check, check_whole
from mapveil_client.randomness.random import Randomness, as_randomness

Progress = Callable[[str, float], None]
"""Called with the name of a step and its finished fraction."""

State = Mapping[str, npt.NDArray[Any]]
"""Plain arrays that a privatizer learnt, by the names they have in its file."""

_CHUNK: Final = 1 << 16  # rows privatized at once
_ROOM: Final = "mapveil.obfuscation.privatizers"

PRIVATIZERS: Final[tuple[Row[Privatizer], ...]] = (
    Row("gaussian-noise", f"{_ROOM}.gaussian_noise:GaussianNoise"),
    Row("local-gaussian", f"{_ROOM}.local_gaussian:LocalGaussian"),
    Row("truncated-laplacian", f"{_ROOM}.truncated_laplacian:TruncatedLaplacian"),
    Row("gap", f"{_ROOM}.gap:Gap"),
    Row("codebook", f"{_ROOM}.codebook:Codebook"),
    Row("funnel", f"{_ROOM}.funnel:Funnel"),
)


def find_privatizer(name: str) -> Row[Privatizer]:
    """The row of a privatizer's name; raises :class:`~mapveil_client.errors.ParameterError` where there is none."""
    return find_row(PRIVATIZERS, name, "privatizer")


@dataclass(frozen=True, kw_only=True)
class Privatizer(Checked, ABC):
    """Parameters of one way to privatize measurements, validated at construction.

    Everything is in normalised units and for a whole sequence at once: a row of width ``sequence`` x features,
    features of the first measurement first.

    Parameters
    ----------
    sequence : int
        Measurements of one user privatized together (L); 1 privatizes each alone.
    """

    name: ClassVar[str]

    sequence: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self.sequence, "sequence", 1, 1000)

    @abstractmethod
    def learn(self, pilot: FloatArray, users: IntArray, rng: Randomness, progress: Progress) -> State:
        """Learn what the mechanism keeps. Run by: the curator of the pilot.

        Parameters
        ----------
        pilot : ndarray of float64, shape (runs, sequence x features)
            Normalised rows; the first three features of every measurement are latitude, longitude and signal
            strength.
        users : ndarray of int64, shape (runs,)
            The user of each run.
        rng : Randomness
            The source of bits.
        progress : callable
            Called with a step's name and its finished fraction.
        """

    @abstractmethod
    def privatize(self, state: State, rows: FloatArray, rng: Randomness) -> FloatArray:
        """Privatize normalised rows. Run by: the client; the same code for one row and a million.

        Parameters
        ----------
        state : mapping of str to ndarray
            Result of :meth:`learn`.
        rows : ndarray of float64, shape (runs, sequence x features)
            Normalised, as is the result.
        rng : Randomness
            The source of bits.
        """

    @abstractmethod
    def promise(self, state: State, features: int) -> Guarantee:
        """The guarantee of one report of ``sequence`` measurements of so many features."""

    def worst_epsilon(self, state: State, normalisation: Normalisation) -> float:
        r"""The least epsilon that bounds the channel for every two reports, whatever the pilot; infinite for none.

        .. math:: \epsilon = \max_{c, x, x'} \ln \frac{q(c | x)}{q(c | x')}

        where: x and x' are any two runs a client may hold, c is a report and q the channel. An average over people like
        the pilot's says nothing of the one whose row is rare; this does. A formal guarantee states its own epsilon,
        at its delta.
        """
        epsilon = self.promise(state, len(normalisation.names)).epsilon
        return np.inf if epsilon is None else float(epsilon)

    def fit(
        self, pilot: Measurements, *, rng: Randomness | int | None = None, progress: Progress | None = None
    ) -> FittedPrivatizer:
        """Fit on a pilot part. Run by: the curator of the pilot, who sees it raw.

        Parameters
        ----------
        pilot : Measurements
            Rows of people who opted in.
        rng, progress : optional
            The source of bits; called with a step's name and its finished fraction.

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
        state = self.learn(
            rows, pilot.users[runs[:, 0]], as_randomness(rng), progress or (lambda step, done: None)
        )
        return FittedPrivatizer(self, normalisation, state)

    def parameters(self) -> dict[str, Any]:
        """The parameters as a JSON-ready record; exact fractions as strings."""
        return {
            key: str(value) if isinstance(value, Fraction) else value
            for key, value in dataclasses.asdict(self).items()
        }


@dataclass(frozen=True, kw_only=True)
class TradeOff(Privatizer):
    """Base of privatizers that are fitted by a game between utility and an attacker.

    Parameters
    ----------
    rho : float
        Weight of utility against privacy, from 0 to 1.
    v1, v2 : float
        Weights of user and place in the attacker's loss, not below 0.
    w1, w2 : float
        Weights of distortion and of the linear model's error in the utility, not below 0.
    """

    rho: float = 0.4
    v1: float = 1.0
    v2: float = 1.0
    w1: float = 1.0
    w2: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check(0 <= self.rho <= 1, "rho", "a number from 0 to 1", self.rho)
        for name in ("v1", "v2", "w1", "w2"):
            weight = getattr(self, name)
            check(0 <= weight < np.inf, name, "a finite number of at least 0", weight)


def average_case(
    disclosure: Disclosure, *assumptions: Assumption, measured: tuple[Measured, ...] = ()
) -> Guarantee:
    """The guarantee of a report that no (epsilon, delta) covers."""
    return Guarantee(
        model=TrustModel.OBFUSCATION,
        unit=Unit.REPORT,
        epsilon=None,
        adversary=Adversary.REPORTS,
        disclosure=disclosure,
        assumptions=assumptions,
        measured=measured,
    )


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
        Learnt by the mechanism.
    """

    privatizer: Privatizer
    normalisation: Normalisation
    state: State

    @property
    def names(self) -> tuple[str, ...]:
        """The features it privatizes, in order."""
        return self.normalisation.names

    def guarantee(self, *, seeded: bool = False) -> Guarantee:
        """The guarantee of one report."""
        return dataclasses.replace(self.privatizer.promise(self.state, len(self.names)), seeded=seeded)

    @property
    def worst_epsilon(self) -> float:
        """The worst case of one report; see :meth:`Privatizer.worst_epsilon`."""
        return self.privatizer.worst_epsilon(self.state, self.normalisation)

    def privatize(self, rows: FloatArray, *, rng: Randomness | int | None = None) -> FloatArray:
        """Privatize one row, one run of ``sequence`` rows, or many. Run by: the client.

        Parameters
        ----------
        rows : ndarray of float64, shape (features,) or (rows, features)
            In the features' own units, as is the result; with ``sequence`` L, L consecutive rows are one user's run.
        rng : Randomness or int, optional
            The source of bits; the operating system's where none is given.

        Raises
        ------
        InputError
            Another number of features, an incomplete run, or a value that is not finite.
        """
        length = self.privatizer.sequence
        table = whole_runs(rows, length, self.names)
        stream = as_randomness(rng)
        step = max(_CHUNK // length, 1) * length
        parts = [self._privatize(table[at : at + step], stream) for at in range(0, len(table), step)]
        return (np.concatenate(parts) if parts else table.copy()).reshape(np.shape(rows))

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
        rows = np.empty_like(measurements.rows)
        rows[order] = self.privatize(measurements.rows[order[source]], rng=rng)[real]
        return measurements.with_rows(rows)

    def record(self) -> dict[str, Any]:
        """The description of the privatizer that files hold beside its arrays, JSON-ready."""
        return {
            "software": f"mapveil {__version__}",
            "method": self.privatizer.name,
            "parameters": self.privatizer.parameters(),
            "features": list(self.names),
            "guarantee": self.guarantee().to_dict(),
        }

    def _privatize(self, table: FloatArray, rng: Randomness) -> FloatArray:
        runs = self.normalisation.apply(table).reshape(len(table) // self.privatizer.sequence, -1)
        changed = self.privatizer.privatize(self.state, runs, rng)
        return self.normalisation.undo(changed.reshape(table.shape))

    def __repr__(self) -> str:
        return f"FittedPrivatizer({self.privatizer!r}, features {', '.join(self.names)})"


def whole_runs(rows: FloatArray, length: int, names: Sequence[str]) -> FloatArray:
    """A row, a run or many as a table of float64, shape (rows, features).

    Raises
    ------
    InputError
        Another number of features, an incomplete run, or a value that is not finite.
    """
    given = np.asarray(rows, dtype=np.float64)
    table = np.atleast_2d(given)
    if table.ndim != 2 or table.shape[1] != len(names) or len(table) % length:
        raise InputError(
            f"rows of shape {given.shape}; expected whole runs of {length} with {len(names)} features "
            f"({', '.join(names)})"
        )
    if not np.isfinite(table).all():
        raise InputError("a value is missing or not finite; expected finite numbers")
    return table
