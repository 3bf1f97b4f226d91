"""The design of coverage by sums that is described beforehand is that of its release."""

from __future__ import annotations

import numpy as np
import pytest

from mapveil.evaluation.coverage_design import coverage_design
from mapveil.geo.points import Points
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.local.signal_reports import SignalReports
from mapveil.maps.proportion_map import LabelMeasurement
from mapveil.mechanisms.signal_sums import STRONG, WEAK, SignalSums
from mapveil.trust.two_operators import TwoOperators

TILING = Quadtree(Region.from_bbox(23.99, 35.50, 24.08, 35.54), depth=5)


@pytest.mark.parametrize(
    "sums",
    [
        SignalSums(epsilon=1),
        SignalSums(epsilon=2, trust=TwoOperators()),
        SignalReports(epsilon=4, depth=3),
    ],
    ids=["curator", "two operators", "local"],
)
def test_the_noise_of_a_square_is_the_one_foretold(sums: SignalSums | SignalReports) -> None:
    users = 2000
    told = coverage_design(sums, TILING, users)
    draw = np.random.default_rng(1)
    lon, lat = draw.uniform(23.99, 24.08, users), draw.uniform(35.50, 35.54, users)
    everybody = Points.from_arrays(
        np.tile(np.arange(users), 2),
        np.tile(lon, 2),
        np.tile(lat, 2),
        weight=np.full(2 * users, 0.5),
        label=np.repeat([WEAK, STRONG], users),
    )
    off = []
    for seed in range(8):
        made = sums.release(everybody, TILING, account=None, rng=seed + 1)
        levels = [each for each in made.measurements if isinstance(each, LabelMeasurement)]
        finest = max(levels, key=lambda each: each.noisy.size)
        assert finest.noisy.size == told.squares
        off.append((finest.by_label[:, STRONG] - finest.by_label[:, WEAK]) * told.squares / users)
    assert float(np.std(off)) == pytest.approx(told.off, rel=0.2)


def test_one_square_is_told_as_one() -> None:
    assert "one square, about 6," in coverage_design(SignalReports(epsilon=1), TILING, 100).in_words()
