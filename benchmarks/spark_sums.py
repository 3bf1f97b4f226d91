"""A process of its own: the sums of a table on a cluster, timed once the cluster has loaded what it runs."""

import json
import sys
import time
import warnings

import pyarrow

import mapveil as mv
from mapveil.engines import user_sums
from mapveil.engines.spark_connect import SparkEngine

warnings.simplefilter("ignore")
url, path, *box = sys.argv[1:]
engine = SparkEngine(url)
tiling = mv.Quadtree(mv.Region.from_bbox(*map(float, box)), depth=8)
small = pyarrow.table({"user_id": [1, 2], "lon": [float(box[0])] * 2, "lat": [float(box[3])] * 2})
engine.session.createDataFrame(small).createTempView("small")
engine.session.read.parquet(path).createTempView("large")
for name in ("small", "large"):
    start = time.perf_counter()
    sums = user_sums(mv.read_points(engine.table(name)), tiling).sums
    seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "cells": int((sums > 0).sum())}))
