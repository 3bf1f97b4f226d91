"""The one cell that each client of a local collection reports about, from a table of all users. For simulations.

Nothing here is private, and nothing of it reaches the server half of a mechanism.
"""

from typing import NamedTuple

import numpy as np

from mapveil.engines.contributions import UserCells, check_same_tiling, locator, user_cells
from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tiling import as_tiling
from mapveil.geo.windowed_points import WindowedPoints
from mapveil_client.arrays import BoolArray, IntArray
from mapveil_client.contribution import Outside
from mapveil_client.errors import InputError
from mapveil_client.local.domain import Domain
from mapveil_client.local.randomizer import PlaceChoice
from mapveil_client.local.window_choice import draw_windows
from mapveil_client.randomness.random import Randomness


class WindowCells(NamedTuple):
    """The cells that clients report about in the windows that they drew, shape (reports,). Not private."""

    cells: IntArray
    windows: IntArray


def cells_of_users(
    source: Points | Counts, domain: Domain, choice: PlaceChoice, outside: str, rng: Randomness
) -> IntArray:
    """The cell that each user reports about, shape (users who report,). Run by: a simulation of clients.

    Parameters
    ----------
    source : Points or Counts
        A table; or counts, each unit one user at one cell.
    domain : Domain
        The sites.
    choice : str
        ``"most-visited"``: the cell with the largest weight of the user's rows, of equal ones the first;
        ``"random"``: the cell of one row, drawn in proportion to the weights.
    outside : Outside or str
        Treatment of rows in no site: ``"drop"``, ``"nearest"`` or ``"refuse"``.
    rng : Randomness
        For the random choice.

    Raises
    ------
    InputError
        The table cannot be used, counts are of another tiling, or somebody is outside and that is refused.
    """
    rule = Outside(outside)
    if isinstance(source, Counts):
        tiling = as_tiling(domain.tiling)
        check_same_tiling(source.tiling, tiling)
        cells = np.repeat(np.arange(tiling.size), source.values)
        inside = np.isin(cells, domain.cells)
        check_inside(inside, rule, domain, source.source)
        return cells[inside]
    found = _user_cells(source, domain, rule)
    if found.cells.size == 0:
        return found.cells  # a valid input: an error would say for free that nobody is there
    starts = found.starts[:-1][np.diff(found.starts) > 0]
    user = np.repeat(np.arange(found.starts.size - 1), np.diff(found.starts))
    order = np.lexsort((found.cells, user))  # SQL keys of cells may be in another order
    cells, weights = found.cells[order], found.weights[order]
    return cells[_largest(starts, weights) if choice == "most-visited" else _random(starts, weights, rng)]


def cells_in_windows(
    source: WindowedPoints, domain: Domain, choice: PlaceChoice, outside: str, most: int, rng: Randomness
) -> WindowCells:
    """The cells of users in ``most`` windows that each of them draws; without a row there a user abstains.

    Arguments and errors are those of :func:`cells_of_users`.
    """
    found = _user_cells(source, domain, Outside(outside))
    users = np.repeat(np.arange(found.starts.size - 1), np.diff(found.starts))
    window = np.zeros(0, dtype=np.int64) if found.labels is None else found.labels.astype(np.int64)
    drawn = draw_windows(source.windows.count, most, rng, clients=found.starts.size - 1)
    kept = np.zeros(users.size, dtype=np.bool_)
    for each in drawn.T:
        kept |= each[users] == window
    pair = users[kept] * source.windows.count + window[kept]
    order = np.lexsort((found.cells[kept], pair))
    pair, cells, weights = pair[order], found.cells[kept][order], found.weights[kept][order]
    if pair.size == 0:
        return WindowCells(cells, pair)
    starts = np.flatnonzero(np.diff(pair, prepend=-1))
    chosen = _largest(starts, weights) if choice == "most-visited" else _random(starts, weights, rng)
    return WindowCells(cells[chosen], pair[starts] % source.windows.count)


def _user_cells(source: Points, domain: Domain, rule: Outside) -> UserCells:
    """Every user's sites; a row outside is refused where the rule says so."""
    tiling = as_tiling(domain.tiling)
    by_sql = rule is not Outside.NEAREST and domain.size == domain.tiling.size
    locate = None if by_sql else locator(tiling, domain.cells, rule)
    found = user_cells(source, tiling, Outside.KEEP if rule is Outside.REFUSE else Outside.DROP, locate)
    check_inside(found.cells >= 0, rule, domain, source.source)
    return found


def check_inside(inside: BoolArray, rule: Outside, domain: Domain, name: str) -> None:
    """Refuse a table with rows outside, where the rule is ``REFUSE``.

    Raises
    ------
    InputError
        A row is outside.
    """
    if rule is Outside.REFUSE and not inside.all():
        raise InputError(
            f"{name}: every row must be in a site of {domain.tiling.spec} in {domain.tiling.region}, got one "
            "outside; use outside='drop' or 'nearest'"
        )


def _largest(starts: IntArray, weight: IntArray) -> IntArray:
    """The entry of the largest weight of each user, the first of equal ones."""
    stop = np.append(starts[1:], weight.size)
    best = np.repeat(np.maximum.reduceat(weight, starts), stop - starts)
    hits = np.flatnonzero(weight == best)
    return np.asarray(hits[np.searchsorted(hits, starts)])


def _random(starts: IntArray, weight: IntArray, rng: Randomness) -> IntArray:
    """One entry of each user, in proportion to the weights. For a simulation: no promise rests on it."""
    total = np.concatenate([[0.0], np.cumsum(weight, dtype=np.float64)])
    stop = np.append(starts[1:], weight.size)
    drawn = total[starts] + rng.generator().random(starts.size) * (total[stop] - total[starts])
    return np.asarray(np.clip(np.searchsorted(total, drawn, side="right") - 1, starts, stop - 1))
