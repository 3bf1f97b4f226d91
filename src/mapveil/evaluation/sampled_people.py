"""The people whom trials sample: every user's exact shares, ready to be summed. Not private.

A trial draws users without replacement and sums their rows, so that a thousand trials read the table once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from mapveil.engines import UNIT, UserSums
from mapveil.engines.contributions import check_same_tiling, nobody_inside, user_cells
from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil_client.arrays import IntArray
from mapveil_client.errors import InputError, ParameterError

if TYPE_CHECKING:
    from mapveil_client.contribution import Devices

_LARGEST_COUNT = 1_000_000_000


def _check_size(wanted: int, there: int) -> None:
    if not 0 < wanted <= there:
        raise ParameterError(f"a sample must have 1 to {there} users, got {wanted}")


@dataclass(frozen=True, eq=False)
class UserShares:
    """Each user's distribution over the cells, on the lattice of 1 / UNIT."""

    starts: IntArray  # user u's entries are starts[u]:starts[u + 1], shape (users + 1,)
    cells: IntArray  # shape (entries,)
    shares: IntArray  # of each entry; a user's sum to at most UNIT
    tiling: Tiling
    source: str = "users"  # in messages

    @classmethod
    def from_points(cls, points: Points, tiling: Tiling) -> UserShares:
        r"""Read every user's distribution over the cells; the same rounding as the engine's.

        .. math:: s_{uc} = \sum_{i:\, c_i = c} \Big\lfloor U w_i \Big/ \textstyle\sum_j w_j \Big\rfloor

        where: row i of user u lies in cell :math:`c_i` and weighs :math:`w_i`, the inner sum is over all their
        rows inside, :math:`U` is UNIT. The column sums are those of
        :func:`mapveil.engines.user_sums.user_sums` exactly.

        Raises
        ------
        InputError
            No row lies inside the tiling.
        """
        found = user_cells(points, tiling)
        if found.cells.size == 0:
            raise nobody_inside(points, tiling)
        return cls(found.starts, found.cells, found.shares, tiling, points.source)

    @property
    def users(self) -> int:
        """Number of users with a row inside the tiling."""
        return self.starts.size - 1

    def draw(self, users: int | None, rng: np.random.Generator) -> UserShares:
        """``users`` people drawn without replacement, all for ``None``."""
        if users is None:
            return self
        _check_size(users, self.users)
        chosen = rng.choice(self.users, size=users, replace=False)
        lengths = self.starts[chosen + 1] - self.starts[chosen]
        ends = np.cumsum(lengths)
        entries = np.arange(ends[-1]) + np.repeat(self.starts[chosen] - (ends - lengths), lengths)
        starts = np.concatenate([[0], ends])
        return UserShares(starts, self.cells[entries], self.shares[entries], self.tiling, self.source)

    def sums(self) -> UserSums:
        """Their exact sums."""
        sums = np.zeros(self.tiling.size, dtype=np.int64)
        np.add.at(sums, self.cells, self.shares)
        return UserSums(sums, self.tiling)

    def most_visited(self) -> Counts:
        """Each user at the cell of their largest share, of equal ones the first: what a local method reports."""
        user = np.repeat(np.arange(self.users), np.diff(self.starts))
        order = np.lexsort((self.cells, -self.shares, user))
        home = self.cells[order][np.unique(user, return_index=True)[1]]
        counts = np.bincount(home, minlength=self.tiling.size).astype(np.int64)
        return Counts(counts, self.tiling, f"{self.source}, each user at the cell most visited")

    def on_devices(self) -> Devices:
        """A device for each user, with the user's shares as weights."""
        from mapveil_client.contribution import Devices
        from mapveil_client.morton import interleave

        lattice = self.tiling.lattice()
        return Devices(interleave(lattice.row, lattice.col)[self.cells], self.starts, self.shares)


@dataclass(frozen=True, eq=False)
class CountedUsers:
    """A ready raster of counts, each unit one user at one place."""

    counts: Counts

    @property
    def tiling(self) -> Tiling:
        """The counts' cells."""
        return self.counts.tiling

    @property
    def source(self) -> str:
        """The counts' name in messages."""
        return self.counts.source

    @property
    def users(self) -> int:
        """The total count."""
        return int(self.counts.values.sum())

    def draw(self, users: int | None, rng: np.random.Generator) -> CountedUsers:
        """``users`` people drawn without replacement, all for ``None``."""
        if users is None:
            return self
        _check_size(users, self.users)
        if self.users >= _LARGEST_COUNT:
            raise InputError(f"{self.counts.source}: samples need fewer than {_LARGEST_COUNT} users")
        drawn = rng.multivariate_hypergeometric(self.counts.values, users, method="marginals")
        return CountedUsers(Counts(np.asarray(drawn, dtype=np.int64), self.tiling, self.counts.source))

    def sums(self) -> UserSums:
        """Their exact sums."""
        return UserSums(self.counts.values * UNIT, self.tiling)

    def most_visited(self) -> Counts:
        """The counts: every user is at one cell."""
        return self.counts

    def on_devices(self) -> Counts:
        """The counts: one device for each unit."""
        return self.counts


Population: TypeAlias = UserShares | CountedUsers
"""People on a tiling, of whom a trial takes a sample."""


def population(source: Points | Counts | Population, tiling: Tiling | None = None) -> Population:
    """The people of a table or of a raster of counts (which brings its own tiling), or people as they are.

    Raises
    ------
    InputError
        A table without a tiling, counts of another tiling, or no row inside.
    """
    if isinstance(source, UserShares | CountedUsers):
        return source
    if isinstance(source, Counts):
        if tiling is not None:
            check_same_tiling(source.tiling, tiling)
        return CountedUsers(source)
    if tiling is None:
        raise InputError("a table of points needs a tiling, such as quadtree:8")
    return UserShares.from_points(source, tiling)
