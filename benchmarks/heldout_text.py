"""The result of a held-out run as text of at most 100 columns."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.heldout_page import refusals, trials_of, users_of
from benchmarks.heldout_tables import NEAR, ROLES, VERDICTS, Standing, title
from mapveil.evaluation.html_report import text_table

WIDTH: Final = 100
"""Columns of a terminal."""


def result_text(record: dict[str, Any], found: Sequence[Standing], *, every_row: bool = False) -> str:
    """Settings, verdicts, means by method, and the rows where the default loses (or every row), of each role apart.

    Parameters
    ----------
    record : dict
        The JSON record of the run.
    found : sequence of Standing
        Its rows.
    every_row : bool
        Whether all rows are told.
    """
    settings, counted = record["settings"], record["settings"]["counted"]
    epsilons = ", ".join(f"{each:g}" for each in settings["epsilons"])
    lines = [
        f"{trials_of(settings)}; epsilon {epsilons}; maps of at most {settings['max_cells']:,} cells",
        f"counted: {counted['tables']}; of rasters {counted['rasters']}",
    ]
    for role in (role for role in ROLES if any(each["role"] == role for each in record["data_sets"])):
        sets = [users_of(each) for each in record["data_sets"] if each["role"] == role]
        lines += ["", f"ROLE {role.upper()}: {', '.join(sets)}", "", *_verdicts(record["verdicts"], role)]
        for trust in dict.fromkeys(each["trust"] for each in record["means"]):
            lines += ["", f"Means over data sets, epsilons and trials (geometric for MSE): {trust}"]
            lines += _means([each for each in record["means"] if each["trust"] == trust], role)
        chosen = [each for each in found if each.role == role and (every_row or each.verdict == "loss")]
        lines += ["", "Every row:" if every_row else "Rows where the default clearly loses:"]
        lines += [_row(each) for each in chosen] or ["none"]
    if record["left_out"]:
        lines += ["", "Left out:", *(f"{each['data']}: {each['reason']}" for each in record["left_out"])]
    if record["refused"]:
        names = dict.fromkeys(what for what, _ in refusals(record["refused"]))
        lines += ["", f"Not run (reasons with -v and --json): {'; '.join(names)}"]
    return "\n".join(_wrapped(line) for line in lines)


def _wrapped(text: str) -> str:
    """Lines as they are where they fit, and broken at spaces where they do not."""
    return "\n".join(
        line if len(line) <= WIDTH else textwrap.fill(line, WIDTH, subsequent_indent="  ")
        for line in text.split("\n")
    )


def _verdicts(verdicts: Sequence[dict[str, Any]], role: str) -> list[str]:
    header = ["default against the best other", "wins", "ties", "losses", "near", "over", "under"]
    rows = [
        [
            f"{each['trust']}: {title(each['metric'])}",
            *(str(each[role][name]) for name in (*VERDICTS, "near_the_best")),
            *(str(each[role][name]) for name in ("over_uniform", "under_uniform")),
        ]
        for each in verdicts
    ]
    return [
        text_table(header, rows),
        "wins, ties, losses: by the intervals of the paired differences, a win over every other method, a loss to the "
        "best, 95 % for all comparisons of a row together; a default clearly worse than the uniform baseline, or not "
        "run, loses; near: within "
        f"{100 * NEAR:g} % of the best; over, under: clearly better or worse than the uniform baseline",
    ]


def _means(means: Sequence[dict[str, Any]], role: str) -> list[str]:
    """Methods down, metrics across, in as many tables as the width needs."""
    metrics = list(dict.fromkeys(each["metric"] for each in means if each[role]["sets"]))
    most = {
        metric: max(each[role]["sets"] for each in means if each["metric"] == metric) for metric in metrics
    }
    header = ["method", *map(title, metrics)]
    lengths = means[0]["trust"] == "distributed"
    rows = []
    for method in dict.fromkeys(each["method"] for each in means):
        mine = {each["metric"]: each[role] for each in means if each["method"] == method}
        cells = []
        for metric in metrics:
            entry = mine.get(metric, {"sets": 0})
            fewer = f" ({entry['sets']} sets)" if entry["sets"] < most[metric] else ""
            cells.append(f"{_interval(entry['mean'], entry['high'])}{fewer}" if entry["sets"] else "")
        if lengths:
            cells.append(f"{next(iter(mine.values()))['length']:,.0f}")
        rows.append([method, *cells])
    if lengths:
        header.append("vector")
    return _in_blocks(header, rows)


def _in_blocks(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Tables of some of the columns each, all with the first, none too wide."""
    widths = [max(len(line[at]) for line in (header, *rows)) for at in range(len(header))]
    blocks, room = [[0]], WIDTH - widths[0]
    for at, width in enumerate(widths[1:], start=1):
        if width + 2 > room and len(blocks[-1]) > 1:
            blocks.append([0])
            room = WIDTH - widths[0]
        blocks[-1].append(at)
        room -= width + 2
    return [
        "\n" + text_table([header[at] for at in block], [[row[at] for at in block] for row in rows])
        for block in blocks
    ]


def _row(each: Standing) -> str:
    mine = _interval(each.mean, each.high) + (f" at {each.length:,.0f}" if each.length else "")
    theirs = _interval(each.other_mean, each.other_high)
    theirs += f" at {each.other_length:,.0f}" if each.other_length else ""
    other = f"best other {each.best_other} {theirs}" if each.best_other else "no other"
    lead = f"; lead {each.lead_low:.3g} .. {each.lead_high:.3g}" if math.isfinite(each.lead_low) else ""
    under = ", under the uniform baseline" if each.over_uniform == "loss" else ""
    row = f"{each.data}, epsilon {each.epsilon:g}, {title(each.metric)}: {each.verdict}{under}"
    return f"{row}\n  {each.default} {mine}; {other}{lead}"


def _interval(mean: float, high: float) -> str:
    if math.isnan(mean):
        return "not run"
    half = f" ± {float(f'{high - mean:.2g}'):g}" if math.isfinite(high) else ""
    return f"{mean:.4g}{half}"
