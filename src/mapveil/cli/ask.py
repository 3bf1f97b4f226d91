"""``mapveil ask``: users in zones, from a released map."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mapveil.cli.ask_flows import answer_flows, check_of_flows, rows_of
from mapveil.cli.ask_over_time import answer_over_time
from mapveil.cli.console import MOST_LINES, Console, and_more, console_options, counted, save_all
from mapveil.cli.options import flags_of, zone_options
from mapveil.cli.outputs import outputs
from mapveil.cli.windows import map_or_flows
from mapveil.formats.zone_table import ZONE_SUFFIXES
from mapveil_client.errors import ParameterError, check, one_line

if TYPE_CHECKING:
    from mapveil.inference.zone_results import ZoneTotals
    from mapveil_client.arrays import FloatArray, IntArray

_PER = 1000.0


@click.command("ask")
@click.argument("source", metavar="MAP")
@zone_options
@click.option("--window", help="Name of the window of a series, such as 2026-W34. [default: all together]")
@click.option("--over-time", is_flag=True, help="Of a series: the users of each zone in every window.")
@click.option(
    "--from", "origins", metavar="ZONES", help="Of flows: names or numbers, with commas. [default: all zones]"
)
@click.option(
    "--to", "destinations", metavar="ZONES", help="Of flows: as --from, of the zones where trips end."
)
@click.option("--top", type=int, help="Rank so many zones, with the ranks that each may have.")
@click.option(
    "--above", type=float, help="Call zones above or below this number of users, all of them at --confidence."
)
@click.option(
    "--per",
    help="Public denominator of rates: a column of the zones, or a GeoTIFF of residents per pixel, not per km2.",
)
@click.option(
    "--confidence", type=float, default=95.0, show_default=True, help="Coverage of intervals, per cent."
)
@outputs(
    (*ZONE_SUFFIXES, ".html", ".png"),
    ".csv .parquet .geojson (one row per zone), .html (a page with the zones drawn), .png with --over-time (bands)",
    required=False,
    streamed=".csv",
)
@console_options
def command(
    console: Console,
    source: str,
    zones: str | None,
    read: dict[str, Any],
    window: str | None,
    over_time: bool,
    origins: str | None,
    destinations: str | None,
    top: int | None,
    above: float | None,
    per: str | None,
    confidence: float,
    outputs: tuple[Path, ...],
) -> None:
    """Estimate the users in zones of a released map, or of flows, with intervals of the noise. Costs no privacy.

    MAP is a .tif, .parquet, .geojson, .gpkg or .csv that Mapveil wrote; a page (.html) answers in a browser. Of a
    zone that cuts a measured cell, "placed" is the percentage of its users that the model places, and "inside" and
    "touched" are the estimates of the cells wholly inside and of all that it touches. Where "placed" exceeds 50 % of an
    estimate above 0, or no measured cell lies wholly inside, "low" and "high" are not the interval of the noise but
    bounds that hold wherever in the cut cells the users are.

    Of flows by a curator or by sums: users from and to each of their zones, each of whom counts 1 in all, or one total
    with --from and --to.

    \b
    Examples:
      mapveil ask map.parquet --zones districts.geojson -o districts.csv
      mapveil ask map.parquet --zones districts.geojson --top 10 -o answers.html
      mapveil ask map.parquet --zones districts.gpkg --per population.tif -o rates.csv
      mapveil ask year.parquet --window 2026-W34 --zones districts.geojson
      mapveil ask year.parquet --over-time --zones districts.geojson -o totals.csv -o totals.png
      mapveil ask flows.parquet -o ends.csv
      mapveil ask weeks.parquet --window 2026-W04 -o ends.csv
      mapveil ask flows.parquet --from Centre --to Harbour,Airport
    """
    import numpy as np

    from mapveil.analysis.zone_ranks import above_of, top_of
    from mapveil.analysis.zone_rates import denominators
    from mapveil.analysis.zone_totals import totals_of
    from mapveil.formats.zone_table import write_zones
    from mapveil.inference.zone_overlay import ZoneOverlay
    from mapveil.inference.zone_results import WIDENED, placed_notes
    from mapveil.maps.counted_windows import exhaustion_note
    from mapveil.maps.counting import counting_note
    from mapveil.maps.flow_map import FlowMap
    from mapveil.maps.series_map import SeriesMap
    from mapveil.pictures.zone_page import write_answers_page

    if top is not None and above is not None:
        raise ParameterError("--top and --above are two questions: ask one at a time")
    check(50 <= confidence < 100, "--confidence", "from 50 to below 100 per cent", confidence)
    alpha = 1 - confidence / 100
    heat = map_or_flows(source, window)
    if isinstance(heat, FlowMap):
        others = {"--zones": zones, **flags_of(read), "--over-time": over_time}
        others |= {"--top": top is not None, "--above": above is not None, "--per": per}
        check_of_flows(others, outputs)
        answer_flows(console, heat, alpha, origins, destinations, window, outputs)
        return
    for flag, value in (("--from", origins), ("--to", destinations)):
        if value is not None:
            raise ParameterError(f"{flag} is for flows: {source} is a map of users; give --zones")
    if zones is None:
        raise ParameterError(f"--zones is required: {source} is a map of users, which zones are asked of")
    if over_time:
        others = {"--window": window, "--top": top, "--above": above, "--per": per}
        answer_over_time(console, source, zones, read, alpha, others, outputs)
        return
    for path in outputs:
        check(path.suffix.lower() != ".png", "-o", "a .png with --over-time only", path)
    with console.progress() as progress:
        progress("overlay", 0.0)
        asked = ZoneOverlay.of(heat, zones, progress=progress, **read)
        progress("overlay", 1.0)
        progress("totals", 0.0)
        most = len(asked.zones)
        ranked = None if top is None else top_of(asked, min(top, most), alpha)
        compared = None if above is None else above_of(asked, above, alpha)
        answer = ranked or compared
        found = totals_of(asked, alpha) if answer is None else answer.totals
        progress("totals", 1.0)
        columns = found.columns()
        if per is not None:
            public = denominators(asked.zones, per)
            under = columns["denominator"] = public.values
            for name in ("estimate", "low", "high"):
                nothing = np.full(under.size, np.nan)
                rate = np.divide(columns[name] * _PER, under, out=nothing, where=under > 0)
                columns[f"{name}_per_1000"] = rate
        if ranked is not None:
            for name in ("first", "last"):
                ranks = np.full(len(asked.zones), np.nan)
                ranks[ranked.zone] = getattr(ranked, name)
                columns[f"{name}_rank"] = ranks
        if compared is not None:
            columns["called_above"], columns["called_not_above"] = compared.above, compared.below
        about = {
            "question": {
                "confidence": confidence,
                "cost": "none",
                "zones": len(asked.zones),
                **{
                    name: value
                    for name, value in (("window", window), ("top", top), ("above", above), ("per", per))
                    if value is not None
                },
            },
            "map": heat.metadata(),
        }
        zones_asked = counted(len(asked.zones), "zone")
        lines = [f"{zones_asked}, {confidence:g} % intervals of the noise; asking costs no privacy"]
        if top is not None:
            lines.append(f"ranks of the {min(top, most)} busiest hold together; {WIDENED}")
        if above is not None:
            lines.append(
                f"called above {above:g} users or not at {confidence:g} % for all zones together; {WIDENED}"
            )
        if per is not None:
            lines.append(f"rates per 1,000 of {one_line(per)}")
        if isinstance(heat, SeriesMap):
            lines.append(f"all {counted(len(heat), 'window')} together; --window NAME asks one")
        if window is not None:
            lines.append(f"window {window}: {counting_note(heat.parameters)}")

        def save(path: Path) -> None:
            if path.suffix.lower() == ".html":
                write_answers_page(asked, found, columns, "; ".join(lines), path)
            else:
                write_zones(asked.zones, columns, about, path)

        save_all(outputs, save, progress)
    notes = (*asked.zones.notes, *_uncovered(found), *placed_notes(found), *exhaustion_note(heat))
    for note in (*heat.guarantee.promise.warnings, *notes):
        console.warn(note)
    if top is not None and top > most:
        console.warn(f"--top {top}: there are {counted(most, 'zone')}, and all are ranked")
    if per is not None:
        for note in _partly(public.covered, asked.zones.labels, f"the raster {per} covers"):
            console.warn(f"{note}: the denominator is too small there")
    if per is not None and (
        bare := [name for name, u in zip(asked.zones.labels, under, strict=True) if u == 0]
    ):
        console.warn(f"no rate of {counted(len(bare), 'zone')} where {per} is 0, such as {bare[0]}")
    if ranked is not None:
        lines += _ranks(ranked.rows())
    elif compared is not None:
        lines.append(
            f"{int(compared.above.sum())} called above, {int(compared.below.sum())} called not above"
        )
        if compared.above.any():
            lines += ["called above:", *_table(found, columns, np.flatnonzero(compared.above))]
    else:
        lines += _table(found, columns, np.arange(len(found.zones)))
    record = {**about["question"], "answers": rows_of(columns)}
    console.result("\n".join(lines), record, outputs)


def _table(found: ZoneTotals, columns: dict[str, Any], zones: IntArray) -> list[str]:
    """Totals of zones, and of their rates with the denominator."""
    rates = "denominator" in columns
    numbers = " ".join(f"{name:>10}" for name in ("users", "low", "high"))
    names = found.zones.labels
    wide = max(len(name) for name in ("zone", *(names[zone] for zone in zones[:MOST_LINES])))
    head = f"{'zone':<{wide}} {numbers} {'placed':>7} {'inside':>10} {'touched':>10}"
    lines = [head + (f" {'denominator':>12} {'per 1000':>10} {'low':>10} {'high':>10}" if rates else "")]
    for zone in zones[:MOST_LINES].tolist():
        cells = (columns["estimate"][zone], *(each[zone] for each in found.bounds))
        text = f"{names[zone]:<{wide}} " + " ".join(f"{value:>10,.1f}" for value in cells)
        text += f" {100 * found.placed[zone]:>6.0f}%"
        text += f" {max(found.inside[zone], 0):>10,.1f} {max(found.touched[zone], 0):>10,.1f}"
        if rates:
            text += f" {columns['denominator'][zone]:>12,.1f}"
            if columns["denominator"][zone] > 0:
                text += "".join(
                    f" {columns[f'{name}_per_1000'][zone]:>10,.2f}" for name in ("estimate", "low", "high")
                )
        lines.append(text)
    rest = zones.size - MOST_LINES
    return lines if rest <= 0 else [*lines, and_more(rest, "more zone")]


def _ranks(rows: list[dict[str, Any]]) -> list[str]:
    from mapveil.geo.zones import LABEL

    names = [one_line(row["zone"], LABEL) for row in rows]
    wide = max(len(name) for name in ("zone", *names))
    lines = [
        f"{'rank':>4}  {'zone':<{wide}} {'users':>10} {'low':>10} {'high':>10} {'placed':>7}  ranks it may have"
    ]
    for row, name in zip(rows, names, strict=True):
        between = f"{row['first_rank']} to {row['last_rank']}"
        lines.append(
            f"{row['rank']:>4}  {name:<{wide}} {row['estimate']:>10,.1f} {row['low']:>10,.1f} "
            f"{row['high']:>10,.1f} {100 * row['placed']:>6.0f}%  {between}"
        )
    return lines


def _uncovered(found: ZoneTotals) -> list[str]:
    """Remarks on zones that reach beyond the map."""
    notes = _partly(found.covered, found.zones.labels, "the map holds")
    return [f"{note}: only that part counts" for note in notes]


def _partly(covered: FloatArray, names: Sequence[str], holder: str) -> list[str]:
    """A remark on zones of which only a part is held, with the fraction of the least."""
    import numpy as np

    partly = np.flatnonzero(covered < 0.999)
    if not partly.size:
        return []
    least = int(partly[np.argmin(covered[partly])])
    return [
        f"{holder} only a part of {counted(partly.size, 'zone')}, such as of {names[least]} "
        f"({100 * covered[least]:.0f} % of its area)"
    ]
