"""A million sites in a process of its own: set-up, every phone's half, maximum likelihood, and the peak of memory.

Usage: local_million_sites.py SITES USERS
"""

import json
import sys
import time
from typing import cast

import numpy as np

import mapveil as mv
from benchmarks.record import peak_mb
from mapveil.local.estimators.maximum_likelihood import maximise_likelihood
from mapveil.local.randomizers.randomizer import Tally
from mapveil.local.randomizers.staircase_response import StaircaseRandomizer, StaircaseResponse
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness

CHUNK = 1 << 20


def main() -> None:
    """Measure, and print one JSON line."""
    sites, users = int(sys.argv[1]), int(sys.argv[2])
    generator = np.random.default_rng(0)
    lon, lat = generator.uniform(-74.02, -73.91, sites), generator.uniform(40.70, 40.82, sites)
    crowd = np.cumsum(generator.gamma(0.5, size=sites))
    tiling = mv.Places(lon, lat, mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83))
    rng = Randomness(1)
    start = time.perf_counter()
    randomizer = cast("StaircaseRandomizer", StaircaseResponse(epsilon=2).on(Domain(tiling)))
    ready = time.perf_counter()
    drawing, tally = 0.0, Tally(np.zeros(randomizer.symbols, dtype=np.int64), 0)
    for first in range(0, users, CHUNK):
        drawn = generator.random(min(CHUNK, users - first)) * crowd[-1]
        cells = np.searchsorted(crowd, drawn)
        begun = time.perf_counter()
        tally += randomizer.tally(randomizer.randomize(cells, rng))
        drawing += time.perf_counter() - begun
    begun = time.perf_counter()
    made = maximise_likelihood(randomizer, tally)
    likely = time.perf_counter() - begun
    print(
        json.dumps(
            {
                "set_up": ready - start,
                "randomize": drawing,
                "estimate": likely,
                "steps": made.steps,
                "converged": made.converged,
                "peak_mb": peak_mb(),
            }
        )
    )


if __name__ == "__main__":
    main()
