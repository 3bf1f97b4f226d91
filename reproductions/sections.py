"""Reproductions in parts: their tables and figures by name, and what a run of some of them found."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

from mapveil.evaluation.trials import Progress, in_processes
from mapveil_client.errors import ParameterError
from reproductions.reproduction import Claim, Report, report_text

Row = TypeVar("Row")
Task = TypeVar("Task", bound=Hashable)
Answer = TypeVar("Answer")


class Keyed(Protocol):
    """A section of any reproduction."""

    @property
    def key(self) -> str:
        """Its kind and name, such as ``"table 1"`` or ``"figure 10"``."""
        ...


Part = TypeVar("Part", bound=Keyed)


class Reproduction(NamedTuple, Generic[Row]):
    """What was found, and where it was written. Not private."""

    claims: tuple[Claim, ...]
    reports: dict[str, Report]  # by key
    rows: tuple[Row, ...]  # every measured value
    paths: tuple[Path, ...]

    def text(self) -> str:
        """The tables, the claims and the verdicts, for a terminal."""
        return report_text(self.reports.values(), self.claims)


def names_of(sections: Iterable[Keyed], kind: str) -> tuple[str, ...]:
    """Names of the sections of one kind, in order.

    Parameters
    ----------
    sections : iterable
        All of a reproduction.
    kind : str
        ``"table"`` or ``"figure"``.
    """
    return tuple(
        section.key.removeprefix(f"{kind} ") for section in sections if section.key.startswith(f"{kind} ")
    )


def chosen_sections(
    sections: Sequence[Part], tables: Sequence[str], figures: Sequence[str]
) -> tuple[Part, ...]:
    """The sections asked for by name; all of them without a name.

    Raises
    ------
    ParameterError
        There is no such table or figure.
    """
    for kind, given in (("table", tables), ("figure", figures)):
        known = names_of(sections, kind)
        for name in given:
            if name not in known:
                raise ParameterError(f"no {kind} is called {name!r}; accepted: {', '.join(known)}")
    if not tables and not figures:
        return tuple(sections)
    keys = {f"table {name}" for name in tables} | {f"figure {name}" for name in figures}
    return tuple(section for section in sections if section.key in keys)


def answer_once(
    asked: Mapping[str, Sequence[Task]],
    run: Callable[[Task], Answer],
    *,
    size: Callable[[Task], float] | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> dict[Task, Answer]:
    """Run the tasks of all sections, equal ones once.

    Parameters
    ----------
    asked : mapping of str to sequence
        By the section's key, what it asks for.
    run : callable
        Answers a task; of a module, so that processes can be given it.
    size : callable, optional
        About how long a task takes: the longest run first, so that no process is left with one at the end.
    workers, progress
        See :func:`mapveil.evaluation.trials.in_processes`.
    """
    tasks = list(dict.fromkeys(task for tasks in asked.values() for task in tasks))
    if size is not None:
        tasks.sort(key=size, reverse=True)
    answers = in_processes(run, tasks, workers=workers, progress=progress, step="trials")
    return dict(zip(tasks, answers, strict=True))
