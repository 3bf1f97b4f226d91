"""Colours, markers and labels of the ways to collect, the same in every picture of a trade-off."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from mapveil.evaluation.collection_trials import PILOT_ONLY, PUBLIC_ONLY, RAW
from mapveil.evaluation.coverage_trials import SUMS
from mapveil.evaluation.html_report import COLOURS, MARKERS
from mapveil.evaluation.signal_tradeoff import KNOBS, TradeoffPoint
from mapveil_client.errors import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SUMS_SHADES: Final = ("#000000", "#4d4d4d", "#8c8c8c", "#7b2fbe")  # one family, the local model apart
_REFERENCES: Final = {PILOT_ONLY: "^", PUBLIC_ONLY: "v", RAW: "x"}
_HUES: Final = 6  # of COLOURS; the others are greys
_SMALL: Final = 7  # points, of a label


def way_styles(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The line style of each way to collect; a known one's does not depend on which others there are."""
    styles: dict[str, dict[str, Any]] = {}
    privatizers = list(KNOBS)
    for name in names:
        if name in SUMS:
            at = list(SUMS).index(name)
            line = "-" if at == len(SUMS) - 1 else ""
            styles[name] = {"color": _SUMS_SHADES[at], "marker": "DsP*"[at], "linestyle": line}
        elif name in _REFERENCES:
            # On top: several ways may stand where the pilot's map does.
            styles[name] = {
                "color": COLOURS[_HUES],
                "marker": _REFERENCES[name],
                "linestyle": "",
                "zorder": 5,
            }
        else:
            if name not in privatizers:
                privatizers.append(name)
            at = privatizers.index(name)
            marker = MARKERS[(at + at // _HUES) % len(MARKERS)]  # no two share colour and marker
            styles[name] = {"color": COLOURS[at % _HUES], "marker": marker, "linestyle": "-"}
    return styles


def label_ends(axes: Axes, key: tuple[str, str], points: Sequence[TradeoffPoint], colour: str) -> None:
    """Name the parameter at both ends of a line of two measures, and mark points above the frame, which is set."""
    effects = require("matplotlib.patheffects", "viz")
    style: dict[str, Any] = {"fontsize": _SMALL, "color": colour, "textcoords": "offset points", "zorder": 6}
    style["path_effects"] = [effects.withStroke(linewidth=2, foreground="white")]
    (left, right), high = axes.get_xlim(), axes.get_ylim()[1]
    for at, point in enumerate(points):
        x, y = (point.means[each] for each in key)
        above, words = y > high, f"{point.knob} {point.value:g}"
        if above:
            axes.plot(x, high, marker="^", color=colour, clip_on=False, zorder=6)
            words += f": {y:.3g}"
        if above or (point.knob and len(points) > 1 and at in (0, len(points) - 1)):
            outer = x > (left + right) / 2
            place = (-6 if outer else 6, -10 if above else 4)
            axes.annotate(words, (x, min(y, high)), place, ha="right" if outer else "left", **style)
