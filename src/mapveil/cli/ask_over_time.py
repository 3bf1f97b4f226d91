"""``mapveil ask --over-time``: the users of zones in every window of a series."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapveil.cli.console import MOST_LINES, Console, and_more, counted, save_all
from mapveil.cli.windows import windowed_map
from mapveil_client.errors import ParameterError

if TYPE_CHECKING:
    from mapveil.inference.zone_results import WindowTotals


def answer_over_time(
    console: Console,
    source: str,
    zones: str,
    read: dict[str, Any],
    alpha: float,
    others: Mapping[str, object],
    outputs: tuple[Path, ...],
) -> None:
    """Ask every window, save and print; ``others`` are options that have no meaning here, by their names."""
    from mapveil.analysis.zone_series import totals_over_time
    from mapveil.formats.zone_table import write_zones
    from mapveil.geo.zones import Zones
    from mapveil.inference.zone_results import placed_notes
    from mapveil.maps.counting import counting_note
    from mapveil.maps.series_map import SeriesMap
    from mapveil.pictures.zone_pictures import check_panels, write_totals_page, write_totals_png

    for name, value in others.items():
        if value is not None:
            raise ParameterError(f"{name} must be left out with --over-time, which asks every window")
    series = windowed_map(source, None)
    if not isinstance(series, SeriesMap):
        raise ParameterError(f"--over-time: {source} is one map, not a series; leave it out")
    asked = Zones.read(zones, **read)
    if any(path.suffix.lower() in (".png", ".html") for path in outputs):
        check_panels(len(asked))
    with console.progress() as progress:
        progress("totals", 0.0)
        found = totals_over_time(series, asked, alpha=alpha)
        progress("totals", 1.0)
        question = {"confidence": 100 * (1 - alpha), "cost": "none", "zones": len(found.zones)}
        about = {"question": question, "map": series.metadata()}

        def save(path: Path) -> None:
            if path.suffix.lower() == ".png":
                write_totals_png(found, series, path)
            elif path.suffix.lower() == ".html":
                write_totals_page(found, series, path)
            else:
                write_zones(found.zones, found.columns(), about, path)

        save_all(outputs, save, progress)
    for note in (*series.guarantee.promise.warnings, *found.zones.notes, *placed_notes(found)):
        console.warn(note)
    zones_asked, windows = counted(len(found.zones), "zone"), counted(len(series), "window")
    lines = [
        f"{zones_asked} in {windows}, {100 * (1 - alpha):g} % intervals of the noise, each for one window; "
        f"{counting_note(series.parameters)}; asking costs no privacy",
        *_table(found),
    ]
    rows = [
        {
            "zone": zone,
            "window": window,
            **{name: float(values[row, at]) for name, values in found.displayed().items()},
        }
        for row, zone in enumerate(found.zones.names)
        for at, window in enumerate(series.windows.names)
    ]
    console.result("\n".join(lines), {**question, "answers": rows}, outputs)


def _table(found: WindowTotals) -> list[str]:
    wide = max(len(name) for name in ("zone", *found.zones.labels))
    window = max(len(name) for name in ("window", *found.windows.names))
    lines = [f"{'zone':<{wide}}  {'window':<{window}} {'users':>10} {'low':>10} {'high':>10} {'placed':>7}"]
    low, high = found.bounds
    for zone, name in enumerate(found.zones.labels):
        for at, when in enumerate(found.windows.names):
            ends = low[zone, at], high[zone, at]
            text = f"{name:<{wide}}  {when:<{window}} {max(found.estimate[zone, at], 0.0):>10,.1f} "
            text += " ".join(f"{each:>10,.1f}" for each in ends)
            lines.append(f"{text} {100 * found.placed[zone, at]:>6.0f}%")
            if len(lines) > MOST_LINES:
                rest = len(found.zones) * found.windows.count - MOST_LINES
                return [*lines, and_more(rest, "more line")] if rest else lines
    return lines
