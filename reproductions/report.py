"""Reports of reproductions: claims with verdicts, tables, pictures, and their files.

A report of several sections becomes pictures, CSV tables, one Markdown page and one self-contained HTML page.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mapveil.evaluation.comparison import table_csv
from mapveil.evaluation.html_report import Panel, curves_figure, png_bytes, text_table, write_atomically
from mapveil.pictures.colours import ramp
from mapveil.pictures.report_page import html_page, html_picture, html_table
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import require


class Claim(NamedTuple):
    """A claim, whether it holds here, and the numbers it rests on."""

    claim: str
    verdict: str  # "holds", "holds in part" or "does not hold"
    evidence: str


class Table(NamedTuple):
    """A heading, and rows of text under a header; a cell that starts with ``*`` is the best."""

    heading: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


class Picture(NamedTuple):
    """A PNG with the name of its file and its caption."""

    name: str
    png: bytes
    caption: str

    @classmethod
    def of(cls, name: str, figure: Any, caption: str, dpi: int = 100) -> Picture:
        """A figure of Matplotlib."""
        return cls(name, png_bytes(figure, dpi=dpi), caption)

    @classmethod
    def curves(cls, name: str, panels: Sequence[Panel], caption: str) -> Picture:
        """Panels of curves."""
        return cls.of(name, curves_figure(panels), caption)


class Report(NamedTuple):
    """The report of one section."""

    tables: Sequence[Table]
    pictures: Sequence[Picture] = ()
    claims: Sequence[Claim] = ()


def joint_verdict(held: Sequence[bool]) -> str:
    """The verdict on several comparisons together."""
    return "holds" if all(held) else "holds in part" if any(held) else "does not hold"


def counted_verdict(held: int, of: int) -> str:
    """The verdict on ``of`` comparisons, ``held`` of which hold."""
    return "does not hold" if held == 0 else "holds" if held == of else "holds in part"


def judged(claim: str, cases: Iterable[tuple[bool, str]], between: str = "; ") -> Claim:
    """A claim about several cases: whether it holds in each, and the evidence of each."""
    held, words = zip(*cases, strict=True)
    return Claim(claim, joint_verdict(held), between.join(words))


def judged_values(claim: str, values: Mapping[str, float], held: Callable[[float], bool], form: str) -> Claim:
    """A claim about one value of each of several cases, written in a format such as ``{:.3f}``."""
    return judged(
        claim, ((held(value), f"{name} {form.format(value)}") for name, value in values.items()), ", "
    )


def report_text(reports: Iterable[Report], claims: Iterable[Claim]) -> str:
    """The tables, the claims and the verdicts, for a terminal."""
    blocks = [
        f"{table.heading}\n{text_table(table.header, table.rows)}"
        for report in reports
        for table in report.tables
    ]
    blocks += [f"{claim.verdict.upper()}: {claim.claim}\n  {claim.evidence}" for claim in claims]
    return "\n\n".join(blocks)


def write_report(
    out: Path,
    title: str,
    preface: Sequence[str],
    reports: Iterable[Report],
    claims: Sequence[Claim],
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
) -> list[Path]:
    """Write every picture, ``rows.csv``, ``claims.csv``, ``tables.md`` and ``index.html``; the paths written."""
    body = [f"<p>{html.escape(text)}</p>\n" for text in preface]
    blocks = [f"<!-- {title} -->", *preface]
    if claims:
        body.append(f"<h2>Claims</h2>\n{html_table(Claim._fields, claims)}")
        blocks += ["## Claims", _markdown_table(Claim._fields, claims)]
    pictures: list[Picture] = []
    for report in reports:
        pictures += report.pictures
        body += [html_picture(picture.png, picture.caption) for picture in report.pictures]
        for table in report.tables:
            body.append(
                f"<h2>{html.escape(table.heading)}</h2>\n{html_table(table.header, table.rows)}"
                f"<p>{html.escape(table.note)}</p>\n"
            )
            blocks += [f"## {table.heading}", _markdown_table(table.header, table.rows)]
            blocks += [table.note] if table.note else []
    written = [write_atomically(out / f"{picture.name}.png", picture.png) for picture in pictures]
    written.append(write_atomically(out / "rows.csv", table_csv(header, rows).encode()))
    written.append(write_atomically(out / "claims.csv", table_csv(Claim._fields, claims).encode()))
    written.append(write_atomically(out / "tables.md", ("\n\n".join(blocks) + "\n").encode()))
    written.append(write_atomically(out / "index.html", html_page(title, "".join(body))))
    return written


def _markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for row in rows:
        cells = [f"**{cell[1:]}**" if cell.startswith("*") else cell for cell in row]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def maps_figure(
    rows: Sequence[tuple[str, Sequence[tuple[str, FloatArray]]]], *, scale_of_first: bool = False
) -> Any:
    """Draw rows of square maps, each map in its own scale from zero to its largest value.

    Parameters
    ----------
    rows : sequence of (row title, sequence of (title, ndarray of shape (height, width)))
        Row 0 of a map is the northmost.
    scale_of_first : bool
        Whether all maps of a row have the scale of its first one.
    """
    colours = require("matplotlib.colors", "viz").ListedColormap(ramp() / 255.0)
    columns = max(len(maps) for _, maps in rows)
    figure = require("matplotlib.figure", "viz").Figure(
        figsize=(2.0 * columns, 2.25 * len(rows)), layout="constrained"
    )
    for line, (row_title, maps) in enumerate(rows):
        for column, (title, values) in enumerate(maps):
            axes = figure.add_subplot(len(rows), columns, line * columns + column + 1)
            top = maps[0][1] if scale_of_first else values
            axes.imshow(values, cmap=colours, vmin=0, vmax=float(top.max()) or 1.0)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.set_title(title, fontsize=8)
            if column == 0:
                axes.set_ylabel(row_title, fontsize=9)
    return figure
