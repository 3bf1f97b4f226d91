"""Tables, pictures and claims of the experiments of Ghazi et al. (2023)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from mapveil.evaluation.comparison import Comparison, Row, interval_of_mean
from mapveil.evaluation.html_report import Curve, metric_panel, metric_title, panels_by_epsilon, summary_table
from mapveil.evaluation.scoring import higher_is_better
from reproductions.driver import Section
from reproductions.ghazi.claims import (
    AVERAGED_EPSILONS,
    Sweep,
    epsilon_claims,
    mean_over,
    ours_against_peers,
    resolution_claims,
    users_claims,
)
from reproductions.ghazi.experiments import (
    DEPTH,
    EXAMPLES,
    METRICS,
    USERS,
    epsilon_jobs,
    example_jobs,
    grid_jobs,
    resolution_jobs,
    users_jobs,
)
from reproductions.report import Picture, Report, Table, maps_figure
from reproductions.results import Results


def comparisons(results: Results, experiment: str) -> dict[str, Comparison]:
    """The rows of an experiment by their point."""
    rows: dict[str, list[Row]] = {}
    for found in results.rows:
        if found.experiment == experiment:
            rows.setdefault(found.group, []).append(Row(*found[2:]))
    return {group: Comparison(tuple(each), group) for group, each in rows.items()}


def _report_epsilon(results: Results) -> Report:
    first = comparisons(results, "epsilon")["epsilon"]
    summary = first.summary()
    runs = len({row.trial for row in first.rows})
    caption = f"{runs} runs: {USERS} users, resolution {2**DEPTH}"
    picture = Picture.curves("by_epsilon", panels_by_epsilon(summary), caption)
    tables = [
        Table(f"By epsilon: {metric_title(metric)}", *summary_table(summary, metric)) for metric in METRICS
    ]
    return Report(tables, [picture], epsilon_claims(first))


def _sweep(results: Results, variable: str) -> Sweep:
    return Sweep(variable, {float(key): each for key, each in comparisons(results, variable).items()})


def _sweep_report(sweep: Sweep, caption: str) -> tuple[list[Table], Picture]:
    places = sorted(sweep.results)
    methods = sweep.results[places[0]].methods
    tables, panels = [], []
    for metric in METRICS:
        curves, rows = [], []
        for method in methods:
            ends = [interval_of_mean(sweep.results[place].values(method, metric)) for place in places]
            curves.append(Curve(method, places, *zip(*ends, strict=True)))
            rows.append([method, *(f"{mean:.3g} ± {high - mean:.1g}" for mean, _, high in ends)])
        panels.append(metric_panel(metric, sweep.variable, curves))
        header = [sweep.variable, *(f"{place:g}" for place in places)]
        tables.append(Table(f"By {sweep.variable}: {metric_title(metric)}", header, rows))
    return tables, Picture.curves(f"by_{sweep.variable}", panels, caption)


def _report_users(results: Results) -> Report:
    sweep = _sweep(results, "users")
    tables, picture = _sweep_report(sweep, "Experiment 2: number of users")
    return Report(tables, [picture], users_claims(sweep))


def _report_resolution(results: Results) -> Report:
    sweep = _sweep(results, "resolution")
    tables, picture = _sweep_report(sweep, "Experiment 3: rows and columns")
    return Report(tables, [picture], resolution_claims(sweep))


def grid_table(grids: Mapping[str, Comparison], metric: str) -> tuple[list[str], list[list[str]]]:
    """Means over epsilon in {0.5, 1, 2} by method and grid, their mean and the mean rank; the best is marked."""
    methods = next(iter(grids.values())).methods
    means = np.array(
        [
            [mean_over(grid, method, metric, AVERAGED_EPSILONS) for grid in grids.values()]
            for method in methods
        ]
    )
    sign = -1.0 if higher_is_better(metric) else 1.0
    ranks = np.argsort(np.argsort(sign * means, axis=0, kind="stable"), axis=0) + 1
    rows = [
        [
            method,
            *(f"{'*' if rank == 1 else ''}{mean:.3g}" for mean, rank in zip(mine, places, strict=True)),
            f"{mine.mean():.3g}",
            f"{places.mean():.1f}",
        ]
        for method, mine, places in zip(methods, means, ranks, strict=True)
    ]
    return ["method", *grids, "mean", "mean rank"], rows


def _report_grids(results: Results) -> Report:
    tables, claims = [], []
    for kind in ("cells", "heatmap"):
        found = comparisons(results, f"grid, {kind}")
        for users in dict.fromkeys(group.rpartition("/")[2] for group in found):
            grids = {
                group.rpartition("/")[0]: each
                for group, each in found.items()
                if group.rpartition("/")[2] == users
            }
            number = "all their users" if users == "all" else f"{users} users each"
            claims.append(ours_against_peers(f"Grids, {kind}, {number}", grids))
            for metric in METRICS:
                title = f"Grids, {kind}, {users} users, mean over ε in {{0.5, 1, 2}}: {metric_title(metric)}"
                tables.append(Table(title, *grid_table(grids, metric)))
    return Report(tables, (), claims)


def _report_examples(results: Results) -> Report:
    (city, truth), *_ = ((name, values) for (name, key), values in results.maps.items() if key == "truth")
    lines = []
    for epsilon in ("1", "5"):
        shown = [(title, results.maps[method, epsilon]) for method, title in EXAMPLES.items()]
        lines.append((f"ε = {epsilon}", [("original", truth), *shown]))
    caption = f"As Figure 2: {USERS} users of cell {city}"
    return Report((), [Picture.of("examples", maps_figure(lines), caption, 80)])


SECTIONS: Final = (
    Section("figure 1", epsilon_jobs, _report_epsilon),
    Section("figure 2", example_jobs, _report_examples),
    Section("table users", users_jobs, _report_users),
    Section("table resolution", resolution_jobs, _report_resolution),
    Section("table grids", grid_jobs, _report_grids),
)
"""Experiment 1 and its pictures, experiments 2 and 3, and the ready grids."""
