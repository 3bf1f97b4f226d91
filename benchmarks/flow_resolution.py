"""Errors of flows by randomized reports on coarse and on fine cells, and the resolution that is chosen by default.

    python -m benchmarks.flow_resolution ../shared/data --page docs/reference/flow-resolution.md

Trips are drawn with replacement from a table's, each of a user of its own.
"""

from __future__ import annotations

import argparse
import math
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

import mapveil as mv
from benchmarks.flow_errors import CASES, Case, l1
from benchmarks.local_flows import drawn_trips, ends_of, true_pairs
from mapveil.analysis.flow_design import FLOW_SIGNAL, best_depth
from mapveil.analysis.trips import Trips
from mapveil_client.arrays import FloatArray, IntArray

TABLES: Final = ("gowalla-new-york", "foursquare-san-francisco", "foursquare-tokyo", "porto-taxis")
USERS: Final = (1_000, 10_000, 100_000)
EPSILONS: Final = (1, 2, 4)
DEPTHS: Final = (1, 2, 3, 4)  # 4 to 256 cells
JUDGED: Final = (3, 4)  # resolutions at which flows are compared with the truth
SIGNALS: Final = (2.0, 1.0, 1 / 2, 1 / 3, 1 / 4, 1 / 6, 1 / 12, 1 / 20)


class Setting(NamedTuple):
    """Errors of one table, number of users and epsilon."""

    case: Case
    users: int
    epsilon: int
    errors: FloatArray  # shape (depths, draws)

    def at(self, depth: int) -> float:
        """Mean error on the cells of a depth, or of the finest one measured."""
        return float(self.errors[min(depth, DEPTHS[-1]) - 1].mean())


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flow_resolution", description=__doc__)
    parser.add_argument("data", type=Path, help="folder of the shared tables")
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1, help="processes; a table is one's")
    parser.add_argument("--page", type=Path, help="write the documentation's page here")
    given = parser.parse_args()
    measure = partial(settings, given.data, trials=given.trials)
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool:
        found = [each for of_table in pool.map(measure, TABLES) for each in of_table]
    signals = "\n".join(_signal_row(found, signal) for signal in SIGNALS)
    print(signals)
    if given.page is not None:
        rows = "\n".join(_row(each) for each in found)
        text = _PAGE.format(trials=given.trials, table=rows, signals=signals, signal=_fraction(FLOW_SIGNAL))
        given.page.write_text(text, encoding="utf-8")


def settings(folder: Path, name: str, trials: int) -> list[Setting]:
    """Errors at all depths, of every number of users and epsilon."""
    case = next(each for each in CASES if each.name == name)
    ends, made = ends_of(case, folder), []
    for users in USERS:
        trips = drawn_trips(ends, users)
        true = {depth: true_pairs(trips, _cells(case, depth)) for depth in JUDGED}
        for epsilon in EPSILONS:
            errors = [
                [_error(case, trips, true, epsilon, depth, seed) for seed in range(trials)]
                for depth in DEPTHS
            ]
            made.append(Setting(case, users, epsilon, np.array(errors)))
            print(_row(made[-1]), flush=True)
    return made


def _cells(case: Case, depth: int) -> mv.Quadtree:
    return mv.Quadtree(mv.Region.from_bbox(*case.box), depth=depth)


def _error(
    case: Case, trips: Trips, true: dict[int, FloatArray], epsilon: int, depth: int, seed: int
) -> float:
    """Mean over the judged resolutions of L1 between distributions over pairs."""
    cells = _cells(case, depth)
    flows = mv.flows(trips, cells, epsilon=epsilon, account=None, most=cells.size**2, rng=seed)
    made = flows.matrix().toarray()
    return float(np.mean([l1(true[fine], _at(case, made, depth, fine).ravel()) for fine in JUDGED]))


def _at(case: Case, made: FloatArray, depth: int, fine: int) -> FloatArray:
    """Flows between the cells of one depth as those between the cells of another: added up, or divided evenly."""
    if fine >= depth:
        of = _parents(case, depth, fine)
        return np.asarray(made[np.ix_(of, of)] / 16 ** (fine - depth))
    of = _parents(case, fine, depth)
    summed = np.zeros((4**fine, 4**fine))
    np.add.at(summed, (of[:, None], of), made)
    return summed


def _parents(case: Case, coarse: int, fine: int) -> IntArray:
    """The coarse cell around each fine one."""
    return _cells(case, coarse).locate(*_cells(case, fine).centres())


def _before(users: int, epsilon: int) -> int:
    """Depth that was the default when two reports of half of epsilon each were supposed on any number of cells."""
    grown = math.exp(epsilon / 2)
    cells = math.sqrt(users) * (grown - 1) ** 2 / (8 * grown)
    return min(max(round(math.log(cells, 4)), 1), 6)


def _row(setting: Setting) -> str:
    draws = setting.errors.shape[1]
    numbers = [f"{each.mean():.2f} ± {each.std(ddof=1) / draws**0.5:.2f}" for each in setting.errors]
    chosen = best_depth(setting.users, Fraction(setting.epsilon))
    case, depths = setting.case, (chosen, _before(setting.users, setting.epsilon))
    cells = [f"{case.name} ({case.role})", f"{setting.users:,}", str(setting.epsilon), *numbers]
    return f"| {' | '.join([*cells, *(str(4**depth) for depth in depths)])} |"


def _signal_row(found: list[Setting], signal: float) -> str:
    means = []
    for role in ("tune", "test"):
        of_role = [
            each.at(best_depth(each.users, Fraction(each.epsilon), signal=signal))
            for each in found
            if each.case.role == role
        ]
        means.append(f"{np.mean(of_role):.3f}")
    return f"| {_fraction(signal)} | {' | '.join(means)} |"


def _fraction(signal: float) -> str:
    return str(Fraction(signal).limit_denominator(100))


_PAGE: Final = """# Resolution of flows by randomized reports

Generated by `python -m benchmarks.flow_resolution DATA --trials {trials} --page docs/reference/flow-resolution.md`; do
not edit.

Errors of `mapveil flows` under local trust on 4, 16, 64 and 256 cells, and the number of cells that is chosen where no
tiling is given. The error is L1 between the true and the estimated distribution of trips over pairs of cells (0 to 2),
the mean of that at a resolution of 64 cells and of that at 256: coarser flows are divided evenly, finer ones added up.
Means over {trials} draws of the reports and their standard errors. Every user has one trip, drawn with replacement from
the table's. *Chosen* is the default; *before* is the default that was derived from two reports of half of epsilon each,
although up to 64 cells one report has all of epsilon.

| table (role) | users | epsilon | 4 cells | 16 cells | 64 cells | 256 cells | chosen | before |
|---|---|---|---|---|---|---|---|---|
{table}

The number of cells c is the largest power of 4 for which the n / c trips of a large flow are at least a factor times
the standard deviation of one flow. Mean errors over all rows above by that factor, where more than 256 cells count as
256. The default is {signal}, chosen on the tables of the tune role: among factors whose errors there hardly differ, the
one of the coarsest cells.

| factor | tune | test |
|---|---|---|
{signals}
"""

if __name__ == "__main__":
    main()
