"""The earth mover's distance against transport over all pairs, closed forms and the laws of a metric."""

from __future__ import annotations

import itertools
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linprog

import mapveil as mv
from mapveil.geo.positions import positions_m
from mapveil.maps.density_map import DensityMap
from mapveil.metrics.emd import emd, emd_of_points, surplus_of_cells
from mapveil.metrics.emd_ascent import exact_by_ascent
from mapveil.metrics.emd_network import (
    FINEST_UNIT,
    LENGTH_UNITS,
    MASS_UNITS,
    Network,
    lattice_network,
    length_units,
    mass_units,
    minimum_cost,
    spanner_network,
)
from mapveil.privacy.claim import Adversary, Neighbouring, TrustModel
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.arrays import FloatArray
from mapveil_client.cells import Centres, Lattice
from mapveil_client.errors import MissingExtra, ParameterError

SMALL = st.tuples(st.integers(1, 6), st.integers(1, 6))


def rasters(count: int) -> st.SearchStrategy[tuple[FloatArray, ...]]:
    """That many maps of one random small shape, with many empty cells."""
    cell = st.one_of(st.just(0.0), st.integers(1, 9).map(float))
    return SMALL.flatmap(lambda shape: st.tuples(*[arrays(np.float64, shape, elements=cell)] * count))


def transport_over_all_pairs(p: FloatArray, q: FloatArray, cell: tuple[float, float]) -> float:
    """The definition, as one linear program over every pair of cells."""
    rows, columns = p.shape
    places = [(r, c) for r in range(rows) for c in range(columns)]
    n = len(places)
    cost = [
        abs(a[1] - b[1]) * cell[0] + abs(a[0] - b[0]) * cell[1] for a, b in itertools.product(places, places)
    ]
    marginals = np.zeros((2 * n, n * n))
    for i, j in itertools.product(range(n), range(n)):
        marginals[i, i * n + j] = 1
        marginals[n + j, i * n + j] = 1
    uniform = np.full(n, 1 / n)
    left = p.ravel() / p.sum() if p.sum() else uniform
    right = q.ravel() / q.sum() if q.sum() else uniform
    answer = linprog(cost, A_eq=marginals, b_eq=np.concatenate([left, right]), method="highs")
    assert answer.status == 0
    return float(answer.fun)


@settings(max_examples=40, deadline=None)
@given(rasters(2), st.sampled_from([None, (1.0, 1.0), (2.0, 1.0), (0.7, 1.3)]))
def test_equals_transport_over_all_pairs(maps, cell):
    p, q = maps
    size = (1 / p.shape[1], 1 / p.shape[0]) if cell is None else cell
    assert emd(p, q, cell=cell) == pytest.approx(transport_over_all_pairs(p, q, size), abs=2e-6, rel=2e-6)


@pytest.mark.parametrize("solver", ["flow", "program"])
def test_each_network_and_solver_gives_the_same(solver):
    rng = np.random.default_rng(5)
    side = 9
    moved = np.zeros((side, side))
    cells = rng.choice(side * side, 14, replace=False)
    moved.flat[cells] = rng.random(14)
    moved.flat[cells[:7]] *= -moved.flat[cells[7:]].sum() / moved.flat[cells[:7]].sum()
    row, column = np.nonzero(moved)
    x, y = column * 0.37, row * 1.0
    by_lattice = minimum_cost(
        lattice_network(np.arange(side) * 0.37, np.arange(side) * 1.0), moved.ravel(), solver
    )
    by_spanner = minimum_cost(spanner_network(x, y), moved[row, column], solver)
    assert by_lattice == pytest.approx(by_spanner, rel=1e-6)
    assert by_lattice == pytest.approx(emd_of_points(x, y, moved[row, column]), rel=1e-6)


