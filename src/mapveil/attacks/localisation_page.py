"""The localisation report in words, as a picture, and as one page that needs nothing but a browser."""

from __future__ import annotations

import dataclasses
import html
import io
import math
from typing import TYPE_CHECKING, Final

import numpy as np

from mapveil.attacks.bayesian_server import Verdict, devices_at, first_features
from mapveil.attacks.localisation import LocalisationReport
from mapveil.attacks.localisation_scene import Scene
from mapveil.pictures.report_page import (
    NOT_PRIVATE,
    html_page,
    html_picture,
    html_table,
    mark_not_private,
)
from mapveil.random_features.posterior import effective_places, posterior, simulated_devices
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import require
from mapveil_client.random_features.query import EvenGrid, Query
from mapveil_client.random_features.report import Reports, grid_reports
from mapveil_client.randomness.random import Randomness

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_SHOWN: Final = (1, 2, 3)
_FINER: Final = 4  # points of a drawn surface for one of the score's grid
_SERVERS_HEAD: Final = ("server", "knows", "error", "one in twenty", "places left", "cell named right")
_CURVES: Final = (
    ("one report", "one_report", "#0072B2", "o-"),
    ("a second set", "second_set", "#D55E00", "D-."),
    ("on its way", "walking", "#009E73", "^:"),
)
_COSTS_HEAD: Final = (
    "features",
    "bandwidth",
    "paper's score",
    "one report",
    "cell by cell",
    "second set",
    "on its way",
    "devices answer",
)


def report_text(report: LocalisationReport) -> str:
    """The report for a terminal."""
    settings, score, unit = report.settings, report.score, report.unit
    lines = [
        f"Localisation report: {_features(settings['features'])} a device, {settings['kernel']} kernel, "
        f"bandwidth {_number(settings['bandwidth_m'])} {unit}",
        f"  devices     {settings['devices scored']:,} scored, {settings['devices of each server']:,} against each "
        f"server, {settings['devices are']}",
        f"  score       {_number(score.expected_m)} {unit} (equation 16 as printed: {_number(score.literal_m)}), "
        f"{score.maxima:.3g} maxima a surface; {_number(score.silence_m)} {unit} for devices that say nothing",
        "",
        f"Servers with a prior over cells of {_number(settings['cell'])} {unit} (lengths in {unit})",
        *_aligned([_SERVERS_HEAD, *_server_rows(report)], texts=2),
        f"  both of two places are named from the difference of two phases and a list of exact places: "
        f"{report.pairs_named:.1%} of the devices",
        "",
        f"Cost of features and bandwidth: error (places left), of a server that knows {settings['known prior']}",
        *_aligned([_COSTS_HEAD, *_cost_rows(report)], texts=0),
        f"  {_number(report.blind_m)} {unit} without any report; cell by cell: each phase by itself; on its way: "
        f"{settings['answers']} reports, steps of {_number(settings['step_m'])} {unit}",
    ]
    return "\n".join(lines)


def _server_rows(report: LocalisationReport) -> list[tuple[str, ...]]:
    return [
        (
            row.server,
            row.knows,
            _with_chance(row.verdict),
            _number(row.verdict.twentieth_m),
            _number(row.verdict.places),
            f"{row.verdict.right:.1%}",
        )
        for row in report.servers
    ]


def _with_chance(verdict: Verdict) -> str:
    """The error and the standard error that comes of so few devices."""
    chance = verdict.standard_error_m
    return _number(verdict.error_m) + (f" ± {float(f'{chance:.2g}'):,.0f}" if chance >= 1 else "")


def _cost_rows(report: LocalisationReport) -> list[tuple[str, ...]]:
    return [
        (
            str(row.features),
            _number(row.bandwidth_m),
            _number(row.score_m),
            *(_left(verdict) for verdict in (row.one_report, row.cell_by_cell, row.second_set, row.walking)),
            "yes" if row.answered else "no",
        )
        for row in report.costs
    ]


