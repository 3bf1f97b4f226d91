"""The score of how well devices are hidden: 100,000 of them on 100 x 100, beside a filter of SciPy's user by user."""

from __future__ import annotations

import time

import numpy as np
from scipy.ndimage import maximum_filter

from benchmarks.record import Context, Result, line
from mapveil.attacks.localisation_score import PAPER_RATIO, score_features
from mapveil_client.random_features.frequencies import unit_frequencies
from mapveil_client.random_features.query import EvenGrid, Query
from mapveil_client.random_features.report import Reports, Visits, client_reports, grid_reports
from mapveil_client.randomness.random import Randomness

DEVICES = 100_000
SIDE = 100
SAMPLED = 200
GOAL_S = 60.0


def run(context: Context) -> list[Result]:
    """Measure one feature a device, which has the most maxima, and three."""
    devices = 5_000 if context.quick else DEVICES
    return [_score(devices, features) for features in (1, 3)]


def _score(devices: int, features: int) -> Result:
    grid = EvenGrid((-4.0, -4.0), (8 / (SIDE - 1),) * 2, (SIDE, SIDE))
    query = Query((0.55, 0.55), (-4.0, -4.0), (4.0, 4.0), features, grid=grid)
    rng = Randomness(1)
    places = np.clip(np.random.default_rng(0).normal(size=(2, devices)), -4, 4)
    reports = client_reports(unit_frequencies(devices, features, query.law, 2, rng), Visits(places), query)
    start = time.perf_counter()
    found = score_features(reports, places, query)
    taken = time.perf_counter() - start
    start = time.perf_counter()
    slow = np.array([_by_filter(reports, device, places, query) for device in range(SAMPLED)])
    peer = (time.perf_counter() - start) * devices / SAMPLED
    if not np.allclose(slow, found.expected_m[:SAMPLED]):
        raise RuntimeError("the score is not the one that SciPy's filter gives")
    noun = "feature" if features == 1 else "features"
    return line(
        f"privacy score, {devices:,} devices on {SIDE} x {SIDE}, {features} {noun}",
        taken,
        "s",
        f"scipy.ndimage.maximum_filter, device by device (a slice of {SAMPLED})",
        peer,
        f"<= {GOAL_S:g} s",
        taken <= GOAL_S,
    )


def _by_filter(reports: Reports, device: int, places: np.ndarray, query: Query) -> float:
    one = Reports(reports.frequencies[:, [device]], reports.projections[[device]])
    surface = grid_reports(one, query)[0]
    peaks = (surface == maximum_filter(surface, 3)) & (surface >= surface.max() / PAPER_RATIO)
    column, row = np.nonzero(peaks)
    grid = query.grid
    if grid is None:
        raise RuntimeError("the query has no grid")
    away = np.hypot(grid.axis(0)[column] - places[0, device], grid.axis(1)[row] - places[1, device])
    return float((surface[peaks] * away).sum() / surface[peaks].sum())
