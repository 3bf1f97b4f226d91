"""Random features: the sum of reports beside equation 7 user by user and beside matrix products; exact densities beside
KDEpy, SciPy and scikit-learn; every user of a whole city."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.record import Context, Result, best_of, in_process, line
from mapveil.random_features.exact_density import direct_density, kernel_density
from mapveil.random_features.surface import evaluate_on_grid
from mapveil_client.arrays import FloatArray
from mapveil_client.random_features.frequencies import unit_frequencies
from mapveil_client.random_features.kernels import Gaussian
from mapveil_client.random_features.query import EvenGrid, Query
from mapveil_client.random_features.report import Reports, Visits, client_reports
from mapveil_client.randomness.random import Randomness
from tests.random_features.direct_surface import direct_surface

SIDE = 512
EXTENT = 11_200.0
BANDWIDTH = 150.0
SAMPLED = 150
PEERS = {
    "KDEpy's FFTKDE": "kdepy",
    "scikit-learn's KernelDensity (a slice)": "sklearn",
    "SciPy's gaussian_kde (a slice)": "scipy",
}


def run(context: Context) -> list[Result]:
    """Measure the server half, exact densities and a whole city."""
    users = 50_000 if context.quick else 1_000_000
    return [*_reports(users), *_exact(context, users), *_city(context)]


def _grid() -> EvenGrid:
    step = EXTENT / (SIDE - 1)
    return EvenGrid((-EXTENT / 2, EXTENT / 2), (step, -step), (SIDE, SIDE))


def _places(users: int) -> FloatArray:
    """A city of three hills, nobody within 600 m of the edge (KDEpy's grid must hold everybody)."""
    rng = np.random.default_rng(0)
    middle = np.array([[-1500.0, 500.0], [2000.0, 1500.0], [800.0, -2500.0]])[rng.integers(0, 3, users)]
    return np.ascontiguousarray(np.clip(middle + rng.normal(0, 1200, (users, 2)), -5000, 5000).T)


def _reports(users: int) -> list[Result]:
    grid = _grid()
    query = Query((BANDWIDTH,) * 2, (-5600.0,) * 2, (5600.0,) * 2, 1, "gaussian", grid)
    rng = Randomness(1)
    units = unit_frequencies(users, 1, query.law, 2, rng)
    visits = Visits(_places(users))
    made = client_reports(units, visits, query)

    def transform() -> FloatArray:
        return evaluate_on_grid(made, query, grid)

    transform()
    ours = best_of(5, transform)
    naive = _by_equation_7(made, grid, 20) * users / 20
    slice_ = min(users, 50_000)
    product = best_of(2, lambda: _by_products(made, grid, slice_)) * users / slice_
    some = np.random.default_rng(1).integers(0, grid.size, SAMPLED)
    wanted = direct_surface(made, query, grid.points()[:, some])
    error = _relative(transform().ravel()[some], wanted)
    client = best_of(2, lambda: client_reports(unit_frequencies(users, 1, query.law, 2, rng), visits, query))
    name = f"{users:,} reports of one feature to {SIDE} x {SIDE}"
    return [
        line(
            name, ours, "s", "equation 7 user by user (20 of them)", naive, ">= 10,000 x", naive >= 1e4 * ours
        ),
        line(
            name, ours, "s", "separable matrix products (a slice)", product, ">= 100 x", product >= 100 * ours
        ),
        line(f"{name}: relative difference", error, "", "the limit", 1e-6, ">= 1 x", error <= 1e-6),
        line(
            f"{users:,} devices' halves", client / users * 1e9, "ns each", "the server's", ours / users * 1e9
        ),
    ]


def _by_equation_7(reports: Reports, grid: EvenGrid, users: int) -> float:
    """Seconds for some users: one cosine at each point, the least that equation 7 can be done with point by point."""
    x, y = grid.axis(0) - grid.middle[0], grid.axis(1) - grid.middle[1]
    phase = np.angle(reports.projections[:, 0])
    total = np.zeros(grid.count)
    start = time.perf_counter()
    for user in range(users):
        along = reports.frequencies[0, user, 0] * x - phase[user]
        total += np.cos(np.add.outer(along, reports.frequencies[1, user, 0] * y))
    return time.perf_counter() - start


def _by_products(reports: Reports, grid: EvenGrid, users: int) -> FloatArray:
    """cos(a + b) = cos a cos b - sin a sin b: two real matrix products, exponentials along each axis by doubling."""
    total = np.zeros(grid.count)
    block = 10_000
    for start in range(0, users, block):
        part = slice(start, start + block)
        x = _exponentials(reports.frequencies[0, part, 0], grid, 0)
        x *= reports.projections[part, 0].conj()[:, None]
        y = _exponentials(reports.frequencies[1, part, 0], grid, 1)
        total += np.ascontiguousarray(x.real).T @ np.ascontiguousarray(y.real)
        total -= np.ascontiguousarray(x.imag).T @ np.ascontiguousarray(y.imag)
    return total


def _exponentials(frequency: FloatArray, grid: EvenGrid, axis: int) -> npt.NDArray[np.complex128]:
    count, step = grid.count[axis], grid.step[axis]
    made = np.empty((frequency.size, count), dtype=np.complex128)
    made[:, 0] = np.exp(-1j * frequency * step * (count // 2))
    done = 1
    while done < count:
        more = min(done, count - done)
        np.multiply(
            made[:, :more], np.exp(1j * frequency * step * done)[:, None], out=made[:, done : done + more]
        )
        done += more
    return made


def _relative(found: FloatArray, wanted: FloatArray) -> float:
    return math.sqrt(float(np.mean(np.square(found - wanted)) / np.mean(np.square(wanted))))


def _exact(context: Context, users: int) -> list[Result]:
    if not context.peers:
        return []
    grid, places = _grid(), _places(users)
    some = np.random.default_rng(1).integers(0, grid.size, SAMPLED)
    h = (BANDWIDTH, BANDWIDTH)
    scale = 2 * math.pi * BANDWIDTH**2 * users
    wanted = direct_density(places, None, grid.points()[:, some], Gaussian(), h) / scale
    np.savez(context.folder / "places.npz", places=places.T, points=grid.points().T, some=some)

    def ours(tolerance: float) -> Callable[[], FloatArray]:
        return lambda: kernel_density(places, None, grid, Gaussian(), h, tolerance=tolerance)

    results = []
    for peer, kind in PEERS.items():
        theirs = in_process(
            context.peers, "peers/kernel_densities.py", kind, context.folder / "places.npz", BANDWIDTH
        )
        # SciPy's kernel is another, so there it is full accuracy.
        error = _relative(np.array(theirs["values"]), wanted) if theirs["values"] else 1e-9
        # As accurate as the peer or better: the coarsest tolerance whose error is not larger.
        tolerance = next(
            (
                t
                for t in (1e-2, 1e-4, 1e-6, 1e-9)
                if _relative(ours(t)().ravel()[some] / scale, wanted) <= error
            ),
            1e-12,
        )
        seconds = best_of(5, ours(tolerance))
        results.append(
            line(
                f"exact density of {users:,} users on {SIDE} x {SIDE}, error <= {error:.1g}",
                seconds,
                "s",
                peer,
                theirs["seconds"],
                ">= 1 x",
                seconds <= theirs["seconds"],
            )
        )
    return results


def _city(context: Context) -> list[Result]:
    data = Path(__file__).parents[2] / "shared" / "data" / "manhattan_luminosity_1024.npz"
    if not data.is_file():
        return []
    made = in_process(sys.executable, "projection_release.py", data, 100_000 if context.quick else 0)
    name = f"fourier-kde, {made['users']:,} users to {made['side']} x {made['side']}"
    seconds, peak = made["seconds"], made["peak_mb"]
    return [
        line(name, seconds, "s", "the limit", 30.0, ">= 1 x", seconds <= 30),
        line(f"{name}: peak memory", peak, "MB", "the limit", 4096, ">= 1 x", peak <= 4096),
    ]
