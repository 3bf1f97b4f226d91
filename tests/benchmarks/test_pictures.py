"""The count of empty blocks, on a map whose truth is known."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import mapveil as mv
from benchmarks.pictures import truth_of
from mapveil.engines import UNIT
from mapveil.inference.supported_blocks import Blocks
from mapveil.mechanisms.methods import find_method


def test_blocks_are_held_against_the_true_sums():
    city = mv.synthetic.city(users=50, seed=1)
    tiling = mv.Quadtree(city.region, depth=1)
    heat = find_method(None, "central").make(Fraction(1), {}).release(city, tiling, account=None, rng=1)
    users, sums = np.array([9.0, 2.0]), np.array([0, 3, 0, 7]) * UNIT
    blocks = Blocks(np.array([0, 1, -1, 0]), users, users - 3, users, users / 4, 4)
    empty, covered, share, width = truth_of(blocks, sums, heat)
    assert (empty, covered, share) == (0, 1, 1.0)
    assert width == pytest.approx(np.sqrt(heat.tiling.area_m2()[1]))
    assert truth_of(blocks._replace(of_cell=np.array([0, -1, 1, -1])), sums, heat)[:3] == (2, 1, 0.0)
