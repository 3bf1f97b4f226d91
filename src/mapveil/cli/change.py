"""``mapveil change``: zones where two released maps differ significantly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mapveil.cli.ask_flows import change_flows, check_of_flows
from mapveil.cli.console import MOST_LINES, Console, and_more, console_options, save_all
from mapveil.cli.options import flags_of, zone_options
from mapveil.cli.outputs import outputs
from mapveil.cli.windows import map_or_flows
from mapveil.formats.zone_table import ZONE_SUFFIXES
from mapveil_client.errors import ParameterError

if TYPE_CHECKING:
    from mapveil.inference.zone_results import Null, ZoneChanges

_NULLS = {"rate": "one expected number in both maps", "people": "the same number of users in both tables"}


@click.command("change")
@click.argument("before", metavar="BEFORE")
@click.argument("after", metavar="[AFTER]", required=False)
@zone_options
@click.option("--window", help="Of a series: name of the window after, such as 2026-W34.")
@click.option("--against", help="Of a series: name of the window before.")
@click.option(
    "--fdr", type=float, default=0.05, show_default=True, help="Expected fraction of false calls, about."
)
@click.option(
    "--null",
    type=click.Choice(list(_NULLS)),
    default="rate",
    show_default=True,
    help="Meaning of no change: one rate (noise and chance) or the same number of users (noise alone).",
)
@outputs(
    (*ZONE_SUFFIXES, ".png", ".html"),
    ".csv .parquet .geojson (one row per zone), .png .html (a map of the zones that changed)",
    required=False,
    streamed=".csv",
)
@console_options
def command(
    console: Console,
    before: str,
    after: str | None,
    zones: str | None,
    read: dict[str, Any],
    window: str | None,
    against: str | None,
    fdr: float,
    null: Null,
    outputs: tuple[Path, ...],
) -> None:
    """Call the zones where two released maps differ significantly. Costs no privacy.

    The false discovery rate is about --fdr. Of each zone, the measured cells that lie wholly inside are compared: where
    in a cell that the zone cuts users are was not measured. Zones without such a cell are named and not compared.
    Without --zones, the smallest blocks that both maps measured are compared.

    Both maps are of one region, unit, method and trust model, such as two weeks of one city; or they are two windows of
    one series. Of two files of flows between the same zones, the outflows and inflows that differ are called.

    \b
    Examples:
      mapveil change week1.parquet week2.parquet --zones districts.geojson
      mapveil change week1.parquet week2.parquet --zones districts.geojson --fdr 0.1 -o change.csv -o change.png
      mapveil change year.parquet --window 2026-W34 --against 2026-W33 -o change.png
      mapveil change flows1.parquet flows2.parquet -o change.csv
      mapveil change weeks.parquet --window 2026-W04 --against 2026-W03 -o change.csv
    """
    from mapveil.analysis.zone_changes import both_note, changes
    from mapveil.formats.zone_table import write_zones
    from mapveil.maps.counted_windows import length_note
    from mapveil.maps.counting import counting_note
    from mapveil.maps.flow_map import FlowMap
    from mapveil.pictures.zone_pictures import write_changes_page, write_changes_png

    if (window is None) != (against is None) or (after is None and window is None):
        raise ParameterError("a change needs two maps, or one series with --window and --against")
    one, two = map_or_flows(before, against, "--against"), map_or_flows(after or before, window)
    one, two = (
        released if released.title else replace(released, title=Path(source).name)
        for released, source in ((one, before), (two, after or before))
    )
    notes = length_note(one, two, (against, window))
    if window is None or after is not None:
        notes += both_note(one, two)
    shown = (
        [] if window is None else [f"before is {against}, after is {window}; {counting_note(one.parameters)}"]
    )
    if isinstance(one, FlowMap) and isinstance(two, FlowMap):
        check_of_flows({"--zones": zones, **flags_of(read)}, outputs)
        change_flows(console, one, two, fdr, null, _NULLS[null], outputs, notes=notes, shown=shown)
        return
    if isinstance(one, FlowMap) or isinstance(two, FlowMap):
        first, second = (before, after) if isinstance(one, FlowMap) else (after, before)
        raise ParameterError(f"{first} holds flows and {second} is a map of users: give two of one kind")
    for flag, given in flags_of(read).items():
        if zones is None and given:
            raise ParameterError(f"{flag} says how zones are read: give --zones too")
    with console.progress() as progress:
        progress("compare", 0.0)
        found = changes(one, two, zones, fdr=fdr, null=null, **read)
        progress("compare", 1.0)
        found = found._replace(zones=replace(found.zones, notes=(*found.zones.notes, *notes)))
        about = {
            "question": {"null": null, "false_discovery_rate": fdr, "cost": "none"},
            "before": one.metadata(),
            "after": two.metadata(),
        }

        def save(path: Path) -> None:
            match path.suffix.lower():
                case ".png":
                    write_changes_png(found, one, two, path)
                case ".html":
                    write_changes_page(found, one, two, path)
                case _:
                    write_zones(found.zones, found.columns(), about, path)

        save_all(outputs, save, progress)
    warnings = (*one.guarantee.promise.warnings, *two.guarantee.promise.warnings)
    for note in (*dict.fromkeys(warnings), *found.zones.notes):
        console.warn(note)
    lines = [
        f"{found.counts}, tested against {found.tested} "
        f"(--null {null}); about {100 * fdr:g} % of such calls are expected to be false; asking costs no privacy",
        found.about,
        *shown,
        *_table(found),
    ]
    rows = [
        {found.noun: name, "difference": d, "p": p, "q": q, "changed": changed}
        for name, d, p, q, changed in zip(
            found.zones.names,
            found.difference.tolist(),
            found.p.tolist(),
            found.q.tolist(),
            found.changed.tolist(),
            strict=True,
        )
    ]
    console.result("\n".join(lines), {**about["question"], f"{found.noun}s": rows}, outputs)


def _table(found: ZoneChanges) -> list[str]:
    """The zones, those that changed first, the surest before the others."""
    import numpy as np

    head = " ".join(f"{name:>10}" for name in ("before", "after", "change", "low", "high"))
    first = np.argsort(found.q, kind="stable")[:MOST_LINES].tolist()
    wide = max(len(found.noun), *(len(found.zones.labels[zone]) for zone in first))
    lines = [f"{found.noun:<{wide}} {head} {'q':>9}  changed"]
    for zone in first:
        numbers = (
            each[zone] for each in (found.before, found.after, found.difference, found.low, found.high)
        )
        text = " ".join(f"{value:>10,.1f}" if found.compared[zone] else f"{'-':>10}" for value in numbers)
        said = found.calls[zone]
        lines.append(f"{found.zones.labels[zone]:<{wide}} {text} {found.q[zone]:>9.2g}  {said}")
    rest = len(found.zones) - MOST_LINES
    return lines if rest <= 0 else [*lines, and_more(rest, f"more {found.noun}")]
