"""The adversary who knows all contributions to sums but one: certain without noise, blind with much."""

from __future__ import annotations

import numpy as np
import pytest

from mapveil.analysis.coverage_contributions import visits
from mapveil.attacks.signal_evidence import SignalEvidence
from mapveil.attacks.sums_posterior import SummedRows, attack_sums
from mapveil.geo.measurements import Measurements
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.maps.proportion_map import LabelMeasurement
from mapveil.obfuscation.privatizers.normalisation import Normalisation
from mapveil_client.randomness.random import Randomness

SIDE = 8
TILING = Quadtree(Region.from_bbox(0.0, 0.0, 0.08, 0.08), depth=3)


def table(users: int, seed: int) -> Measurements:
    """Two rows of each user, in one cell."""
    draw = np.random.default_rng(seed)
    cell = draw.integers(0, TILING.size, users)
    centres = TILING.centres()
    rows = np.column_stack([centres.lat[cell], centres.lon[cell], draw.normal(-80, 4, users)])
    who = np.repeat(np.arange(users, dtype=np.int64), 2)
    ids = tuple(f"{seed} {at}" for at in range(users))
    return Measurements(rows[who], ("lat", "lon", "rss_dbm"), who, ids, None, np.arange(who.size))


def summed(rows: Measurements, normalisation: Normalisation) -> SummedRows:
    codes = rows.users
    return SummedRows(
        SignalEvidence.of(rows, rows, normalisation),
        codes,
        TILING.locate(rows.rows[:, 1], rows.rows[:, 0]),
        visits(rows, TILING, np.full(TILING.size, -80.0), 10.0, codes),
    )


def metres(epsilon: float, terms: int) -> float:
    known, judged = table(60, 1), table(200, 2)
    normalisation = Normalisation.learn(known)
    revealed = [
        LabelMeasurement(
            groups,
            np.zeros(groups.max() + 1),
            epsilon,
            1.0,
            2 * terms,
            2,
            by_label=np.zeros((groups.max() + 1, 2)),
        )
        for groups in (np.zeros(TILING.size, dtype=np.int64), np.arange(TILING.size))
    ]
    one = summed(known, normalisation)
    centres = np.stack([TILING.centres().lat, TILING.centres().lon], axis=1)
    normalised = (centres - one.evidence.middle) / one.evidence.scale
    score = attack_sums(revealed, one, summed(judged, normalisation), normalised, 0.9, Randomness(3))
    assert (score.p1, score.runs) == (0.9, 400)
    assert score.p == pytest.approx(0.9 + score.p2)
    return score.p2_m


@pytest.mark.parametrize("terms", [1, 2])
def test_the_less_noise_the_nearer_it_comes(terms: int) -> None:
    nothing, little, everything = (metres(epsilon, terms) for epsilon in (0.01, 20.0, 1000.0))
    assert everything < 30  # a square is 1.1 km wide
    assert everything < little < 0.9 * nothing
    # Of places alike over a square of 8.9 km, the middle is 0.3826 sides away on average.
    assert nothing == pytest.approx(0.3826 * 8900, rel=0.1)
