"""The output of a command: results on stdout, progress and remarks on stderr."""

from __future__ import annotations

import json
import math
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from mapveil.formats.atomic import all_or_none
from mapveil.maps.scene import Note
from mapveil_client.errors import InputError, one_line, printable

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from mapveil.geo.points import Points
    from mapveil.maps.released import ReleasedMap
    from mapveil.privacy.account import Account

Progress = Callable[[str, float], None]

_CURRENT: Final = "mapveil.console"  # in a command's context: its console
_LONGEST: Final = 2000  # characters of a warning
_TABLES: Final = (".csv", ".parquet", ".geojson")  # suffixes of a table of zones
_STREAMED: Final = "mapveil.streamed"  # in a command's context: the file whose bytes go to stdout
MOST_LINES: Final = 40
"""Lines of a table on the terminal."""
_LATITUDES: Final = frozenset({"lat", "latitude", "y"})
_LONGITUDES: Final = frozenset({"lon", "lng", "long", "longitude", "x"})


class Console:
    """The output of one command.

    Parameters
    ----------
    as_json : bool
        One JSON document on stdout instead of text.
    verbosity : int
        -1 is quiet (errors and results only), 0 normal, 1 and more verbose.
    """

    def __init__(self, *, as_json: bool = False, verbosity: int = 0) -> None:
        self.as_json = as_json
        self.verbosity = verbosity

    @classmethod
    def current(cls) -> Console:
        """The console of the command that runs."""
        found: Console = click.get_current_context().meta[_CURRENT]
        return found

    def note(self, text: str) -> None:
        """A remark for the person at the terminal."""
        if self.verbosity >= 0:
            say(text, err=True)

    def detail(self, text: str) -> None:
        """A remark for ``-v``."""
        if self.verbosity >= 1:
            say(text, err=True)

    def warn(self, text: str) -> None:
        """A warning: shown even when quiet."""
        say(f"mapveil: warning: {one_line(text, _LONGEST)}", err=True)

    def result(self, text: str, record: Any, outputs: Sequence[Path] = ()) -> None:
        """The result and the files written: text for a person, or the record as JSON."""
        from mapveil.privacy.file_hash import files_written

        streamed = _streamed()
        kept = [output for output in outputs if output != streamed]
        files = [file for output in kept for file in files_written(output) if file.exists()]
        text = "\n".join([*(f"wrote {file}" for file in files), text])
        if outputs:
            record = {**record, "outputs": ["-"] * (streamed in outputs) + [str(file) for file in files]}
        if self.as_json:
            text = json.dumps(_finite(record), indent=2, ensure_ascii=False, default=str, allow_nan=False)
            shown = (each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)
            text = "".join(shown)
        say(text, err=streamed is not None)

    def findings(self, found: Sequence[Any]) -> None:
        """The result of a check: named tuples of what, state and detail."""
        width = max(len(each.what) for each in found)
        lines = [f"{each.what:<{width}}  {each.state:<8} {each.detail}" for each in found]
        self.result("\n".join(lines), [each._asdict() for each in found])

    def note_columns(self, points: Points) -> None:
        """Say which column of a table is what, and which may have been meant as weights."""
        hints = [f"; a column {name!r} is there: --weight {name} uses it" for name in points.like_weights()]
        self.note(f"columns: {points.columns.text}{''.join(hints)}")
        lon, lat = (str(getattr(points.columns, axis)).lower() for axis in ("lon", "lat"))
        if lon in _LATITUDES or lat in _LONGITUDES:
            self.warn(f"--lon is column {lon!r} and --lat column {lat!r}: are they swapped?")

    def warn_of_truth(self, report: str) -> None:
        """Warn of a report that is not private."""
        self.warn(f"{report} reads the true data: do not publish its figures for data of real people")

    def evaluated(self, compare: Callable[[], dict[str, float]]) -> dict[str, float] | None:
        """A comparison with the true data; one that cannot be made is a warning, for the release stands."""
        try:
            return compare()
        except InputError as error:
            self.warn(f"no evaluation: {error}")
            return None

    def answer(
        self,
        outputs: Sequence[Path],
        released: ReleasedMap,
        account: Account | None,
        *,
        free: bool = False,
        lines: Sequence[str] = (),
        more: Mapping[str, Any] | None = None,
        evaluation: Mapping[str, float] | None = None,
        seed: int | None = None,
    ) -> None:
        """Report a release: the files, the notes, the guarantee, and the budget as it stands.

        Parameters
        ----------
        outputs : sequence of Path
            The files that were written.
        released : ReleasedMap
            The map.
        account : Account, optional
            The account of the release.
        free : bool
            Whether the answer costs nothing.
        lines : sequence of str
            Further lines of text.
        more : mapping, optional
            Further entries of the record.
        evaluation : mapping of str to float, optional
            Figures of a comparison with the true data.
        seed : int, optional
            The seed of a run that is not for release.
        """
        for warning in released.guarantee.promise.warnings:
            self.warn(warning)
        record = {**released.metadata(), **(more or {})}
        shown = list(lines)
        if evaluation is not None:
            self.warn_of_truth("an evaluation")
            figures = ", ".join(f"{name} {value:.3g}" for name, value in evaluation.items())
            shown.append(f"evaluation (NOT private): {figures}")
            record["evaluation"] = dict(evaluation)
        for note in released.notes:
            if isinstance(note, Note) and note.level == "warning":
                self.warn(note.text)
            else:
                shown.append(f"note: {note}")
        shown.append(repr(released.guarantee))
        if seed is not None:
            self.warn("seeded: nothing was charged for this answer")
        budget = None if account is None or free else account.balance(released.guarantee)
        if budget is not None:
            shown.append(f"  ledger      {budget.standing}")
            record["ledger"] = {"spent": str(budget.spent), "budget": str(budget.budget)}
        elif not free and released.guarantee.epsilon is not None:
            self.warn(
                "not entered in a ledger: its epsilon is not added to other releases about the same people"
            )
        self.result("\n".join(shown), record, outputs)

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """A progress callback: a bar on a terminal, a line a step elsewhere, nothing when quiet."""
        if self.verbosity < 0:
            yield lambda step, done: None
        elif sys.stderr.isatty():
            with _bar() as bar:
                yield _on_bar(bar)
        else:
            yield self._lines()

    def _lines(self) -> Progress:
        started: dict[str, float] = {}
        tenths: dict[str, int] = {}

        def tell(step: str, done: float) -> None:
            if step not in started:
                started[step], tenths[step] = time.monotonic(), 0
                self.detail(f"{step} ...")
            elif done >= 1:
                self.detail(f"{step}: {time.monotonic() - started[step]:.2f} s")
            elif int(10 * done) > tenths[step]:
                tenths[step] = int(10 * done)
                self.detail(f"{step}: {done:.0%} after {time.monotonic() - started[step]:.0f} s")

        return tell


