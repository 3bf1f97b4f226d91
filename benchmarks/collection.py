"""One simulated collection in a process of its own: seconds from the users' places to the map, and peak memory."""

import json
import sys
import time
from pathlib import Path

import numpy as np
import scipy.special  # noqa: F401  loaded when it is needed: imports are not timed

import mapveil as mv
from benchmarks.record import peak_mb
from mapveil.geo.counts import Counts
from mapveil.mechanisms.methods import find_method

IMAGE = Path(__file__).parents[2] / "shared" / "data" / "manhattan_luminosity_1024.npz"
SIDE = 1024
EVERYBODY = 54_565_579


def brightness() -> np.ndarray:
    """The paper's image, or where it is not at hand one as bright, of streets on a slowly changing ground."""
    if IMAGE.exists():
        return np.asarray(np.load(IMAGE)["values"], dtype=np.int64).ravel()
    row, col = np.indices((SIDE, SIDE)) / SIDE
    ground = np.exp(np.sin(5 * row + 1) + np.cos(4 * col)) * (1 + 0.6 * np.sin(90 * row) * np.sin(70 * col))
    return np.random.default_rng(1).multinomial(EVERYBODY, (ground / ground.sum()).ravel())


method, users = sys.argv[1], int(sys.argv[2])
values = brightness()
if users < values.sum():
    values = np.random.default_rng(2).multivariate_hypergeometric(values, users, method="marginals")
tiling = mv.Grid(mv.Region.from_bbox(-74.02, 40.70, -73.93, 40.79), columns=SIDE, rows=SIDE)
people = Counts(values, tiling)
mechanism = find_method(method, "distributed").make(1, {"tolerated_dropout": 0, "corrupt": 0})
start = time.perf_counter()
made = mechanism.release(people, rng=1)
seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "rounds": len(made.rounds), "peak_mb": peak_mb()}))
