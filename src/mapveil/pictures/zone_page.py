"""Answers about zones as one page: the zones drawn with what is told from zero, their intervals, and a table."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mapveil.formats.atomic import atomic_path
from mapveil.geo.context import Context
from mapveil.geo.region import reprojected
from mapveil.geo.zones import Zones, polygonal
from mapveil.inference.linear_totals import half_widths
from mapveil.maps.scene import Layer, Shading
from mapveil.pictures.ground_record import ground_record
from mapveil.pictures.layer_record import layer_record
from mapveil.pictures.packed import packed
from mapveil.pictures.page import filled_page
from mapveil.pictures.picture_plane import outlines_plane, polygon_rings
from mapveil.pictures.scene_record import (
    AROUND,
    degrees_record,
    finite_record,
    odds_record,
    outlines_record,
    plane_record,
)
from mapveil_client.arrays import BoolArray, FloatArray
from mapveil_client.plane import middle_cylinder

if TYPE_CHECKING:
    from mapveil.inference.zone_overlay import ZoneOverlay
    from mapveil.inference.zone_results import ZoneTotals

_EDGES: Final = 64  # of the region's side: edges of zones are cut before they are projected
_PER_KM2: Final = "users per km²"
_PER_1000: Final = "users per 1,000 of the denominator"
_READING: Final = (
    "Of a coloured zone the measured cells wholly inside are told from zero; of a hatched one they are not, or there "
    "are none. A zone has one colour: where its users are within it is not shown. The interval is of the noise alone, "
    "not of people who are missing from the table; where the model places most users it goes from the measured cells "
    "inside to all that the zone touches."
)
_HEADS: Final = {
    "first_rank": ("Best rank", ".0f"),
    "last_rank": ("Worst rank", ".0f"),
    "zone": ("Zone", ""),
    "called_above": ("Called above", ""),
    "called_not_above": ("Called not above", ""),
    "estimate_per_1000": ("Per 1,000", ",.2f"),
    "low_per_1000": ("Low per 1,000", ",.2f"),
    "high_per_1000": ("High per 1,000", ",.2f"),
    "estimate": ("Users", ",.1f"),
    "low": ("Low", ",.1f"),
    "high": ("High", ",.1f"),
    "certain_low": ("Low, wherever they are", ",.1f"),
    "certain_high": ("High, wherever they are", ",.1f"),
    "placed": ("Placed by the model", ".0%"),
    "inside": ("Inside", ",.1f"),
    "touched": ("Touched", ",.1f"),
    "deviation": ("Deviation", ",.1f"),
    "covered": ("In the map", ".0%"),
    "denominator": ("Denominator", ",.1f"),
}
"""Head and format of the columns that the table has."""


def write_answers_page(
    asked: ZoneOverlay,
    found: ZoneTotals,
    columns: Mapping[str, Any],
    question: str,
    path: str | PathLike[str],
) -> None:
    """Write :func:`answers_html` to a file. Run by: anybody who holds the map; costs no privacy."""
    text = answers_html(asked, found, columns, question)
    with atomic_path(path) as place:
        place.write_text(text, encoding="utf-8", newline="\n")


def answers_html(asked: ZoneOverlay, found: ZoneTotals, columns: Mapping[str, Any], question: str) -> str:
    """Make a page of answers: zones over the ground, a reading of each, and a table. It fetches nothing.

    Parameters
    ----------
    asked : ZoneOverlay
        The map and the zones.
    found : ZoneTotals
        The totals of the zones.
    columns : mapping of str to array or list
        The answers, one entry per zone: those of :meth:`ZoneTotals.columns`, and rates, ranks or comparisons.
    question : str
        What was asked, one line.
    """
    heat = asked.heat
    promise = heat.guarantee.promise
    lines = (heat.subtitle, question, f"{heat.method}, {promise.label}")
    return filled_page(_record(asked, found, columns), lines, promise, _table(columns, question))


def _record(asked: ZoneOverlay, found: ZoneTotals, columns: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a scene whose cells are the zones, cut to the map; by rate where the answers have rates."""
    import shapely

    heat = asked.heat
    region = heat.tiling.region
    west, south, east, north = region.bbox
    cut = polygonal(
        np.asarray(shapely.intersection(found.zones.polygons, region.outline()), dtype=np.object_)
    )
    fine = np.asarray(shapely.segmentize(cut, max(east - west, north - south) / _EDGES), dtype=np.object_)
    # Small zones over large ones: a pointer finds the last that it meets.
    order = np.argsort(-shapely.area(cut), kind="stable")
    rings = polygon_rings(fine[order], region.projection)
    rings = rings._replace(cell=order[rings.cell])
    plane = outlines_plane(region.projection, rings)
    whole = np.array([shapely.union_all(fine)], dtype=np.object_)
    middles = shapely.get_coordinates(shapely.point_on_surface(cut))
    area = shapely.area(reprojected(fine, middle_cylinder(region.bbox).project)) / 1e6  # km²
    rated = "denominator" in columns
    divisor, unit = (np.asarray(columns["denominator"]) / 1000, _PER_1000) if rated else (area, _PER_KM2)
    told = _told(asked, found)
    layers = _layers(found, told, divisor, unit)
    if rated:
        rate = np.maximum(columns["estimate_per_1000"], 0.0)
        layers = (*layers, Layer("estimate_per_1000", "Per 1,000 of the denominator", "", rate))
    drawn = Zones(cut, found.zones.names)
    low, high = found.bounds
    return finite_record(
        {
            "title": heat.title or "Users in zones",
            "metadata": heat.metadata(),
            "tables": [("The map that was asked", [("Method", heat.method), *heat.provenance.rows()])],
            "notes": [*found.zones.notes, *heat.notes],
            "reading": _READING,
            "odds": odds_record(heat.guarantee),
            "left_out": "",
            "scene": {
                **plane_record(plane, polygon_rings(whole, region.projection)),
                "georeferenced": True,
                "degrees": degrees_record(plane),
                "thing": "zone",
                "size": len(found.zones),
                "main": 3,
                "empty": None,
                "bounds": [packed(np.maximum(low, 0.0)), packed(high), _coverage(found)],
                "area": packed(area),
                "layers": [_layer(layer) for layer in layers],
                "blocks": None,
                "doubt": _doubt(asked, told, ~(divisor > 0) & rated),
                "names": list(found.zones.labels),
                "rings": outlines_record(plane, rings, *middles.T),
                "ground": ground_record(plane, region, Context.of_zones(drawn), margin=AROUND),
                "tiles": None,
                "questions": None,
            },
        }
    )


