"""The base of randomizers (drawing a report, its probabilities, its exact epsilon), and of their public parameters."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Final, Literal

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.contribution import Outside
from mapveil_client.epsilon import EpsilonLike, Odds, as_epsilon, ceil_log, odds
from mapveil_client.errors import Checked, InputError, ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness

MOST_SITES: Final = 4096
"""Sites of the largest domain whose whole table or matrix is written out."""

TOTAL_BITS: Final = 61
"""Sums of weights stay below 2 to this power, within int64 and the range of uniform integers."""

_CHUNK: Final = 1 << 16  # reports randomized at a time
_DENSE: Final = 1 << 26  # entries of the largest matrix that is written out
_BITS: Final = 1 << 24  # bits of the sets randomized at a time


def odds_for(epsilon: Fraction, number: int) -> Odds:
    """Whole weights A and B with A / B at most e^epsilon, ``number`` of which sum to less than 2**61."""
    room = TOTAL_BITS - number.bit_length()
    return odds(epsilon, room, min(room, 40))


@dataclass(frozen=True, eq=False, repr=False)
class Reports:
    """Randomized reports: all that the server half of a mechanism sees.

    Parameters
    ----------
    values : ndarray
        One symbol each (int64, shape (reports,)); or one set of sites each, a bit per site, the first site in the
        highest bit of the first byte (uint8, shape (reports, bytes)).
    windows : ndarray of int64, shape (reports,), optional
        The window that each client drew, in a series.
    """

    values: npt.NDArray[Any]
    windows: IntArray | None = None

    def about(self, window: int) -> "Reports":
        """The reports about one window of a series. Run by: the server."""
        return Reports(self.values[self.windows == window])

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
        Privacy parameter of each report.

    Attributes
    ----------
    weights : Odds
        The two weights of the law, of randomizers that have two.
    """

    kind: ClassVar[int]
    """Number of the kind in messages."""

    weights: Odds

    def __init__(self, domain: Domain, epsilon: Fraction) -> None:
        self.domain, self.epsilon = domain, epsilon

    @property
    def size(self) -> int:
        """Number of sites, d."""
        return self.domain.size

    @property
    def symbols(self) -> int:
        """Number of counts of a tally: one for each site, unless a subclass says otherwise."""
        return self.size

    def randomize(self, cells: npt.ArrayLike, rng: Randomness) -> Reports:
        """Randomize the cell of each client. Run by: the client.

        Parameters
        ----------
        cells : int or array of int
            The tiling's cell of each client's one place.
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

    def worst_ratio(self) -> Fraction:
        """The largest ratio of one report's probabilities under two sites, exactly.

        That of :attr:`weights` by default: some report has the larger under one site, the smaller under another.
        """
        return Fraction(*self.weights)

    def exact_epsilon(self) -> float:
        """The exact epsilon of each report: the logarithm of :meth:`worst_ratio`, rounded up."""
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
    """A randomizer whose report is one of finitely many symbols: the server needs only the number of each.

    The channel is the matrix :math:`q(y \\mid x)`; only :meth:`transition_matrix` writes it out.
    """

    @abstractmethod
    def forward(self, distribution: FloatArray) -> FloatArray:
        r"""The probability of each symbol, :math:`\sum_x q(y \mid x)\, p(x)`, shape (symbols,). Run by: the server.

        where: p is ``distribution``, shape (sites,), which need not sum to 1.
        """

    @abstractmethod
    def backward(self, values: FloatArray) -> FloatArray:
        r"""The adjoint, :math:`\sum_y q(y \mid x)\, r(y)`, shape (sites,). Run by: the server.

        where: r is ``values``, shape (symbols,).
        """

    def transition_matrix(self) -> FloatArray:
        """The matrix q, shape (sites, symbols), for tests, audits and small domains.

        Raises
        ------
        ParameterError
            It would have more than 2**26 entries.
        """
        if self.size * self.symbols > _DENSE:
            raise ParameterError(
                f"the matrix must have 2**26 entries at most, got {self.size} sites by {self.symbols} symbols; "
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

    Attributes
    ----------
    held, other : float
        Probability that a report holds its client's place, and that it holds any one other site.
    """

    held: float
    other: float

    @property
    def bytes(self) -> int:
        """Bytes of a report."""
        return -(-self.size // 8)

    def check_sets(self, values: npt.NDArray[np.uint8]) -> None:
        """Refuse sets that no client sends.

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
class LocalMethod(Checked, ABC):
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
    accept_large_epsilon : bool
        Whether a simulated release may have an epsilon above 20; a client asks its policy instead.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    randomizer: ClassVar[type[Randomizer]]
    server_options: ClassVar[frozenset[str]] = frozenset()
    """Names of parameters that no randomizer has, beside those of every method."""

    epsilon: EpsilonLike
    estimator: str = "smoothed-em"
    place: PlaceChoice = "most-visited"
    outside: str = "drop"
    accept_large_epsilon: bool = dataclasses.field(default=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "epsilon", as_epsilon(self.epsilon))
        self._check(self.budget >= Fraction(1, 1 << 20), "epsilon", "2**-20 or more")
        self._check(self.outside in OUTSIDE, "outside", ", ".join(OUTSIDE))

    @property
    def budget(self) -> Fraction:
        """The epsilon of a report, exactly."""
        return as_epsilon(self.epsilon)

    def on(self, domain: Domain) -> Randomizer:
        """The :attr:`randomizer` of a domain, with the method's own parameters by name.

        Raises
        ------
        ParameterError
            The parameters do not fit the domain.
        """
        shared = {item.name for item in dataclasses.fields(LocalMethod)}
        own = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        kind: Callable[..., Randomizer] = self.randomizer
        names = own.keys() - shared - self.server_options
        return kind(domain, self.budget, **{name: own[name] for name in names})
