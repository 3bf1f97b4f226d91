"""What every randomizer is: how it draws a report, how likely each report is, and its exact epsilon.

A local method by its public parameters, as the terms of a collection name it; client and server share them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Final, Literal

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.contribution import Outside
from mapveil_client.epsilon import EpsilonLike, as_epsilon, ceil_log
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness

MOST_SITES: Final = 4096
"""Of a domain whose whole table or matrix is written out."""

_CHUNK: Final = 1 << 16
_DENSE: Final = 1 << 26
_BITS: Final = 1 << 24  # of a chunk of sets


@dataclass(frozen=True, eq=False, repr=False)
class Reports:
    """Randomized reports: all that the server half of a mechanism ever sees of anybody.

    Parameters
    ----------
    values : ndarray
        One symbol each (int64, shape (reports,)); or one set of sites each, a bit per site, the first site in the
        highest bit of the first byte (uint8, shape (reports, bytes)).
    """

    values: npt.NDArray[Any]

    @property
    def count(self) -> int:
        """Number of reports."""
        return int(self.values.shape[0])

    def __repr__(self) -> str:
        return f"Reports({self.count})"


class Randomizer(ABC):
    """One way of randomizing on one domain.

    Parameters
    ----------
    domain : Domain
        The sites.
    epsilon : Fraction
        What is promised of each report.
    """

    kind: ClassVar[int]
    """The number of the kind in messages."""

    def __init__(self, domain: Domain, epsilon: Fraction) -> None:
        self.domain, self.epsilon = domain, epsilon

    @property
    def size(self) -> int:
        """Number of sites, d."""
        return self.domain.size

    @property
    @abstractmethod
    def symbols(self) -> int:
        """How many counts a tally has."""

    def randomize(self, cells: npt.ArrayLike, rng: Randomness) -> Reports:
        """Randomize the cell of each phone. Run by: the client.

        Parameters
        ----------
        cells : int or array of int
            The tiling's cell of each phone's one place.
        rng : Randomness
            The source of bits; every probability is a ratio of integers and exact.

        Raises
        ------
        InputError
            A cell is outside the domain.
        """
        sites = self.domain.sites_of(cells)
        parts = [
            self._draw(sites[start : start + self._chunk()], rng)
            for start in range(0, sites.size, self._chunk())
        ]
        return Reports(np.concatenate(parts) if parts else self._draw(sites, rng))

    @abstractmethod
    def worst_ratio(self) -> Fraction:
        """The largest ratio of one report's probabilities under two sites, exactly."""

    def exact_epsilon(self) -> float:
        """The logarithm of :meth:`worst_ratio`, rounded up: what each report's epsilon really is."""
        return ceil_log(self.worst_ratio())

    @abstractmethod
    def identity(self) -> str:
        """Its parameters as one line that differs where reports do."""

    @abstractmethod
    def _draw(self, sites: IntArray, rng: Randomness) -> npt.NDArray[np.generic]:
        """The reports' values for the given sites."""

    def _chunk(self) -> int:
        return _CHUNK


class SymbolRandomizer(Randomizer):
    """A randomizer whose report is one of finitely many symbols: all the server needs is how often each came.

    The channel is the matrix :math:`q(y \\mid x)`; it is never written out but by :meth:`transition_matrix`.
    """

    @abstractmethod
    def forward(self, distribution: FloatArray) -> FloatArray:
        r"""How likely each symbol is, :math:`\sum_x q(y \mid x)\, p(x)`, shape (symbols,). Run by: the server.

        Parameters
        ----------
        distribution : ndarray of float64, shape (sites,)
            p, which need not sum to 1.
        """

    @abstractmethod
    def backward(self, values: FloatArray) -> FloatArray:
        r"""The adjoint, :math:`\sum_y q(y \mid x)\, r(y)`, shape (sites,). Run by: the server.

        Parameters
        ----------
        values : ndarray of float64, shape (symbols,)
            r.
        """

    def transition_matrix(self) -> FloatArray:
        """The whole matrix q, shape (sites, symbols), for tests, audits and small domains.

        Raises
        ------
        ParameterError
            It would have more than 2**26 entries.
        """
        if self.size * self.symbols > _DENSE:
            raise ParameterError(
                f"a matrix of {self.size} sites and {self.symbols} symbols has more than 2**26 entries; "
                "forward and backward multiply by it without writing it out"
            )
        matrix = np.empty((self.size, self.symbols))
        unit = np.zeros(self.size)
        for site in range(self.size):
            unit[site] = 1.0
            matrix[site] = self.forward(unit)
            unit[site] = 0.0
        return matrix


class SetRandomizer(Randomizer):
    """A randomizer of sets: the server counts how many hold each site.

    Subclasses set :attr:`held` and :attr:`other`.

    Attributes
    ----------
    held, other : float
        Probability that a report holds its phone's place, and that it holds any one other site.
    """

    held: float
    other: float

    @property
    def symbols(self) -> int:
        """One count for each site."""
        return self.size

    @property
    def bytes(self) -> int:
        """Bytes of a report."""
        return -(-self.size // 8)

    def check_sets(self, values: npt.NDArray[np.uint8]) -> None:
        """Refuse sets that no phone sends.

        Raises
        ------
        InputError
            Bits beyond the last site, or a set of a size that does not occur.
        """
        spare = 8 * self.bytes - self.size
        if spare and (values[:, -1] & ((1 << spare) - 1)).any():
            raise InputError("a report has bits beyond the last site; expected zeros there")

    def _chunk(self) -> int:
        return max(1, _BITS // self.size)


PlaceChoice = Literal["most-visited", "random"]
PLACES: Final[tuple[PlaceChoice, ...]] = ("most-visited", "random")
OUTSIDE: Final = (Outside.DROP, Outside.NEAREST, Outside.REFUSE)


@dataclass(frozen=True, kw_only=True)
class LocalMethod(ABC):
    """Frozen parameters, which become a randomizer on a domain.

    Every user reports once, about one location. However many rows a user has, the report is all that leaves the
    device, and its epsilon is the user's.

    Parameters
    ----------
    epsilon : int, float, str, Decimal or Fraction
        The budget of each user's one report.
    estimator : str
        Name of the server's estimator; a client has no use for it.
    place : str
        Which location a user with several reports about: the ``"most-visited"`` one, or a ``"random"`` row's.
    outside : str
        Treatment of a user's rows outside the region, see :class:`~mapveil_client.contribution.Outside`: ``"drop"``
        (a client outside abstains, which reveals that it is outside), ``"nearest"`` or ``"refuse"``.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]

    epsilon: EpsilonLike
    estimator: str = "smoothed-em"
    place: PlaceChoice = "most-visited"
    outside: str = "drop"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", as_epsilon(self.epsilon))
        self._check(self.budget >= Fraction(1, 1 << 20), "epsilon", "2**-20 or more")
        self._check(self.place in PLACES, "place", " or ".join(PLACES))
        self._check(self.outside in OUTSIDE, "outside", ", ".join(OUTSIDE))

    @property
    def budget(self) -> Fraction:
        """The epsilon of a report, exactly."""
        return as_epsilon(self.epsilon)

    @abstractmethod
    def on(self, domain: Domain) -> Randomizer:
        """The randomizer of a domain.

        Raises
        ------
        ParameterError
            The parameters do not fit the domain.
        """

    def _check(self, held: bool, name: str, accepted: str) -> None:
        """Refuse a parameter outside its range."""
        if not held:
            raise ParameterError(f"{name} must be {accepted}, got {getattr(self, name)!r}")
