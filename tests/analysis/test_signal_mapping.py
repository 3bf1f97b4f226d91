"""Coverage maps from models."""

from __future__ import annotations

import numpy as np
import pytest

from mapveil.analysis.signal_mapping import signal_map
from mapveil.analysis.signal_models.linear import LinearSignal
from mapveil.geo.grid import Grid
from mapveil.geo.measurements import Measurements
from mapveil.geo.region import Region
from mapveil.privacy.claim import Adversary, TrustModel
from mapveil.privacy.guarantee import Guarantee


def test_the_map_is_the_model_at_the_centres() -> None:
    draw = np.random.default_rng(1)
    rows = np.stack(
        [draw.uniform(35.5, 35.51, 300), draw.uniform(24.0, 24.04, 300), draw.normal(-90, 5, 300)], axis=1
    )
    rows[:, 2] += 200 * (rows[:, 1] - 24.02)
    data = Measurements(rows, ("lat", "lon", "rss_dbm"), np.arange(300) % 2, ("a", "b"), None, np.arange(300))
    tiling = Grid(Region.from_bbox(24.0, 35.5, 24.04, 35.53), rows=6, columns=8)
    promise = Guarantee(model=TrustModel.OBFUSCATION, epsilon=None, adversary=Adversary.REPORTS)
    found = signal_map(data, tiling, guarantee=promise, model=LinearSignal(), reach_m=500, hole_dbm=-91)
    centres = tiling.centres()
    predicted = LinearSignal().fit(data).at(centres.lat, centres.lon)
    np.testing.assert_allclose(found.mean_dbm[found.known], predicted.mean_dbm[found.known])
    np.testing.assert_allclose(found.deviation_db[found.known], predicted.deviation_db[found.known])
    assert found.method == "linear"
    assert 0 < found.coverage().unknown < tiling.size
    assert found.coverage().holes > 0
    assert found.measurements.sum() == 300
    assert found.metadata()["deviation_of"] == "one new measurement"
    assert predicted.mean_dbm[centres.lon > 24.03].mean() == pytest.approx(-87, abs=1.5)
