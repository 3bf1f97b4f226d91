"""What a command says: results on stdout, progress and remarks on stderr."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID


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

    def note(self, text: str) -> None:
        """A remark for the person at the terminal."""
        if self.verbosity >= 0:
            click.echo(text, err=True)

    def detail(self, text: str) -> None:
        """A remark for ``-v``."""
        if self.verbosity >= 1:
            click.echo(text, err=True)

    def warn(self, text: str) -> None:
        """A warning: shown even when quiet."""
        click.echo(f"mapveil: warning: {text}", err=True)

    def result(self, text: str, record: Any) -> None:
        """The result: text for a person, or the record as JSON."""
        if self.as_json:
            click.echo(
                json.dumps(_finite(record), indent=2, ensure_ascii=False, default=str, allow_nan=False)
            )
        else:
            click.echo(text)

    @contextmanager
    def progress(self) -> Iterator[Callable[[str, float], None]]:
        """A progress callback: a bar on a terminal, a line a step elsewhere, nothing when quiet."""
        if self.verbosity < 0:
            yield lambda step, done: None
        elif sys.stderr.isatty():
            with _bar() as bar:
                yield _on_bar(bar)
        else:
            yield self._lines()

    def _lines(self) -> Callable[[str, float], None]:
        started: dict[str, float] = {}

        def tell(step: str, done: float) -> None:
            if step not in started:
                started[step] = time.monotonic()
                self.detail(f"{step} ...")
            elif done >= 1:
                self.detail(f"{step}: {time.monotonic() - started[step]:.2f} s")

        return tell


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
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
        console=RichConsole(stderr=True),
        transient=True,
    )


def _on_bar(bar: Bar) -> Callable[[str, float], None]:
    tasks: dict[str, TaskID] = {}

    def tell(step: str, done: float) -> None:
        if step not in tasks:
            tasks[step] = bar.add_task(step, total=1.0)
        bar.update(tasks[step], completed=done)

    return tell


def options_of(function: Callable[..., Any]) -> list[click.Parameter]:
    """What click's decorators have put on a function so far: the list itself, the last decorator's first."""
    found: list[click.Parameter] = vars(function).setdefault("__click_params__", [])
    return found


def console_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--json``, ``-v`` and ``-q``; the command receives one ``console``."""

    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
    @click.option("-v", "--verbose", count=True, help="Say more on stderr.")
    @click.option("-q", "--quiet", is_flag=True, help="Say nothing but results, warnings and errors.")
    def command(*arguments: Any, as_json: bool, verbose: int, quiet: bool, **options: Any) -> Any:
        console = Console(as_json=as_json, verbosity=-1 if quiet else verbose)
        return function(*arguments, console=console, **options)

    command.__name__ = function.__name__
    command.__doc__ = function.__doc__
    options_of(command).extend(options_of(function))
    return command
