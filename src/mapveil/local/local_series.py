"""A series of randomized reports: the population is divided among the windows, and not the budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil.geo.windowed_points import WindowedPoints, check_numbering, windowed
from mapveil.geo.windows import Windows
from mapveil.inference.window_shrinkage import halvings
from mapveil.local.estimators.estimated_users import estimates_by_window
from mapveil.local.estimators.smoothed_likelihood import smooth_likelihood
from mapveil.local.local_mechanism import CHUNK
from mapveil.local.randomizers.hierarchical_hashing import HierarchicalHashing
from mapveil.local.randomizers.randomizer import Randomizer, Tally
from mapveil.local.reported_cells import cells_in_windows
from mapveil.maps.counting import counting_note
from mapveil.maps.series_map import SeriesMap
from mapveil.mechanisms.mechanism import charged_to, held_for, tiling_of
from mapveil.privacy.account import OWN, Account
from mapveil.privacy.claim import Assumes, ContributionBound, Norm, Share
from mapveil.privacy.guarantee import Guarantee
from mapveil.trust.queries import Progress
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import InputError
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness, as_randomness


@dataclass(frozen=True, kw_only=True)
class LocalSeries(HierarchicalHashing):
    r"""Every client reports about the windows that it draws itself, by hierarchical hashing.

    A client draws k of the W windows, whatever its data, and reports its place in each of them with
    :math:`\epsilon / k`; where it has no row in a drawn window it abstains. So all reports of a user together cost
    epsilon, and each window has the reports of about a fraction k / W of those who were there.

    All reports together make the map of all windows. Then time is halved again and again
    (:func:`mapveil.inference.window_shrinkage.halvings`): the estimate of each run of windows starts from that of the
    run around it, and departs from it as far as its own reports say
    (:func:`mapveil.local.estimators.smoothed_likelihood.smooth_likelihood`).

    Source: the division of the population is that of Ren et al., "LDP-IDS: Local Differential Privacy for Infinite
    Data Streams" (2022), section 6; the shrinkage over time is Mapveil's.

    Parameters
    ----------
    windows : Windows
        The windows.
    windows_per_user : int, optional
        k; 1 by default.
    epsilon, place, outside, buckets, growth, site_weight, prior
        As for :class:`~mapveil.local.randomizers.hierarchical_hashing.HierarchicalHashing`; ``place`` is chosen among
        a user's rows in the window.
    """

    name: ClassVar[str] = "olh-h-series"
    summary: ClassVar[str] = "each client reports about windows that it draws itself; shrunk over time"
    server_options: ClassVar[frozenset[str]] = frozenset({"prior", "windows", "windows_per_user"})

    windows: Windows
    windows_per_user: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(isinstance(self.windows, Windows), "windows", "Windows")
        self.windows.check_per_user(self.windows_per_user)
        self._check(self.estimator == "smoothed-em", "estimator", "smoothed-em for a series")

    @property
    def of_report(self) -> HierarchicalHashing:
        """The mechanism of a single report."""
        own = {item.name: getattr(self, item.name) for item in fields(HierarchicalHashing)}
        return HierarchicalHashing(**own | {"epsilon": self.budget / self._drawn})

    @property
    def _drawn(self) -> int:
        return self.windows_per_user or 1

    def parameters(self) -> dict[str, Any]:
        """The parameters as a JSON-ready record."""
        return super().parameters() | {"windows": self.windows.to_dict()}

    def expected_reports(self, users: float) -> float:
        """The reports about one window, where all users are in every window."""
        return users * self._drawn / self.windows.count

    def numbered(self, points: Points) -> WindowedPoints:
        """The points with the number of each row's window."""
        return windowed(points, self.windows)

    def release(
        self,
        points: Points | Counts,
        tiling: Tiling | None = None,
        *,
        account: Account | None = OWN,
        rng: Randomness | int | None = None,
        progress: Progress | None = None,
    ) -> SeriesMap:
        """Simulate a whole collection in this process; arguments and errors are those of every local mechanism."""
        if not isinstance(points, WindowedPoints):
            raise InputError(f"{points.source}: a series needs a table of points whose windows are numbered")
        check_numbering(points, self.windows)
        stream, tell = as_randomness(rng), progress or (lambda step, done: None)
        domain = Domain(given := tiling_of(points, tiling))
        with held_for(points, given, account) as held:
            charges = self.charges(account, held, given, seeded=stream.seeded)
            tell("collect reports", 0.0)
            chosen = cells_in_windows(held, domain, self.place, self.outside, self._drawn, stream)
            used, notes = self.of_report.designed(domain, chosen.cells.size)
            randomizer = used.on(domain)

            def ask() -> Tally:
                counts = np.zeros((self.windows.count, randomizer.symbols), dtype=np.int64)
                order = np.argsort(chosen.windows, kind="stable")
                starts = np.searchsorted(chosen.windows[order], np.arange(1, self.windows.count))
                for window, of_window in enumerate(np.split(order, starts)):
                    cells = chosen.cells[of_window]
                    for start in range(0, cells.size, CHUNK):
                        reports = randomizer.randomize(cells[start : start + CHUNK], stream)
                        counts[window] += randomizer.tally(reports).counts
                    tell("collect reports", (window + 1) / self.windows.count)
                return Tally(counts, chosen.cells.size)

            with charges:
                charges.spend(self.budget)
                kept = charges.keep(self._purpose, Tally, ask)
                made = self.series(kept, randomizer, seeded=stream.seeded, progress=tell)
        made = replace(made, guarantee=made.guarantee.as_simulation(), notes=(*made.notes, *notes))
        return charged_to(made, charges)

    def series(
        self,
        tally: Tally,
        randomizer: Randomizer,
        *,
        seeded: bool = False,
        progress: Progress | None = None,
    ) -> SeriesMap:
        """The series of the windows' tallies. Run by: the server.

        Parameters
        ----------
        tally : Tally
            Counts of the reports about each window, shape (windows, symbols).
        randomizer : Randomizer
            Randomizer of :attr:`of_report` on the domain.
        seeded : bool
            Whether the reports were made with a seed.
        progress : callable, optional
            Called with the name and the finished fraction of each step.
        """
        tell = progress or (lambda step, done: None)
        # Each report is one symbol.
        of_windows = [Tally(counts, int(counts.sum())) for counts in tally.counts]
        pooled = sum(of_windows[1:], of_windows[0])
        tell("estimate", 0.0)
        heat = replace(self.of_report, prior=self.prior).estimate(pooled, randomizer, seeded=seeded)
        domain, reports = randomizer.domain, np.array([each.reports for each in of_windows])
        whole = heat.values[domain.cells]
        around = whole / whole.sum() if pooled.reports else np.full(domain.size, 1 / domain.size)
        divided = _divided(randomizer, of_windows, around, tell)
        by_window = reports[:, None] * divided
        heat = replace(
            heat,
            values=domain.on_cells(by_window.sum(axis=0)),
            guarantee=self.guarantee((Share(self._purpose, self.budget),), seeded=seeded),
            method=self.name,
            parameters=self.parameters(),
            notes=(*heat.notes, self._sampled, counting_note(self.parameters())),
        )
        measured = estimates_by_window(randomizer, of_windows, divided, self.budget / self._drawn)
        tell("estimate", 1.0)
        on_cells = np.stack([domain.on_cells(each) for each in by_window])
        return SeriesMap.of(heat, self.windows, on_cells, measured)

    @property
    def _purpose(self) -> str:
        number = self._drawn
        return f"{number} report{'s' * (number > 1)} of each user, about window{'s' * (number > 1)} drawn by the client"

    @property
    def _sampled(self) -> str:
        return (
            f"each client reported about {self._drawn} of {self.windows.count} windows, drawn by itself: the users "
            "of a window are those who drew it"
        )

    def guarantee(self, shares: tuple[Share, ...] = (), *, seeded: bool = False) -> Guarantee:
        """The promise of one release with these parameters."""
        made = super().guarantee(shares, seeded=seeded)
        absent = (
            Assumes.PARTICIPATION_PUBLIC()
        )  # with every rule for rows outside: no row in the window, no report
        assumptions = made.assumptions if absent in made.assumptions else (*made.assumptions, absent)
        bound = ContributionBound(Norm.REPORTS, Fraction(self._drawn))
        return replace(made, bound=bound, assumptions=assumptions)


def _divided(
    randomizer: Randomizer, tallies: Sequence[Tally], around: FloatArray, tell: Progress
) -> FloatArray:
    """The distribution of the users of each window, shape (windows, sites)."""
    estimate = around[None]
    summed = np.concatenate(
        [
            np.zeros((1, randomizer.symbols), dtype=np.int64),
            np.cumsum([each.counts for each in tallies], axis=0),
        ]
    )
    done, steps = 0, 2 * max(len(tallies) - 1, 1)
    for runs in halvings(len(tallies)):
        made = np.empty((runs.start.size, randomizer.size))
        for number, (start, stop, parent) in enumerate(zip(runs.start, runs.stop, runs.parent, strict=True)):
            counts = summed[stop] - summed[start]
            same = (runs.parent == parent).sum() == 1  # a window that was alone before
            if same or not counts.any():
                made[number] = estimate[parent]
                continue
            tally = Tally(counts, int(counts.sum()))
            made[number] = smooth_likelihood(randomizer, tally, around=estimate[parent]).distribution
            done += 1
            tell("estimate", done / steps)
        estimate = made
    return estimate
