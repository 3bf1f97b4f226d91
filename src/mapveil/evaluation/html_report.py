"""Reports: CSV tables, curves with 95 % confidence bands as PNG, one self-contained HTML page.

Every file appears whole or not at all: it is written beside its place and renamed into it.
"""

from __future__ import annotations

import html
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mapveil.evaluation.comparison import Comparison, Row, Summary, table_csv
from mapveil.evaluation.scoring import TITLES, higher_is_better
from mapveil.formats.atomic import atomic_path
from mapveil.pictures.report_page import (
    NOT_PRIVATE,
    html_page,
    html_picture,
    html_table,
    mark_not_private,
)
from mapveil_client.errors import InputError, require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Okabe and Ito's colours, told apart by every eye; the dash pattern repeats the distinction in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6b6b6b", "#000000", "#8c564b")
_LEGEND_COLUMN_IN = 1.9  # of the longest label, "coverage by sums, secure sums", with its line
_DASHES = ("-", "--", "-.", ":")
MARKERS = "osD^vPX<>"


class Curve(NamedTuple):
    """One line of a panel with its confidence band."""

    label: str
    x: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


class Panel(NamedTuple):
    """One set of axes."""

    title: str
    x_label: str
    curves: Sequence[Curve]
    log_x: bool = False
    log_y: bool = False
    ticks: Sequence[float] | None = None  # of the x axis; every x of the curves by default
    y_label: str = ""


