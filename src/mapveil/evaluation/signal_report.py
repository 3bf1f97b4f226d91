"""The trade-off as files: a table of points, curves in the trade-off plane and over the parameters, one page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from mapveil.attacks.signal_score import SignalAttack
from mapveil.evaluation.comparison import NOT_FOR_RELEASE, table_csv
from mapveil.evaluation.report import (
    Curve,
    Panel,
    curves_figure,
    html_page,
    html_picture,
    html_table,
    png_bytes,
    settings_list,
    write_atomically,
)
from mapveil.evaluation.signal_tradeoff import KNOBS, TradeoffPoint
from mapveil.evaluation.signal_trials import SignalTrial, trial_record
from mapveil_client.errors import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6b6b6b")
_MARKERS: Final = "osD^vPX"


class Plane(NamedTuple):
    """Two measures against each other: the best is at the top right."""

    x: str
    y: str
    x_label: str
    y_label: str


PLANES: Final[Mapping[str, Plane]] = {
    "P-U": Plane("p", "u", "privacy P against the strongest", "utility U"),
    "P1-U1": Plane("p1", "u1", "privacy of the user P1", "utility U1 (minus distortion)"),
    "P1-U2": Plane("p1", "u2", "privacy of the user P1", "utility U2 (minus map error)"),
    "P2-U1": Plane("p2", "u1", "privacy of the place P2", "utility U1 (minus distortion)"),
    "P2-U2": Plane("p2", "u2", "privacy of the place P2", "utility U2 (minus map error)"),
}
"""Planes of the paper's Figures 10 and 11."""


def plane_figure(
    panels: Sequence[tuple[str, Plane, Sequence[TradeoffPoint]]], *, lowest_utility: float = -6.0
) -> Figure:
    """Privatizers in trade-off planes, with 95 % intervals both ways; one legend below.

    Parameters
    ----------
    panels : sequence of (title, Plane, points)
        Two in a row.
    lowest_utility : float
        Points below are left out of the frame: a utility has no lower end.
    """
    figure_module = require("matplotlib.figure", "viz")
    names = list(dict.fromkeys(point.privatizer for _, _, points in panels for point in points))
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure: Figure = figure_module.Figure(figsize=(5.2 * columns, 3.9 * rows + 0.7), layout="constrained")
    for at, (title, plane, points) in enumerate(panels):
        axes = figure.add_subplot(rows, columns, at + 1)
        for name in names:
            own = sorted((point for point in points if point.privatizer == name), key=lambda one: one.value)
            if not own:
                continue
            index = names.index(name)
            x, y = ([point.means[each] for point in own] for each in (plane.x, plane.y))
            spread = [
                [
                    [point.means[each] - point.lows[each], point.highs[each] - point.means[each]]
                    for point in own
                ]
                for each in (plane.x, plane.y)
            ]
            axes.errorbar(
                x,
                y,
                xerr=_finite_spread(spread[0]),
                yerr=_finite_spread(spread[1]),
                color=_COLOURS[index % len(_COLOURS)],
                marker=_MARKERS[index % len(_MARKERS)],
                markersize=4.5,
                linewidth=1.3,
                elinewidth=0.7,
                label=name,
            )
        drawn = [point.means[plane.y] for point in points if point.means[plane.y] >= lowest_utility]
        if drawn:
            low = min(drawn)
            axes.set_ylim(low - 0.06 * (0.1 - low), max(0.1, -0.03 * low))
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(plane.x_label)
        axes.set_ylabel(plane.y_label)
        axes.grid(visible=True, alpha=0.25)
    if figure.axes:
        found = [axes.get_legend_handles_labels() for axes in figure.axes]
        named = {
            label: handle for handles, labels in found for handle, label in zip(handles, labels, strict=True)
        }
        figure.legend(
            [named[name] for name in names],
            names,
            loc="outside lower center",
            ncols=min(4, len(names)),
            fontsize=8,
        )
    return figure


def _finite_spread(pairs: Sequence[Sequence[float]]) -> list[list[float]] | None:
    """Errors below and above, or None where a single trial has no interval."""
    if not all(math.isfinite(each) for pair in pairs for each in pair):
        return None
    return [[max(pair[side], 0.0) for pair in pairs] for side in (0, 1)]


def parameter_figure(
    points: Sequence[TradeoffPoint], measures: Mapping[str, Callable[[Mapping[str, float]], float]]
) -> Figure:
    """Measures over each privatizer's own parameter: one panel per privatizer, as a continuous lookup table.

    Parameters
    ----------
    points : sequence of TradeoffPoint
        Of one table.
    measures : mapping of str to callable
        By label, what is drawn of a point's means.
    """
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
        panels.append(Panel(name, own[0].knob, curves, log_x=log, log_y=wide))
    return curves_figure(panels)


