"""Live series: a map of each window as its table arrives, with one promise over a future that is not known yet.

A private file holds how many windows each user counted in, by a keyed hash of the id (MD5), and the key, so whoever has
the file can test whether an id is in it. A user counts 1 in each of the first k windows that they were in, and in no
later one; each window's map costs epsilon / k. So one user costs at most epsilon over all windows, whatever comes.
Epsilon is charged once, when the series starts.

A window's map, and what its users have left, are stored in one transaction; then the ledger records the map, and only
then may anybody see it. A process that is killed before has revealed nothing; after it the stored map is written again,
and no noise is drawn twice. Of a copied file, or an older one put back, the ledger knows other windows: it is refused.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from mapveil.engines.contributions import located_rows
from mapveil.formats.geoparquet import geoparquet_bytes
from mapveil.formats.read_map import read_map
from mapveil.geo.files import parquet_files
from mapveil.geo.parse_tiling import tiling_from_dict
from mapveil.geo.points import Points, id_text
from mapveil.geo.read_points import read_points
from mapveil.geo.tables import connection, quote_text, reading
from mapveil.geo.tiling import Tiling
from mapveil.geo.windowed_points import WindowedPoints, check_times, windowed, windows_of_rows
from mapveil.geo.windows import Windows
from mapveil.maps.density_map import DensityMap
from mapveil.maps.provenance import Provenance
from mapveil.mechanisms.mechanism import check_tiling
from mapveil.mechanisms.multiscale import Multiscale
from mapveil.privacy.charges import with_account
from mapveil.privacy.claim import ContributionBound, Norm, check_large_epsilon
from mapveil.privacy.ledger import Ledger
from mapveil.privacy.ledger_accounts import SpendId
from mapveil.privacy.window_draws import record_draws
from mapveil_client.epsilon import EpsilonLike, as_epsilon, readable
from mapveil_client.errors import InputError, ParameterError, PromiseError, check, is_whole
from mapveil_client.private_file import new_private_file

_WAIT_S = 30.0
_SHOWN = 3  # names of windows in a message
_SCHEMA = """
CREATE TABLE series (record TEXT NOT NULL, key TEXT NOT NULL, spend TEXT NOT NULL, started INTEGER NOT NULL);
CREATE TABLE windows (number INTEGER PRIMARY KEY, map BLOB NOT NULL, released INTEGER NOT NULL);
CREATE TABLE users (id TEXT PRIMARY KEY, used INTEGER NOT NULL);
"""


class SeriesStatus(NamedTuple):
    """A live series, for its curator."""

    name: str
    charged: bool  # to an account of a ledger
    epsilon: Fraction  # of all windows
    each: Fraction  # of one window
    windows_per_user: int
    released: tuple[str, ...]  # names of windows
    next: str | None  # that may be added next, or any later one


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
            Privacy budget of a user over all windows.
        windows_per_user : int, optional
            k, the windows that a user may count in; all by default.
        ledger : Ledger, optional
            The ledger; without, nothing is charged and the guarantee says so.
        accept_large_epsilon : bool
            Whether epsilon may be above 20.

        Raises
        ------
        InputError
            The file is there and of another series, or a parameter cannot be used.
        BudgetExceeded
            The account does not allow the epsilon.
        """
        exact = as_epsilon(epsilon)
        check(windows.every is not None, "windows", "periods (--every)", str(windows))
        most = windows.count if windows_per_user is None else windows_per_user
        held = is_whole(most, 1, windows.count)
        check(held, "windows_per_user", f"a whole number from 1 to {windows.count}", windows_per_user)
        check_tiling(tiling)
        mechanism = Multiscale(epsilon=exact / most)
        check_large_epsilon(exact, windows.count * mechanism.guarantee().delta, accepted=accept_large_epsilon)
        about = {
            "name": name,
            "windows": windows.to_dict(),
            "tiling": tiling.to_dict(),
            "epsilon": str(exact),
        }
        record = json.dumps({**about, "most": most, "ledger": ledger is not None}, sort_keys=True)
        made = cls(path)
        if not Path(path).exists():
            try:
                with (
                    new_private_file(Path(path)) as draft,
                    closing(sqlite3.connect(draft, isolation_level=None)) as opened,
                ):
                    opened.executescript(f"PRAGMA synchronous = EXTRA; BEGIN; {_SCHEMA}")
                    row = (record, secrets.token_hex(16), secrets.token_hex(8))
                    opened.execute("INSERT INTO series VALUES (?, ?, ?, 0)", row)
                    opened.execute("COMMIT")
            except (OSError, sqlite3.Error) as error:
                raise InputError(f"{path}: no series can be kept here ({error})") from error
        with made._transaction() as opened:
            found, spend, started = opened.execute("SELECT record, spend, started FROM series").fetchone()
            if found != record or started:
                raise InputError(
                    f"{path}: a series is there already; add windows to it, or start another file"
                )
            if ledger is not None and not ledger.release(SpendId(spend)):
                try:
                    ledger.spend(
                        ledger.identify(None, dataset=name),
                        exact,
                        method="series",
                        parameters={"windows": windows.to_dict(), "windows_per_user": most},
                        tiling=tiling.spec,
                        region=str(tiling.region),
                        spend=SpendId(spend),
                    )
                except PromiseError:
                    Path(path).unlink()  # nothing was spent
                    raise
            opened.execute("UPDATE series SET started = 1")
        return made

    def add(self, points: Points, window: str | None = None, *, ledger: Ledger | None = None) -> DensityMap:
        """Release the map of a window; costs nothing beyond what the start was charged.

        Parameters
        ----------
        points : Points
            A table; rows of other windows are left out.
        window : str, optional
            Name of the window, later than those released; by default the one after the last, which every row must
            then lie in.
        ledger : Ledger, optional
            The ledger that the series was charged to, in which the table's people join the account; of a series that
            was started without one, left out.

        Raises
        ------
        InputError
            The window was released, or is earlier than one that was, or there is none; no window is named and rows lie
            in others than the next, or none in that; the table cannot be used, or its people belong to another account;
            the ledger has no charge of the series, or the file is a copy.
        PromiseError
            The charge of the series was annulled.
        BudgetExceeded
            More than its budget is spent of the account, such as after two accounts were joined.
        ParameterError
            A ledger is missing, or given for a series that was started without one.
        """
        with self._transaction() as opened:
            facts = self._facts(opened)
            if facts.charged and ledger is None:
                raise ParameterError(f"ledger is required: series {facts.name} was charged to an account")
            if ledger is not None and not facts.charged:
                raise ParameterError(f"ledger must be left out: series {facts.name} was started without one")
            left = _recorded(opened, facts, ledger)  # by a process that was killed
            ours = left is not None and window in (None, facts.windows.names[left])
            number = left if left is not None and ours else self._next(opened, window)
            numbered = windowed(points, facts.windows)
            check_times(numbered, points)
            if window is None:
                self._check_rows(opened, numbered, number)
            if ours:
                return _stored(opened, number)
            if ledger is not None:
                ledger.recognise(points, dataset=facts.name)
            with tempfile.TemporaryDirectory(prefix="mapveil-") as folder, numbered.held_once() as table:
                week = self._week(opened, facts, table, number, Path(folder) / "window.parquet")
                present = _present(week, facts)
                heat = Multiscale(epsilon=facts.epsilon / facts.most).release(
                    week, facts.tiling, account=None
                )
                heat = _promised(heat, facts, number, Provenance.of("series add", points), ledger)
            stored = geoparquet_bytes(heat)
            opened.execute("INSERT INTO windows VALUES (?, ?, 0)", (number, stored))
            counted = "INSERT INTO users VALUES (?, 1) ON CONFLICT (id) DO UPDATE SET used = used + 1"
            opened.executemany(counted, present)
        with self._transaction() as opened:
            _recorded(opened, facts, ledger)
        return heat

    def window(self, name: str) -> DensityMap:
        """The map of a window that was released, as it is stored.

        Raises
        ------
        InputError
            The window was not released.
        """
        with self._transaction() as opened:
            number = self._facts(opened).windows.index(name)
            known = "SELECT 1 FROM windows WHERE number = ? AND released"
            if opened.execute(known, (number,)).fetchone() is None:
                raise InputError(f"{self.path}: window {name} was not released")
            return _stored(opened, number)

    def status(self) -> SeriesStatus:
        """The windows that were released, and what is promised; nothing of any user."""
        with self._transaction() as opened:
            facts = self._facts(opened)
            found = opened.execute("SELECT number FROM windows WHERE released ORDER BY number")
            released = [row[0] for row in found]
        names, after = facts.windows.names, released[-1] + 1 if released else 0
        each, later = facts.epsilon / facts.most, names[after] if after < len(names) else None
        done = tuple(names[at] for at in released)
        return SeriesStatus(facts.name, facts.charged, facts.epsilon, each, facts.most, done, later)

    def _next(self, opened: sqlite3.Connection, window: str | None) -> int:
        windows = self._facts(opened).windows
        last = opened.execute("SELECT MAX(number) FROM windows").fetchone()[0]
        after = 0 if last is None else last + 1
        number = after if window is None else windows.index(window)
        if number >= windows.count:
            raise InputError(
                f"{self.path}: all {windows.count} windows of the series were released or passed over"
            )
        name = windows.names[number]
        if opened.execute("SELECT 1 FROM windows WHERE number = ?", (number,)).fetchone():
            raise InputError(
                f"{self.path}: window {name} was released already, and a second map of it would cost its users again; "
                "'mapveil series map' writes the first one"
            )
        if number < after:
            raise InputError(
                f"{self.path}: window {name} is late: {windows.names[after - 1]} was released, and users were counted "
                "in the order of the windows"
            )
        return int(number)

    def _check_rows(self, opened: sqlite3.Connection, table: WindowedPoints, number: int) -> None:
        """Refuse a table with rows in other windows than the next, which a repeated command would use up."""
        found = windows_of_rows(table)
        if found == (number,):
            return
        names = table.windows.names
        released = {row[0] for row in opened.execute("SELECT number FROM windows")}
        said = [names[at] + " (released already)" * (at in released) for at in found[:_SHOWN]]
        said += [f"{len(found) - _SHOWN} more"] * (len(found) > _SHOWN)
        raise InputError(
            f"{table.source}: its rows lie in {', '.join(said) or 'no window of the series'}, but the next window is "
            f"{names[number]}; name the one to release: --window NAME (in Python window=...). Nothing was released and "
            "no window used up; keep this message private, it tells of the data"
        )

    def _week(
        self, opened: sqlite3.Connection, facts: _Facts, table: Points, number: int, path: Path
    ) -> Points:
        """The rows of a window, of users who may still count."""
        import pyarrow as pa

        used = opened.execute("SELECT id FROM users WHERE used >= ?", (facts.most,)).fetchall()
        exhausted = pa.table({"id": pa.array([row[0] for row in used], pa.string())})
        with connection() as engine, reading(table.source):
            engine.register("exhausted", exhausted)
            scan = table.scan(engine)
            kind = engine.execute(f"DESCRIBE SELECT user_id FROM ({scan}) AS points").fetchall()[0][1]
            hashed = f"md5(concat({quote_text(facts.key)}, {id_text('user_id', str(kind))}))"
            weight = ", weight" if table.columns.weight is not None else ""
            engine.execute(
                f"COPY (SELECT {hashed} AS user_id, lon, lat{weight} FROM ({scan}) AS points WHERE label = {number} "
                f"AND {hashed} NOT IN (SELECT id FROM exhausted)) TO {quote_text(str(path))} (FORMAT parquet)"
            )
        found = read_points(path, user="user_id", weight="weight" if weight else None)
        name = f"{table.source}, users of window {facts.windows.names[number]} who may still count"
        return replace(found, table=parquet_files((path,), name))

    def _facts(self, opened: sqlite3.Connection) -> _Facts:
        record, key, spend, started = opened.execute("SELECT * FROM series").fetchone()
        if not started:
            raise InputError(f"{self.path}: the series has not started; repeat its start, which charges once")
        facts = json.loads(record)
        return _Facts(
            facts["name"],
            Windows.from_dict(facts["windows"]),
            tiling_from_dict(facts["tiling"]),
            Fraction(facts["epsilon"]),
            facts["most"],
            key,
            spend,
            facts["ledger"],
        )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction on the file, which another process waits for; what is not committed never was."""
        if not Path(self.path).is_file():
            raise InputError(f"{self.path}: no such series; 'mapveil series start' makes one")
        try:
            with closing(sqlite3.connect(self.path, timeout=_WAIT_S, isolation_level=None)) as opened:
                opened.execute("PRAGMA synchronous = EXTRA")
                opened.execute("BEGIN IMMEDIATE")
                yield opened
                opened.execute("COMMIT")
        except sqlite3.Error as error:
            raise InputError(f"{self.path}: not usable as a series ({error})") from error


class _Facts(NamedTuple):
    name: str
    windows: Windows
    tiling: Tiling
    epsilon: Fraction
    most: int
    key: str
    spend: str
    charged: bool


def _recorded(opened: sqlite3.Connection, facts: _Facts, ledger: Ledger | None) -> int | None:
    """Record every map that was drawn, before anybody sees it; the number of the one that was not released yet."""
    if ledger is not None:
        maps = opened.execute("SELECT number, map FROM windows").fetchall()
        record_draws(ledger.path, facts.spend, dict(maps))
    new = opened.execute("UPDATE windows SET released = 1 WHERE NOT released RETURNING number").fetchall()
    return int(new[0][0]) if new else None


def _stored(opened: sqlite3.Connection, number: int) -> DensityMap:
    (stored,) = opened.execute("SELECT map FROM windows WHERE number = ?", (number,)).fetchone()
    with tempfile.TemporaryDirectory(prefix="mapveil-") as folder:
        path = Path(folder) / "map.parquet"
        path.write_bytes(stored)
        return read_map(path)


def _present(week: Points, facts: _Facts) -> list[tuple[str]]:
    """The users who count in a window: those with a row in a cell."""
    with located_rows(week, facts.tiling) as rows:
        found = rows.connection.execute(f"SELECT DISTINCT user_id FROM ({rows.sql}) AS rows").fetchall()
    return [(str(row[0]),) for row in found]


def _promised(
    heat: DensityMap, facts: _Facts, number: int, provenance: Provenance, ledger: Ledger | None
) -> DensityMap:
    """The map with the promise of the whole series, which holds for all its windows together."""
    alone = heat.guarantee
    bound = alone.bound and ContributionBound(Norm.L1, facts.most * alone.bound.value, alone.bound.step)
    guarantee = replace(alone, epsilon=facts.epsilon, delta=facts.windows.count * alone.delta, bound=bound)
    if ledger is not None:
        guarantee = with_account(guarantee, ledger, (SpendId(facts.spend),))
    name = facts.windows.names[number]
    note = (
        f"window {name} of a live series: epsilon is for all its windows together, of which a user counts in at most "
        f"{facts.most}; this one costs {readable(facts.epsilon / facts.most)} of it"
    )
    return replace(heat, guarantee=guarantee, title=name, notes=(*heat.notes, note), provenance=provenance)
