"""The reproduction of Ghazi et al. (2023): runs the experiments, judges the claims, writes the report.

``mapveil reproduce ghazi`` calls :func:`ghazi`. It reads the true maps of public research sets; nothing in
its report is private.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mapveil.evaluation.comparison import Comparison, Row, Summary, interval_of_mean, table_csv
from mapveil.evaluation.report import (
    Curve,
    Panel,
    curves_figure,
    html_page,
    html_picture,
    html_table,
    maps_figure,
    metric_panel,
    metric_title,
    panels_by_epsilon,
    png_bytes,
    summary_table,
    write_atomically,
)
from mapveil.evaluation.trials import Progress
from reproductions.ghazi.claims import Claim, GridMean, grid_means, ours_against_peers, papers_claims
from reproductions.ghazi.data import read_check_ins
from reproductions.ghazi.experiments import (
    BASELINES,
    DEPTH,
    EMD_METHOD,
    EMD_SIDE,
    GRID_SIDE,
    GRID_TOLERANCE,
    LEAST_USERS,
    OURS,
    SIGMA_PART,
    USERS,
    Examples,
    Plan,
    Sweep,
    by_epsilon,
    by_grid,
    by_resolution,
    by_users,
    cities,
    examples,
)

Table = tuple[Sequence[str], Sequence[Sequence[str]]]


class Reproduction(NamedTuple):
    """What was found, and where it was written. Not private."""

    claims: tuple[Claim, ...]
    paths: tuple[Path, ...]
    first: Comparison
    users: Sweep
    resolution: Sweep
    grids: dict[tuple[str, str, str], Comparison]

    def text(self) -> str:
        """The claims and verdicts, for a terminal."""
        return "\n".join(
            f"{claim.verdict.upper()}: {claim.claim}\n  {claim.evidence}" for claim in self.claims
        )


def ghazi(
    shared: Path,
    *,
    out: Path,
    quick: bool = False,
    seed: int = 2023,
    workers: int = 1,
    progress: Progress | None = None,
) -> Reproduction:
    """Run the paper's experiments on the shared data and write tables, pictures and one page.

    Parameters
    ----------
    shared : Path
        The folder of the shared data sets, see :mod:`reproductions.ghazi.data`.
    out : Path
        The folder to write to; made where it is not there.
    quick : bool
        Fewer cells, trials and points: minutes instead of half an hour.
    seed : int
        The same seed gives the same numbers, but for times.
    workers : int
        Processes; with more than 1 a script must guard its entry.
    progress : callable, optional
        Told the step's name and the done part.

    Returns
    -------
    Reproduction
        Claims with verdicts, the paths written, and all rows.

    Raises
    ------
    InputError
        A file of the data is missing, or the folder cannot be written to.
    MissingExtra
        matplotlib is not installed.
    """
    plan = Plan.quick() if quick else Plan.full()
    start = time.perf_counter()
    check_ins = read_check_ins(shared)
    first = by_epsilon(check_ins, plan, seed, workers=workers, progress=progress)
    users = by_users(check_ins, plan, seed, workers=workers, progress=progress)
    resolution = by_resolution(check_ins, plan, seed, workers=workers, progress=progress)
    grids = by_grid(shared, plan, seed, workers=workers, progress=progress)
    shown = examples(check_ins, seed)
    claims = (
        *papers_claims(first, users, resolution),
        ours_against_peers("Experiment 1 (cells of check-ins)", {"": first}),
        *_grid_claims(grids),
    )
    minutes = (time.perf_counter() - start) / 60
    city = cities(check_ins, 1)[0][0]
    preface = _preface(first, plan, quick, seed, city.name, minutes)
    paths = _write(out, preface, claims, first, users, resolution, grids, shown)
    return Reproduction(claims, tuple(paths), first, users, resolution, grids)


def _grid_claims(grids: Mapping[tuple[str, str, str], Comparison]) -> list[Claim]:
    claims = []
    for kind in dict.fromkeys(key[2] for key in grids):
        for users in dict.fromkeys(key[1] for key in grids):
            chosen = {key[0]: found for key, found in grids.items() if key[1:] == (users, kind)}
            number = "all their users" if users == "all" else f"{users} users each"
            claims.append(ours_against_peers(f"Grids, {kind}, {number}", chosen))
    return claims


def _preface(first: Comparison, plan: Plan, quick: bool, seed: int, city: str, minutes: float) -> list[str]:
    settings = first.settings
    return [
        f"{'A quick run' if quick else 'The full run'}: {settings['runs']} runs of experiment 1 on "
        f"{settings['cells used']} cells, {plan.sweep_trials} trials a point in experiments 2 and 3 "
        f"(cell {city}, ε = 1), {plan.grid_trials} on each grid; seed {seed}; {minutes:.1f} minutes.",
        "People: the Gowalla users of the PVLDB 2017 evaluation set with their counts per venue, and the "
        "last check-in of every Brightkite user; one file per service, so that nobody is counted twice. The "
        "paper took one month of Gowalla and two of Brightkite. Here Brightkite's users are at one place "
        "each, and of many Gowalla users only the last 30 % of their check-ins are known.",
        f"Cells: of the 300 x 300 parts of the box, {settings['cells with enough users']} have at least "
        f"{LEAST_USERS} distinct users; used are the {settings['cells used']} of them with most check-ins.",
        f"Maps are smoothed by a Gaussian of {SIGMA_PART * 2**DEPTH:g} cells at resolution {2**DEPTH} (the "
        "same length at others) before they are measured; the paper does not give its width, so this is "
        "our choice. The number of sampled users is declared to the mechanisms, because the experiment "
        "fixes it; on whole grids nothing is declared, and who wants the number of users pays for it.",
        "The earth mover's distance is in widths of the region (L1), of maps summed over blocks to at most "
        f"{EMD_SIDE} rows and columns ({GRID_SIDE} for the grids), from certified bounds: off by at most "
        f"{plan.emd_tolerance / 2:.2%} of itself ({GRID_TOLERANCE / 2:.2%} for the grids); the blocks change it by "
        "0.03 % to 0.1 % where that was measured on smoothed maps. Intervals are 95 % (Student's t) over the runs.",
    ]


def _sweep_panels(sweep: Sweep) -> list[Panel]:
    places = sorted(sweep.results)
    some = sweep.results[places[0]]
    panels = []
    for metric in some.metrics:
        curves = []
        for method in some.methods:
            ends = [interval_of_mean(sweep.results[place].values(method, metric)) for place in places]
            curves.append(Curve(method, places, *zip(*ends, strict=True)))
        panels.append(metric_panel(metric, sweep.variable, curves))
    return panels


def _sweep_table(sweep: Sweep, metric: str) -> Table:
    places = sorted(sweep.results)
    rows = []
    for method in sweep.results[places[0]].methods:
        row = [method]
        for place in places:
            mean, _, high = interval_of_mean(sweep.results[place].values(method, metric))
            row.append(f"{mean:.3g} ± {high - mean:.1g}")
        rows.append(row)
    return [sweep.variable, *(f"{place:g}" for place in places)], rows


def _grid_table(means: Sequence[GridMean], kind: str, users: str, metric: str) -> Table:
    chosen = [item for item in means if (item.kind, item.users, item.metric) == (kind, users, metric)]
    grids = list(dict.fromkeys(item.grid for item in chosen))
    rows = []
    for method in dict.fromkeys(item.method for item in chosen):
        mine = {item.grid: item for item in chosen if item.method == method}
        cells = [f"{'*' if mine[grid].rank == 1 else ''}{mine[grid].mean:.3g}" for grid in grids]
        average = np.mean([mine[grid].mean for grid in grids])
        rank = np.mean([mine[grid].rank for grid in grids])
        rows.append([method, *cells, f"{average:.3g}", f"{rank:.1f}"])
    return ["method", *grids, "mean", "mean rank"], rows


def _figure_2(shown: Examples) -> bytes:
    names = {"laplace": "baseline", BASELINES[1]: "top 0.01 %", EMD_METHOD: "EMD method", OURS: "multiscale"}
    lines = []
    for epsilon in sorted({key[1] for key in shown.maps}):
        pictures = [("original", shown.truth)]
        pictures += [(title, shown.maps[method, epsilon]) for method, title in names.items()]
        lines.append((f"ε = {epsilon:g}", pictures))
    return png_bytes(maps_figure(lines), dpi=80)


def _write(
    out: Path,
    preface: Sequence[str],
    claims: Sequence[Claim],
    first: Comparison,
    users: Sweep,
    resolution: Sweep,
    grids: Mapping[tuple[str, str, str], Comparison],
    shown: Examples,
) -> list[Path]:
    means = grid_means(grids)
    pictures = {
        "by_epsilon": (png_bytes(curves_figure(panels_by_epsilon(first.summary()))), first.title),
        "by_users": (png_bytes(curves_figure(_sweep_panels(users))), "Experiment 2: number of users"),
        "by_resolution": (png_bytes(curves_figure(_sweep_panels(resolution))), "Experiment 3: side"),
        "examples": (_figure_2(shown), f"As Figure 2: {USERS} users of cell {shown.city.name}"),
    }  # fmt: skip
    tables: list[tuple[str, Table]] = [("Claims", (Claim._fields, [list(claim) for claim in claims]))]
    tables += [
        (f"By epsilon: {metric_title(metric)}", summary_table(first.summary(), metric))
        for metric in first.metrics
    ]
    for sweep in (users, resolution):
        metrics = next(iter(sweep.results.values())).metrics
        tables += [
            (f"By {sweep.variable}: {metric_title(metric)}", _sweep_table(sweep, metric))
            for metric in metrics
        ]
    for kind, number, metric in dict.fromkeys((item.kind, item.users, item.metric) for item in means):
        title = f"Grids, {kind}, {number} users, mean over ε in {{0.5, 1, 2}}: {metric_title(metric)}"
        tables.append((title, _grid_table(means, kind, number, metric)))
    title = "Reproduction of Ghazi et al. (2023), Differentially private heatmaps"
    body = [f"<p>{text}</p>\n" for text in preface]
    for png, caption in pictures.values():
        body.append(html_picture(png, caption))
    for heading, table in tables:
        body.append(f"<h2>{heading}</h2>\n{html_table(*table)}")
    written = [write_atomically(out / f"{name}.png", png) for name, (png, _) in pictures.items()]
    written.append(write_atomically(out / "rows.csv", _all_rows(first, users, resolution, grids).encode()))
    summary = table_csv(Summary._fields, first.summary())
    written.append(write_atomically(out / "by_epsilon.csv", summary.encode()))
    written.append(write_atomically(out / "grids.csv", table_csv(GridMean._fields, means).encode()))
    written.append(write_atomically(out / "claims.csv", table_csv(Claim._fields, claims).encode()))
    written.append(write_atomically(out / "tables.md", _markdown(title, preface, tables).encode()))
    written.append(write_atomically(out / "index.html", html_page(title, "".join(body))))
    return written


def _all_rows(
    first: Comparison, users: Sweep, resolution: Sweep, grids: Mapping[tuple[str, str, str], Comparison]
) -> str:
    def tagged() -> Iterable[tuple[object, ...]]:
        yield from (("epsilon", "", *row) for row in first.rows)
        for sweep in (users, resolution):
            for place, found in sweep.results.items():
                yield from ((sweep.variable, f"{place:g}", *row) for row in found.rows)
        for (grid, number, kind), found in grids.items():
            yield from ((f"grid {kind}", f"{grid}, {number} users", *row) for row in found.rows)

    return table_csv(("experiment", "place", *Row._fields), tagged())


def _markdown(title: str, preface: Sequence[str], tables: Sequence[tuple[str, Table]]) -> str:
    blocks = [f"<!-- {title} -->", *preface]
    for heading, (header, rows) in tables:
        lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
        for row in rows:
            cells = [f"**{cell[1:]}**" if cell.startswith("*") else cell for cell in row]
            lines.append("| " + " | ".join(cells) + " |")
        blocks += [f"## {heading}", "\n".join(lines)]
    return "\n\n".join(blocks) + "\n"
