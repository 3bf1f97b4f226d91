from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mapveil.central.pyramid import Pyramid, largest
from mapveil.engines import UNIT
from mapveil.geo.grid import Grid
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil_client.cells import Lattice

REGION = Region.from_bbox(-74.03, 40.69, -73.90, 40.83)


@given(
    values=arrays(np.float64, st.integers(0, 40), elements=st.sampled_from([-1.0, 0.0, 0.5, 2.0, 3.0])),
    count=st.integers(-1, 45),
)
def test_largest_keeps_the_largest_and_among_equals_the_first(
    values: npt.NDArray[np.float64], count: int
) -> None:
    slow = sorted(sorted(range(values.size), key=lambda at: (-values[at], at))[: max(count, 0)])
    assert largest(values, count).tolist() == slow


def test_levels_sum_squares_of_the_raster() -> None:
    tiling = Grid(REGION, rows=11, columns=7)
    lattice = tiling.lattice()
    pyramid = Pyramid.over(lattice)
    values = np.random.default_rng(0).integers(0, 100, tiling.size)
    square = lattice.to_square(values)
    for level, sums in enumerate(pyramid.sums(values)):
        assert sums.dtype == np.int64
        side = lattice.side >> level
        for node, total in enumerate(sums):
            row = sum(((node >> (2 * bit + 1)) & 1) << bit for bit in range(level))
            col = sum(((node >> (2 * bit)) & 1) << bit for bit in range(level))
            assert total == square[row * side : (row + 1) * side, col * side : (col + 1) * side].sum()
            here = (lattice.row // side == row) & (lattice.col // side == col)
            assert pyramid.members[level][node] == here.sum()
            assert (pyramid.ancestors(level)[here] == node).all()


def test_the_codes_of_a_quadtree_are_its_cells() -> None:
    pyramid = Pyramid.over(Quadtree(REGION, depth=4).lattice())
    np.testing.assert_array_equal(pyramid.codes, np.arange(256))


def test_cells_that_share_a_leaf_share_its_value_and_others_get_nothing() -> None:
    row, col = np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1])
    pyramid = Pyramid.over(Lattice(1, row, col, np.array([True, True, True, False])))
    assert [level.tolist() for level in pyramid.members] == [[3], [2, 0, 1, 0]]
    density = pyramid.density(1, np.array([8.0, 5.0, 3.0, 2.0]))
    np.testing.assert_array_equal(pyramid.to_cells(density), [4.0, 4.0, 3.0, 0.0])


def test_a_measurement_names_the_node_of_each_cell() -> None:
    pyramid = Pyramid.over(Quadtree(REGION, depth=2).lattice())
    made = pyramid.measurement(1, np.arange(4.0), Fraction(1, 3), UNIT)
    np.testing.assert_array_equal(made.groups, np.repeat(np.arange(4), 4))
    assert made.epsilon == Fraction(1, 3)