def _aligned(rows: list[tuple[str, ...]], *, texts: int) -> list[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if at < texts else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _features(features: int) -> str:
    return "1 feature" if features == 1 else f"{features} features"


def _number(value: float) -> str:
    """Three digits, a thousands separator, no exponent."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    if value < 0.01:
        return "<0.01"
    digits = max(0, 2 - math.floor(math.log10(value)))
    return f"{float(f'{value:.3g}'):,.{digits}f}"


def report_picture(report: LocalisationReport, at: Scene) -> bytes:
    """A PNG: one device's surfaces and what a server makes of them, and the errors against the number of features.

    Raises
    ------
    MissingExtra
        matplotlib is not installed.
    """
    figure_module = require("matplotlib.figure", "viz")
    low, high = at.where.low, at.where.high
    tall = min(max((high[1] - low[1]) / (high[0] - low[0]), 0.4), 1.6)
    side = 3.5
    figure: Figure = figure_module.Figure(
        figsize=(3 * side + 0.6, 2 * side * tall + 4.4), layout="constrained"
    )
    grid = figure.add_gridspec(3, 6, height_ratios=[tall * side, tall * side, 3.4])
    settings = report.settings
    query = at.query(max(_SHOWN), settings["bandwidth_m"], settings["kernel"])
    rng = Randomness(settings["seed"]).child("picture")
    if at.places is None:
        drawn = simulated_devices(query, at.known, 1, rng)
    else:
        middle = at.known.places @ at.known.probability
        nearest = np.argmin(np.square(at.places - middle[:, None]).sum(axis=0))
        drawn = devices_at(at.places[:, [nearest]], at.known, query, rng)
    for column, features in enumerate(_SHOWN):
        one = first_features(drawn, features)
        asked = at.query(features, settings["bandwidth_m"], settings["kernel"])
        surface = _surface(one.reports, asked, at)
        belief = posterior(one.reports, asked, at.known).weights[0]
        axes = figure.add_subplot(grid[0, 2 * column : 2 * column + 2])
        _draw(axes, surface, at, one.places[:, 0], "RdBu_r")
        axes.set_title(f"{_features(features)}: the surface", fontsize=10)
        axes = figure.add_subplot(grid[1, 2 * column : 2 * column + 2])
        lattice = at.known.lattice()
        raster = np.full(math.prod(lattice.boxes), np.nan)
        raster[lattice.kept] = belief
        _draw(axes, np.sqrt(raster).reshape(lattice.boxes), at, one.places[:, 0], "magma_r")
        axes.set_title(f"what a server with a prior believes ({_believed(belief)})", fontsize=10)
    _draw_costs(figure.add_subplot(grid[2, :3]), report, "expected_m")
    _draw_costs(figure.add_subplot(grid[2, 3:]), report, "places")
    mark_not_private(figure)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, metadata={"Software": "mapveil"})
    return buffer.getvalue()


def _left(verdict: Verdict) -> str:
    return f"{_number(verdict.expected_m)} ({_number(verdict.places)})"


def _believed(belief: FloatArray) -> str:
    places = float(effective_places(belief[None])[0])
    return "1 place" if places < 1.05 else f"{_number(places)} places"


def _surface(reports: Reports, asked: Query, at: Scene) -> FloatArray:
    # The phase counts from the region's middle; the grid's is another.
    fine = EvenGrid(
        tuple(
            first - step * (1 - 1 / _FINER) / 2
            for first, step in zip(at.grid.start, at.grid.step, strict=True)
        ),
        tuple(step / _FINER for step in at.grid.step),
        tuple(_FINER * count for count in at.grid.count),
    )
    shown = dataclasses.replace(asked, grid=fine)
    shift = np.asarray(shown.origin) - np.asarray(asked.origin)
    turned = reports.projections * np.exp(-1j * np.tensordot(shift, reports.frequencies, axes=(0, 0)))
    return np.asarray(grid_reports(reports._replace(projections=turned), shown)[0])


def _per(at: Scene) -> float:
    return 1000.0 if at.tiling.region.georeferenced else 1.0


def _draw(axes: Axes, values: FloatArray, at: Scene, place: FloatArray, colours: str) -> None:
    per, low, high = _per(at), at.where.low, at.where.high
    axes.imshow(
        values.T,
        origin="lower",
        extent=(0, (high[0] - low[0]) / per, 0, (high[1] - low[1]) / per),
        cmap=colours,
        interpolation="nearest",
    )
    x, y = (place - np.asarray(low)) / per
    axes.plot(x, y, "o", markersize=9, markerfacecolor="none", markeredgecolor="#00a35b", markeredgewidth=2)
    axes.tick_params(labelsize=7)
    axes.set_xlabel("km" if per > 1 else "cells", fontsize=7)


def _draw_costs(axes: Axes, report: LocalisationReport, what: str) -> None:
    h = report.settings["bandwidth_m"]
    rows = [row for row in report.costs if row.bandwidth_m == h]
    x = [row.features for row in rows]
    highest = report.blind_m

    def curve(label: str, values: list[float], colour: str, form: str) -> None:
        nonlocal highest
        highest = max(highest, *values)
        axes.plot(x, values, form, color=colour, label=label, markersize=5, linewidth=1.5)

    if what == "expected_m":
        curve("the paper's score", [row.score_m for row in rows], "#6b6b6b", "s--")
    for label, server, colour, form in _CURVES:
        curve(label, [getattr(getattr(row, server), what) for row in rows], colour, form)
    unit = report.unit
    if what == "expected_m":
        axes.axhline(report.blind_m, color="#b9b9c2", linewidth=1)
        axes.annotate("without any report", (x[-1], report.blind_m), fontsize=8, ha="right", va="bottom")
        axes.set_ylabel(f"error, {unit}")
        axes.set_ylim(0, 1.25 * highest)
    else:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, position: f"{value:g}")
        axes.set_ylabel(f"cells of {_number(report.settings['cell'])} {unit} left")
    axes.set_xticks(x)
    axes.set_xlabel(f"features per device (bandwidth {_number(h)} {unit})")
    axes.legend(fontsize=8, frameon=False)
    for spine in ("top", "right"):
        axes.spines[spine].set_visible(False)


def report_page(report: LocalisationReport, picture: bytes) -> str:
    """The report as one page of words, tables and the picture of :func:`report_picture`."""
    settings, unit = report.settings, report.unit
    warnings = "".join(f'<p class="warning">{html.escape(text)}</p>\n' for text in report.warnings)
    body = f"""{warnings}<p>Each device sends {_features(settings["features"])} through its place, bandwidth
{_number(settings["bandwidth_m"])} {unit}. The paper's score, the expected distance to the maxima of a device's own
surface, is {_number(report.score.expected_m)} {unit} ({_number(report.score.literal_m)} as equation 16 is printed;
{_number(report.score.silence_m)} {unit} for devices that say nothing). Servers with a prior over cells of
{_number(settings["cell"])} {unit} do better, as the tables say.</p>
{html_picture(picture, "Surfaces, what a server believes, and errors against features")}
<p>Above: the surface of one device (green ring) with one, two and three features; the score looks at its darkest red.
Below: where a server with a prior believes it to be.</p>
<h2>Servers with a prior (lengths in {unit})</h2>{html_table(_SERVERS_HEAD, _server_rows(report))}
<p>Error: distance of the best guess, with its standard error over the devices. One in twenty: the same for the
twentieth of the devices that the server expects to know best. Places left: equally likely cells its belief is
worth.</p>
<h2>Cost of features and bandwidth</h2>{html_table(_COSTS_HEAD, _cost_rows(report))}
<p>Error of a server that knows {html.escape(settings["known prior"])}, and places left in brackets; without any report
its error is {_number(report.blind_m)} {unit}. Cell by cell: it holds each phase against each cell by itself, and does
not see where the features cross. Second set: the frequencies were drawn anew for a second answer. On its way:
{settings["answers"]} reports, steps of {_number(settings["step_m"])} {unit}. Devices answer: by the default policy
with so many features (Lemma 3).</p>
<h2>Settings</h2>{html_table(("setting", "value"), settings.items())}"""
    return html_page(
        "How well devices that send random Fourier features are hidden", body, NOT_PRIVATE
    ).decode()
