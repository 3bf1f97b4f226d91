"""Reports as one HTML page that needs no other file: tables, pictures, warnings."""

from __future__ import annotations

import base64
import html
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matplotlib.figure import Figure

NOT_PRIVATE: Final = (
    "This report reads the true data: it is NOT private. Do not publish it for data of real people."
)
"""Warning of every report that no mechanism protects."""


_PNG_WIDTH: Final = slice(16, 20)  # of the header, PNG specification 11.2.2
_CSS_DPI: Final = 96  # pixels of a style sheet in an inch

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;
color:#1b1b1b;background:#fff}
h1{font-size:1.7rem}h2{font-size:1.25rem;margin-top:2.2rem}
.warning{border:2px solid #b00020;background:#fdecef;color:#7a0016;padding:.8rem 1rem;font-weight:600}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .7rem;border-bottom:1px solid #ddd;text-align:right;white-space:nowrap}
th:first-child,td:first-child,td.text{text-align:left;white-space:normal}
thead th{border-bottom:2px solid #888}
img{max-width:100%;height:auto}img.own{max-width:none}figcaption{color:#555;font-size:.9rem}figure{margin:1rem 0}
@media(max-width:500px){h1{font-size:1.3rem}table{font-size:.8rem}th,td{padding:.2rem .35rem}
thead th{white-space:normal}}
.best{font-weight:700}code{background:#f4f4f4;padding:0 .2rem}
"""


def mark_not_private(figure: Figure) -> None:
    """Write over a figure, above its title, that it is made from the true data."""
    mark = "NOT PRIVATE: made from the true data. Do not publish."
    title = figure.get_suptitle()
    figure.suptitle(f"{mark}\n{title}".strip(), fontsize=10, color="#b00020")


def html_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; a cell that starts with ``*`` is set in bold."""

    def cell(item: object) -> str:
        text = str(item)
        kind = ' class="text"' if len(text) > 40 else ""
        if text.startswith("*"):
            return f'<td class="best">{html.escape(text[1:])}</td>'
        return f"<td{kind}>{html.escape(text)}</td>"

    head = "".join(f"<th>{html.escape(name)}</th>" for name in header)
    body = "".join("<tr>" + "".join(cell(item) for item in row) + "</tr>\n" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table>"
    return f'<div class="scroll" tabindex="0">{table}</div>\n'


def html_picture(png: bytes, caption: str, *, dpi: int | None = None) -> str:
    """A picture carried inside the page; with its ``dpi`` at its own size, and scrolled where the page is narrower."""
    data = base64.b64encode(png).decode()
    words = html.escape(caption)
    image = f'<img alt="{words}" src="data:image/png;base64,{data}"'
    if dpi is None:
        return f"<figure>{image}><figcaption>{words}</figcaption></figure>\n"
    width = int.from_bytes(png[_PNG_WIDTH], "big") * _CSS_DPI // dpi
    return (
        f'<figure><div class="scroll" tabindex="0" role="region" aria-label="{words}">'
        f'{image} class="own" width="{width}"></div><figcaption>{words}</figcaption></figure>\n'
    )


def html_page(title: str, body: str, warning: str = "") -> bytes:
    """One page that needs no other file and no network."""
    banner = f'<p class="warning" role="alert">{html.escape(warning)}</p>\n' if warning else ""
    heading = html.escape(title)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{heading}</title><style>{_STYLE}</style></head>\n"
        f"<body><h1>{heading}</h1>\n{banner}{body}</body></html>\n"
    ).encode()
