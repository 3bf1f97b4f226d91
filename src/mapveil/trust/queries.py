"""A mechanism's plan: queries over public groups of sites, noisy sums in reply, an estimate at the end.

A plan never sees data, so nothing in it can leak, and the same plan runs under every trust model whose answerer can
answer its queries. It depends on the public setting and on the replies only: sent stored replies again, it stands
where it stood.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from mapveil.geo.tiling import Tiling
from mapveil.maps.measurement import Measurement
from mapveil.maps.round_cost import RoundCost
from mapveil.privacy.claim import Share
from mapveil_client.arrays import BoolArray, FloatArray, IntArray
from mapveil_client.cells import Lattice
from mapveil_client.contribution import Rounding, sensitivity
from mapveil_client.encodings import Encoding
from mapveil_client.method_parameters import SumParameters
from mapveil_client.morton import interleave
from mapveil_client.plane import Box
from mapveil_client.randomness.random import Randomness

if TYPE_CHECKING:
    from mapveil.secure_sum.drivers import SecureSum


Progress = Callable[[str, float], None]
"""Called with the name of a step and the finished fraction, from 0 to 1."""


class Estimate(NamedTuple):
    """The result of a plan."""

    values: FloatArray  # estimated users per cell, or per site of a raster
    measurements: tuple[Measurement, ...]
    notes: tuple[str, ...] = ()
    by_window: FloatArray | None = (
        None  # the same in each window, shape (windows, cells or sites), of a series
    )


class Setting(NamedTuple):
    """The public facts that a plan starts from."""

    depth: int  # of the raster of sites
    members: IntArray  # cells on each site, in Morton order; 0 where nobody can be
    clients: int | None  # asked in each round; None where the number of users is not public
    shards: int  # sums of one round
    alpha: Fraction  # of the noise share: the part of a discrete Laplace variable each client adds
    scale: int  # units that one user divides over their locations
    rounding: Rounding = "largest-remainder"
    curator: bool = False  # whether a curator answers: one discrete Laplace variable per sum
    users_share: float = 0.02  # part of the budget for a noisy number of users where it is not public
    tiling: Tiling | None = None
    region: Box | None = None
    prior: FloatArray | None = None  # public fraction of all people on each site, in Morton order

    @classmethod
    def of_shards(
        cls, model: SumParameters, raster: Raster, sizes: IntArray, scale: int, region: Box | None
    ) -> Self:
        """The setting of secure sums over shards of these ``sizes``."""
        shares = (model.alpha(int(sizes.min())), scale, model.rounding)
        return cls(raster.depth, raster.members, int(sizes.sum()), sizes.size, *shares, region=region)

    @property
    def noise_terms(self) -> float:
        """Discrete Laplace variables in a round's noise if nobody drops out."""
        return 1.0 if self.curator or self.clients is None else float(self.alpha * self.clients)

    @property
    def area_m2(self) -> float | None:
        """Area of the region; None without a georeference."""
        return self.region.area_m2 if self.region is not None and self.region.georeferenced else None

    def sensitivity(self, encoding: Encoding) -> int:
        """Units by which one user moves the sums of an encoding, in L1."""
        return sensitivity(encoding, self.scale, self.rounding)


@dataclass(frozen=True)
class Query:
    """One question: noisy sums of the users in public groups of sites.

    Parameters
    ----------
    purpose : str
        Name in the guarantee and the ledger.
    encoding : Encoding
        The groups: how sites become coordinates of the vector of sums.
    epsilon : Fraction
        Cost of the reply to every user.
    noise_order : ndarray of int64, shape (length,), optional
        The coordinates in the order in which a curator draws their noise; ascending by default.
    contribution : int
        Users that one unit may count as, over all sums, for a curator: more than 1 where a user counts in several
        windows.
    """

    purpose: str
    encoding: Encoding
    epsilon: Fraction
    noise_order: IntArray | None = dataclasses.field(default=None, compare=False)
    contribution: int = 1

    @property
    def share(self) -> Share:
        """Its entry in the guarantee."""
        return Share(self.purpose, self.epsilon)


class CuratorQuery(Protocol):
    """A question that only a curator can answer: the noise is not on sums of disjoint groups."""

    @property
    def share(self) -> Share:
        """Its entry in the guarantee."""
        ...

    @property
    def kind(self) -> type:
        """Class of the reply: a named tuple or dataclass of numbers and arrays, which can be kept."""
        ...

    def check(self) -> None:
        """Refuse noise that cannot be drawn, before the reply is charged."""
        ...

    def reply(self, sums: IntArray, rng: Randomness, progress: Progress) -> Any:
        """Answer with epsilon-DP, from exact sums per site, units of 1 / UNIT user. Run by: the curator."""
        ...


