"""Reproductions in parts: their tables and figures by name, and what a run of some of them found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

from mapveil.errors import ParameterError
from mapveil.experiments.reproduction import Claim, Report, report_text

__all__ = ["Keyed", "Reproduction", "chosen_sections", "names_of"]

Row = TypeVar("Row")


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
