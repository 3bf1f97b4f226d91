"""Kernel densities as the peers' documentation shows them: seconds on the whole grid, and values at some points.

SciPy and scikit-learn evaluate a slice of the grid, and the seconds are extrapolated to all of it.
"""

import json
import sys
import time

import numpy as np

kind, path, bandwidth = sys.argv[1], sys.argv[2], float(sys.argv[3])
data = np.load(path)
places, points, some = data["places"], data["points"], data["some"]


def timed(call):
    start = time.perf_counter()
    return call(), time.perf_counter() - start


if kind == "kdepy":
    from KDEpy import FFTKDE

    order = np.lexsort((points[:, 1], points[:, 0]))
    back = np.argsort(order)

    def evaluate():
        return FFTKDE(bw=bandwidth, kernel="gaussian").fit(places).evaluate(points[order])

    runs = [timed(evaluate) for _ in range(5)]
    values, seconds = runs[0][0][back][some], min(run[1] for run in runs)
elif kind == "sklearn":
    from sklearn.neighbors import KernelDensity

    model, fitting = timed(
        lambda: KernelDensity(bandwidth=bandwidth, kernel="gaussian", rtol=1e-4).fit(places)
    )
    logs, slice_ = timed(lambda: model.score_samples(points[some]))
    values, seconds = np.exp(logs), fitting + slice_ * len(points) / len(some)
else:
    from scipy.stats import gaussian_kde

    # Its kernel has the shape of the data's covariance, so only the time is compared.
    spread = np.linalg.det(np.cov(places.T)) ** 0.25
    model = gaussian_kde(places.T, bw_method=bandwidth / spread)
    _, slice_ = timed(lambda: model(points[some].T))
    values, seconds = np.zeros(0), slice_ * len(points) / len(some)
print(json.dumps({"seconds": seconds, "values": values.tolist()}))
