"""Live series: a map of each window as its table arrives, with one promise over a future that is not known yet.

A user counts 1 in each of the first k windows that they were in, and in no later one; each window's map costs
epsilon / k. So one user costs at most epsilon over all windows, whatever comes. Or epsilon is for a user's rows in any
w consecutive windows (:mod:`mapveil.mechanisms.window_runs`). What all windows cost a user is charged once, when the
series starts.

A window's map, and what its users have left, are stored in one transaction (:mod:`mapveil.mechanisms.series_file`);
then the ledger records the map, and only then may anybody see it. A process that is killed before has revealed
nothing; after it the stored map is written again, and no noise is drawn twice. Of a copied file, or an older one put
back, the ledger knows other windows: it is refused.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Final

from mapveil.formats.geoparquet import geoparquet_bytes
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil.geo.windowed_points import check_times, windowed, windows_of_rows
from mapveil.geo.windows import Windows, check_zone
from mapveil.maps.density_map import DensityMap
from mapveil.maps.provenance import Provenance
from mapveil.mechanisms.live_window import map_of_window, rows_of_window, users_present
from mapveil.mechanisms.mechanism import check_tiling
from mapveil.mechanisms.multiscale import Multiscale
from mapveil.mechanisms.series_file import SeriesFacts, SeriesFile, create_series_file
from mapveil.mechanisms.series_promise import epsilon_charged, least_epsilon, promise_of_series
from mapveil.mechanisms.series_status import SeriesStatus, status_of
from mapveil.mechanisms.window_error import check_error
from mapveil.privacy.charges import with_account
from mapveil.privacy.claim import check_large_epsilon
from mapveil.privacy.ledger import Ledger
from mapveil.privacy.ledger_accounts import SpendId
from mapveil.privacy.recognition import PeopleInCommon
from mapveil.privacy.window_draws import check_draws, record_draws, record_files
from mapveil_client.epsilon import EpsilonLike, as_epsilon
from mapveil_client.errors import CuratorWarning, InputError, MapveilError, ParameterError, check, is_whole

_IDS_AS_WRITTEN: Final = (
    "{path}: was started by an earlier version, which takes an id that is written otherwise, such as AB1 for ab1 or "
    "1.0 for 1, for another user, who costs epsilon again: write the ids of every table alike, or start another series"
)

_EMPTY: Final = (
    "{source}: has no rows in the region of the series, so a map of it is about nobody; keep this private"
)

_DRAWN: Final = (
    "{path}: window {window} was drawn by a run that was cut short: this is its map, not one of {table}"
)


@dataclass(frozen=True)
class LiveSeries:
    """A series whose windows are released one by one. Run by: the curator.

    Parameters
    ----------
    path : path-like
        Its private file; made by :meth:`start`.
    """

    path: str | PathLike[str]

    @classmethod
    def start(
        cls,
        path: str | PathLike[str],
        name: str,
        windows: Windows,
        tiling: Tiling,
        *,
        epsilon: EpsilonLike,
        windows_per_user: int | None = None,
        w_event: int | None = None,
        window_error: float | None = None,
        ledger: Ledger | None = None,
        accept_large_epsilon: bool = False,
    ) -> LiveSeries:
        """Start a series, and charge its epsilon once; a start that was cut short is continued, not repeated.

        Parameters
        ----------
        path : path-like
            A new file, which is private: keep it as safe as the table.
        name : str
            Name of the account that is charged, and joined by the people of every window.
        windows : Windows
            Periods, all that will ever be released.
        tiling : Tiling
            The cells of every window.
        epsilon : int, float, str, Decimal or Fraction
            Privacy budget of a user over all windows, or with ``w_event`` of a user's rows in any so many of them.
        windows_per_user : int, optional
            k, the windows that a user may count in; all by default.
        w_event : int, optional
            w: epsilon is for a user's rows in any w consecutive windows, and a window like the last is not published
            again. What that adds up to over all windows is charged.
        window_error : float, optional
            Largest half width of the 95 % interval around the sum of one of a window's smallest blocks, users. More
            windows of a user than the budget allows at that error are refused.
        ledger : Ledger, optional
            The ledger; without, nothing is charged and the guarantee says so.
        accept_large_epsilon : bool
            Whether epsilon may be above 20.

        Raises
        ------
        InputError
            The file is there and of another series, or a parameter cannot be used, such as a time zone that DuckDB
            does not know.
        BudgetExceeded
            The account does not allow the epsilon.
        """
        exact = as_epsilon(epsilon)
        periods = windows.every is not None and windows.by is None
        check(periods, "windows", "periods alone (--every without --by)", str(windows))
        for given, value in (
            ("windows_per_user (--windows-per-user)", windows_per_user),
            ("w_event (--w-event)", w_event),
        ):
            held = value is None or is_whole(value, 1, windows.count)
            check(held, given, f"a whole number from 1 to {windows.count}", value)
        if windows_per_user is not None and w_event is not None:
            raise ParameterError(
                "windows_per_user (--windows-per-user) must be left out with w_event (--w-event), where a user counts "
                "in every window"
            )
        check_zone(windows)
        check_tiling(tiling)
        most = windows.count if windows_per_user is None else windows_per_user
        if window_error is not None:
            check(
                w_event is None,
                "window_error (--window-error)",
                "left out with w_event (--w-event)",
                window_error,
            )
            blocks = Multiscale(epsilon=exact).curators_last_budget
            check_error(
                blocks, most, window_error, fix="give a smaller windows_per_user (--windows-per-user)"
            )
        facts = SeriesFacts(name, windows, tiling, exact, most, w_event, ledger is not None)
        promised = promise_of_series(Multiscale(epsilon=least_epsilon(facts)).guarantee(), facts)
        check_large_epsilon(epsilon_charged(facts), promised.delta, accepted=accept_large_epsilon)
        made = cls(path)
        if not Path(path).exists():
            create_series_file(path, facts)
        with SeriesFile.opened(path, started=False) as file:
            if file.started:
                raise InputError(
                    f"{path}: a series has started there already; add windows to it, or start another file"
                )
            if file.facts.record() != facts.record():
                raise InputError(
                    f"{path}: the start of a series with another promise was cut short there; repeat that start as it "
                    "was, or start another file"
                )
            if ledger is not None and not ledger.release(SpendId(file.spend)):
                parameters = {"windows": windows.to_dict(), "windows_per_user": most}
                try:
                    ledger.spend(
                        ledger.identify(None, dataset=name),
                        epsilon_charged(facts),
                        method="series",
                        parameters=parameters | ({} if w_event is None else {"w_event": w_event}),
                        tiling=tiling.spec,
                        region=str(tiling.region),
                        spend=SpendId(file.spend),
                    )
                except MapveilError:
                    if not ledger.release(SpendId(file.spend)):
                        Path(path).unlink()  # nothing was spent
                    raise
            file.start()
        return made

    def add(
        self,
        points: Points,
        window: str | None = None,
        *,
        ledger: Ledger | None = None,
        other_people: str | None = None,
        nobody: bool = False,
    ) -> DensityMap:
        """Release the map of a window; costs nothing beyond what the start was charged.

        Parameters
        ----------
        points : Points
            A table; rows of other windows are left out.
        window : str, optional
            Name of the window, later than those released; by default the one after the last, which every row must
            then lie in. Windows between are passed over: no map of them can be released any more.
        ledger : Ledger, optional
            The ledger that the series was charged to, in which the table's people join the account; of a series that
            was started without one, left out.
        other_people : str, optional
            Reason why the people are others than those of every other account, such as ids that coincide by chance.
        nobody : bool
            Whether to release a map of noise where no row lies in the named window: nobody was there.

        Raises
        ------
        InputError
            The window was released, or is earlier than one that was, or there is none; no window is named and rows lie
            in others than the next, or none in that; no row lies in the named window, unless ``nobody``; the table
            cannot be used, or its people belong to another account; the ledger has no charge of the series, or the
            file is a copy.
        PromiseError
            The charge of the series was annulled.
        BudgetExceeded
            More than its budget is spent of the account, such as after two accounts were joined.
        ParameterError
            A ledger is missing, or given for a series that was started without one.
        """
        with SeriesFile.opened(self.path) as file:
            facts = file.facts
            if facts.charged and ledger is None:
                raise ParameterError(f"ledger is required: series {facts.name} was charged to an account")
            if ledger is not None and not facts.charged:
                raise ParameterError(f"ledger must be left out: series {facts.name} was started without one")
            if other_people is not None and ledger is None:
                raise ParameterError("other_people (--other-people) must be left out without a ledger")
            if nobody and window is None:
                raise ParameterError("nobody (--nobody) needs the window's name: window=NAME (--window NAME)")
            if not facts.same_ids:
                warnings.warn(_IDS_AS_WRITTEN.format(path=self.path), CuratorWarning, stacklevel=2)
            left = _recorded(file, ledger)  # by a process that was killed
            ours = left is not None and window in (None, facts.windows.names[left])
            number = left if left is not None and ours else file.next(window)
            numbered = windowed(points, facts.windows)
            check_times(numbered)
            if window is None:
                file.check_rows(numbered, number, cut_short=ours)
            if ours:
                text = _DRAWN.format(path=self.path, window=facts.windows.names[number], table=points.source)
                warnings.warn(text, CuratorWarning, stacklevel=2)
                return file.map(number)
            with tempfile.TemporaryDirectory(prefix="mapveil-") as folder, numbered.held_once() as table:
                found = (number,) if window is None else windows_of_rows(table)
                if number not in found and not nobody:
                    raise file.nobody_there(table, found, number)
                week = rows_of_window(file, table, number, Path(folder) / "window.parquet")
                present = users_present(week, facts)
                if not present.num_rows:
                    warnings.warn(_EMPTY.format(source=week.source), CuratorWarning, stacklevel=2)
                if ledger is not None:  # the table can be used; what is refused leaves the charge unmarked
                    if number in found:  # people of other windows are none of this series
                        _join(file, ledger, points, other_people)
                    record_draws(ledger.path, file.spend, file.maps())
                heat = map_of_window(file, week, number, Provenance.of("series add", points))
            if ledger is not None:
                charged = with_account(heat.guarantee, ledger, (SpendId(file.spend),))
                heat = replace(heat, guarantee=charged)
            file.store(number, geoparquet_bytes(heat), present if facts.run is None else None)
        with SeriesFile.opened(self.path) as file:
            _recorded(file, ledger)
        return heat

    def window(self, name: str) -> DensityMap:
        """The map of a window that was released, as it is stored.

        Raises
        ------
        InputError
            The window was not released.
        ParameterError
            The series has no window of this name.
        """
        with SeriesFile.opened(self.path) as file:
            number = file.facts.windows.index(name)
            if number not in file.released():
                raise InputError(f"{self.path}: window {name} was not released")
            return file.map(number)

    def passed_over(self, window: str | None) -> tuple[str, ...]:
        """Names of the windows that could not be released any more once a later one is.

        Parameters
        ----------
        window : str, optional
            Name of the window to be released; by default the next one, which passes over none.
        """
        status = self.status()
        with SeriesFile.opened(self.path) as file:
            windows, drawn = file.facts.windows, file.maps()
        if window is None or status.next is None:
            return ()
        # The map that a killed process drew is released with the next one.
        passed = range(windows.index(status.next), windows.index(window))
        return tuple(windows.names[at] for at in passed if at not in drawn)

    def written(self, outputs: Sequence[str | PathLike[str]], *, ledger: Ledger) -> None:
        """Note in the ledger that was charged the files that maps of windows were written to, so that it signs them.

        Raises
        ------
        InputError
            The series was not charged to this ledger.
        """
        with SeriesFile.opened(self.path) as file:
            spend = file.spend
        record_files(ledger.path, spend, outputs)

    def charged_to(self, ledger: Ledger) -> bool:
        """Whether the ledger has the charge of the series."""
        with SeriesFile.opened(self.path) as file:
            return bool(ledger.release(SpendId(file.spend)))

    def status(self, *, ledger: Ledger | None = None) -> SeriesStatus:
        """The windows that were released, and what is promised; nothing of any user.

        Parameters
        ----------
        ledger : Ledger, optional
            The ledger that the series may have been charged to, for its account and whether the charge was annulled.
        """
        with SeriesFile.opened(self.path) as file:
            return status_of(file, ledger)


def _recorded(file: SeriesFile, ledger: Ledger | None) -> int | None:
    """Record every map that was drawn, before anybody sees it; the number of the one that was not released yet."""
    if ledger is not None:
        maps = file.maps()
        # Before the first draw the charge can be annulled, so that a request that is refused leaves it so.
        (record_draws if maps else check_draws)(ledger.path, file.spend, maps)
    return file.release_all()


def _join(file: SeriesFile, ledger: Ledger, points: Points, other_people: str | None) -> None:
    """Let the people of a table join the account of a series."""
    try:
        ledger.recognise(points, dataset=file.facts.name, other_people=other_people, of_series=True)
    except PeopleInCommon as error:
        if file.maps():
            raise
        raise InputError(
            # Whole: each door leaves out the names of the other.
            f"{error.args[0]}. No noise was drawn for this series yet: 'mapveil ledger annul {file.spend} --reason "
            "REASON' takes its charge back, which joined accounts would add to theirs; 'mapveil series start --name' "
            "then starts another on the account of these people"
        ) from error
