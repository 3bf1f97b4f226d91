"""One release by random Fourier features of all users of a raster of counts, in a process of its own."""

import json
import sys
import time

import numpy as np

import mapveil as mv
from benchmarks.record import peak_mb
from mapveil.random_features.fourier_kde import FourierKde

path, most = sys.argv[1], int(sys.argv[2])
counts = mv.read_counts(path)
if most:
    values = np.random.default_rng(0).multinomial(most, counts.values / counts.values.sum())
    counts = mv.Counts(values, counts.tiling)
start = time.perf_counter()
FourierKde(bandwidth_m=4).release(counts, account=None)
seconds = time.perf_counter() - start
side = round(counts.tiling.size**0.5)
print(json.dumps({"seconds": seconds, "peak_mb": peak_mb(), "users": int(counts.values.sum()), "side": side}))
