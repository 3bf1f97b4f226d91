"""What ``mapveil release`` was asked for, parsed and checked before any data are read."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapveil_client.errors import InputError, ParameterError

if TYPE_CHECKING:
    from mapveil.geo.points import Points
    from mapveil.geo.region import Region
    from mapveil.geo.tiling import Tiling
    from mapveil.mechanisms.mechanism import AnyMechanism
    from mapveil.mechanisms.methods import Method

DEFAULT_TILING = "quadtree:8"
REGION_SHARE = Fraction(1, 10)


@dataclass(frozen=True)
class ReleaseRequest:
    """A release as it was asked for.

    Parameters
    ----------
    method : Method
        The row of the table of methods.
    epsilon : Fraction, optional
        The whole budget, of a method that has one.
    options : dict
        The method's options that were given.
    region : Region, optional
        The region that was named.
    tiling : str, optional
        The tiling that was named.
    secure_sum : str, optional
        Which secure sum: ``"ideal"``, ``"protocol"`` or ``"active"``.
    dropout : float, optional
        Part of the devices that drop out.
    """

    method: Method
    epsilon: Fraction | None
    options: dict[str, Any]
    region: Region | None = None
    tiling: str | None = None
    secure_sum: str | None = None
    dropout: float | None = None

    def __post_init__(self) -> None:
        if self.method.trust != "distributed":
            for flag, value in (("--secure-sum", self.secure_sum), ("--dropout", self.dropout)):
                if value is not None:
                    raise ParameterError(
                        f"{flag} is for devices that take part in secure sums; --trust distributed is accepted with it"
                    )
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise ParameterError(f"--dropout is {self.dropout!r}; a part from 0 to less than 1 is accepted")

    def mechanism(self, epsilon: Fraction | None = None) -> AnyMechanism:
        """The mechanism, with the whole budget or a part of it."""
        return self.method.make(self.epsilon if epsilon is None else epsilon, self.options)

    @property
    def budget(self) -> Fraction:
        """The whole budget of a method that has one."""
        if self.epsilon is None:
            raise ParameterError(f"{self.method.name} needs --epsilon, such as 1")
        return self.epsilon

    @property
    def column_of_places(self) -> str | None:
        """The column whose values are the places, where that is the tiling."""
        kind, _, rest = (self.tiling or "").partition(":")
        return rest if kind == "places" and rest and not Path(rest).is_file() else None

    def cells(self, region: Region, points: Points | None = None) -> Tiling:
        """The cells in a region; a column of places is read from the points."""
        from mapveil.geo.parse_tiling import parse_tiling, places_of_column

        if self.column_of_places is not None and points is not None:
            return places_of_column(points, self.column_of_places, region)
        return parse_tiling(self.tiling or DEFAULT_TILING, region)

    def check_raster(self, source: str) -> None:
        """Refuse cells where the source brings its own."""
        if self.tiling is not None or self.region is not None:
            raise InputError(
                f"{source}: a raster of counts brings its own cells; leave out --region and --tiling"
            )
