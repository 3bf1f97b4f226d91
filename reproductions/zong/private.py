"""Beyond the paper: the same density with one formal epsilon, from shared frequencies and from noisy cells smoothed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from mapveil.geo.counts import Counts
from mapveil.geo.grid import Grid
from mapveil.geo.region import Region
from mapveil.mechanisms.laplace_histogram import LaplaceHistogram
from mapveil.mechanisms.multiscale import Multiscale
from mapveil.mechanisms.private_fourier_kde import PrivateFourierKde
from mapveil.random_features.exact_density import kernel_density
from mapveil.random_features.map_points import MapPoints, map_points
from mapveil.random_features.surface import evaluate_on_grid
from mapveil_client.arrays import FloatArray
from mapveil_client.random_features.frequencies import unit_frequencies
from mapveil_client.random_features.kernels import Gaussian
from mapveil_client.random_features.query import EvenGrid, Query
from mapveil_client.random_features.report import Visits, client_reports
from mapveil_client.randomness.random import Randomness
from reproductions.driver import Section
from reproductions.report import Claim, Picture, Report, Table, joint_verdict, maps_figure
from reproductions.results import Outcome
from reproductions.zong.data import CITIES, City, read_city
from reproductions.zong.sections import Found, Plan, Results

SHARED: Final = "shared frequencies"
CELLS: Final = "multiscale, smoothed"
LAPLACE: Final = "Laplace cells, smoothed"
COARSE: Final = "Laplace cells of h, smoothed"
ONE: Final = "fourier-kde, B = 1 (no DP)"

_CITIES: Final = ("Gowalla, New York", "Gowalla, San Francisco", "Foursquare, Los Angeles")
_PEOPLE: Final = (1_000, 10_000, 50_000)
_PARTS: Final = {
    4: "a quarter",
    8: "an eighth",
    16: "a sixteenth",
    32: "a thirty-second",
}  # of the shorter side
_SIDE: Final = 128
_ERROR: Final = "error"
_LENGTH: Final = "coordinates"
_PICTURE: Final = ("Gowalla, New York", 10_000, 16)


class PrivateJob(NamedTuple):
    """A sample of one city, released by every method; can be pickled."""

    city: str
    users: int
    release: int
    shared: Path
    seed: int


def run_private(job: PrivateJob) -> Outcome:
    """Release at epsilon 1 and compare with the exact KDE of the same people, both normalised inside the region.

    The error is the root mean square difference over the exact density's own root mean square.
    """
    city = next(city for city in CITIES if city.name == job.city)
    source = f"{job.city}, {job.users:,}"
    stream = Randomness(job.seed).child(f"private/{source}/{job.release}")
    tiling, counts = _sampled(job.shared, city, job.users, stream)
    where = map_points(tiling)
    noisy = {
        CELLS: Multiscale(epsilon=1).release(counts, rng=stream.child(CELLS)).values,
        LAPLACE: LaplaceHistogram(epsilon=1, clip=False).release(counts, rng=stream.child(LAPLACE)).values,
    }
    side = min(high - low for low, high in zip(where.low, where.high, strict=True))
    found: list[Found] = []
    maps: dict[tuple[str, str], FloatArray] = {}
    for part in _PARTS:
        h = side / part
        exact = _smoothed(counts.values.astype(np.float64), where, h)
        shared = PrivateFourierKde(epsilon=1, bandwidth_m=h).release(counts, rng=stream.child(f"{part}"))
        coarse = _coarse(counts, tiling, h)
        released = LaplaceHistogram(epsilon=1, clip=False).release(
            coarse, rng=stream.child(f"{COARSE}{part}")
        )
        made = {
            SHARED: shared.values,
            **{name: _smoothed(values, where, h) for name, values in noisy.items()},
            COARSE: _smoothed_at(released.values, map_points(coarse.tiling), where, h),
            ONE: _projected(counts, where, h, stream.child(f"{ONE}{part}")),
        }
        lengths = {
            SHARED: 2 * int(shared.notes[0].split()[0]),
            CELLS: tiling.size,
            LAPLACE: tiling.size,
            COARSE: coarse.tiling.size,
        }
        for name, values in made.items():
            found.append(Found(source, job.users, job.release, name, part, _ERROR, _error(values, exact)))
        for name, length in lengths.items():
            found.append(Found(source, job.users, job.release, name, part, _LENGTH, float(length)))
        if job.release == 0 and (job.city, job.users, part) == _PICTURE:
            for name, values in {"exact KDE": exact, **made}.items():
                maps[source, name] = np.maximum(values, 0.0).reshape(_SIDE, _SIDE)
    return Outcome(tuple(found), maps)


def _sampled(shared: Path, city: City, users: int, stream: Randomness) -> tuple[Grid, Counts]:
    """People drawn without replacement from a cut's check-ins, on a grid."""
    lon, lat = read_city(shared, city)
    chosen = stream.child("people").generator().permutation(lon.size)[: min(users, lon.size)]
    tiling = Grid(Region.from_bbox(*city.box), columns=_SIDE, rows=_SIDE)
    cells = tiling.locate(lon[chosen], lat[chosen])
    counted = np.bincount(cells[cells >= 0], minlength=tiling.size).astype(np.int64)
    return tiling, Counts(counted, tiling, city.name)


def _smoothed(users: FloatArray, where: MapPoints, h: float) -> FloatArray:
    return _smoothed_at(users, where, where, h)


