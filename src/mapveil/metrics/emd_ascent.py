"""The exact earth mover's distance on a raster of square cells, by ascent on whole-numbered potentials."""

import numpy as np

from mapveil.metrics.beckmann import least_flow
from mapveil.metrics.emd_network import MASS_UNITS, mass_units
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import require

_FIRST_TOLERANCE = 1e-3
_FIRST_ITERATIONS = 500
_OFFSETS = 8


def exact_by_ascent(b: FloatArray) -> float:
    r"""Least cost, in cells, of moving a surplus onto a deficit over the four neighbours of each cell.

    The dual is solved by a potential of whole numbers, since all edges have length one:

    .. math:: \max_{|u_i - u_j| \le 1} \sum_i b_i u_i, \qquad u \in \mathbb{Z}^n

    where: :math:`b` is ``b``. One that is nearly best comes from :func:`mapveil.metrics.beckmann.least_flow`,
    rounded down after the best of eight shifts, which keeps it feasible. Then, as long as the surplus
    cannot flow to the deficit over **tight** edges alone (:math:`u_i - u_j = 1`), the potential of all
    cells on the near side of the minimum cut grows by one. Each such step gains, and keeps feasible because
    no tight edge leaves the near side; when all of the surplus flows, the cost of that flow equals the gain
    of the potential, and both are best. The steps needed are as many as the first potential is away from a
    best one: 1 to 4 on noisy or sparse maps, some tens on very smooth ones.

    Masses are rounded to ``1 / MASS_UNITS``, so the result is off by at most ``b.size / (2 * MASS_UNITS)``
    times the diameter in cells. Source: the primal-dual method of Ford and Fulkerson; Murota and Shioura
    (2014) for the number of steps.

    Parameters
    ----------
    b : ndarray of float64, shape (rows, columns)
        Surplus (positive) and deficit (negative) of sum zero; at most 1 in all.

    Raises
    ------
    MissingExtra
        OR-tools is not installed.
    """
    max_flow = require("ortools.graph.python.max_flow", "eval")
    units = mass_units(b.ravel())
    started = least_flow(b, 1.0, 1.0, _FIRST_TOLERANCE, _FIRST_ITERATIONS).potential
    u = _best_rounding(started.ravel(), units)
    site = np.arange(b.size, dtype=np.int32).reshape(b.shape)
    one = np.concatenate([site[:, :-1].ravel(), site[:-1].ravel()])
    other = np.concatenate([site[:, 1:].ravel(), site[1:].ravel()])
    tail, head = np.concatenate([one, other]), np.concatenate([other, one])
    near, far = np.flatnonzero(units > 0).astype(np.int32), np.flatnonzero(units < 0).astype(np.int32)
    total = int(units[near].sum())
    source, sink = b.size, b.size + 1
    while True:
        tight = u[tail] - u[head] == 1
        flow = max_flow.SimpleMaxFlow()
        flow.add_arcs_with_capacity(
            np.concatenate([tail[tight], np.full_like(near, source), far]),
            np.concatenate([head[tight], near, np.full_like(far, sink)]),
            np.concatenate([np.full(int(tight.sum()), total, dtype=np.int64), units[near], -units[far]]),
        )
        status = flow.solve(source, sink)
        if status != flow.OPTIMAL:
            raise RuntimeError(f"the flow solver stopped with status {status}")
        if flow.optimal_flow() == total:
            return int(u @ units) / MASS_UNITS
        side = np.asarray(flow.get_source_side_min_cut(), dtype=np.int64)
        u[side[side < b.size]] += 1


def _best_rounding(potential: FloatArray, units: IntArray) -> IntArray:
    """Rounded down after a shift, a potential stays feasible; on average over shifts it gains as much."""
    shifted = [np.floor(potential + k / _OFFSETS).astype(np.int64) for k in range(_OFFSETS)]
    return max(shifted, key=lambda u: int(u @ units))