def points_rows(points: Sequence[TradeoffPoint]) -> tuple[list[str], list[list[str]]]:
    """A table for people: what is left against the strongest adversary, and what it costs."""
    header = ["privatizer", "parameter", "U", "distortion", "map error", "RMSE dBm", "P", "P1", "P2", "P2 m"]
    rows = []
    for point in points:
        mean = point.means
        columns = [mean["u"], -mean["u1"], -mean["u2"], mean["rmse_dbm"], mean["p"], mean["p1"], mean["p2"]]
        setting = f"{point.knob} {point.value:g}" if point.knob else ""
        cells = [f"{value:.3g}" for value in columns]
        rows.append([point.privatizer, setting, *cells, f"{mean['p2_m']:.0f}"])
    return header, rows


def write_tradeoff(
    folder: Path,
    points: Sequence[TradeoffPoint],
    trials: Sequence[SignalTrial],
    settings: Mapping[str, object],
) -> list[Path]:
    """Write ``points.csv``, ``trials.csv``, ``tradeoff.png``, ``parameters.png`` and ``index.html``; the paths."""
    title = "Privacy and utility of rewritten measurements"
    plane = png_bytes(plane_figure([(name, PLANES[name], points) for name in ("P-U", "P2-U1")]))
    knobs = png_bytes(
        parameter_figure(
            points,
            {
                "distortion": lambda means: -means["u1"],
                "P against the strongest": lambda means: means["p"],
            },
        )
    )
    body = [
        settings_list(settings),
        html_picture(plane, "Top right is best. Bars are 95 % intervals of the mean over the trials."),
        html_picture(knobs, "To choose a parameter under a constraint: distortion and privacy over it."),
        html_table(*points_rows(points)),
    ]
    records = [point.to_dict() for point in points]
    kept = [trial_record(trial) for trial in trials]
    return [
        write_atomically(folder / "points.csv", _csv(records)),
        write_atomically(folder / "trials.csv", _csv(kept)),
        write_atomically(folder / "tradeoff.png", plane),
        write_atomically(folder / "parameters.png", knobs),
        write_atomically(folder / "index.html", html_page(title, "".join(body), NOT_FOR_RELEASE)),
    ]


def _csv(records: Sequence[Mapping[str, object]]) -> bytes:
    header = list(records[0]) if records else []
    return table_csv(header, ([record[key] for key in header] for record in records)).encode()


def attack_figure(attack: SignalAttack, title: str = "") -> Figure:
    """User and location error of every adversary, beside a guess that looks at nothing."""
    figure_module = require("matplotlib.figure", "viz")
    figure: Figure = figure_module.Figure(
        figsize=(9.5, 0.45 * len(attack.scores) + 1.9), layout="constrained"
    )
    shown = [score for score in attack.scores if score.adversary != "blind"]
    blind = [score for score in attack.scores if score.adversary == "blind"]
    labels = [
        score.adversary if score.trained_on == "own" else f"{score.adversary}, {score.trained_on}"
        for score in shown
    ]
    for at, (measure, label) in enumerate(
        (
            ("p1", "part of the users it gets wrong"),
            ("p2_m", "mean distance of its place from the true one, m"),
        )
    ):
        axes = figure.add_subplot(1, 2, at + 1)
        values = [float(getattr(score, measure)) for score in shown]
        least = min(values, default=0.0)
        axes.barh(labels, values, color=[_COLOURS[1] if value == least else _COLOURS[0] for value in values])
        for row, value in enumerate(values):
            axes.text(value, row, f" {value:.3g}", va="center", fontsize=8)
        if blind:
            axes.axvline(float(getattr(blind[0], measure)), color="black", linestyle="--", linewidth=1)
        reach = max([*values, *(float(getattr(score, measure)) for score in blind)], default=1.0)
        axes.set_xlim(0, 1.15 * reach or 1.0)
        axes.set_xlabel(label, fontsize=9)
        axes.invert_yaxis()
        axes.tick_params(labelsize=8)
    figure.suptitle(
        title or "Adversaries (the strongest in red; dashed: a guess without looking)", fontsize=10
    )
    return figure


def attack_rows(attack: SignalAttack) -> tuple[list[str], list[list[str]]]:
    """A table of adversaries for people; the strongest is marked."""
    header = [
        "adversary",
        "trained on",
        "P",
        "user error P1",
        "cross-entropy",
        "place error P2",
        "metres",
        "user nats",
        "place nats",
        "runs",
    ]
    rows = []
    for score in attack.scores:
        mark = "*" if score == attack.strongest else ""
        numbers = [score.p, score.p1, score.p1_cross_entropy, score.p2]
        cells = [f"{value:.3g}" for value in numbers]
        found = ["" if each is None else f"{each:.3g}" for each in (score.user_nats, score.place_nats)]
        name, metres = f"{mark}{score.adversary}", f"{score.p2_m:.0f}"
        rows.append([name, score.trained_on, *cells, metres, *found, f"{score.runs}"])
    return header, rows