def _smoothed_at(users: FloatArray, cells: MapPoints, where: MapPoints, h: float) -> FloatArray:
    """The kernel sum of users at the middles of some cells, at the middles of others.

    Whoever is anywhere in a cell is off its middle with a variance of a twelfth of its side squared, which the kernel
    is narrowed by where both differ.
    """
    spread = (0.0, 0.0) if cells is where else tuple(abs(step) for step in _even(cells).step)
    narrowed = tuple(math.sqrt(max(h * h - side * side / 12, 0.25 * h * h)) for side in spread)
    return where.on_cells(kernel_density(cells.places, users, _even(where), Gaussian(), narrowed))


def _coarse(counts: Counts, tiling: Grid, h: float) -> Counts:
    """The same people on cells of about one bandwidth."""
    where = map_points(tiling)
    across = [max(1, round((high - low) / h)) for low, high in zip(where.low, where.high, strict=True)]
    coarse = Grid(tiling.region, columns=min(across[0], _SIDE), rows=min(across[1], _SIDE))
    cells = coarse.locate(*tiling.centres())
    summed = np.bincount(cells, counts.values, coarse.size).astype(np.int64)
    return Counts(summed, coarse, counts.source)


def _projected(counts: Counts, where: MapPoints, h: float, stream: Randomness) -> FloatArray:
    """The paper's projection with one feature, of the same people."""
    places = np.repeat(where.places, counts.values, axis=1)
    grid = _even(where)
    query = Query((h, h), where.low, where.high, 1, "gaussian", grid)
    units = unit_frequencies(places.shape[1], 1, query.law, 2, stream)
    return where.on_cells(evaluate_on_grid(client_reports(units, Visits(places), query), query, grid))


def _even(where: MapPoints) -> EvenGrid:
    if where.grid is None:
        raise AssertionError("the cells of a grid in its own plane are even")
    return where.grid


def _error(values: FloatArray, exact: FloatArray) -> float:
    kept = np.maximum(values, 0.0)
    made, truth = kept / max(kept.sum(), 1e-300), exact / exact.sum()
    return math.sqrt(float(np.square(made - truth).mean() / np.square(truth).mean()))


def _jobs(plan: Plan, shared: Path, seed: int) -> Sequence[PrivateJob]:
    return [
        PrivateJob(city, users, release, shared, seed)
        for city in _CITIES
        for users in _PEOPLE
        for release in range(plan.releases)
        if not (city == "Foursquare, Los Angeles" and users > 10_000)
    ]


def _report(results: Results) -> Report:
    sources = list(dict.fromkeys(row.source for row in results.rows))
    tables = []
    methods = (SHARED, CELLS, COARSE, LAPLACE, ONE)
    for part in _PARTS:
        rows = []
        for source in sources:
            means = {name: results.of(_ERROR, source=source, method=name, level=part) for name in methods}
            best = min((means[name].mean, name) for name in methods[:-1])[1]
            cells = [f"{'*' if name == best else ''}{means[name].shown()}" for name in methods]
            length = results.of(_LENGTH, source=source, method=SHARED, level=part).mean
            coarse = results.of(_LENGTH, source=source, method=COARSE, level=part).mean
            rows.append([source, *cells, f"{length:,.0f}", f"{coarse:,.0f}"])
        header = ["people", *methods, "numbers of shared frequencies", "of cells of h"]
        tables.append(
            Table(f"Beyond: relative error at epsilon 1, bandwidth {_PARTS[part]} of the side", header, rows)
        )
    signal = {
        (source, part): (
            results.of(_ERROR, source=source, method=SHARED, level=part).mean,
            results.of(_ERROR, source=source, method=CELLS, level=part).mean,
        )
        for source in sources
        for part in _PARTS
    }
    many = [source for source in sources if not source.endswith(" 1,000")]
    most = [source for source in sources if source.endswith("50,000")]
    wide = [signal[source, 4][0] < signal[source, 4][1] for source in many]
    wide += [signal[source, 8][0] < signal[source, 8][1] for source in most]
    one = [
        results.of(_ERROR, source=source, method=SHARED, level=part).mean
        < results.of(_ERROR, source=source, method=ONE, level=part).mean
        for source in sources
        for part in _PARTS
    ]
    narrow = [signal[source, 32][0] > signal[source, 32][1] for source in sources]
    claims = [
        Claim(
            "Shared frequencies under epsilon 1 have less error than smoothed multiscale cells where the kernel is "
            "wide (a quarter of the side with 10,000 people and more, an eighth with 50,000)",
            joint_verdict(wide),
            ", ".join(
                f"{source} {signal[source, 4][0]:.4f} against {signal[source, 4][1]:.4f} at a quarter"
                for source in many
            ),
        ),
        Claim(
            "They have less error than the paper's projection with one feature, which promises no epsilon (and needs "
            "no curator)",
            joint_verdict(one),
            f"in {sum(one)} of {len(one)} cases",
        ),
        Claim(
            "They have more than smoothed multiscale cells where it is narrow (a thirty-second): M frequencies of one "
            "user cost M times a cell's noise",
            joint_verdict(narrow),
            ", ".join(
                f"{source} {signal[source, 32][0]:.3f} against {signal[source, 32][1]:.3f}"
                for source in sources
            ),
        ),
    ]
    source = f"{_PICTURE[0]}, {_PICTURE[1]:,}"
    pictures = []
    if (source, "exact KDE") in results.maps:
        shown = ["exact KDE", *methods]
        rows_of_maps = [("", [(name, results.maps[source, name]) for name in shown])]
        caption = f"{source} people at epsilon 1, bandwidth {_PARTS[_PICTURE[2]]} of the side, each on its own scale."
        pictures.append(Picture.of("private", maps_figure(rows_of_maps), caption))
    return Report(tables, pictures, claims)


PRIVATE: Final = Section("table private", _jobs, _report)
