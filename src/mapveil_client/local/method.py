"""A local method by its public parameters, as the terms of a collection name it; client and server share them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final, Literal

from mapveil_client.contribution import Outside
from mapveil_client.epsilon import EpsilonLike, as_epsilon
from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.local.randomizer import Randomizer

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
            raise ParameterError(f"{name} is {getattr(self, name)!r}; {accepted} is accepted")
