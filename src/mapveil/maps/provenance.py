"""The provenance of a map: the circumstances of its release, as every file of the map carries them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Self

from mapveil.geo.points import Points


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """The circumstances of a release; no path, no file's name, no user's id and no key. JSON-ready.

    The account (entries, its name, what was spent before and after) is in the guarantee; method, parameters and
    cells are in the map's metadata.

    Parameters
    ----------
    date : str
        Day of the release, UTC, as ``YYYY-MM-DD``.
    function : str
        Name of the function and of the command that released the map.
    options : mapping
        Its options that are neither parameters of the method nor in the guarantee.
    columns : mapping of str to str
        Name of the table's column for each role, such as user and lon.
    where : str, optional
        The filter of the table's rows (``--where``): its text, or only that there is one where it reads the users' ids.
    """

    date: str = field(default_factory=lambda: datetime.now(UTC).date().isoformat())
    function: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    where: str | None = None

    @classmethod
    def of(cls, function: str, source: object, **options: Any) -> Self:
        """The provenance of what a function releases now from a source, with the options that are set."""
        given = {name: value for name, value in options.items() if value}
        if not isinstance(source, Points):
            return cls(function=function, options=given)
        columns = {role: name for role, name in source.columns._asdict().items() if name is not None}
        return cls(function=function, options=given, columns=columns, where=source.recorded_where)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record."""
        return asdict(self)

    def rows(self) -> list[tuple[str, str]]:
        """The provenance as rows of a table: name, text."""
        texts = {
            "Date": f"{self.date} (UTC)",
            "Made by": " ".join(
                (self.function, *(f"{name}={_text(value)}" for name, value in self.options.items()))
            ),
            "Columns": ", ".join(f"{role}: {name}" for role, name in self.columns.items()),
            "Filter": self.where or "",
        }
        return [(name, text) for name, text in texts.items() if text]


def _text(value: object) -> str:
    """An option for readers."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
