"""The private file of a live series: its promise, the maps of its windows, and what its users have left.

A file holds how many windows each user counted in, by a keyed hash (MD5) of the id in the form that the ledger compares
(:func:`mapveil.privacy.population.ids_as_texts`), and the key, so whoever has it can test whether an id is in it. One
transaction stores a window's map and what its users have left.
"""

from __future__ import annotations

import json
import secrets
import shlex
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mapveil.formats.read_map import read_map
from mapveil.geo.parse_tiling import tiling_from_dict
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil.geo.windowed_points import WindowedPoints, windows_of_rows
from mapveil.geo.windows import Windows
from mapveil.maps.density_map import DensityMap
from mapveil.mechanisms.window_runs import PublicationBudget
from mapveil_client.errors import InputError
from mapveil_client.private_file import new_private_file

if TYPE_CHECKING:
    import pyarrow as pa

_WAIT_S: Final = 30.0
_BATCH: Final = 1 << 16  # users whose ids are Python's at a time
_SHOWN: Final = 3  # names of windows in a message
_SCHEMA: Final = """
CREATE TABLE series (record TEXT NOT NULL, key TEXT NOT NULL, spend TEXT NOT NULL, started INTEGER NOT NULL);
CREATE TABLE windows (number INTEGER PRIMARY KEY, map BLOB NOT NULL, released INTEGER NOT NULL);
CREATE TABLE users (id TEXT PRIMARY KEY, used INTEGER NOT NULL);
"""
_PUBLICATIONS: Final = (
    "CREATE TABLE IF NOT EXISTS publications (number INTEGER PRIMARY KEY, epsilon TEXT NOT NULL)"
)


def short_list(names: Sequence[str]) -> str:
    """Names of windows in a message, the first, the last and how many where they are many."""
    if len(names) <= _SHOWN:
        return ", ".join(names)
    return f"{names[0]} to {names[-1]} ({len(names)} windows)"


class SeriesFacts(NamedTuple):
    """The promise of a series, as it started."""

    name: str
    windows: Windows
    tiling: Tiling
    epsilon: Fraction  # of one user over all windows, or of one user's run of windows
    most: int  # windows that a user counts in, all of them where runs are protected
    run: int | None  # windows of a protected run
    charged: bool  # to an account of a ledger
    same_ids: bool = (
        True  # ids are compared as by the ledger; in files of before they are compared as they are written
    )

    def record(self) -> str:
        """The facts as JSON, the same for the same facts."""
        about: dict[str, Any] = {
            "name": self.name,
            "windows": self.windows.to_dict(),
            "tiling": self.tiling.to_dict(),
            "epsilon": str(self.epsilon),
            "most": self.most,
            "ledger": self.charged,
        }
        about |= {"ids": "as by the ledger"} if self.same_ids else {}
        return json.dumps(about | ({} if self.run is None else {"run": self.run}), sort_keys=True)

    @classmethod
    def of(cls, record: str) -> SeriesFacts:
        """Read back what :meth:`record` wrote."""
        facts = json.loads(record)
        return cls(
            facts["name"],
            Windows.from_dict(facts["windows"]),
            tiling_from_dict(facts["tiling"]),
            Fraction(facts["epsilon"]),
            facts["most"],
            facts.get("run"),
            facts["ledger"],
            "ids" in facts,
        )


def create_series_file(path: str | PathLike[str], facts: SeriesFacts) -> None:
    """Make the file, readable by its owner only, of a series that has not started.

    Raises
    ------
    InputError
        No file can be made here.
    """
    try:
        with (
            new_private_file(Path(path)) as draft,
            closing(sqlite3.connect(draft, isolation_level=None)) as opened,
        ):
            opened.executescript(f"PRAGMA synchronous = EXTRA; BEGIN; {_SCHEMA}")
            row = (facts.record(), secrets.token_hex(16), secrets.token_hex(8))
            opened.execute("INSERT INTO series VALUES (?, ?, ?, 0)", row)
            opened.execute("COMMIT")
    except (OSError, sqlite3.Error) as error:
        reason = getattr(error, "strerror", None) or error
        if not Path(path).parent.is_dir():
            reason = f"there is no folder {Path(path).parent}; make it first"
        raise InputError(f"{path}: no series can be kept here: {reason}") from error


