"""Pictures and tables of coverage by sums: the plane of errors beside every privatizer, and the curve over units."""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Final

from mapveil.evaluation.collection_trials import PILOT_ONLY, PUBLIC_ONLY
from mapveil.evaluation.coverage_trials import (
    CURVE_EPSILONS,
    CURVE_SUMS,
    LATER,
    PLACES,
    CurvePoint,
    units_needed,
)
from mapveil.evaluation.html_report import (
    Curve,
    Panel,
    curves_figure,
    figure_grid,
    legend_below,
)
from mapveil.evaluation.signal_tradeoff import TradeoffPoint
from mapveil.evaluation.way_styles import label_ends, way_styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NONE_OF_THOSE: Final = "none of those tried"
"""Words of a table where no number of units that was tried is enough."""

_JUDGED: Final = {"places_db": PLACES, "later_db": LATER}
_FRAME: Final = 2.5  # errors of the pilot's map that the frame holds: a privatizer's error has no upper end
_MARGIN: Final = 16  # characters
_DASHES: Final = {PILOT_ONLY: "--", PUBLIC_ONLY: ":"}


def error_plane(points: Sequence[TradeoffPoint]) -> Figure:
    """Draw every way to collect by the strongest adversary's error and the map's, with its 95 % interval.

    The best is at the bottom right. Intervals may leave the frame; a mean that does is marked at its edge.
    """
    shown = {key: words for key, words in _JUDGED.items() if any(_finite(point, key) for point in points)}
    names = [name for name in dict.fromkeys(point.privatizer for point in points) if name not in _DASHES]
    styles = way_styles(names)
    figure, every = figure_grid(len(shown), 5.6, 4.6, 1.1)
    for axes, (key, words) in zip(every, shown.items(), strict=True):
        for name in names:
            own = _in_order(points, name, key)
            axes.plot(
                [one.means["p2_m"] for one in own], [one.means[key] for one in own], label=name, markersize=5,
                linewidth=1.2, **styles[name],
            )  # fmt: skip
            spread = [one for one in own if math.isfinite(one.lows[key]) and math.isfinite(one.highs[key])]
            ends = ([one.lows[key] for one in spread], [one.highs[key] for one in spread])
            axes.vlines(
                [one.means["p2_m"] for one in spread],
                *ends,
                colors=styles[name]["color"],
                linewidth=0.8,
                alpha=0.45,
            )
        _references(axes, points, key)
        for name in names:
            if styles[name]["linestyle"]:
                label_ends(axes, ("p2_m", key), _in_order(points, name, key), styles[name]["color"])
        axes.set_title(f"{words}{trials_words(points)}", fontsize=10)
        axes.set_xlabel("error of the strongest adversary's location, m")
        axes.set_ylabel("error of the map, dB")
        axes.grid(visible=True, alpha=0.25)
    legend_below(figure, names)
    return figure


def _in_order(points: Sequence[TradeoffPoint], name: str, key: str) -> list[TradeoffPoint]:
    own = (one for one in points if one.privatizer == name and _finite(one, key))
    return sorted(own, key=lambda one: one.value)


def trials_words(points: Sequence[TradeoffPoint]) -> str:
    """The remark of a picture without intervals; nothing where there are some."""
    return " (one trial: no intervals)" if points and all(point.trials == 1 for point in points) else ""


def _references(axes: Axes, points: Sequence[TradeoffPoint], key: str) -> None:
    """The maps for which nothing is collected as lines, and a frame around what is of use beside them."""
    flat = {
        one.privatizer: one.means[key] for one in points if one.privatizer in _DASHES and _finite(one, key)
    }
    highest = max(flat, key=lambda name: flat[name], default="")
    for name, level in flat.items():
        axes.axhline(level, color="#333333", linewidth=0.9, linestyle=_DASHES[name])
        # In the margin, where no marker is.
        words, va = "\n".join(wrap(name, _MARGIN)), "bottom" if name == highest else "top"
        axes.annotate(
            words, (1.01, level), xycoords=("axes fraction", "data"), va=va, fontsize=7, color="#333333"
        )
    levels = [one.means[key] for one in points if _finite(one, key)]
    if flat and levels:
        top = min(max(levels), _FRAME * min(flat.values()))
        low = min(levels)
        axes.set_ylim(low - 0.08 * (top - low) - 0.05, top + 0.08 * (top - low) + 0.05)


def _finite(point: TradeoffPoint, key: str) -> bool:
    return math.isfinite(point.means["p2_m"]) and math.isfinite(point.means[key])


def curve_figure(curve: Sequence[CurvePoint], unit: str, judged: str = f"gain {LATER}") -> Figure:
    """Draw the gain over not collecting, judged there, over the number of units, a line for each epsilon."""
    curves = []
    for epsilon in CURVE_EPSILONS:
        own = [one for one in curve if one.epsilon == epsilon]
        column = [[getattr(one, name) for one in own] for name in ("units", "gain_db", "low", "high")]
        curves.append(Curve(f"ε = {epsilon:g}", *column))
    ticks = sorted({one.units for one in curve})
    alone = "" if any(math.isfinite(one.low + one.high) for one in curve) else "\n(one trial: no intervals)"
    title = f"{CURVE_SUMS}: {judged}, dB{alone}"
    figure = curves_figure([Panel(title, f"{unit}s", curves, log_x=True, ticks=ticks)])
    (axes,) = figure.axes
    axes.axhline(0.0, color="#333333", linewidth=0.9, linestyle="--")
    axes.annotate("not\ncollecting", (1.01, 0.0), xycoords=("axes fraction", "data"), va="center", fontsize=7)
    low, high = axes.get_ylim()
    room = 0.05 * (max(high, 0.0) - min(low, 0.0))
    axes.set_ylim(low if low < 0 else -room, high if high > 0 else room)
    axes.set_ylabel("gain over not collecting, dB")
    return figure


def curve_rows(curve: Sequence[CurvePoint], unit: str) -> tuple[list[str], list[list[str]]]:
    """Header and rows for people: the gain over not collecting, dB, by number of units and epsilon."""
    found = {(one.units, one.epsilon): one for one in curve}
    rows = [
        [f"{units:,}", *(_cell(found.get((units, epsilon))) for epsilon in CURVE_EPSILONS)]
        for units in sorted({one.units for one in curve})
    ]
    needed = units_needed(curve).values()
    last = [
        [words, *(NONE_OF_THOSE if count is None else f"{count:,}" for count in counts)]
        for words, counts in (
            ("its interval above 0 from", [each.over_nothing for each in needed]),
            ("that over the pilot's map from", [each.over_pilot for each in needed]),
        )
    ]
    header = [f"{unit}s", *(f"gain at ε = {epsilon:g}, dB" for epsilon in CURVE_EPSILONS)]
    return header, [*rows, *last]


def _cell(point: CurvePoint | None) -> str:
    if point is None:
        return ""
    spread = f" ({point.low:.2f} to {point.high:.2f})" if math.isfinite(point.low + point.high) else ""
    return f"{point.gain_db:.2f}{spread}"
