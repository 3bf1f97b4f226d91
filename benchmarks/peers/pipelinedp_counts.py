"""Private counts per cell with PipelineDP on its local backend, as its documentation shows it."""

import json
import sys
import time

import numpy as np
import pipeline_dp
import polars as pl

path, side = sys.argv[1], int(sys.argv[2])
west, south, east, north = map(float, sys.argv[3:7])
start = time.perf_counter()
frame = pl.read_parquet(path)
column = ((frame["lon"].to_numpy() - west) / (east - west) * side).astype(np.int64)
row = ((north - frame["lat"].to_numpy()) / (north - south) * side).astype(np.int64)
rows = list(zip(frame["user_id"].to_list(), (row * side + column).tolist(), strict=True))
accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=1, total_delta=1e-8)
engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
params = pipeline_dp.AggregateParams(
    metrics=[pipeline_dp.Metrics.COUNT],
    noise_kind=pipeline_dp.NoiseKind.LAPLACE,
    max_partitions_contributed=10,
    max_contributions_per_partition=1,
)
extractors = pipeline_dp.DataExtractors(
    privacy_id_extractor=lambda entry: entry[0],
    partition_extractor=lambda entry: entry[1],
    value_extractor=lambda entry: 1,
)
result = engine.aggregate(rows, params, extractors, public_partitions=list(range(side * side)))
accountant.compute_budgets()
made = list(result)
print(json.dumps({"seconds": time.perf_counter() - start, "cells": len(made)}))
