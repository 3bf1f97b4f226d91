"""Figure 3 of Zong et al. (2023): on a line, more people and more features are the same to the sum."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from mapveil.random_features.exact_density import kernel_density
from mapveil.random_features.surface import evaluate_on_grid
from mapveil_client.arrays import FloatArray
from mapveil_client.random_features.frequencies import unit_frequencies
from mapveil_client.random_features.kernels import Gaussian
from mapveil_client.random_features.query import EvenGrid, Query
from mapveil_client.random_features.report import Visits, client_reports
from mapveil_client.randomness.random import Randomness
from reproductions.driver import Section
from reproductions.report import Claim, Picture, Report, Table, joint_verdict
from reproductions.results import Outcome
from reproductions.zong.data import line_density, line_people
from reproductions.zong.pictures import Line, lines_figure
from reproductions.zong.sections import PROJECTION, Found, Plan, Results

_GRID: Final = EvenGrid((-15.0,), (30 / 999,), (1000,))
_BANDWIDTH: Final = 1.0
_PANELS: Final = ((500, 1), (500, 10), (5_000, 1), (5_000, 10))
_SOURCE: Final = "figure 3"
_ERROR: Final = "error"


class LineJob(NamedTuple):
    """One trial of the four panels; can be pickled."""

    trial: int
    seed: int


def run_line(job: LineJob) -> Outcome:
    """Estimate the density on the line, with its root mean square distance from the exact KDE over the KDE's peak."""
    found, maps = [], {}
    query_low, query_high = (-15.0,), (15.0,)
    for users, features in _PANELS:
        stream = Randomness(job.seed).child(f"line/{users}/{job.trial}")
        places = line_people(users, stream.child("people"))
        scale = users * _BANDWIDTH * math.sqrt(2 * math.pi)
        exact = kernel_density(places, None, _GRID, Gaussian(), (_BANDWIDTH,)) / scale
        query = Query((_BANDWIDTH,), query_low, query_high, features, "gaussian", _GRID)
        units = unit_frequencies(users, features, query.law, 1, stream.child(f"waves {features}"))
        reports = client_reports(units, Visits(places), query)
        made = evaluate_on_grid(reports, query, _GRID) / features / query.kernel_integral / users
        error = math.sqrt(float(np.square(made - exact).mean())) / float(exact.max())
        found.append(Found(_SOURCE, users, job.trial, PROJECTION, features, _ERROR, error))
        if job.trial == 0:
            maps[_SOURCE, f"exact {users}"] = exact
            maps[_SOURCE, f"{users} {features}"] = made
    return Outcome(tuple(found), maps)


def _jobs(plan: Plan, shared: Path, seed: int) -> Sequence[LineJob]:
    return [LineJob(trial, seed) for trial in range(plan.trials)]


def _report(results: Results) -> Report:
    error = {panel: results.of(_ERROR, source=_SOURCE, users=panel[0], level=panel[1]) for panel in _PANELS}
    few, features, people, both = (error[panel].mean for panel in _PANELS)
    rows = [[f"{users:,}", str(number), error[users, number].shown(4)] for users, number in _PANELS]
    claims = [
        Claim(
            "One feature each is not precise with 500 people, ten are close, and both many is closest "
            "(read as: errors fall in that order)",
            joint_verdict([few > features > both, few > people > both]),
            f"{few:.3f}, {features:.3f}, {both:.3f} of the peak",
        ),
        Claim(
            "One more person and one more feature have a similar effect (read as: ten times either change the error "
            "alike, to 25 %)",
            joint_verdict([abs(features / people - 1) <= 0.25]),
            f"{features:.4f} with ten features, {people:.4f} with ten times the people",
        ),
    ]
    return Report(
        [Table("Figure 3: error of the projection on a line", ["people", "features", "error / peak"], rows)],
        [_picture(results.maps)],
        claims,
    )


def _picture(maps: Mapping[tuple[str, str], FloatArray]) -> Picture:
    at = _GRID.axis(0)
    panels = []
    for users, features in _PANELS:
        exact = maps[_SOURCE, f"exact {users}"]
        made = maps[_SOURCE, f"{users} {features}"]
        lines = [
            Line("truth", at, line_density(at), "#6b6b6b", dashed=True),
            Line("exact KDE", at, exact, "#009E73"),
            Line("projection", at, made, "#0072B2"),
        ]
        panels.append((f"{users:,} people, B = {features}", lines))
    figure = lines_figure(panels, x_label="place", y_label="density")
    caption = "As Figure 3: three Gaussians on a line; the bandwidth, which the paper does not state, is 1."
    return Picture.of("figure_3", figure, caption)


FIGURE_3: Final = Section("figure 3", _jobs, _report)