def say(text: str, *, err: bool = False) -> None:
    """Write lines to the terminal; what a file put into them cannot steer it."""
    click.echo("\n".join(printable(line) for line in text.split("\n")), err=err)


def counted(number: int, noun: str) -> str:
    """A number of things.

    Examples
    --------
    >>> counted(1, "zone"), counted(2000, "zone")
    ('1 zone', '2,000 zones')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def and_more(number: int, noun: str) -> str:
    """The last line of a table that was cut: how much it leaves out, and the file of this command that lists all."""
    context, streamed = click.get_current_context(silent=True), _streamed()
    given: Sequence[Path] = () if context is None else context.params.get("outputs") or ()
    tables = ["-" if path == streamed else str(path) for path in given if path.suffix.lower() in _TABLES]
    return f"and {counted(number, noun)}; {tables[0] if tables else '-o FILE.csv'} lists all"


def save_all(outputs: Sequence[Path], save: Callable[[Path], object], progress: Progress) -> None:
    """Save every output or, if one cannot be written, none; and say how far that is. One may be standard output."""
    context = click.get_current_context(silent=True)
    if context is not None and context.params.get("dry_run"):
        raise AssertionError("a rehearsal writes nothing")
    streamed = _streamed()
    with ExitStack() as held:
        if streamed is not None and streamed in outputs:
            streamed.parent.mkdir(mode=0o700)
            held.callback(shutil.rmtree, streamed.parent, ignore_errors=True)
        with all_or_none():
            for output in outputs:
                progress(f"write {output.name}", 0.0)
                save(output)
                progress(f"write {output.name}", 1.0)
        if streamed is not None and streamed in outputs:
            with streamed.open("rb") as opened:
                shutil.copyfileobj(opened, sys.stdout.buffer)
            sys.stdout.flush()


def stream(context: click.Context, suffix: str) -> Path:
    """A file that stands for standard output in a command's context, in a folder that :func:`save_all` makes."""
    if _STREAMED not in context.meta:
        folder = Path(tempfile.gettempdir()) / f"mapveil-{secrets.token_hex(8)}"
        context.meta[_STREAMED] = folder / f"stdout{suffix}"
    found: Path = context.meta[_STREAMED]
    if found.suffix != suffix:
        raise InputError("-o -: only one output can go to standard output")
    return found


def _streamed() -> Path | None:
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(_STREAMED)


def _finite(record: Any) -> Any:
    """The record with null for what JSON has no number for."""
    if isinstance(record, float):
        return record if math.isfinite(record) else None
    if isinstance(record, dict):
        return {key: _finite(value) for key, value in record.items()}
    if isinstance(record, list | tuple):
        return [_finite(value) for value in record]
    return record


def _bar() -> Bar:
    from rich.console import Console as RichConsole
    from rich.progress import (
        BarColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        SpinnerColumn(),  # moves where a step cannot say how far it is
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=RichConsole(stderr=True),
        transient=True,
    )


def _on_bar(bar: Bar) -> Progress:
    tasks: dict[str, TaskID] = {}

    def tell(step: str, done: float) -> None:
        if step not in tasks:
            tasks[step] = bar.add_task(step, total=1.0)
        bar.update(tasks[step], completed=done)

    return tell


def options_of(function: Callable[..., Any]) -> list[click.Parameter]:
    """The parameters that click's decorators have put on a function so far, the last decorator's first."""
    found: list[click.Parameter] = vars(function).setdefault("__click_params__", [])
    return found


def gathered(
    make: Callable[..., dict[str, Any]], *options: Callable[[Any], Any]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that adds options, and gives the command what ``make`` makes of their values."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        def command(*arguments: Any, **given: Any) -> Any:
            values = {name: given.pop(name) for name in names}
            return function(*arguments, **make(**values), **given)

        for option in reversed(options):
            command = option(command)
        names = [str(option.name) for option in options_of(command)]
        options_of(command)[:0] = options_of(function)
        command.__name__, command.__doc__ = function.__name__, function.__doc__
        return command

    return decorate


def _console(as_json: bool, verbose: int, quiet: bool) -> dict[str, Any]:
    console = Console(as_json=as_json, verbosity=-1 if quiet else verbose)
    click.get_current_context().meta[_CURRENT] = console
    return {"console": console}


def console_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--json``, ``-v`` and ``-q``; the command receives one ``console``."""
    return gathered(
        _console,
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text."),
        click.option("-v", "--verbose", count=True, help="Report steps and their times on stderr."),
        click.option("-q", "--quiet", is_flag=True, help="Print results, warnings and errors only."),
    )(function)
