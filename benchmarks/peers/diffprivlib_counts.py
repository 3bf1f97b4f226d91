"""Private counts per cell with diffprivlib's histogram2d; it does not bound users at all."""

import json
import sys
import time

import diffprivlib.tools
import polars as pl

path, side = sys.argv[1], int(sys.argv[2])
west, south, east, north = map(float, sys.argv[3:7])
start = time.perf_counter()
frame = pl.read_parquet(path, columns=["lon", "lat"])
made, _, _ = diffprivlib.tools.histogram2d(
    frame["lat"].to_numpy(),
    frame["lon"].to_numpy(),
    epsilon=1.0,
    bins=side,
    range=[[south, north], [west, east]],
)
print(json.dumps({"seconds": time.perf_counter() - start, "cells": made.size}))
