"""The trade-off as files: a table of points, curves in the trade-off plane and over the parameters, one page."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mapveil.attacks.signal_score import SignalAttack
from mapveil.evaluation.collection_trials import PILOT_ONLY, PUBLIC_ONLY
from mapveil.evaluation.coverage_report import curve_figure, curve_rows, error_plane, trials_words
from mapveil.evaluation.coverage_trials import CURVE_SUMS, LATER
from mapveil.evaluation.html_report import (
    COLOURS,
    Curve,
    Panel,
    curves_figure,
    figure_grid,
    legend_below,
    not_private_png,
    settings_list,
    write_atomically,
    write_folder,
)
from mapveil.evaluation.signal_choice import Choice, unbounded_verdict
from mapveil.evaluation.signal_tradeoff import KNOBS, Tradeoff, TradeoffPoint, epsilon_words
from mapveil.evaluation.signal_trials import trial_record
from mapveil.evaluation.way_styles import label_ends, way_styles
from mapveil.pictures.report_page import NOT_PRIVATE, html_page, html_picture, html_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Plane(NamedTuple):
    """Two measures against each other: the best is at the top right."""

    x: str
    y: str
    x_label: str
    y_label: str


GAIN: Final = Plane(
    "p2_m", "gain_db", "error of the strongest adversary's location, m", "gain over not collecting, dB"
)
"""The plane of a map's gain: held-out places and later days against the strongest adversary."""

PLANES: Final[Mapping[str, Plane]] = {
    "P-U": Plane("p", "u", "privacy P against the strongest", "utility U"),
    "P1-U1": Plane("p1", "u1", "privacy of the user P1", "utility U1 (minus distortion)"),
    "P1-U2": Plane("p1", "u2", "privacy of the user P1", "utility U2 (minus map error)"),
    "P2-U1": Plane("p2", "u1", "privacy of the place P2", "utility U1 (minus distortion)"),
    "P2-U2": Plane("p2", "u2", "privacy of the place P2", "utility U2 (minus map error)"),
}
"""Planes of the paper's Figures 10 and 11."""

_HEADER: Final = (
    *("gain dB", "places dB", "later dB", "P2 m", "P1", "worst ε"),
    *("U", "distortion", "map error", "RMSE dBm", "P", "P2"),
)
_LINEAR: Final = (
    -12.0
)  # least utility of a linear axis; others are logarithmic below -1: utility has no lower end


def plane_figure(panels: Sequence[tuple[str, Plane, Sequence[TradeoffPoint]]]) -> Figure:
    """Draw privatizers in trade-off planes (title, plane, points), with 95 % intervals both ways."""
    names = list(dict.fromkeys(point.privatizer for _, _, points in panels for point in points))
    styles = way_styles(names)
    figure, every = figure_grid(len(panels), 5.2, 3.9, 0.7)
    for axes, (title, plane, points) in zip(every, panels, strict=True):
        lines = {}
        for name in names:
            own = sorted((point for point in points if point.privatizer == name), key=lambda one: one.value)
            if not own:
                continue
            own = [point for point in own if math.isfinite(point.means[plane.x] + point.means[plane.y])]
            x, y = ([point.means[each] for point in own] for each in (plane.x, plane.y))
            lines[name] = own
            xerr, yerr = (_finite_spread(own, each) for each in (plane.x, plane.y))
            axes.errorbar(
                x, y, xerr=xerr, yerr=yerr, markersize=4.5, linewidth=1.3, elinewidth=0.7, label=name,
                **styles[name],
            )  # fmt: skip
        drawn = [one.means[plane.y] for own in lines.values() for one in own]
        if drawn and min(drawn) < _LINEAR:
            axes.set_yscale("symlog", linthresh=1.0)
            axes.yaxis.set_major_formatter("{x:g}")
            axes.set_ylim(1.5 * min(drawn), max(0.3, 1.2 * max(drawn)))
        elif drawn:
            low, high = min(drawn), max([*drawn, 0.0])
            axes.set_ylim(low - 0.06 * (0.1 + high - low), max(0.1, high + 0.05 * (high - low)))
        for name, own in lines.items():
            if styles[name]["linestyle"]:
                label_ends(axes, (plane.x, plane.y), own, styles[name]["color"])
        axes.set_title(f"{title}{trials_words(points)}", fontsize=10)
        axes.set_xlabel(plane.x_label)
        axes.set_ylabel(plane.y_label)
        axes.grid(visible=True, alpha=0.25)
    legend_below(figure, names)
    return figure


def _finite_spread(points: Sequence[TradeoffPoint], key: str) -> list[list[float]] | None:
    """Errors below and above, or None where a single trial has no interval."""
    below = [point.means[key] - point.lows[key] for point in points]
    above = [point.highs[key] - point.means[key] for point in points]
    if not all(math.isfinite(each) for each in (*below, *above)):
        return None
    return [[max(each, 0.0) for each in side] for side in (below, above)]


