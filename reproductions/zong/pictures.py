"""Performance against privacy, drawn: each setting of a method a labelled point, as in Figures 10 to 12 and 14."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from mapveil.evaluation.html_report import figure_grid
from mapveil_client.arrays import FloatArray
from reproductions.zong.sections import EXACT, NOISE, PROJECTION, Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INK: Final = {PROJECTION: "#0072B2", NOISE: "#D55E00", EXACT: "#009E73"}
_MARKS: Final = {PROJECTION: "o", NOISE: "s", EXACT: "*"}


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
    """Draw panels, at most ``columns`` in a row; higher is a better map, further right is more private.

    Points are joined in the order of their levels, and named by them.
    """
    figure, every = figure_grid(len(panels), 4.3, 3.4, 0.5, columns)
    for position, (axes, panel) in enumerate(zip(every, panels, strict=True)):
        axes.axvline(panel.best_privacy, color="#6b6b6b", linestyle=":", label="0 features")
        for method, points in panel.points.items():
            ordered = sorted(points)
            x = [point.privacy for point in ordered]
            y = [point.performance for point in ordered]
            style, size = "none" if len(ordered) == 1 else "-", 9 if method == EXACT else 4
            axes.plot(
                x, y, color=_INK[method], marker=_MARKS[method], markersize=size, linestyle=style, linewidth=1.2,
                label=method,
            )  # fmt: skip
            if method != EXACT:
                for at, height, point in zip(x, y, ordered, strict=True):
                    offset = (3, 3) if method == PROJECTION else (3, -9)
                    axes.annotate(
                        f"{point.level:g}", (at, height), xytext=offset, textcoords="offset points",
                        fontsize=6.5, color=_INK[method],
                    )  # fmt: skip
        axes.set_title(panel.title, fontsize=10)
        axes.set_xlabel(panel.x_label, fontsize=9)
        if position % columns == 0:
            axes.set_ylabel(y_label, fontsize=9)
        axes.grid(visible=True, alpha=0.25)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9)
    return figure


def lines_figure(
    panels: Sequence[tuple[str, Sequence[Line]]], *, x_label: str, y_label: str, columns: int = 2
) -> Figure:
    """Draw plain curves, at most ``columns`` panels in a row; a legend wherever the lines are others."""
    figure, every = figure_grid(len(panels), 5.0, 3.2, 0.5, columns)
    shown: list[str] = []
    for axes, (title, lines) in zip(every, panels, strict=True):
        for line in lines:
            style, mark = "--" if line.dashed else "-", "o" if len(line.x) < 20 else None
            axes.plot(
                line.x, line.y, color=line.colour, linestyle=style, linewidth=1.4, marker=mark, markersize=4,
                label=line.label,
            )  # fmt: skip
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(x_label, fontsize=9)
        axes.set_ylabel(y_label, fontsize=9)
        axes.grid(visible=True, alpha=0.25)
        if shown != (labels := [line.label for line in lines]):
            axes.legend(fontsize=8)
            shown = labels
    return figure