@pytest.mark.parametrize("gap", [1e-3, 1e-9, 1e-12, 1e-30])
def test_places_much_nearer_than_others_are_told_apart(gap):
    random = np.random.default_rng(11)
    x, y = random.uniform(-1, 1, (2, 12))  # around 0, where floating point tells such gaps
    x[:3], y[:3] = (0.0, gap, 5e4), (0.0, gap / 2, 3e4)
    supply = random.normal(size=12)
    supply -= supply.mean()
    supply /= np.maximum(supply, 0).sum()
    away, here = np.maximum(supply, 0), np.maximum(-supply, 0)
    cost = np.abs(x[:, None] - x) + np.abs(y[:, None] - y)
    n = supply.size
    sums = np.vstack([np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))])
    wanted = linprog(cost.ravel() / 1e4, A_eq=sums, b_eq=np.concatenate([away, here])).fun * 1e4
    columns, rows = np.unique(x), np.unique(y)
    full = np.zeros((rows.size, columns.size))
    full[np.searchsorted(rows, y), np.searchsorted(columns, x)] = supply
    spanner, lattice = spanner_network(x, y), lattice_network(columns, rows)
    assert spanner.length.max() > 1e4
    for network, surplus in ((spanner, supply), (lattice, full.ravel())):
        assert minimum_cost(network, surplus, "flow") == pytest.approx(wanted, rel=1e-6)


def test_lengths_are_whole_units_as_fine_as_the_solver_takes():
    tail = np.arange(3)
    multiples, odd, wide = (
        Network(4, tail, tail + 1, np.array(length))
        for length in ([2.0, 4.0, 6.0], [1.0, 1.5, 0.0], [1.0, 1e-3, 1e-20])
    )
    assert length_units(multiples).tolist() == [1, 2, 3]
    assert length_units(odd).tolist() == [LENGTH_UNITS, 3 * LENGTH_UNITS // 2, 0]
    assert length_units(wide).max() <= FINEST_UNIT
    assert length_units(wide)[1] / length_units(wide)[0] == pytest.approx(1e-3, rel=1e-4)
    assert length_units(Network(4, tail, tail + 1, np.zeros(3))).tolist() == [0, 0, 0]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=2, max_size=12, unique=True))
def test_shortest_paths_of_the_spanner_are_l1_distances(points):
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import shortest_path

    x, y = np.array(points, dtype=np.float64).T
    net = spanner_network(x, y)
    # SciPy reads a stored zero as no edge at all, so lengths are lifted a hair.
    graph = csr_array((net.length + 1e-9, (net.tail, net.head)), shape=(net.nodes, net.nodes))
    found = shortest_path(graph, directed=False, indices=np.arange(x.size))[:, : x.size]
    expected = np.abs(x[:, None] - x) + np.abs(y[:, None] - y)
    assert np.allclose(found, expected, atol=1e-5)


@settings(max_examples=30, deadline=None)
@given(arrays(np.float64, st.integers(2, 30), elements=st.floats(0, 5)), st.randoms(use_true_random=False))
def test_on_a_line_is_the_difference_of_cumulative_sums(p, random):
    q = p.copy()
    random.shuffle(q)
    if p.sum() < 1e-6:
        return
    expected = np.abs(np.cumsum(p / p.sum()) - np.cumsum(q / q.sum()))[:-1].sum()
    assert emd(p[None], q[None], cell=(1, 1)) == pytest.approx(expected, abs=1e-12)
    assert emd(p[:, None], q[:, None], cell=(1, 1)) == pytest.approx(expected, abs=1e-12)
    # A second, empty line forces the network; the answer is the same.
    far = np.zeros((2, p.size))
    far[0], other = p, np.zeros((2, p.size))
    other[0] = q
    assert emd(far, other, cell=(1, 1)) == pytest.approx(expected, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(rasters(3))
def test_laws_of_a_metric(maps):
    p, q, r = maps
    assert emd(p, p) == 0
    assert emd(p, 3.7 * p) == 0
    there = emd(p, q)
    assert there >= 0
    assert there == pytest.approx(emd(q, p), abs=1e-9)
    assert emd(p, r) <= there + emd(q, r) + 1e-9
    assert there == pytest.approx(emd(p.T, q.T), abs=1e-9)
    assert there == pytest.approx(emd(p[::-1], q[::-1]), abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 29), st.integers(0, 29), st.integers(0, 29), st.integers(0, 29))
def test_a_point_mass_moves_by_its_distance(r0, c0, r1, c1):
    p, q = np.zeros((2, 30, 30))
    p[r0, c0], q[r1, c1] = 4, 9
    assert emd(p, q, cell=(1, 1)) == pytest.approx(abs(r0 - r1) + abs(c0 - c1), abs=1e-9)


