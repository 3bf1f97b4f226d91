"""OpenDP's integer Laplace measurement on a vector, as its documentation shows it."""

import json
import sys
import time

import opendp.prelude as dp

dp.enable_features("contrib")
count = int(sys.argv[1])
measure = dp.m.make_laplace(
    dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64"), scale=float(1 << 28)
)
data = [0] * count
start = time.perf_counter()
measure(data)
print(json.dumps({"per_second": count / (time.perf_counter() - start)}))