def write_atomically(path: Path, content: bytes) -> Path:
    """Write a file so that it appears whole or not at all; its folder is created."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{path.parent}: the folder cannot be created ({error.strerror or error})"
        ) from error
    with atomic_path(path) as place:
        place.write_bytes(content)
    return path


def png_bytes(figure: Figure, dpi: int = 100) -> bytes:
    """A figure as a PNG of at most 255 colours: a third of the size, and the same bytes every time."""
    image = require("PIL.Image", "viz")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    buffer.seek(0)
    packed = io.BytesIO()
    picture = image.open(buffer).convert("RGB")
    picture.quantize(255, dither=image.Dither.NONE).save(packed, format="png", optimize=True)
    return packed.getvalue()


def not_private_png(figure: Figure) -> bytes:
    """A figure made from the true data, marked so."""
    mark_not_private(figure)
    return png_bytes(figure)


def figure_grid(
    panels: int, width: float, height: float, extra: float = 0.0, columns: int = 2
) -> tuple[Figure, list[Axes]]:
    """A figure of panels in rows, each of a size in inches, with extra height for a legend below."""
    across = min(columns, panels)
    down = -(-panels // max(across, 1))
    figure_module = require("matplotlib.figure", "viz")
    size = (width * across, height * down + extra)
    figure: Figure = figure_module.Figure(figsize=size, layout="constrained")
    return figure, [figure.add_subplot(down, across, place + 1) for place in range(panels)]


def legend_below(figure: Figure, labels: Sequence[str]) -> None:
    """One legend for all axes of a figure, below them."""
    if not figure.axes:
        return
    found = [axes.get_legend_handles_labels() for axes in reversed(figure.axes)]
    named = {name: handle for handles, names in found for handle, name in zip(handles, names, strict=True)}
    handles = [named[label] for label in labels]
    ncols = max(1, min(4, len(labels), int(figure.get_figwidth() // _LEGEND_COLUMN_IN)))
    figure.legend(handles, labels, loc="outside lower center", ncols=ncols, fontsize=8)


def curves_figure(panels: Sequence[Panel], title: str = "") -> Figure:
    """Draw panels side by side, two in a row, with one legend below.

    A curve keeps its colour through all panels. The axes frame the means; a band may leave them.
    """
    labels = list(dict.fromkeys(curve.label for panel in panels for curve in panel.curves))
    figure, every = figure_grid(len(panels), 5.2, 3.5, 0.9)
    for axes, panel in zip(every, panels, strict=True):
        for curve in panel.curves:
            index = labels.index(curve.label)
            colour, dash = COLOURS[index % len(COLOURS)], _DASHES[index // len(COLOURS) % len(_DASHES)]
            axes.plot(
                curve.x, curve.mean, color=colour, linestyle=dash, marker=MARKERS[index % len(MARKERS)],
                markersize=4, linewidth=1.5, label=curve.label,
            )  # fmt: skip
            if np.isfinite(curve.low).all() and np.isfinite(curve.high).all():
                if len(curve.x) > 1:
                    axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.18, linewidth=0)
                else:
                    axes.vlines(curve.x, curve.low, curve.high, color=colour, linewidth=1.5)
        ticks = sorted(panel.ticks or {x for curve in panel.curves for x in curve.x})
        if panel.log_x and ticks and ticks[0] > 0:
            axes.set_xscale("log")
        _frame_means(axes, panel)
        axes.set_xticks(ticks, [f"{x:g}" for x in ticks])
        axes.minorticks_off()
        axes.set_title(panel.title, fontsize=10)
        axes.set_xlabel(panel.x_label)
        axes.set_ylabel(panel.y_label, fontsize=9)
        axes.grid(visible=True, alpha=0.25)
    legend_below(figure, labels)
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def _frame_means(axes: Axes, panel: Panel) -> None:
    means = np.concatenate([np.asarray(curve.mean, dtype=np.float64) for curve in panel.curves])
    means = means[np.isfinite(means)]
    if means.size == 0:
        return
    low, high = float(means.min()), float(means.max())
    if panel.log_y and low > 0:
        axes.set_yscale("log")
        axes.set_ylim(low / 1.4, high * 1.4)
    elif high > low:
        axes.set_ylim(low - 0.08 * (high - low), high + 0.08 * (high - low))


def panels_by_epsilon(summaries: Iterable[Summary]) -> list[Panel]:
    """One panel per metric, one curve per method, over epsilon."""
    kept = list(summaries)
    panels = []
    for metric in dict.fromkeys(item.metric for item in kept):
        curves = []
        for method in dict.fromkeys(item.method for item in kept):
            points = sorted(item for item in kept if item.metric == metric and item.method == method)
            columns = zip(*((each.epsilon, each.mean, each.low, each.high) for each in points), strict=True)
            curves.append(Curve(method, *map(list, columns)))
        panels.append(metric_panel(metric, "epsilon", curves))
    return panels


def metric_panel(metric: str, x_label: str, curves: Sequence[Curve]) -> Panel:
    """A panel of one metric; what falls towards zero as maps become alike is drawn on a log scale."""
    log_x = x_label != "users"
    return Panel(metric_title(metric), x_label, curves, log_x=log_x, log_y=not higher_is_better(metric))


def metric_title(metric: str) -> str:
    """A metric's name with the direction that is better."""
    return f"{TITLES.get(metric, metric)} ({'higher' if higher_is_better(metric) else 'lower'} is better)"


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned for a terminal: the first to the left, numbers to the right."""
    lines = [list(header), *[list(row) for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def summary_table(summaries: Sequence[Summary], metric: str) -> tuple[list[str], list[list[str]]]:
    """Methods down, epsilons across, mean and half width of the 95 % interval; the best is marked."""
    chosen = [item for item in summaries if item.metric == metric]
    epsilons = sorted({item.epsilon for item in chosen})
    sign = -1.0 if higher_is_better(metric) else 1.0
    best = {
        epsilon: min((sign * item.mean for item in chosen if item.epsilon == epsilon), default=np.nan)
        for epsilon in epsilons
    }
    rows = []
    for method in dict.fromkeys(item.method for item in chosen):
        row = [method]
        for epsilon in epsilons:
            found = [item for item in chosen if item.method == method and item.epsilon == epsilon]
            if not found:
                row.append("")
                continue
            item = found[0]
            spread = f" ± {item.high - item.mean:.2g}" if np.isfinite(item.high) else ""
            mark = "*" if sign * item.mean == best[epsilon] else ""
            row.append(f"{mark}{item.mean:.4g}{spread}")
        rows.append(row)
    return ["method", *(f"ε = {epsilon:g}" for epsilon in epsilons)], rows


def settings_list(settings: Mapping[str, object]) -> str:
    """Settings as a list of terms."""
    items = "".join(
        f"<li>{html.escape(str(key))}: <code>{html.escape(str(value))}</code></li>"
        for key, value in settings.items()
    )
    return f"<ul>{items}</ul>\n"


def write_folder(
    folder: Path,
    title: str,
    pictures: Mapping[str, bytes],
    tables: Mapping[str, tuple[Sequence[str], Iterable[Sequence[object]]]],
    body: Sequence[str],
    warning: str = "",
) -> list[Path]:
    """Write tables (header, rows) as CSV, pictures as PNG, and ``index.html``; the paths written."""
    files = {f"{name}.csv": table_csv(*table).encode() for name, table in tables.items()}
    files |= {f"{name}.png": png for name, png in pictures.items()}
    files["index.html"] = html_page(title, "".join(body), warning)
    return [write_atomically(folder / name, content) for name, content in files.items()]


def write_comparison(comparison: Comparison, folder: Path) -> list[Path]:
    """Write ``rows.csv``, ``summary.csv``, ``curves.png`` and ``index.html``; the paths written."""
    summaries = comparison.summary()
    picture = not_private_png(curves_figure(panels_by_epsilon(summaries), comparison.title))
    times = {item.method: f"{item.seconds:.3g}" for item in summaries}
    body = [
        settings_list(comparison.settings),
        html_picture(picture, "Mean over the trials; the bands are 95 % confidence intervals of the mean."),
        *(
            f"<h2>{html.escape(metric_title(metric))}</h2>\n{html_table(*summary_table(summaries, metric))}"
            for metric in comparison.metrics
        ),
        "<h2>Seconds per release</h2>\n",
        html_table(["method", "seconds"], list(times.items())),
    ]
    tables = {"rows": (Row._fields, comparison.rows), "summary": (Summary._fields, summaries)}
    return write_folder(folder, comparison.title, {"curves": picture}, tables, body, NOT_PRIVATE)
