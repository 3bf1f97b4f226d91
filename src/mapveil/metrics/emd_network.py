"""Minimum-cost flow for the earth mover's distance: the networks and the exact solvers.

Moving mass over the plane at the price of the L1 distance is a flow problem on any graph whose
shortest paths are the L1 distances. Two such graphs are small:

- the **lattice** of all rows and columns in use, joined to their four neighbours: 2 edges a site;
- the **spanner** of k scattered points: split the points at the median column, join every point to its
  projection on that column and the projections along it, and go on with each half. Two points on
  different sides of a split are joined by a path over, along and out: exactly their L1 distance. It has
  at most k log2(2k) nodes besides the points and twice as many edges.
"""

import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import MissingExtra, require

MASS_UNITS = 1 << 45
"""Integer units that a total mass of one is divided into for the flow solver."""

LENGTH_UNITS = 1 << 14
"""Integer units of the shortest edge, where edge lengths are not multiples of it."""

FINEST_UNIT = 1 << 40
"""Integer units of the longest edge at most: the flow solver multiplies them by the number of nodes, in 64 bits."""

LARGEST_PROGRAM = 20_000
"""Edges of the largest network left to the linear program without OR-tools: about 100 x 100 sites."""


class Network(NamedTuple):
    """An undirected graph with edge lengths; mass enters and leaves at the first nodes.

    Fields: ``nodes`` is their number, ``tail`` and ``head`` are the ends of each edge, ``length`` its length.
    """

    nodes: int
    tail: IntArray
    head: IntArray
    length: FloatArray


def lattice_network(x: FloatArray, y: FloatArray) -> Network:
    """Every site of a lattice joined to its four neighbours.

    Parameters
    ----------
    x : ndarray of float64, shape (columns,)
        Increasing positions of the columns.
    y : ndarray of float64, shape (rows,)
        Increasing positions of the rows.

    Returns
    -------
    Network
        Node ``row * columns + column`` is the site of that row and column.
    """
    site = np.arange(y.size * x.size, dtype=np.int64).reshape(y.size, x.size)
    return Network(
        site.size,
        np.concatenate([site[:, :-1].ravel(), site[:-1].ravel()]),
        np.concatenate([site[:, 1:].ravel(), site[1:].ravel()]),
        np.concatenate([np.tile(np.diff(x), y.size), np.repeat(np.diff(y), x.size)]),
    )


def compass_network(rows: int, columns: int, width: float, height: float) -> tuple[Network, float]:
    r"""A lattice whose sites are joined in 16 directions, and by how much its paths exceed Euclidean distances at most.

    A displacement is divided into steps of the two directions beside it, at most :math:`\theta` apart, so that a
    shortest path is at most :math:`1 / \cos(\theta / 2)` times as long as the straight line (Minkowski norms whose unit
    ball is a polygon within the circle): 1.0275 for square cells.
    """
    site = np.arange(rows * columns, dtype=np.int64).reshape(rows, columns)
    steps = [(0, 1), (1, 0), (1, 1), (1, -1), (1, 2), (1, -2), (2, 1), (2, -1)]
    tail, head, length = [], [], []
    for down, along in steps:
        left, right = max(0, -along), max(0, along)
        start = site[: max(rows - down, 0), left : columns - right]
        tail.append(start.ravel())
        head.append(start.ravel() + down * columns + along)
        length.append(np.full(start.size, math.hypot(down * height, along * width)))
    angles = sorted(math.atan2(down * height, along * width) for down, along in steps if along >= 0)
    widest = max(after - before for before, after in itertools.pairwise(angles))
    joined = Network(site.size, np.concatenate(tail), np.concatenate(head), np.concatenate(length))
    return joined, 1 / math.cos(widest / 2)


