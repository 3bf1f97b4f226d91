"""Base classes of all mechanisms: frozen parameters, an exact budget where there is one, and ``release``."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, TypeVar, cast

from mapveil.formats.check_fits import check_fits
from mapveil.geo.counts import Counts
from mapveil.geo.places import Places
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil.geo.windowed_points import WindowedPoints
from mapveil.maps.density_map import DensityMap
from mapveil.maps.prior import Prior
from mapveil.maps.released import ReleasedMap
from mapveil.privacy.account import OWN, Account, charges_of, check_account
from mapveil.privacy.charges import Charges
from mapveil.privacy.claim import Share
from mapveil.privacy.guarantee import Guarantee
from mapveil.trust.queries import Progress
from mapveil_client.contribution import Devices
from mapveil_client.epsilon import EpsilonLike, as_epsilon
from mapveil_client.errors import Checked, InputError, ParameterError
from mapveil_client.randomness.random import Randomness

Charged = TypeVar("Charged", bound=ReleasedMap)

_LARGEST = 1 << 26


def check_tiling(tiling: Tiling) -> None:
    """Refuse a tiling that no dense map can be made of, before any data are read and any budget is charged.

    The polygons of :class:`Places` are drawn here and kept: drawing them later could fail after the charge.

    Raises
    ------
    InputError
        It has too many cells, or none whose centre lies in the region's polygon, or places too close together.
    """
    if tiling.size > _LARGEST:
        raise InputError(f"{tiling.spec} has {tiling.size} cells; expected a dense map of at most {_LARGEST}")
    inside = tiling.lattice().inside if tiling.region.polygon is not None else None
    if tiling.size == 0 or (inside is not None and not inside.any()):
        raise InputError(f"{tiling.spec} has no cell in {tiling.region}; expected a finer tiling")
    if isinstance(tiling, Places):
        tiling.area_m2()


def tiling_of(source: Points | Counts | Any, tiling: Tiling | None) -> Tiling:
    """The tiling given, or the one that counts bring; checked.

    Raises
    ------
    InputError
        A table or devices without a tiling, or a tiling that no dense map can be made of.
    """
    check_locations(source)
    if tiling is None:
        if isinstance(source, (Points, Devices)):
            raise InputError("a table of points or devices needs a tiling, such as Quadtree(region, depth=8)")
        tiling = source.tiling
    check_tiling(tiling)
    return tiling


def check_locations(source: Any) -> None:
    """Refuse trips, whose rows are two locations, where a map of single ones is made."""
    if type(source).__name__ == "Trips":  # its module is of a layer above
        source = source.as_points()
    if isinstance(source, Points) and source.columns.to_lon is not None:
        raise InputError(
            f"{source.source}: rows are trips, with an origin and a destination; expected one location a row: read one "
            "end by lon=NAME and lat=NAME (--lon NAME and --lat NAME), or release the trips by mv.flows (mapveil flows)"
        )


def check_outputs(account: Account | None, cells: Tiling | str, windows: Sequence[str] = ()) -> None:
    """Refuse outputs whose format cannot hold the cells, or the windows of a series; see :func:`check_fits`."""
    check_account(account)
    for path in () if account is None else account.outputs:
        check_fits(path, cells, windows)


@contextmanager
def held_for(source: Any, cells: Tiling | str, account: Account | None) -> Iterator[Any]:
    """Check the outputs (:func:`check_outputs`); then hold a table as it is read once, and other data as they are."""
    check_outputs(account, cells, source.windows.names if isinstance(source, WindowedPoints) else ())
    if isinstance(source, Points):
        with source.held_once(check=False) as table:
            yield table
    else:
        yield source


def charged_to(made: Charged, charges: Charges) -> Charged:
    """The map, with its charges and what they assume in the guarantee."""
    changed: Charged = replace(cast("Any", made), guarantee=charges.with_account(made.guarantee))
    return changed


@dataclass(frozen=True, kw_only=True)
class AnyMechanism(Checked, ABC):
    """Frozen parameters, validated at construction; with a privacy budget (:class:`Mechanism`) or without."""

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]

    @abstractmethod
    def guarantee(self, shares: tuple[Share, ...] = (), *, seeded: bool = False) -> Guarantee:
        """The promise of one release with these parameters."""

    @abstractmethod
    def release(
        self,
        points: Any,
        tiling: Tiling | None = None,
        *,
        account: Account | None = OWN,
        rng: Randomness | int | None = None,
        progress: Progress | None = None,
    ) -> DensityMap:
        """Release a map, charged to an account where there is a budget."""

    def parameters(self) -> dict[str, Any]:
        """The parameters as a JSON-ready record."""
        record: dict[str, Any] = {}
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if item.name != "accept_large_epsilon":  # epsilon itself is there
                record[item.name] = str(value) if isinstance(value, Fraction) else value
        return record


@dataclass(frozen=True, kw_only=True)
class Mechanism(AnyMechanism):
    """Frozen parameters with an exact privacy budget.

    Parameters
    ----------
    epsilon : int, float, str, Decimal or Fraction
        The whole privacy budget of one release, above zero; kept exactly.
    accept_large_epsilon : bool
        Whether a release may have an epsilon above 20 or a delta above 1/100.
    """

    epsilon: EpsilonLike
    accept_large_epsilon: bool = dataclasses.field(default=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", as_epsilon(self.epsilon))
        super().__post_init__()

    @property
    def budget(self) -> Fraction:
        """The whole budget, exactly."""
        return as_epsilon(self.epsilon)

    @property
    def charged(self) -> Fraction:
        """Epsilon that a release costs every user: the whole budget where the unit is the user."""
        return self.budget

    def charges(
        self,
        account: Account | None,
        points: Any,
        cells: Tiling | str,
        *,
        delta: Fraction | None = None,
        seeded: bool,
    ) -> Charges:
        """The charges of one release, its budget checked; see :func:`~mapveil.privacy.account.charges_of`.

        The delta is that of :meth:`guarantee` unless it is given.
        """
        delta = self.guarantee().delta if delta is None else delta
        given, accepted = (account, points, self.charged, self.name), self.accept_large_epsilon
        return charges_of(
            *given, self.parameters(), cells, delta=delta, seeded=seeded, accept_large_epsilon=accepted
        )

    def _spent(self, shares: tuple[Share, ...]) -> Fraction:
        """The sum of the shares, never more than the budget."""
        spent = sum((share.epsilon for share in shares), Fraction(0))
        if spent > self.budget:
            raise AssertionError(f"{self.name} spent {spent} of {self.budget}")
        return spent


@dataclass(frozen=True, kw_only=True)
class PriorMechanism(Mechanism):
    """A mechanism whose estimate may lean on a prior. The noise, the budget and the guarantee are the same without it.

    Parameters
    ----------
    prior : Prior, optional
        A public map of where people are, or an earlier release (:func:`mapveil.formats.read_prior.read_prior`);
        :meth:`Prior.on` gives it on the cells.
    """

    prior: Prior | None = dataclasses.field(default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(self.prior is None or isinstance(self.prior, Prior), "prior", "a Prior, or none")

    def charges(
        self,
        account: Account | None,
        points: Any,
        cells: Tiling | str,
        *,
        delta: Fraction | None = None,
        seeded: bool,
    ) -> Charges:
        """See :meth:`Mechanism.charges`; a prior that cannot be used is refused before.

        Raises
        ------
        ParameterError
            The prior covers none of the cells, or its noise can be repeated and that of this run cannot.
        """
        if self.prior is not None:
            if self.prior.seeded and not seeded:
                raise ParameterError(
                    f"prior {self.prior.name} must be a release without a seed: whoever knows its seed can take its "
                    "noise off"
                )
            if not isinstance(cells, str):
                self.prior.check_covers(cells)
        return super().charges(account, points, cells, delta=delta, seeded=seeded)

    def parameters(self) -> dict[str, Any]:
        """The parameters as a JSON-ready record; a prior by its name, licence and hash."""
        record = super().parameters()
        prior = record.pop("prior")
        return record if prior is None else record | {"prior": prior.to_dict()}
