"""Performance against privacy, drawn: each setting of a method a labelled point, as in Figures 10 to 12 and 14."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from mapveil_client.arrays import FloatArray
from mapveil_client.errors import require
from reproductions.zong.sections import EXACT, NOISE, WAVES, Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INK: Final = {WAVES: "#0072B2", NOISE: "#D55E00", EXACT: "#009E73"}
_MARKS: Final = {WAVES: "o", NOISE: "s", EXACT: "*"}


class TradeOff(NamedTuple):
    """One set of axes."""

    title: str
    x_label: str
    points: Mapping[str, Sequence[Point]]  # by method
    best_privacy: float  # of an answer that says nothing


class Line(NamedTuple):
    """A curve of a plain plot."""

    label: str
    x: Sequence[float] | FloatArray
    y: Sequence[float] | FloatArray
    colour: str
    dashed: bool = False


def trade_off_figure(panels: Sequence[TradeOff], y_label: str, *, columns: int = 3) -> Figure:
    """Draw panels, three in a row by default; higher is a better map, further right is more private.

    Parameters
    ----------
    panels : sequence of TradeOff
        Their points are joined in the order of their levels, and named by them.
    y_label : str
        What performance is.
    columns : int
        Panels in a row, at most.
    """
    figure, grid = _canvas(len(panels), 4.3, 3.4, columns)
    for position, panel in enumerate(panels):
        axes = figure.add_subplot(*grid, position + 1)
        axes.axvline(panel.best_privacy, color="#6b6b6b", linestyle=":", label="0 features")
        for method, points in panel.points.items():
            ordered = sorted(points)
            x = [point.privacy for point in ordered]
            y = [point.performance for point in ordered]
            axes.plot(
                x,
                y,
                color=_INK[method],
                marker=_MARKS[method],
                markersize=9 if method == EXACT else 4,
                linestyle="none" if len(ordered) == 1 else "-",
                linewidth=1.2,
                label=method,
            )
            if method != EXACT:
                for at, height, point in zip(x, y, ordered, strict=True):
                    offset = (3, 3) if method == WAVES else (3, -9)
                    axes.annotate(
                        f"{point.level:g}",
                        (at, height),
                        xytext=offset,
                        textcoords="offset points",
                        fontsize=6.5,
                        color=_INK[method],
                    )
        axes.set_title(panel.title, fontsize=10)
        axes.set_xlabel(panel.x_label, fontsize=9)
        if position % grid[1] == 0:
            axes.set_ylabel(y_label, fontsize=9)
        axes.grid(visible=True, alpha=0.25)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9)
    return figure


def lines_figure(
    panels: Sequence[tuple[str, Sequence[Line]]], *, x_label: str, y_label: str, columns: int = 2
) -> Figure:
    """Draw plain curves, two panels in a row by default; a legend wherever the lines are others.

    Parameters
    ----------
    panels : sequence of (title, lines)
        What is drawn.
    x_label, y_label : str
        Of every panel.
    columns : int
        Panels in a row, at most.
    """
    figure, grid = _canvas(len(panels), 5.0, 3.2, columns)
    shown: list[str] = []
    for position, (title, lines) in enumerate(panels):
        axes = figure.add_subplot(*grid, position + 1)
        for line in lines:
            axes.plot(
                line.x,
                line.y,
                color=line.colour,
                linestyle="--" if line.dashed else "-",
                linewidth=1.4,
                marker="o" if len(line.x) < 20 else None,
                markersize=4,
                label=line.label,
            )
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(x_label, fontsize=9)
        axes.set_ylabel(y_label, fontsize=9)
        axes.grid(visible=True, alpha=0.25)
        if shown != (labels := [line.label for line in lines]):
            axes.legend(fontsize=8)
            shown = labels
    return figure


def _canvas(panels: int, width: float, height: float, columns: int = 3) -> tuple[Figure, tuple[int, int]]:
    across = min(columns, panels)
    down = -(-panels // across)
    figure_module = require("matplotlib.figure", "viz")
    figure: Figure = figure_module.Figure(figsize=(width * across, height * down + 0.5), layout="constrained")
    return figure, (down, across)