def _coverage(found: ZoneTotals) -> str:
    """The intended coverage of the intervals, in words."""
    return f"{100 * (1 - found.alpha):g} %"


def _told(asked: ZoneOverlay, found: ZoneTotals) -> BoolArray:
    """Whether the measured cells wholly inside each zone are told from zero: the model placed nobody there."""
    errors = asked.sums.errors(asked.inside)
    return np.asarray(found.inside > half_widths([each.noise for each in errors], found.alpha))


def _doubt(asked: ZoneOverlay, told: BoolArray, unrated: BoolArray) -> str:
    """Meaning of hatched zones: whether some measured cell lies wholly inside, and which have no denominator."""
    empty = asked.inside.sum(axis=1) == 0
    parts = {
        "nobody, or too few to tell, in measured cells inside": ~told & ~empty,
        "no measured cell inside": empty,
        "no denominator": unrated,
    }
    said = [f"{text} ({zones.sum()} of {zones.size} zones)" for text, zones in parts.items() if zones.any()]
    return f"Hatched: {'; '.join(said)}" if said else ""


def _layers(found: ZoneTotals, told: BoolArray, divisor: FloatArray, unit: str) -> tuple[Layer, ...]:
    """Estimate, interval and significance of the zones that are told from zero; then the users of all."""
    users = np.maximum(found.estimate, 0.0)
    half_title = f"half the {_coverage(found)} interval"

    def shown(values: FloatArray) -> FloatArray:
        return np.where(told, values, np.nan)

    def divided(values: FloatArray) -> FloatArray:
        return shown(np.divide(values, divisor, out=np.full(values.size, np.nan), where=divisor > 0))

    density = divided(users)
    low, high = found.bounds
    deviations = np.divide(
        found.estimate, found.deviation, out=np.zeros(users.size), where=found.deviation > 0
    )
    known = density[np.isfinite(density)]
    floor = float(known.min()) if known.size else 0.0
    return (
        Layer("block_density", "estimate", unit, density, Shading(noise_floor=floor)),
        Layer("block_half_width", half_title, unit, divided((high - low) / 2)),
        Layer(
            "block_significance",
            "estimate over its deviation",
            "deviations",
            shown(deviations),
            Shading("linear"),
        ),
        Layer("users", "Estimated users", "", users),
        Layer("deviation", "Standard deviation of the noise", "", found.deviation),
        Layer("placed", "Placed by the model", "of the estimate", found.placed, Shading("linear")),
        Layer("inside", "Measured cells inside", "", np.maximum(found.inside, 0.0)),
        Layer("touched", "Measured cells touched", "", np.maximum(found.touched, 0.0)),
    )


def _layer(layer: Layer) -> dict[str, Any]:
    """The record of a layer, with its values."""
    return {**layer_record(layer), "values": packed(layer.values, rounded=True)}


def _table(columns: Mapping[str, Any], question: str) -> str:
    """The answers as an HTML table."""
    names = [name for name in _HEADS if name in columns]
    heads = "".join(f'<th scope="col">{html.escape(_HEADS[name][0])}</th>' for name in names)
    # The busiest first where zones are ranked or called, as on the terminal; otherwise as they were given.
    order = np.arange(len(columns["zone"]))
    if "first_rank" in columns or "called_above" in columns:
        order = np.argsort(-np.asarray(columns["estimate"]), kind="stable")
    rows = zip(*([columns[name][at] for at in order] for name in names), strict=True)
    body = "".join(f"<tr>{_cells(names, row)}</tr>\n" for row in rows)
    return (
        '<section class="card" aria-labelledby="answers"><h2 id="answers">Answers</h2>'
        f'<p class="hint">{html.escape(question)}</p>'
        '<div class="scroll" tabindex="0" role="region" aria-label="Answers"><table class="answers">'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}</tbody></table></div></section>"
    )


def _cells(names: Sequence[str], row: Sequence[Any]) -> str:
    made = []
    for name, value in zip(names, row, strict=True):
        if name == "zone":
            made.append(f'<th scope="row">{html.escape(str(value))}</th>')
        elif isinstance(value, (bool, np.bool_)):
            made.append(f"<td>{'yes' if value else ''}</td>")
        else:
            value = max(value, 0.0) if name in {"inside", "touched"} else value  # as on the terminal
            made.append(f"<td>{format(value, _HEADS[name][1]) if np.isfinite(value) else ''}</td>")
    return "".join(made)