def parameter_figure(
    points: Sequence[TradeoffPoint],
    measures: Mapping[str, Callable[[Mapping[str, float]], float]],
    y_label: str = "",
) -> Figure:
    """Draw measures, functions of a point's means by label, over each privatizer's own parameter."""
    panels = []
    for name in dict.fromkeys(point.privatizer for point in points):
        own = sorted((point for point in points if point.privatizer == name), key=lambda one: one.value)
        values = [point.value for point in own]
        curves = []
        for label, of in measures.items():
            ends = [sorted((of(point.lows), of(point.highs))) for point in own]
            curves.append(
                Curve(label, values, [of(point.means) for point in own], *map(list, zip(*ends, strict=True)))
            )
        log = any(knob.log for knob in KNOBS.values() if knob.name == own[0].knob)
        # Distortion may reach hundreds where privacy lies between 0 and 2; below, numbers are read off more easily.
        drawn = [value for curve in curves for value in curve.mean]
        wide = min(drawn) > 0 and max(drawn) > 30 * min(drawn)
        panels.append(Panel(name, own[0].knob, curves, log_x=log, log_y=wide, y_label=y_label))
    return curves_figure(panels)


def _numbers(means: Mapping[str, float]) -> list[str]:
    """The columns of :data:`_HEADER`; costs are minus utilities, and what is not defined is empty."""
    metres, values = means["p2_m"], [means[key] for key in ("p1", "epsilon")]
    first = [means[key] for key in ("gain_db", "places_db", "later_db")]
    paper = [means["u"], -means["u1"], -means["u2"], *(means[key] for key in ("rmse_dbm", "p", "p2"))]
    return [*map(_figure, first), f"{metres:.0f}", *map(_figure, (*values, *paper))]


def _figure(value: float) -> str:
    if math.isnan(value):
        return ""
    return "none" if value == math.inf else f"{value:.3g}"


def points_rows(points: Sequence[TradeoffPoint]) -> tuple[list[str], list[list[str]]]:
    """Header and rows for people: privacy against the strongest adversary, and its cost."""
    rows = [
        [point.privatizer, f"{point.knob} {point.value:g}" if point.knob else "", *_numbers(point.means)]
        for point in points
    ]
    return ["privatizer", "parameter", *_HEADER], rows


def choices_rows(
    choices: Sequence[Choice], points: Sequence[TradeoffPoint]
) -> tuple[list[str], list[list[str]]]:
    """Header and rows for people: each privatizer's chosen parameter, and the measures expected there.

    The maps for which nothing is collected, of the points, come last: those that a choice must be better than.
    """
    rows = []
    for choice in choices:
        if choice.value is None:
            words = "no gain" if choice.keeps else "constraints not kept"
            rows.append([choice.privatizer, words, *[""] * len(_HEADER)])
        else:
            setting = f"{choice.knob}={choice.value:.3g}"
            rows.append([choice.privatizer, setting, *_numbers(choice.expected)])
    nothing = [point for point in points if point.privatizer in (PILOT_ONLY, PUBLIC_ONLY)]
    rows += [[point.privatizer, "", *_numbers(point.means)] for point in nothing]
    return ["privatizer", "set", *_HEADER], rows