class SeriesFile:
    """An open file, in one transaction.

    Attributes
    ----------
    facts : SeriesFacts
        The promise.
    key : str
        Key of the hash of ids.
    spend : str
        Id of the charge.
    started : bool
        Whether the start was charged.
    """

    def __init__(self, path: str | PathLike[str], opened: sqlite3.Connection) -> None:
        record, self.key, self.spend, started = opened.execute("SELECT * FROM series").fetchone()
        self.path, self._opened = path, opened
        self.facts, self.started = SeriesFacts.of(record), bool(started)

    @classmethod
    @contextmanager
    def opened(cls, path: str | PathLike[str], *, started: bool = True) -> Iterator[SeriesFile]:
        """One transaction on a file, which another process waits for; what is not committed never was.

        Raises
        ------
        InputError
            There is no such file, or no series in it, or one that has not ``started``.
        """
        if not Path(path).is_file():
            raise InputError(f"{path}: no such series; 'mapveil series start' makes one")
        try:
            with closing(sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None)) as opened:
                opened.execute("PRAGMA synchronous = EXTRA")
                opened.execute("BEGIN IMMEDIATE")
                made = cls(path, opened)
                if started and not made.started:
                    raise InputError(
                        f"{path}: the series has not started; repeat its start, which charges once"
                    )
                yield made
                opened.execute("COMMIT")
        except sqlite3.Error as error:
            raise InputError(f"{path}: not usable as a series ({error})") from error

    def start(self) -> None:
        """Note that the series was charged."""
        self._opened.execute("UPDATE series SET started = 1")

    def released(self) -> list[int]:
        """Numbers of the windows whose maps may be seen, in order."""
        found = self._opened.execute("SELECT number FROM windows WHERE released ORDER BY number")
        return [row[0] for row in found]

    def maps(self) -> dict[int, bytes]:
        """Every map that was drawn, by the number of its window."""
        return dict(self._opened.execute("SELECT number, map FROM windows").fetchall())

    def release_all(self) -> int | None:
        """Let every map be seen; the number of the one that could not be before."""
        sql = "UPDATE windows SET released = 1 WHERE NOT released RETURNING number"
        new = self._opened.execute(sql).fetchall()
        return int(new[0][0]) if new else None

    def map(self, number: int) -> DensityMap:
        """The stored map of a window."""
        (stored,) = self._opened.execute("SELECT map FROM windows WHERE number = ?", (number,)).fetchone()
        with tempfile.TemporaryDirectory(prefix="mapveil-") as folder:
            path = Path(folder) / "map.parquet"
            path.write_bytes(stored)
            return read_map(path)

    def store(self, number: int, stored: bytes, counted: pa.Table | None) -> None:
        """Store the map of a window, and count it for users by their hashed ids, one column of a table."""
        self._opened.execute("INSERT INTO windows VALUES (?, ?, 0)", (number, stored))
        sql = "INSERT INTO users VALUES (?, 1) ON CONFLICT (id) DO UPDATE SET used = used + 1"
        for batch in () if counted is None else counted.to_batches(_BATCH):
            self._opened.executemany(sql, zip(batch.column(0).to_pylist(), strict=True))

    def exhausted(self) -> pa.ChunkedArray:
        """Hashed ids of the users who count in no further window."""
        import pyarrow as pa

        found = self._opened.execute("SELECT id FROM users WHERE used >= ?", (self.facts.most,))
        batches = iter(lambda: found.fetchmany(_BATCH), [])
        chunks = [pa.array([row[0] for row in batch], pa.string()) for batch in batches]
        return pa.chunked_array(chunks, pa.string())

    def publications(self) -> PublicationBudget:
        """The epsilon that publications of windows cost, where runs of windows are protected."""
        assert self.facts.run is not None
        self._opened.execute(_PUBLICATIONS)
        found = self._opened.execute("SELECT number, epsilon FROM publications").fetchall()
        return PublicationBudget(
            self.facts.epsilon, self.facts.run, {number: Fraction(text) for number, text in found}
        )

    def publish(self, number: int, epsilon: Fraction) -> None:
        """Note what the publication of a window cost."""
        self._opened.execute("INSERT INTO publications VALUES (?, ?)", (number, str(epsilon)))

    def next(self, window: str | None) -> int:
        """Number of the window of a name, or of the one after the last.

        Raises
        ------
        InputError
            It was released, or is earlier than one that was, or there is none.
        """
        windows = self.facts.windows
        last = self._opened.execute("SELECT MAX(number) FROM windows").fetchone()[0]
        after = 0 if last is None else last + 1
        number = after if window is None else windows.index(window)
        if number >= windows.count:
            raise InputError(
                f"{self.path}: all {windows.count} windows of the series were released or passed over"
            )
        name = windows.names[number]
        if self._opened.execute("SELECT 1 FROM windows WHERE number = ?", (number,)).fetchone():
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

    def check_rows(self, table: WindowedPoints, number: int, *, cut_short: bool = False) -> None:
        """Refuse a table with rows in other windows than the next, which a repeated command would use up.

        The map of the next window was drawn already where the run that drew it was ``cut_short``.
        """
        found = windows_of_rows(table)
        if found == (number,):
            return
        names = table.windows.names
        said, left = self._said(found), self._left(found)
        hint = "name the one to release: window=NAME (--window NAME)"
        if not found:
            hint = (
                f"if nobody was there in {names[number]}, say so: window={names[number]} and nobody=True (--window "
                f"{names[number]} and --nobody)"
            )
        elif self._drawn().issuperset(found):
            again = f"mapveil series map {shlex.quote(str(self.path))} {names[found[-1]]} -o FILE"
            hint = f"to write its map again: {again}"
        elif not left:
            hint = "no map of a window that was passed over can be made any more"
        elif found[0] > number:
            lost = short_list(names[number : found[0]])
            hint += f", which passes over {lost} for good: no map of a window before one that was released can be made"
        lie = f"{table.source}: its rows lie in {', '.join(said) or 'no window of the series'}"
        if cut_short:
            other = ", or name the window of this table: window=NAME (--window NAME)" if left else ""
            raise InputError(
                f"{lie}, but the map of {names[number]} was drawn by a run that was cut short; repeat that command"
                f"{other}. Keep this message private, it tells of the data"
            )
        raise InputError(
            f"{lie}, but the next window is {names[number]}; {hint}. Nothing was released and "
            "no window used up; keep this message private, it tells of the data"
        )

    def nobody_there(self, table: Points, found: tuple[int, ...], number: int) -> InputError:
        """The error of a table without a row in the window that was named, whose rows lie in those ``found``."""
        name = self.facts.windows.names[number]
        lie = f"its rows lie in {', '.join(self._said(found)) or 'no window of the series'}"
        other = "name the window of the rows, or, " if self._left(found) else ""
        return InputError(
            f"{table.source}: no row lies in {name}; {lie}; {other}if nobody was there in {name}, say so: nobody=True "
            "(--nobody) releases a map of noise. Nothing was released and no window used up; keep this message "
            "private, it tells of the data"
        )

    def _drawn(self) -> set[int]:
        return {row[0] for row in self._opened.execute("SELECT number FROM windows")}

    def _left(self, found: tuple[int, ...]) -> tuple[int, ...]:
        """Those of some windows that can still be released: the ones after all that were drawn."""
        last = max(self._drawn(), default=-1)
        return tuple(at for at in found if at > last)

    def _said(self, found: tuple[int, ...]) -> list[str]:
        """The first of some windows in a message."""
        names, drawn, left = self.facts.windows.names, self._drawn(), self._left(found)
        said = [
            names[at] + (" (released already)" if at in drawn else " (passed over)" * (at not in left))
            for at in found[:_SHOWN]
        ]
        return said + [f"{len(found) - _SHOWN} more"] * (len(found) > _SHOWN)
