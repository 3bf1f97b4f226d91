"""Scenes of maps that tell little: no colour stands for users whose whereabouts were not measured."""

from __future__ import annotations

import numpy as np
import pytest

import mapveil as mv
from mapveil.maps.block_scene import NOTHING_TOLD
from mapveil.mechanisms.multiscale import Multiscale

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)


@pytest.mark.parametrize(("users", "words"), [(0, NOTHING_TOLD), (400, "This map was measured as a whole: ")])
def test_a_map_measured_in_one_block_is_not_coloured(users: int, words: str) -> None:
    cells = mv.Quadtree(REGION, depth=3)
    held = np.zeros(cells.size, dtype=np.int64)
    held[5] = users
    made = Multiscale(epsilon=1, depth=0, rounds=1).release(mv.Counts(held, cells), rng=1)
    scene = made.scene()
    assert scene.reading.startswith(words)
    assert np.isnan(scene.layers[0].values).all()
    if users:
        low, high = (int(each) for each in scene.reading.removeprefix(words).split(" users")[0].split(" to "))
        assert low < users < high < low + 20
        assert "Where on the map they are is not known." in scene.reading
    assert made.scene(detail="cells").layers[0].values.min() >= 0


@pytest.mark.parametrize(("crowd", "known"), [(500, True), (50_000, False)])
def test_users_whom_no_colour_shows_are_said_to_be_on_hatched_ground(crowd: int, known: bool) -> None:
    cells = mv.Quadtree(REGION, depth=5)
    held = np.ones(cells.size, dtype=np.int64)
    held[5] = crowd
    reading = Multiscale(epsilon=1, rounds=1).release(mv.Counts(held, cells), rng=1).scene().reading
    shown = int(reading.split(" % of the users")[0].split()[-1])
    assert (shown < 100) == known
    rest = f"the other {100 - shown} % of the users: " if known else ""
    assert f" holds {rest}in each part nobody or too few users to tell from nobody. " in reading
