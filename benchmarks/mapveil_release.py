"""One release in a process of its own: seconds from the file to the map, and peak memory."""

import json
import sys
import time

import duckdb  # noqa: F401  the libraries that a release loads when it needs them: imports are not timed
import pyarrow  # noqa: F401
import scipy.special  # noqa: F401

import mapveil as mv
from benchmarks.record import peak_mb
from mapveil.mechanisms.methods import find_method

path, side, method = sys.argv[1], int(sys.argv[2]), sys.argv[3]
box = tuple(map(float, sys.argv[4:8]))
mechanism = find_method(method).make(1)
tiling = mv.Grid(mv.Region.from_bbox(*box), columns=side, rows=side)
start = time.perf_counter()
points = mv.read_points(path)
made = mechanism.release(points, tiling, account=None)
seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "cells": made.values.size, "peak_mb": peak_mb()}))