def test_a_shifted_map_is_as_far_as_its_shift():
    p = np.zeros((40, 40))
    p[5:20, 5:20] = np.random.default_rng(1).random((15, 15))
    assert emd(p, np.roll(p, 7, axis=1), cell=(1, 1)) == pytest.approx(7, rel=1e-8)
    assert emd(p, np.roll(p, (4, 3), axis=(0, 1))) == pytest.approx(7 / 40, rel=1e-8)


def test_the_unit_is_the_region_width_unless_a_cell_is_given():
    p, q = np.zeros((2, 2, 8))
    p[0, 0], q[1, 4] = 1, 1
    assert emd(p, q) == pytest.approx(0.5 + 0.5)
    assert emd(p, q, cell=(10, 3)) == pytest.approx(43)


def test_a_map_of_nothing_is_read_as_uniform():
    p = np.random.default_rng(2).random((5, 5))
    assert emd(np.zeros((5, 5)), np.ones((5, 5))) == 0
    assert emd(p, np.zeros((5, 5))) == emd(p, np.ones((5, 5)))


def test_dense_64_agrees_between_solvers_within_the_rounding_bound():
    rng = np.random.default_rng(3)
    p, q = rng.random((2, 24, 24))
    moved = (p / p.sum() - q / q.sum()).ravel()
    net = lattice_network(np.arange(24.0), np.arange(24.0))
    exact = minimum_cost(net, moved, "program")
    assert minimum_cost(net, moved, "flow") == pytest.approx(exact, abs=1e-7)


@settings(max_examples=50, deadline=None)
@given(arrays(np.float64, st.integers(2, 50), elements=st.floats(-1, 1)))
def test_mass_units_balance_exactly(supply):
    supply = supply - supply.mean()
    units = mass_units(supply)
    assert units.sum() == 0
    assert np.abs(units - supply * MASS_UNITS).sum() <= supply.size + np.abs(supply.sum()) * MASS_UNITS + 1


@pytest.mark.parametrize(
    ("p", "q", "cell", "says"),
    [
        ([[1, -1]], [[1, 1]], None, r"truth must be at least 0, got -1.0 at \(0, 1\)"),
        ([[1, 1]], [[np.nan, 1]], None, "estimate must be finite, got nan"),
        ([[1, 1]], [[1], [1]], None, "shapes"),
        ([1, 2], [2, 1], None, "2 dimensions for a distance, got 1"),
        ([[1, 2]], [[2, 1]], (0, 1), "cell must have"),
        (np.ones((0, 0)), np.ones((0, 0)), None, "at least one cell"),
        ([["a"]], [[1]], None, "or an array of numbers"),
    ],
)
def test_unusable_maps_are_refused(p, q, cell, says):
    with pytest.raises(ParameterError, match=says):
        emd(p, q, cell=cell)


def test_too_large_a_raster_is_refused_with_a_way_out():
    rng = np.random.default_rng(4)
    with pytest.raises(ParameterError, match="emd_bounds"):
        emd(rng.random((300, 300)), rng.random((300, 300)))


def test_ascent_equals_the_flow_solver_on_maps_of_every_kind():
    rng = np.random.default_rng(11)
    for shape in [(2, 2), (3, 17), (24, 24), (40, 31)]:
        rows, columns = np.indices(shape)
        smooth = np.exp(-(((rows - 5) / 6.0) ** 2) - ((columns - 9) / 4.0) ** 2) + 1e-9
        sparse = np.where(rng.random(shape) < 0.05, 1.0, 0.0)
        sparse[0, 0] = 1
        for p, q in [
            (rng.random(shape), rng.random(shape)),
            (smooth, smooth[::-1, ::-1]),
            (sparse, rng.random(shape)),
            (rng.pareto(0.7, shape), smooth),
        ]:
            moved = p / p.sum() - q / q.sum()
            net = lattice_network(np.arange(shape[1] * 1.0), np.arange(shape[0] * 1.0))
            expected = minimum_cost(net, moved.ravel(), "flow")
            assert exact_by_ascent(moved) == pytest.approx(expected, rel=1e-9)


