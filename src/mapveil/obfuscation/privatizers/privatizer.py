"""The contract of privatizers: frozen parameters, a fit on a pilot, and the privatization of rows."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from mapveil.geo.measurements import Measurements
from mapveil.geo.text_categories import TextNumbers
from mapveil.obfuscation.privatizers.category import Category, check_texts, learn_categories
from mapveil.obfuscation.privatizers.map_error import MapError
from mapveil.obfuscation.privatizers.normalisation import Normalisation, whole_runs
from mapveil.obfuscation.privatizers.null_code import NULL_EPSILON, NULL_ERROR, NullCode
from mapveil.privacy.claim import Assumes, Measured, Quantity, Share
from mapveil.privacy.guarantee import Guarantee
from mapveil.registry import Row, find_row
from mapveil_client import __version__
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.epsilon import EpsilonLike
from mapveil_client.errors import Checked, InputError, PromiseError, check_whole
from mapveil_client.randomness.random import Randomness, as_randomness, uniforms
from mapveil_client.report_account import ReportCost

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

    @property
    def answers_null(self) -> bool:
        """Whether rows unlike the pilot need a null code: nothing was proved, and nothing measured of them."""
        return False

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

    def report_cost(self, state: State, normalisation: Normalisation) -> ReportCost:
        """The cost of one report for an account of all of a user's: its epsilon, else that of the worst case."""
        promise = self.promise(state, len(normalisation.names))
        if promise.epsilon is not None:
            return ReportCost(epsilon=promise.epsilon, delta=promise.delta)
        worst = self.worst_epsilon(state, normalisation)
        return ReportCost(epsilon=Fraction(worst) if math.isfinite(worst) else None)

    def fit(
        self,
        pilot: Measurements,
        *,
        rng: Randomness | int | None = None,
        progress: Progress | None = None,
        null_code: bool = False,
        category_epsilon: EpsilonLike = 1,
        expires: date | None = None,
    ) -> FittedPrivatizer:
        """Fit on a pilot part. Run by: the curator of the pilot, who sees it raw.

        Parameters
        ----------
        pilot : Measurements
            Rows of people who opted in.
        rng, progress : optional
            The source of bits; called with a step's name and its finished fraction.
        null_code : bool
            Whether runs unlike the pilot are answered empty (:mod:`mapveil.obfuscation.privatizers.null_code`).
        category_epsilon : int, float, str, Decimal or Fraction
            Epsilon of the randomized response of each category of a measurement.
        expires : date, optional
            The last day (UTC) on which it privatizes.

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
        stream = as_randomness(rng)
        categories = learn_categories(pilot, category_epsilon)
        numbers = numeric_columns(len(pilot.names), categories)
        learnt, given = normalisation.take(numbers), pilot.rows[:, numbers]
        rows = learnt.apply(given)[runs].reshape(len(runs), -1)
        state = self.learn(rows, pilot.users[runs[:, 0]], stream, progress or (lambda step, done: None))
        unlike = None
        if null_code:
            whole = learnt.standardise(given)[runs].reshape(len(runs), -1)
            unlike = NullCode.learn(rows, whole, stream.child("null code").generator())
        return FittedPrivatizer(self, normalisation, state, unlike, categories, expires)

    def parameters(self) -> dict[str, Any]:
        """The parameters as a JSON-ready record; exact fractions as strings."""
        return {
            key: str(value) if isinstance(value, Fraction) else value
            for key, value in dataclasses.asdict(self).items()
        }


def check_date(expires: date | None, today: date) -> None:
    """Refuse to privatize after the last day (None: never). Run by: the client.

    Raises
    ------
    PromiseError
        It has passed: what was measured of such reports is no longer about today's.
    """
    if expires is not None and today > expires:
        raise PromiseError(
            f"this privatizer expired on {expires}, and today is {today}: nothing is sent; fit it again on a new pilot"
        )


def numeric_columns(features: int, categories: Sequence[Category]) -> list[int]:
    """Numbers of the columns that hold numbers, not categories."""
    named = {each.column for each in categories}
    return [at for at in range(features) if at not in named]


@dataclass(frozen=True, eq=False, repr=False)
class FittedPrivatizer:
    """A privatizer fitted on a pilot, ready to run on clients; rows in and out are in their own units.

    Parameters
    ----------
    privatizer : Privatizer
        The mechanism and its parameters.
    normalisation : Normalisation
        Learnt on the pilot, of all features.
    state : mapping of str to ndarray
        Learnt by the mechanism, from the features that are numbers.
    null_code : NullCode, optional
        Recognises runs unlike the pilot, whose reports are empty: every value is NaN.
    categories : tuple of Category
        Features that are privatized as categories; NaN is a value that the pilot lacks.
    expires : date, optional
        The last day (UTC) on which it privatizes.
    map_error : MapError, optional
        The error of a map of its reports, learnt on the pilot.
    """

    privatizer: Privatizer
    normalisation: Normalisation
    state: State
    null_code: NullCode | None = None
    categories: tuple[Category, ...] = ()
    expires: date | None = None
    map_error: MapError | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The features it privatizes, in order."""
        return self.normalisation.names

    @cached_property
    def numeric(self) -> tuple[list[int], Normalisation]:
        """Numbers of the columns that the mechanism privatizes, and their normalisation."""
        columns = numeric_columns(len(self.names), self.categories)
        return columns, self.normalisation.take(columns)

    @property
    def texts(self) -> TextNumbers:
        """By the name of a column of text, the number of each of its texts, as ``read_measurements`` takes them."""
        return {self.names[each.column]: each.numbers for each in self.categories if each.texts}

    @property
    def category_epsilon(self) -> Fraction:
        """Epsilon of all categories of one report."""
        return self.privatizer.sequence * sum((each.epsilon for each in self.categories), Fraction(0))

    def guarantee(self, *, seeded: bool = False) -> Guarantee:
        """The guarantee of one report, its categories and its null code included."""
        made = self.privatizer.promise(self.state, len(self.numeric[0]))
        epsilon, added, shares = made.epsilon, self.category_epsilon, made.shares
        if epsilon is not None and added:
            shares = (Share("numbers", epsilon), Share("categories", added))
            epsilon += added
        more = [Assumes.NULL_CODE(error=NULL_ERROR)] if self.null_code is not None else []
        measured = made.measured
        if epsilon is None and math.isfinite(worst := self.worst_epsilon):
            measured += (
                Measured(Quantity.WORST_EPSILON, worst, "in all", "every two rows a phone may hold"),
            )
        elif epsilon is None:
            more.append(Assumes.NO_WORST_CASE())
        return dataclasses.replace(
            made,
            seeded=seeded,
            epsilon=epsilon,
            shares=shares,
            assumptions=(*made.assumptions, *more),
            measured=measured,
        )

    @property
    def worst_epsilon(self) -> float:
        """The worst case of one report; see :meth:`Privatizer.worst_epsilon`."""
        null = NULL_EPSILON if self.null_code is not None else 0.0
        worst = self.privatizer.worst_epsilon(self.state, self.numeric[1])
        return worst + float(self.category_epsilon) + null

    @property
    def report_cost(self) -> ReportCost:
        """The cost of one report for an account of all of a user's."""
        cost = self.privatizer.report_cost(self.state, self.numeric[1])
        if cost.epsilon is None:
            return cost
        null = Fraction(NULL_EPSILON) if self.null_code is not None else 0
        return cost._replace(epsilon=cost.epsilon + self.category_epsilon + null)

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

    def reports(self, measurements: Measurements, *, rng: Randomness | int | None = None) -> FloatArray:
        """The reports on a table, each user's rows in order of time, row for row. Run by: a simulation of the clients.

        A user's last rows that do not fill a run are filled up with copies of the last one, which are dropped
        again; the run is one report all the same.

        Raises
        ------
        InputError
            The columns are not those of the pilot, or their texts are numbered otherwise.
        """
        if measurements.names != self.names:
            raise InputError(
                f"{measurements.source}: features {', '.join(measurements.names)}; this privatizer privatizes "
                f"{', '.join(self.names)}"
            )
        check_texts(self.texts, measurements)
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
        return rows

    def privatize_measurements(
        self, measurements: Measurements, *, rng: Randomness | int | None = None
    ) -> Measurements:
        """:meth:`reports` as measurements, with :attr:`Normalisation.absent` for what is empty."""
        rows = self.reports(measurements, rng=rng)
        return measurements.with_rows(np.where(np.isnan(rows), self.normalisation.absent, rows))

    def record(self) -> dict[str, Any]:
        """The description of the privatizer that files hold beside its arrays, JSON-ready."""
        return {
            "software": f"mapveil {__version__}",
            "method": self.privatizer.name,
            "parameters": self.privatizer.parameters(),
            "features": list(self.names),
            "categories": [each.to_dict() for each in self.categories],
            "expires": None if self.expires is None else self.expires.isoformat(),
            "report_cost": self.report_cost.to_list(),
            "guarantee": self.guarantee().to_dict(),
        }

    def _privatize(self, table: FloatArray, rng: Randomness) -> FloatArray:
        length = self.privatizer.sequence
        columns, learnt = self.numeric
        given = table[:, columns]
        runs = learnt.apply(given).reshape(len(table) // length, -1)
        changed = self.privatizer.privatize(self.state, runs, rng)
        made = np.empty_like(table)
        made[:, columns] = learnt.undo(changed.reshape(given.shape))
        empty = None
        if self.null_code is not None:
            whole = learnt.standardise(given).reshape(runs.shape)
            empty = np.repeat(self.null_code.empty(whole, uniforms(len(runs), rng)), length)
        for each in self.categories:
            made[:, each.column] = each.respond(table[:, each.column], each.draws(len(table), rng))
        if empty is not None:
            made[empty] = np.nan
        return made

    def __repr__(self) -> str:
        return f"FittedPrivatizer({self.privatizer!r}, features {', '.join(self.names)})"
