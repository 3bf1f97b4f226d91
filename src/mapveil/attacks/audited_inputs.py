"""Neighbouring inputs of an audit, where presence could show most, and the clients that hold them."""

from typing import Final, NamedTuple

import numpy as np

from mapveil.engines import UNIT
from mapveil.geo.tiling import Tiling
from mapveil_client.arrays import IntArray
from mapveil_client.contribution import Devices
from mapveil_client.errors import ParameterError
from mapveil_client.morton import interleave

_CROWDS: Final = (
    65  # users beside the one: 0 to 64, over the thresholds at which plans divide the cells of an audit
)
_CLIENTS: Final = 70


class Neighbours(NamedTuple):
    """Exact sums that differ by one user: by one more, or by the cell of the only one."""

    name: str
    tiling: Tiling
    without: IntArray  # (tiling.size,), units of 1 / UNIT user
    with_one: IntArray  # the same and one user more; of a local mechanism, one user in another cell

    def check(self, replaced: bool) -> None:
        """Refuse sums that are no neighbours; ``replaced`` where the only user is in another cell."""
        more = self.with_one - self.without
        if replaced:
            one = all(sums.max() == sums.sum() == UNIT for sums in (self.with_one, self.without))
            holds = one and (self.without >= 0).all() and (self.with_one >= 0).all() and more.any()
        else:
            holds = (more >= 0).all() and 0 < more.sum() <= UNIT
        if self.without.shape != (self.tiling.size,) or not holds:
            wanted = "be one user in two different cells" if replaced else "differ by one user"
            raise ParameterError(f"the pair {self.name!r} is not of neighbours: its sums must {wanted}")


def worst_neighbours(tiling: Tiling) -> tuple[Neighbours, ...]:
    """Pairs that strain the mechanisms of this package.

    One user beside 0 to 64 others in one cell, so that one of the pairs straddles each threshold of users at which a
    level is chosen or a cell divided; and one user divided over the four corners beside a crowd.

    Parameters
    ----------
    tiling : Tiling
        Cells, few of them: an audit takes thousands of runs.
    """
    cell = np.array([tiling.size // 3])
    lattice = tiling.lattice()
    sides = ((1, 1), (1, -1), (-1, 1), (-1, -1))
    corners = np.unique([np.argmin(down * lattice.row + across * lattice.col) for down, across in sides])
    pairs = []
    for crowd, cells in [(5, corners), *((crowd, cell) for crowd in range(_CROWDS))]:
        without = np.zeros(tiling.size, dtype=np.int64)
        without[cell] = crowd * UNIT
        with_one = without.copy()
        with_one[cells] += UNIT // cells.size
        name = (
            f"{crowd} users in one cell, without or with one more"
            if cells is cell
            else "one user divided over the corners"
        )
        pairs.append(Neighbours(name, tiling, without, with_one))
    return tuple(pairs)


def worst_replacements(tiling: Tiling) -> tuple[Neighbours, ...]:
    """Pairs that strain local mechanisms: one user in a cell or in another one, far from it and near it.

    Parameters
    ----------
    tiling : Tiling
        The cells, two or more.
    """
    users = np.eye(tiling.size, dtype=np.int64) * UNIT
    last = tiling.size - 1
    return tuple(
        Neighbours(f"one user in cell {cell} or in cell {other}", tiling, users[other], users[cell])
        for cell, other in dict.fromkeys([(0, last), (last, 0), (0, 1), (tiling.size // 3, last)])
        if cell != other
    )


def audited_devices(
    tiling: Tiling, without: IntArray, user: IntArray | None, *, alone: bool = False
) -> Devices:
    """Devices of whole users, one more that holds ``user`` or nothing, and others outside the map; all of label 0.

    Parameters
    ----------
    tiling : Tiling
        The cells.
    without : ndarray of int64, shape (tiling.size,)
        Sums without the one, units of 1 / UNIT user; whole users.
    user : ndarray of int64, shape (tiling.size,), or None
        What the one holds, in the same units; nothing for ``None``.
    alone : bool
        Whether there are no others outside the map.
    """
    lattice = tiling.lattice()
    site = interleave(lattice.row, lattice.col)
    held = np.flatnonzero(user) if user is not None else np.array([-1])
    crowd = np.repeat(site, without // UNIT)
    one = site[held] if user is not None else held
    idle = 0 if alone else max(_CLIENTS - crowd.size, 0)
    sites = np.concatenate([one, crowd, np.full(idle, -1)])
    lengths = np.concatenate([[held.size], np.ones(crowd.size + idle, dtype=np.int64)])
    weights = np.ones(sites.size, dtype=np.int64)
    if user is not None:
        weights[: held.size] = user[held]
    return Devices(sites, np.concatenate([[0], np.cumsum(lengths)]), weights, np.zeros_like(sites))
