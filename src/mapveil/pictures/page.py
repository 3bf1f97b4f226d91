"""A map as one page that needs nothing but a browser: no server, no network, no other file."""

from __future__ import annotations

import html
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from importlib import resources
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

from mapveil.formats.atomic import atomic_path
from mapveil.pictures.scene_record import scene_record

if TYPE_CHECKING:
    from mapveil.maps.released import ReleasedMap
    from mapveil.privacy.promise import Promise


_MODULES: Final = (
    "dom", "theme", "scale", "packed", "degrees", "graticule", "ground", "legend", "cell_scene", "line_scene",
    "plane_view", "noise_law", "noisy_sums", "zone_shapes", "zone_card", "odds_card", "online_tiles",
    "window_slider", "viewer",
)  # fmt: skip
"""Modules that pages share with the console, each after those it imports."""


def write_page(released: ReleasedMap, path: str | PathLike[str]) -> None:
    """Write :func:`page_html` to a file. Run by: anybody who holds the map."""
    text = page_html(released)
    with atomic_path(path) as place:
        place.write_text(text, encoding="utf-8", newline="\n")


def page_html(released: ReleasedMap) -> str:
    """Make a page of a map: pan and zoom, a reading of each cell or line, legend, guarantee, downloads.

    Numbers are rounded to four digits; the page fetches nothing and sends nothing, which its content security
    policy enforces. Where the map's ``context`` names online tiles it fetches those, of their host alone.

    Parameters
    ----------
    released : ReleasedMap
        The map.
    """
    tiling = released.tiling
    made = f"{released.method}, {released.guarantee.promise.label}, {tiling.spec} ({tiling.size} cells)"
    record, period = scene_record(released), released.period
    if unshown := record["scene"].get("unshown"):
        warnings.warn(f"the page has no windows. {unshown}", stacklevel=2)
    else:  # one window of a series may be shown below the heading as well as all of them
        period = period.removeprefix("all windows together: ")
    lines = (released.subtitle, made, period)
    return filled_page(record, lines, released.guarantee.promise)


def filled_page(record: dict[str, Any], lines: Sequence[str], promise: Promise, answers: str = "") -> str:
    """Make the page of a scene's record.

    Parameters
    ----------
    record : dict
        As :func:`~mapveil.pictures.scene_record.scene_record` makes them.
    lines : sequence of str
        Lines below the title; empty ones are left out.
    promise : Promise
        The promise of the release.
    answers : str
        HTML between the map and how it was made.
    """
    first, *rest = map(html.escape, promise.sentences)
    words = (f"<strong>{html.escape(promise.headline)}</strong> {first}", *rest)
    banners = (f'<p class="banner" role="alert">{html.escape(text)}</p>' for text in promise.warnings)
    notes = [f"<li>{html.escape(note)}</li>" for note in record["notes"]] or ["<li>There are none.</li>"]
    tiles = record["scene"]["tiles"]
    fields = {
        "title": html.escape(record["title"]),
        "banner": "\n".join(banners),
        "subtitle": "<br>".join(html.escape(text) for text in lines if text),
        "promise": "\n".join(f"<p>{text}</p>" for text in words).replace("<p>", '<p class="factor">', 1),
        "answers": answers,
        "tables": "".join(_section_html(name, rows) for name, rows in record["tables"]),
        "notes": "".join(notes),
        "left_out": record["left_out"],
        "images": "data:" if tiles is None else f"data: {tiles['origin']}",
        "sends": "sends nothing anywhere" if tiles is None else "sends nothing of the map anywhere",
        "data": _script_json(record),
        "style": _resource_text("shared/assets/look.css") + _resource_text("page.css"),
        "script": _viewer_script(),
    }
    return _fill_page("page.html", fields)


def _fill_page(template: str, fields: Mapping[str, str]) -> str:
    """A template of this package with its ``{{markers}}`` replaced by fields."""
    # One pass over the template's own text: what is put in is never searched for markers.
    return re.sub(r"\{\{(\w+)\}\}", lambda marker: fields[marker[1]], _resource_text(template))


def _resource_text(name: str) -> str:
    """A text file that lies beside this module."""
    return resources.files("mapveil.pictures").joinpath(name).read_text(encoding="utf-8")


def _viewer_script() -> str:
    """The viewer's modules and the page's own script as one: imports go, exports are plain declarations."""
    texts = [_resource_text(f"shared/assets/{name}.js") for name in _MODULES] + [_resource_text("page.js")]
    return re.sub(r"(?m)^import [^;]*;\n|^export ", "", "".join(texts))


def _script_json(record: dict[str, Any]) -> str:
    """JSON that no HTML parser can mistake for the end of its script."""
    text = json.dumps(record, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _section_html(head: str, rows: Sequence[Sequence[str]]) -> str:
    """A headed table."""
    body = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th><td>{html.escape(text)}</td></tr>'
        for name, text in rows
    )
    return f"<h2>{html.escape(head)}</h2><table>{body}</table>"
