from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mapveil.geo.counts import Counts
from mapveil.geo.grid import Grid
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil_client.errors import InputError
from reproductions.bagdasaryan.data import (
    MANHATTAN,
    bump,
    evened,
    image_of,
    read_image,
    read_tokyo,
    sample_counts,
    sampled,
)

SHARED = Path(__file__).resolve().parents[2] / "../shared/data"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data sets are not here")

OBLONG = Grid(Region.without_georeference(7, 5), rows=5, columns=7)


def test_a_coarser_level_spreads_each_nodes_sum_over_its_cells() -> None:
    values = np.random.default_rng(0).random(OBLONG.size)
    image = values.reshape(5, 7)
    for level in range(4):
        side = 8 >> level
        expected = np.zeros((5, 7))
        for row in range(0, 5, side):
            for column in range(0, 7, side):
                block = image[row : row + side, column : column + side]
                expected[row : row + side, column : column + side] = block.mean()
        assert evened(values, OBLONG, level) == pytest.approx(expected.ravel())


def test_images_have_north_up() -> None:
    tiling = Quadtree(Region.without_georeference(4, 4), 2)
    lattice = tiling.lattice()
    assert image_of(lattice.row * 10.0 + lattice.col, tiling).tolist() == [
        [10.0 * row + column for column in range(4)] for row in range(4)
    ]
    assert image_of(np.arange(35), OBLONG).shape == (5, 7)


def test_samples_are_without_replacement() -> None:
    counts = Counts(np.random.default_rng(1).integers(0, 5, OBLONG.size), OBLONG, "made up")
    there = int(counts.values.sum())
    drawn = sample_counts(counts, there - 3, np.random.default_rng(2)).values
    assert drawn.sum() == there - 3
    assert (drawn <= counts.values).all()
    assert sample_counts(counts, None, np.random.default_rng(2)) is counts
    with pytest.raises(InputError, match=f"1 to {there}"):
        sample_counts(counts, there + 1, np.random.default_rng(2))


def test_the_bump_lies_in_the_south_west_and_scales_with_the_map() -> None:
    large, small = (Quadtree(Region.without_georeference(8, 8), depth) for depth in (10, 7))
    image = image_of(bump(large), large)
    assert np.unravel_index(image.argmax(), image.shape) == (900, 200)
    assert image.max() == 1.0
    assert image[900, 350] == pytest.approx(np.exp(-0.5))
    coarse = image_of(bump(small), small)
    assert coarse[112, 25] == pytest.approx(image[896, 200], abs=1e-3)


def test_missing_data_are_said() -> None:
    for read in (lambda: read_image(Path("nowhere"), MANHATTAN), lambda: read_tokyo(Path("nowhere"))):
        with pytest.raises(InputError, match="no such file; put the data sets"):
            read()


@needs_shared
def test_the_shared_pictures_are_the_known_ones() -> None:
    counts = read_image(SHARED, MANHATTAN)
    assert int(counts.values.sum()) == 54_565_579
    assert counts.tiling.size == 1 << 20
    first, again, other = (sampled(SHARED, MANHATTAN, 1_000, 5, trial) for trial in (0, 0, 1))
    assert first.plain.sum() == 1_000
    assert (first.plain == again.plain).all()
    assert (first.plain != other.plain).any()


@needs_shared
def test_tokyo_is_read_as_visits_users_and_homes() -> None:
    tokyo = read_tokyo(SHARED)
    assert tokyo.devices.count == 2_173
    assert tokyo.visits.sum() == 306_778
    assert tokyo.users.sum() == pytest.approx(2_173)
    assert tokyo.homes.sum() == 2_173
    # The paper's non-private row, 1.2e-7: the users' map against that of all visits.
    error = float(np.mean((tokyo.users / 2_173 - tokyo.visits / 306_778) ** 2))
    assert error == pytest.approx(1.03e-7, rel=0.01)
