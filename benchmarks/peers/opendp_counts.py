"""Private counts per cell with OpenDP and Polars, as its documentation shows it.

Each user keeps at most ten rows, which is how this peer bounds a user.
"""

import json
import sys
import time
import warnings

import numpy as np
import opendp.prelude as dp
import polars as pl

warnings.simplefilter("ignore")
dp.enable_features("contrib")
path, side = sys.argv[1], int(sys.argv[2])
west, south, east, north = map(float, sys.argv[3:7])
start = time.perf_counter()
cell = ((north - pl.col("lat")) / (north - south) * side).cast(pl.Int64) * side + (
    (pl.col("lon") - west) / (east - west) * side
).cast(pl.Int64)
frame = pl.scan_parquet(path).select("user_id", cell=cell).collect().lazy()
context = dp.Context.compositor(
    data=frame,
    privacy_unit=dp.unit_of(contributions=1, identifier="user_id"),
    privacy_loss=dp.loss_of(epsilon=1.0),
    split_evenly_over=1,
)
keys = pl.LazyFrame({"cell": np.arange(side * side)})
query = context.query().truncate_per_group(10).group_by("cell").agg(dp.len(signed=True)).with_keys(keys)
made = query.release().collect()
print(json.dumps({"seconds": time.perf_counter() - start, "cells": made.height}))