def spanner_network(x: FloatArray, y: FloatArray) -> Network:
    """Scattered points joined so that shortest paths are exactly their L1 distances.

    Parameters
    ----------
    x, y : ndarray of float64, shape (points,)
        Positions of the points, no two alike.

    Returns
    -------
    Network
        Node i is point i; the nodes after them are projections on the splitting columns.
    """
    columns, column = np.unique(x, return_inverse=True)
    rows, row = np.unique(y, return_inverse=True)
    depth = int(columns.size - 1).bit_length()
    point = np.arange(x.size, dtype=np.int64)
    tail, head, length = [], [], []
    nodes = x.size
    for level in range(depth + 1):
        # A block of columns at this level is a prefix of the column's rank; its splitting line is its middle.
        block = column >> (depth - level)
        line = np.minimum((block << (depth - level)) + ((1 << (depth - level)) >> 1), columns.size - 1)
        stop, projection = np.unique(block * rows.size + row, return_inverse=True)
        tail.append(point)
        head.append(nodes + projection)
        length.append(np.abs(x - columns[line]))
        along = np.flatnonzero(stop[1:] // rows.size == stop[:-1] // rows.size)
        tail.append(nodes + along)
        head.append(nodes + along + 1)
        length.append(rows[stop[along + 1] % rows.size] - rows[stop[along] % rows.size])
        nodes += stop.size
    return Network(nodes, np.concatenate(tail), np.concatenate(head), np.concatenate(length))


def mass_units(supply: FloatArray) -> IntArray:
    """Round a supply that sums to zero to multiples of ``1 / MASS_UNITS``; the largest takes the units left over."""
    units = np.rint(supply * MASS_UNITS).astype(np.int64)
    units[np.argmax(np.abs(units))] -= units.sum()
    return units


def length_units(network: Network) -> IntArray:
    """Edge lengths as integers: multiples of the shortest, or of a fine unit."""
    longest = network.length.max(initial=0.0)
    if longest == 0:
        return np.zeros(network.length.size, dtype=np.int64)
    most = min(FINEST_UNIT, (1 << 61) // (network.nodes + 1))
    shortest = network.length[network.length > longest / most].min()
    cost = network.length / shortest
    if np.abs(cost - np.rint(cost)).max() > 1e-9:
        shortest /= LENGTH_UNITS
    return np.asarray(np.rint(network.length / max(shortest, longest / most)), dtype=np.int64)


def minimum_cost(network: Network, supply: FloatArray, solver: str = "auto") -> float:
    r"""Least total of mass times distance that moves the surplus onto the deficit.

    .. math:: \min_{f \ge 0} \sum_e \ell_e (f_e + f_{-e}) \quad\text{with}\quad \operatorname{div} f = b

    where: :math:`\ell` is ``network.length`` and :math:`b` is ``supply``, zero at the other nodes.

    Parameters
    ----------
    network : Network
        Edges along which mass can move.
    supply : ndarray of float64
        Surplus (positive) and deficit (negative) of the first nodes; sums to zero, its positive part to at most 1.
    solver : {"auto", "flow", "program"}
        ``"flow"``: OR-tools' cost-scaling push-relabel on masses rounded to integers. The result is off by at most
        ``supply.size / (2 * MASS_UNITS)`` times the greatest distance; where lengths are not multiples of the shortest,
        by a further ``1 / LENGTH_UNITS`` of itself; where the shortest is less than ``LENGTH_UNITS / FINEST_UNIT`` of
        the longest, by ``1 / FINEST_UNIT`` of that for every edge on the way. ``"program"``: the same as a linear
        program by HiGHS, in floating point (tolerance 1e-7). ``"auto"``: the first where OR-tools is installed.

    Raises
    ------
    MissingExtra
        OR-tools is not installed, and ``solver`` is ``"flow"`` or the network has more than ``LARGEST_PROGRAM`` edges.
    """
    full = np.zeros(network.nodes)
    full[: supply.size] = supply
    if solver == "program":
        return _by_program(network, full)
    try:
        return _by_flow(network, full)
    except MissingExtra:
        if solver == "flow" or network.tail.size > LARGEST_PROGRAM:
            raise
        return _by_program(network, full)


def _by_flow(network: Network, supply: FloatArray) -> float:
    min_cost_flow = require("ortools.graph.python.min_cost_flow", "eval")
    units = mass_units(supply)
    price = np.tile(length_units(network), 2)
    capacity = np.full(price.size, int(units[units > 0].sum()), dtype=np.int64)
    tail = np.concatenate([network.tail, network.head]).astype(np.int32)
    head = np.concatenate([network.head, network.tail]).astype(np.int32)
    solver = min_cost_flow.SimpleMinCostFlow()
    arcs = solver.add_arcs_with_capacity_and_unit_cost(tail, head, capacity, price)
    solver.set_nodes_supplies(np.arange(network.nodes, dtype=np.int32), units)
    status = solver.solve()
    if status != solver.OPTIMAL:
        raise RuntimeError(f"the flow solver stopped with status {status}")
    flow = solver.flows(arcs)
    return float(flow @ np.tile(network.length, 2)) / MASS_UNITS


def _by_program(network: Network, supply: FloatArray) -> float:
    from scipy.optimize import linprog
    from scipy.sparse import csr_array, hstack

    edges = network.tail.size
    edge, one = np.arange(edges), np.ones(edges)
    leaving = csr_array((one, (network.tail, edge)), shape=(network.nodes, edges))
    entering = csr_array((one, (network.head, edge)), shape=(network.nodes, edges))
    # SciPy accepts a sparse matrix here, its published types do not.
    divergence: Any = hstack([leaving - entering, entering - leaving], format="csr")
    answer = linprog(np.tile(network.length, 2), A_eq=divergence, b_eq=supply, method="highs")
    if answer.status != 0:
        raise RuntimeError(f"HiGHS stopped: {answer.message}")
    return float(answer.fun or 0.0)