def write_tradeoff(measured: Tradeoff, path: Path) -> list[Path]:
    """Write the plane of errors (.png), it with curve and tables (.html), or all of them to a folder; the paths.

    A folder holds ``points.csv``, ``trials.csv``, ``curve.csv``, ``plane.png``, ``curve.png``, ``tradeoff.png``,
    ``parameters.png`` and ``index.html``.
    """
    plane = not_private_png(error_plane(measured.points))
    if path.suffix.lower() == ".png":
        return [write_atomically(path, plane)]
    unit = str(measured.settings.get("unit of sums", "unit"))
    pictures, curve_body = {"plane": plane}, ""
    if measured.curve:
        judged = str(measured.settings.get("curve of sums", f"gain {LATER}"))
        pictures["curve"] = not_private_png(curve_figure(measured.curve, unit, judged))
        curve_body = html_picture(
            pictures["curve"],
            f"{CURVE_SUMS}: where a curve is above the dashed line, not collecting, the phones' sums help.",
        ) + html_table(*curve_rows(measured.curve, unit))
    title = "Privacy and utility of privatized measurements"
    body = [
        settings_list(measured.settings),
        html_picture(
            plane,
            "Bottom right is best: an adversary that is far off, a map that is not. Bars are 95 % intervals of means "
            "over the trials (one trial has none); what a bar holds is not told from it.",
        ),
        curve_body,
    ]
    said = (unbounded_verdict(measured.points), epsilon_words(unit))
    points = html_table(*points_rows(measured.points)) + "".join(
        f"<p>{html.escape(each)}</p>\n" for each in said
    )
    if path.suffix.lower() == ".html":
        return [write_atomically(path, html_page(title, "".join([*body, points]), NOT_PRIVATE))]
    shown = {"gain": GAIN, **{name: PLANES[name] for name in ("P-U", "P2-U1")}}
    paper = not_private_png(plane_figure([(name, each, measured.points) for name, each in shown.items()]))
    tuned = [point for point in measured.points if point.privatizer in KNOBS]
    measures = {
        "distortion": lambda means: -means["u1"],
        "P against the strongest": lambda means: means["p"],
    }
    knobs = not_private_png(parameter_figure(tuned, measures, "deviations (P: no unit)"))
    body += [
        html_picture(paper, "Top right is best. Bars are 95 % intervals of the mean over the trials."),
        html_picture(knobs, "To choose a parameter under a constraint: distortion and privacy over it."),
        points,
    ]
    records = {
        "points": [point.to_dict() for point in measured.points],
        "trials": [trial_record(trial) for trial in measured.trials],
        "curve": [point._asdict() for point in measured.curve],
    }
    tables = {
        name: (list(rows[0]) if rows else [], [list(row.values()) for row in rows])
        for name, rows in records.items()
    }
    return write_folder(
        path, title, {**pictures, "tradeoff": paper, "parameters": knobs}, tables, body, NOT_PRIVATE
    )


def write_attack(attack: SignalAttack, path: Path) -> None:
    """Write an attack as a page (.html), a picture (.png) or a record (.json)."""
    if path.suffix.lower() == ".json":
        write_atomically(path, json.dumps(attack.to_dict(), indent=2).encode())
        return
    picture = not_private_png(attack_figure(attack))
    if path.suffix.lower() == ".html":
        body = html_picture(picture, "The strongest is orange; dashed is a guess that sees no measurement.")
        title = "What adversaries learn from privatized measurements"
        picture = html_page(title, body + html_table(*attack_rows(attack)), NOT_PRIVATE)
    write_atomically(path, picture)


def attack_figure(attack: SignalAttack) -> Figure:
    """Draw the user and location error of every adversary, beside a guess that sees no measurement."""
    figure, every = figure_grid(2, 4.75, 0.45 * len(attack.scores) + 1.9)
    shown = [score for score in attack.scores if score.adversary != "blind"]
    blind = [score for score in attack.scores if score.adversary == "blind"]
    labels = [
        score.adversary if score.trained_on == "own" else f"{score.adversary}, {score.trained_on}"
        for score in shown
    ]
    paper = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}  # over the dashed line
    measures = {
        "p1": "fraction of the reports whose user it gets wrong",
        "p2_m": "mean distance of its location from the true one, m",
    }
    for axes, (measure, label) in zip(every, measures.items(), strict=True):
        values = [float(getattr(score, measure)) for score in shown]
        least = min(values, default=0.0)
        axes.barh(labels, values, color=[COLOURS[1] if value == least else COLOURS[0] for value in values])
        for row, value in enumerate(values):
            at: dict[str, Any] = {"xytext": (4, 0), "textcoords": "offset points", "va": "center"}
            axes.annotate(f"{value:.3g}", (value, row), fontsize=8, zorder=3, bbox=paper, **at)
        if blind:
            axes.axvline(float(getattr(blind[0], measure)), color="black", linestyle="--", linewidth=1)
        reach = max([*values, *(float(getattr(score, measure)) for score in blind)], default=1.0)
        axes.set_xlim(0, 1.15 * reach or 1.0)
        axes.set_xlabel(label, fontsize=9)
        axes.invert_yaxis()
        axes.tick_params(labelsize=8)
    figure.suptitle(
        "Adversaries (the strongest in orange; dashed: a guess that sees no measurement)", fontsize=10
    )
    return figure


def attack_rows(attack: SignalAttack) -> tuple[list[str], list[list[str]]]:
    """Header and rows of adversaries for people; the strongest is marked."""
    header = ["adversary", "trained on", "P", "user error P1", "cross-entropy", "place error P2", "metres"]
    header += ["user nats", "place nats", "runs"]
    rows = []
    for score in attack.scores:
        mark = "*" if score == attack.strongest else ""
        numbers = [score.p, score.p1, score.p1_cross_entropy, score.p2]
        cells = [f"{value:.3g}" for value in numbers]
        found = ["" if each is None else f"{each:.3g}" for each in (score.user_nats, score.place_nats)]
        name, metres = f"{mark}{score.adversary}", f"{score.p2_m:.0f}"
        rows.append([name, score.trained_on, *cells, metres, *found, f"{score.runs}"])
    return header, rows
