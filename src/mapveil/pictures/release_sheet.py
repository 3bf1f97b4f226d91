"""The sign-off sheet of a released file: its promise, data, method, and the statements that a person must confirm."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final

from mapveil.formats.atomic import atomic_path
from mapveil.formats.read_record import read_record
from mapveil.maps.provenance import Provenance
from mapveil.pictures.report_page import html_page
from mapveil.privacy.file_hash import file_hash
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.epsilon import readable
from mapveil_client.errors import InputError, one_line

_LONGEST: Final = 2000  # characters of a row
_NO_PROOF: Final = (
    "The sheet repeats what the file states. The file alone cannot show that the noise was drawn or that the data were "
    "true."
)

_EDITED: Final = (
    "EDITED, OR OF ANOTHER VERSION: the file's text of the promise does not follow from its fields."
)
_UNCHARGED: Final = (
    "NOT ACCOUNTED: no ledger knows of this release, so nothing limits how often it is repeated."
)

Section = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, kw_only=True)
class ReleaseSheet:
    """The record of one released file, in the order in which a privacy officer reads it.

    Parameters
    ----------
    file : str
        Name of the file, without its folder.
    size : int
        Bytes of the file.
    sha256 : str
        Hash of the file's bytes, hexadecimal; of a CSV and of its metadata beside it, each after its length (8 bytes).
    guarantee : Guarantee
        The promise that the file states.
    record : mapping
        The file's whole metadata.
    """

    file: str
    size: int
    sha256: str
    guarantee: Guarantee
    record: Mapping[str, Any]

    @property
    def edited(self) -> bool:
        """Whether the file's text of the promise is not the one that its fields have."""
        return bool(self.record["guarantee"] != self.guarantee.to_dict())

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons not to publish the file as it is: an edited text, those of the promise, a release without account."""
        guarantee = self.guarantee
        uncharged = guarantee.epsilon is not None and guarantee.account is None and not guarantee.seeded
        return (*((_EDITED,) * self.edited), *guarantee.promise.warnings, *((_UNCHARGED,) * uncharged))

    @property
    def sections(self) -> tuple[Section, ...]:
        """Headed tables: promise, data, method, statements to confirm, file."""
        record, rows = self.record, self.guarantee.promise.rows
        tiling = record["tiling"]
        made = Provenance(**record["provenance"])
        account = self.guarantee.account
        data = [
            ("account", "not accounted" if account is None else account.name or "has no name"),
            *(() if account is None else (("ledger entries", ", ".join(account.entries)),)),
            *_spent(self.guarantee),
            *((name.lower(), text) for name, text in made.rows()),
        ]
        method = [
            ("method", str(record["method"])),
            ("cells", f"{tiling['kind']}" + (f", depth {tiling['depth']}" if "depth" in tiling else "")),
            ("region", _box(tiling)),
            ("software", f"{record['software']} {record['version']}"),
            *((name, str(value)) for name, value in record["parameters"].items() if value is not None),
        ]
        notes = [("note", str(note)) for note in record["notes"]]
        confirm = [("[ ]", text) for name, text in rows if name == "assumes"]
        promised = [(name, text) for name, text in rows if name not in ("assumes", "account", "spent")]
        spent = [("spent", text) for name, text in rows if name == "spent"]
        found: Sequence[tuple[str, Sequence[tuple[str, str]]]] = (
            ("Promise", promised),
            ("Data and budget", [*data, *spent]),
            ("Method", [*method, *notes]),
            ("Statements to confirm: the promise holds only where each is true", confirm),
            ("File", [("name", self.file), ("bytes", str(self.size)), ("SHA-256", self.sha256)]),
        )
        return tuple((head, tuple((name, text) for name, text in table if text)) for head, table in found)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record."""
        return {
            "file": self.file,
            "bytes": self.size,
            "sha256": self.sha256,
            "warnings": list(self.warnings),
            "metadata": dict(self.record),
        }

    def __str__(self) -> str:
        promise = self.guarantee.promise
        lines = [one_line(self.record["title"] or self.file), f"{promise.headline}: {promise.title}"]
        lines += [f"WARNING: {text}" for text in self.warnings]
        for head, rows in self.sections:
            lines += ["", head, *(f"  {name:<14} {one_line(text, _LONGEST)}" for name, text in rows)]
        return "\n".join((*lines, "", _NO_PROOF))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the sheet as one HTML page that needs no other file; it prints on paper, with lines to sign on.

        Raises
        ------
        InputError
            The suffix is not .html, or the file cannot be written.
        """
        if Path(path).suffix.lower() != ".html":
            raise InputError(f"{path}: the sheet's suffix must be .html, got {Path(path).suffix or 'none'}")
        promise = self.guarantee.promise
        words = "".join(
            f"<p>{html.escape(text)}</p>\n" for text in (f"{promise.headline}.", *promise.sentences)
        )
        sign = ("Name, date, signature", [(role, "_" * 48) for role in ("Released by", "Checked by")])
        tables = "".join(_table_html(head, rows) for head, rows in (*self.sections, sign))
        body = f"{words}{tables}<p>{_NO_PROOF}</p>\n"
        page = html_page(
            f"Sign-off sheet: {self.record['title'] or self.file}", body, " ".join(self.warnings)
        )
        with atomic_path(path) as place:
            place.write_bytes(page)


def inspect(path: str | PathLike[str]) -> ReleaseSheet:
    """Read the sign-off sheet of a released file. Run by: anybody who holds the file.

    Parameters
    ----------
    path : path-like
        A file of any format that Mapveil writes; see :func:`mapveil.formats.read_record.read_record`.

    Raises
    ------
    NotAMap
        Not a map that Mapveil wrote.
    InputError
        The file cannot be read, or its metadata are broken.
    """
    file, record = Path(path), read_record(path)
    try:
        sheet = ReleaseSheet(
            file=file.name,
            size=file.stat().st_size,
            sha256=file_hash(file),
            guarantee=Guarantee.from_dict(record["guarantee"]),
            record=record,
        )
        str(sheet).encode()
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror or error})") from error
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise InputError(f"{file}: its metadata are not a map's ({type(error).__name__}: {error})") from error
    return sheet


def _table_html(head: str, rows: Sequence[tuple[str, str]]) -> str:
    body = "".join(
        f'<tr><td>{html.escape(name)}</td><td class="text">{html.escape(text)}</td></tr>\n'
        for name, text in rows
    )
    return f'<h2>{html.escape(head)}</h2>\n<div class="scroll"><table>{body}</table></div>\n'


def _spent(guarantee: Guarantee) -> list[tuple[str, str]]:
    account = guarantee.account
    if account is None:
        return []
    named = (("spent before", account.before), ("spent after", account.after), ("budget", account.budget))
    return [(name, readable(amount)) for name, amount in named if amount is not None]


def _box(tiling: Mapping[str, Any]) -> str:
    west, south, east, north = tiling["region"]["bbox"]
    return f"{west:g},{south:g},{east:g},{north:g} (W,S,E,N)"
