"""The clients of a secure sum in one process, for simulations and tests: each user's rows on a device of their own."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from mapveil.engines import UserSums
from mapveil.engines.contributions import check_same_tiling, user_cells
from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil_client.arrays import IntArray
from mapveil_client.contribution import Devices, Outside
from mapveil_client.errors import InputError
from mapveil_client.morton import interleave


def devices_of(
    source: Points | Counts | UserSums | Devices,
    tiling: Tiling,
    progress: Callable[[str, float], None] | None = None,
    sites: IntArray | None = None,
) -> Devices:
    """Put every user's rows on a device of their own. Run by: a simulation.

    A row outside adds to no cell: the user's contribution is divided over the other rows, and a user without any is a
    client that sends zeros and noise. Memory follows the users' distinct cells.

    Parameters
    ----------
    source : Points, Counts or Devices
        A table, one device per user; or counts, one device at one location for each unit; or devices, as they are.
    tiling : Tiling
        The cells, seen through their lattice.
    progress : callable, optional
        Receives the step's name and the fraction that is done.
    sites : ndarray of int64, shape (cells,), optional
        Morton code of each cell's site, of trips that of each pair of cells; the lattice's by default.

    Raises
    ------
    InputError
        The table cannot be used, is a curator's sums, or counts are of another tiling.
    """
    if isinstance(source, UserSums):
        raise InputError("a curator's sums have no clients: a table, counts or devices are needed")
    if isinstance(source, Devices):
        return source
    tell = progress or (lambda step, done: None)
    tell("place the devices", 0.0)
    if sites is None:
        lattice = tiling.lattice()
        sites = interleave(lattice.row, lattice.col)
    site = sites.astype(np.int32 if int(sites.max(initial=0)) < 1 << 31 else np.int64)
    if isinstance(source, Counts):
        check_same_tiling(source.tiling, tiling)
        made = Devices(np.repeat(site, source.values))
    else:
        found = user_cells(source, tiling, Outside.KEEP)
        places = np.where(found.cells >= 0, site[found.cells], site.dtype.type(-1))
        labels = None if found.labels is None else _codes(found.labels)
        made = Devices(places, found.starts, found.weights, labels)
    tell("place the devices", 1.0)
    return made


def _codes(labels: npt.NDArray[np.generic]) -> IntArray:
    """Labels as whole numbers: numbers as they are (-1 for others), texts numbered from 0 in their own order."""
    if labels.dtype.kind in "biuf":
        numbers = labels.astype(np.float64)
        whole = np.isfinite(numbers) & (numbers == np.rint(numbers)) & (np.abs(numbers) < 1 << 31)
        return np.where(whole, numbers, -1).astype(np.int64)
    return np.asarray(np.unique(labels, return_inverse=True)[1], dtype=np.int64)