class NoisySums(NamedTuple):
    """The reply to a query: a plan learns nothing else about people."""

    values: FloatArray  # users per coordinate, unbiased, shape (length,)
    variance: float  # of the noise on each, users squared
    terms: float  # discrete Laplace variables in each
    epsilon: Fraction
    sensitivity: int  # units one user changes the vector by, in L1
    scale: int  # units per user
    clients: int | None  # in the sums, where that is public

    @property
    def laplace_scale(self) -> float:
        """Scale of a single variable's noise that keeps epsilon, users."""
        return self.sensitivity / self.scale / float(self.epsilon)

    def measurement(self, groups: IntArray, values: FloatArray | None = None) -> Measurement:
        """The sums as a measurement of groups of cells; of some of them, given their ``values``."""
        return Measurement(
            groups,
            self.values if values is None else values,
            self.epsilon,
            self.scale,
            terms=self.terms,
            sensitivity=self.sensitivity,
        )


BeforeReveal = Callable[[Share], None]
"""Called with the share of a query before its sums can become known; may refuse by raising."""

Plan = Generator[Query | CuratorQuery, Any, Estimate]
"""Yields queries, is sent their replies (:class:`NoisySums` for a :class:`Query`), returns an estimate of sites."""


T = TypeVar("T")


class Keep(Protocol):
    """Gives the kept reply to the next query, or draws a reply and keeps it before anybody uses it."""

    def __call__(self, purpose: str, kind: type[T], draw: Callable[[], T], /) -> T:
        """The reply for a purpose, of a class; see :meth:`mapveil.privacy.answers.Answers.keep`."""
        ...


def _draw(purpose: str, kind: type[T], draw: Callable[[], T], /) -> T:
    return draw()


class Execution(NamedTuple):
    """Randomness and callbacks of one release, and the transport of its secure sums."""

    rng: Randomness
    progress: Progress = lambda step, done: None
    before_reveal: BeforeReveal = lambda share: None
    keep: Keep = _draw
    secure_sum: SecureSum | None = None  # adds the clients' vectors; IdealSum() by default
    dropout: float = 0.0  # fraction of each shard of clients that drops out


class Answerer(Protocol):
    """Answers the queries of one release: charges first, reveals afterwards."""

    setting: Setting
    revealed: list[Share]  # shares of epsilon that the replies so far cost every user
    costs: list[RoundCost]  # of each round, where clients answer

    def answer(self, query: Any) -> Any:
        """Reply to one query."""
        ...


def run(plan: Generator[Any, Any, T], answer: Callable[[Any], Any]) -> T:
    """Pass queries and replies between a plan and its answerer, until there is an estimate."""
    try:
        query = next(plan)
        while True:
            query = plan.send(answer(query))
    except StopIteration as stop:
        made: T = stop.value
        return made


@dataclass(frozen=True, eq=False)
class Raster:
    """The public raster of sites that a plan works on, and the site of each cell.

    Parameters
    ----------
    depth : int
        The raster has 4**depth sites.
    site : ndarray of int64, shape (cells,)
        Morton code of each cell's site.
    inside : ndarray of bool, shape (cells,)
        Whether each cell can hold anybody.
    labels : int
        Labels of a location that queries tell apart, numbered from 0; 1 where they ask for none.
    """

    depth: int
    site: IntArray
    inside: BoolArray
    labels: int = 1

    @classmethod
    def of(cls, lattice: Lattice, labels: int = 1) -> Self:
        """The lattice of a tiling."""
        return cls(lattice.depth, interleave(lattice.row, lattice.col), _inside(lattice), labels)

    @classmethod
    def of_cells(cls, lattice: Lattice) -> Self:
        """A site of its own for each cell, in the order of the cells: for sums of single cells."""
        depth = max(0, ((max(lattice.row.size, 1) - 1).bit_length() + 1) // 2)
        return cls(depth, np.arange(lattice.row.size, dtype=np.int64), _inside(lattice))

    @cached_property
    def members(self) -> IntArray:
        """Number of cells that can hold anybody on each site, shape (4**depth,)."""
        return np.bincount(self.site[self.inside], minlength=1 << (2 * self.depth))

    def on_cells(self, made: Estimate) -> Estimate:
        """An estimate of sites as one of cells: each cell has the even part of its site's value, and its groups.

        A cell where nobody can be is in no group, but for a sum of everybody, which bounds it too.
        """
        each_of = np.maximum(self.members[self.site], 1)
        values = made.values[self.site] / each_of
        by_window = made.by_window
        if by_window is not None:
            by_window = np.where(self.inside, by_window[:, self.site] / each_of, 0.0)
        measurements = tuple(
            dataclasses.replace(
                each, groups=np.where(self.inside | (each.noisy.size == 1), each.groups[self.site], -1)
            )
            for each in made.measurements
        )
        values = np.where(self.inside, values, 0.0)
        return made._replace(values=values, measurements=measurements, by_window=by_window)


def _inside(lattice: Lattice) -> BoolArray:
    return np.ones(lattice.row.size, dtype=np.bool_) if lattice.inside is None else lattice.inside
