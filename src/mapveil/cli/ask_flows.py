"""``mapveil ask`` and ``mapveil change`` of flows: users from and to zones, and between some of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapveil.cli.arguments import name_list
from mapveil.cli.console import MOST_LINES, Console, and_more, counted, save_all
from mapveil.formats.zone_table import ZONE_SUFFIXES, write_zones
from mapveil_client.errors import ParameterError

if TYPE_CHECKING:
    from mapveil.inference.zone_results import ByEnd, Null, ZoneChanges, ZoneTotals
    from mapveil.maps.flow_map import FlowMap

_NUMBERS = ("estimate", "low", "high")


def check_of_flows(others: Mapping[str, object], outputs: tuple[Path, ...]) -> None:
    """Refuse options, by their names, that have no meaning for flows, and files of another kind."""
    for name, value in others.items():
        if value:
            raise ParameterError(f"{name} must be left out: the file holds flows between zones of its own")
    for path in outputs:
        if path.suffix.lower() not in ZONE_SUFFIXES:
            raise ParameterError(f"-o {path}: answers about flows are written as {' '.join(ZONE_SUFFIXES)}")


def answer_flows(
    console: Console,
    flows: FlowMap,
    alpha: float,
    origins: str | None,
    destinations: str | None,
    window: str | None,
    outputs: tuple[Path, ...],
) -> None:
    """Ask for the users who went from and to every zone; or, of chosen zones, for one total."""
    level = f"{100 * (1 - alpha):g}"
    question = {"confidence": 100 * (1 - alpha), "cost": "none", "zones": flows.tiling.size}
    question |= {} if window is None else {"window": window}
    when = f"window {window}: " if window is not None else ""
    if origins is not None or destinations is not None:
        if outputs:
            raise ParameterError("-o writes a row per zone: leave it out with --from or --to, or use --json")
        chosen = [
            None if each is None else _named(flows, each, flag)
            for flag, each in (("--from", origins), ("--to", destinations))
        ]
        total = flows.total(*chosen)
        _warn(console, flows)
        (low, high), (least, most) = total.interval(alpha), total.certain(alpha)
        if total.modelled:  # the noise says little of where users are
            low, high = least, most
        answer = {"estimate": max(total.estimate, 0.0), "low": low, "high": high}
        answer |= {"placed": total.placed, "certain_low": least, "certain_high": most}
        text = (
            f"{when}users from {origins or 'all zones'} to {destinations or 'all zones'} ({flows.counting}): "
        )
        text += f"{answer['estimate']:,.1f} ({level} %: {low:,.1f} to {high:,.1f})"
        if total.modelled:
            text += f"; the model places {100 * total.placed:.0f} % of them, so these bounds hold wherever in their "
            text += "blocks they are"
        elif total.placed and (least, most) != (low, high):
            # Of an estimate that is not above 0 no percentage is placed.
            part = f"the model places {100 * total.placed:.0f} % of them, and " if total.estimate > 0 else ""
            text += f"; {part}wherever they are in their blocks: {least:,.1f} to {most:,.1f}"
        record = {**question, "from": origins, "to": destinations, "answer": answer}
        console.result(f"{text}; asking costs no privacy", record, outputs)
        return
    from mapveil.analysis.flow_totals import end_totals

    with console.progress() as progress:
        progress("totals", 0.0)
        found = end_totals(flows, alpha=alpha)
        progress("totals", 1.0)
        columns = found.columns((*_NUMBERS, "deviation"))
        about = {"question": question, "map": flows.metadata()}
        save_all(outputs, lambda path: write_zones(found.outflow.zones, columns, about, path), progress)
    _warn(console, flows)
    lines = [
        f"{when}{counted(flows.tiling.size, 'zone')}, {level} % intervals of the noise, of users: {flows.counting}; "
        "asking costs no privacy",
        *_totals_table(found),
    ]
    console.result("\n".join(lines), {**question, "answers": rows_of(columns)}, outputs)


def change_flows(
    console: Console,
    before: FlowMap,
    after: FlowMap,
    fdr: float,
    null: Null,
    meaning: str,
    outputs: tuple[Path, ...],
    *,
    notes: tuple[str, ...],
    shown: list[str],
) -> None:
    """Call the zones whose outflows or inflows differ significantly; ``meaning`` is that of no change.

    ``notes`` on both maps are warnings; ``shown`` are lines of the answer.
    """
    from mapveil.analysis.flow_totals import end_changes
    from mapveil.inference.zone_results import CHANGE_INTERVAL

    with console.progress() as progress:
        progress("compare", 0.0)
        found = end_changes(before, after, fdr=fdr, null=null)
        progress("compare", 1.0)
        columns = found.columns(("before", "after", "difference", "low", "high", "p", "q", "changed"))
        question = {"null": null, "false_discovery_rate": fdr, "cost": "none"}
        about = {"question": question, "before": before.metadata(), "after": after.metadata()}
        save_all(outputs, lambda path: write_zones(found.outflow.zones, columns, about, path), progress)
    _warn(console, before, after)
    for note in (*found.outflow.zones.notes, *notes):
        console.warn(note)
    lines = [
        f"{int(found.outflow.changed.sum())} outflows and {int(found.inflow.changed.sum())} inflows of "
        f"{counted(before.tiling.size, 'zone')} changed; no change means {meaning}; about {100 * fdr:g} % of "
        "such calls are expected to be false; asking costs no privacy",
        f"before and after are unbiased estimates, which may be below 0; {CHANGE_INTERVAL}",
        *shown,
        *_changes_table(found),
    ]
    console.result("\n".join(lines), {**question, "zones": rows_of(columns)}, outputs)


def _warn(console: Console, *flows: FlowMap) -> None:
    for note in dict.fromkeys(note for each in flows for note in each.guarantee.promise.warnings):
        console.warn(note)


def rows_of(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """Columns as rows for JSON."""
    listed = {
        name: values if isinstance(values, list) else values.tolist() for name, values in columns.items()
    }
    return [dict(zip(listed, row, strict=True)) for row in zip(*listed.values(), strict=True)]


def _named(flows: FlowMap, text: str, flag: str) -> list[int | str]:
    """Names or numbers of zones, separated by commas; a name comes before a number."""
    names = flows.zone_names or ()
    found: list[int | str] = []
    for each in [text] if text in names else name_list(text, flag):
        if each in names:
            found.append(each)
        elif each.isascii() and each.isdigit() and int(each) < flows.tiling.size:
            found.append(int(each))
        else:
            known = f"names, such as {names[0]!r}, or numbers" if names else "numbers"
            raise ParameterError(
                f"{flag} must be zones of the file, {known} from 0 to {flows.tiling.size - 1}, got {each!r}"
            )
    return found


def _totals_table(found: ByEnd[ZoneTotals]) -> list[str]:
    names = found.outflow.zones.labels[:MOST_LINES]
    wide = max(len(name) for name in ("zone", *names))
    head = " ".join(f"{name:>10}" for name in ("outflow", "low", "high", "inflow", "low", "high"))
    lines = [f"{'zone':<{wide}} {head}"]
    for zone, name in enumerate(names):
        numbers = [
            value
            for end in (found.outflow, found.inflow)
            for value in (max(end.estimate[zone], 0.0), end.low[zone], end.high[zone])
        ]
        lines.append(f"{name:<{wide}} " + " ".join(f"{value:>10,.1f}" for value in numbers))
    return _cut(lines, len(found.outflow.zones) - len(names), "more zone")


def _changes_table(found: ByEnd[ZoneChanges]) -> list[str]:
    """Outflows and inflows, the surest changes first."""
    import numpy as np

    size = len(found.outflow.zones)
    first = np.argsort(np.concatenate([found.outflow.q, found.inflow.q]), kind="stable")[:MOST_LINES].tolist()
    wide = max(4, *(len(found.outflow.zones.labels[each % size]) for each in first))
    head = " ".join(f"{name:>10}" for name in ("before", "after", "change", "low", "high"))
    lines = [f"      {'zone':<{wide}} {head} {'q':>9}  changed"]
    for each in first:
        end, zone = found.inflow if each >= size else found.outflow, each % size
        shown = (end.before, end.after, end.difference, end.low, end.high)
        text = " ".join(f"{values[zone]:>10,.1f}" for values in shown)
        said = "yes" if end.changed[zone] else "no call"
        word = "to" if each >= size else "from"
        lines.append(f"{word:<5} {end.zones.labels[zone]:<{wide}} {text} {end.q[zone]:>9.2g}  {said}")
    return _cut(lines, 2 * size - len(first), "more line")


def _cut(lines: list[str], rest: int, what: str) -> list[str]:
    return lines if rest <= 0 else [*lines, and_more(rest, what)]