def test_without_or_tools_the_linear_program_answers(monkeypatch):
    p, q = np.random.default_rng(12).random((2, 6, 6))
    expected = emd(p, q)
    monkeypatch.setitem(sys.modules, "ortools.graph.python.max_flow", None)
    monkeypatch.setitem(sys.modules, "ortools.graph.python.min_cost_flow", None)
    assert emd(p, q) == pytest.approx(expected, rel=1e-6)
    with pytest.raises(MissingExtra, match="eval"):
        exact_by_ascent(p / p.sum() - q / q.sum())


REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)


def released(tiling, values=None):
    values = np.ones(tiling.size) if values is None else values
    promise = Guarantee(
        model=TrustModel.CURATOR,
        neighbours=Neighbouring.ADD_OR_REMOVE,
        epsilon=Fraction(1),
        adversary=Adversary.RELEASE,
    )
    return DensityMap(np.asarray(values, dtype=np.float64), tiling, promise, "test")


class Scattered:
    """A tiling that is no raster: some sites of the region."""

    region, spec, size = REGION, "scattered", 40

    def centres(self, cells=None):
        lon, lat = np.random.default_rng(8).uniform((-74.03, 40.69), (-73.90, 40.83), (self.size, 2)).T
        return Centres(lon, lat)

    def lattice(self):
        x, y = REGION.project(*self.centres())
        x0, y0, x1, y1 = REGION.bounds_m
        row, col = (y1 - y) / (y1 - y0) * 8, (x - x0) / (x1 - x0) * 8
        return Lattice(3, row.astype(np.int64), col.astype(np.int64))


def emd_metres(truth, estimate):
    """The distance between the cells' centres in metres, as the evaluation takes it."""
    moved, (x, y) = surplus_of_cells(truth, estimate), positions_m(truth.tiling)
    return emd_of_points(x[moved != 0], y[moved != 0], moved[moved != 0])


def test_metres_of_a_grid_are_cells_times_their_size():
    grid = mv.Grid(REGION, rows=6, columns=9)
    p, q = np.random.default_rng(6).random((2, grid.size))
    found = emd_metres(released(grid, p), released(grid, q))
    cell = (REGION.width_m / 9, REGION.height_m / 6)
    assert found == pytest.approx(emd(p.reshape(6, 9), q.reshape(6, 9), cell=cell), rel=1e-5)
    in_widths = emd(released(grid, p), released(grid, q))
    assert in_widths == pytest.approx(emd(p.reshape(6, 9), q.reshape(6, 9)), rel=1e-9)


def test_metres_of_a_quadtree_do_not_mind_the_codes():
    tree = mv.Quadtree(REGION, depth=5)
    p, q = np.zeros((2, tree.size))
    a, b = tree.locate(np.array([-74.02, -73.91]), np.array([40.70, 40.80]))
    p[a], q[b] = 5, 2
    x, y = REGION.project(*tree.centres(np.array([a, b])))
    expected = abs(x[0] - x[1]) + abs(y[0] - y[1])
    assert emd_metres(released(tree, p), released(tree, q)) == pytest.approx(expected, rel=1e-9)


def test_metres_of_scattered_sites_are_those_between_their_centres():
    sites = Scattered()
    p, q = np.random.default_rng(7).random((2, sites.size))
    x, y = REGION.project(*sites.centres())
    cost = np.abs(x[:, None] - x) + np.abs(y[:, None] - y)
    n = sites.size
    rows = np.kron(np.eye(n), np.ones(n))
    columns = np.kron(np.ones(n), np.eye(n))
    answer = linprog(
        cost.ravel() / 1000, A_eq=np.vstack([rows, columns]), b_eq=np.concatenate([p / p.sum(), q / q.sum()])
    )
    found = emd_metres(released(sites, p), released(sites, q))
    assert found == pytest.approx(answer.fun * 1000, rel=1e-4)


def test_metres_need_maps_of_somewhere():
    grid = mv.Grid(mv.Region.without_georeference(2, 2), rows=2, columns=2)
    with pytest.raises(ParameterError, match="georeference"):
        emd_metres(released(grid, np.ones(4)), released(grid, np.ones(4)))
