"""The unbiased estimates of reports as measurements: totals of zones, their intervals, and supported blocks."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import mapveil as mv
from mapveil.analysis.zone_totals import totals, totals_of
from mapveil.formats.read_map import read_map
from mapveil.geo.zones import Zones
from mapveil.inference.zone_overlay import ZoneOverlay
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.local.randomizers.disk_area import DiskArea
from mapveil.local.randomizers.generalized_response import GeneralizedRandomizedResponse
from mapveil.local.randomizers.hierarchical_hashing import HierarchicalHashing
from mapveil.local.randomizers.local_hashing import LocalHashing
from mapveil.local.randomizers.subset_selection import SubsetSelection
from mapveil.local.randomizers.unary_encoding import UnaryEncoding
from mapveil.maps.measurement import EstimatedUsers
from mapveil_client.errors import InputError

REGION = mv.Region.from_bbox(0.0, 0.0, 0.32, 0.32)
TILING = mv.Quadtree(REGION, depth=4)
USERS = np.random.default_rng(1).multinomial(
    3000, np.random.default_rng(2).dirichlet(np.full(TILING.size, 0.2))
)
METHODS: dict[str, Any] = {
    "olh-h, all levels": lambda epsilon: HierarchicalHashing(epsilon=epsilon, growth=2, site_weight=1),
    "olh-h, few levels": lambda epsilon: HierarchicalHashing(epsilon=epsilon, growth=8, site_weight=4),
    "olh": lambda epsilon: LocalHashing(epsilon=epsilon),
    "unary": lambda epsilon: UnaryEncoding(epsilon=epsilon),
    "subset": lambda epsilon: SubsetSelection(epsilon=epsilon),
}


def release(mechanism: LocalMechanism, seed: int, users: np.ndarray = USERS) -> mv.DensityMap:
    # The measurements do not depend on the estimator but for the users at the nodes.
    quick = replace(mechanism, estimator="norm-clip")
    return quick.release(mv.Counts(users, TILING), account=None, rng=seed)


def boxes(count: int) -> Zones:
    """Boxes of every size, some beyond the region."""
    rng = np.random.default_rng(3)
    side = 0.02 * 2 ** rng.uniform(0, 4, (count, 1))
    corner = rng.uniform(-0.01, 0.3, (count, 2))
    return Zones.read(shapely.box(*corner.T, *(corner + side).T).tolist())


@pytest.mark.parametrize("epsilon", [1, 4])
@pytest.mark.parametrize("name", list(METHODS))
def test_totals_are_unbiased_and_intervals_cover(name: str, epsilon: int) -> None:
    """Of 20 zones and 10 releases; the errors of one release are alike, so limits are those of some 100 errors."""
    zones, scaled, hits = boxes(20), [], []
    for seed in range(10):
        asked = ZoneOverlay.of(release(METHODS[name](epsilon), seed), zones)
        exact = asked.weights @ np.bincount(asked.sums.leaf, USERS, asked.sums.cells.size)
        found = totals_of(asked)
        scaled.append((found.estimate - exact) / found.deviation)
        hits.append((found.low <= exact) & (exact <= found.high))
    assert abs(np.mean(scaled)) < 0.25
    assert 0.75 < np.sqrt(np.mean(np.square(scaled))) < 1.12
    assert 0.92 <= np.mean(hits) <= 0.995


def test_everybody_is_known() -> None:
    """The number of reports is public: the whole map has no error, and of two halves one says the other."""
    heat = release(HierarchicalHashing(epsilon=1), 1)
    whole, west = heat.total(shapely.box(0, 0, 0.32, 0.32)), heat.total(shapely.box(0, 0, 0.16, 0.32))
    east = heat.total(shapely.box(0.16, 0, 0.32, 0.32))
    assert whole.estimate == pytest.approx(USERS.sum())
    assert whole.deviation < 1e-3
    assert west.estimate + east.estimate == pytest.approx(USERS.sum())
    assert west.deviation == pytest.approx(east.deviation, rel=1e-3)


@pytest.mark.parametrize("mechanism", [DiskArea(epsilon=2), GeneralizedRandomizedResponse(epsilon=4)])
def test_estimates_of_unknown_covariance_are_refused_by_name(mechanism: LocalMechanism) -> None:
    with pytest.raises(InputError, match=r"olh-h, olh, subset and unary can be asked|only the number of all"):
        release(mechanism, 1).total(shapely.box(0, 0, 0.1, 0.1))


def test_a_file_answers_as_its_map(tmp_path: Path) -> None:
    heat, zones = release(HierarchicalHashing(epsilon=2), 1), boxes(5)
    heat.save(tmp_path / "map.parquet")
    again = read_map(tmp_path / "map.parquet")
    assert all(isinstance(each, EstimatedUsers) for each in again.measurements)
    # Files round each noisy sum by a 64th of its deviation at most: no total moves by a tenth of its own.
    held, read = totals(heat, zones), totals(again, zones)
    assert (np.abs(read.low - held.low) < (held.high - held.low) / 40).all()


def test_a_clear_block_is_drawn_where_no_cell_is() -> None:
    """At epsilon 1 a third of 3,000 users in one quarter: reports tell of the quarter, of none of its cells."""
    users = np.full(TILING.size, 4)
    users[: TILING.size // 4] += 16
    heat = release(HierarchicalHashing(epsilon=1, growth=2, site_weight=1), 1, users)
    blocks = heat.supported()
    assert blocks.size > 0
    assert (np.bincount(blocks.of_cell[blocks.of_cell >= 0]) > 1).all()
    # Nobody is told from zero where the finest level alone is known.
    apart = replace(heat, measurements=heat.measurements[-1:])
    assert apart.supported().size == 0


@given(
    st.floats(0.01, 100),
    st.floats(0, 50),
    st.integers(2, 10**6),
    arrays(np.int64, 6, elements=st.integers(0, 10**6)),
)
def test_no_node_is_noisier_than_the_fullest(
    variance: float, slope: float, reports: int, users: np.ndarray
) -> None:
    """Laws of node variances: at most that of the measurement, which the fullest node has, and never negative."""
    fraction = users / max(users.sum(), 1)
    largest = variance + slope * float(fraction.max())
    noise = {"reports": reports, "variance": largest, "slope": slope, "independent": True}
    each = EstimatedUsers(np.arange(6), users.astype(float), Fraction(1), 1, **noise)
    relative = each.relative_variance(users.astype(float))
    assert (relative <= 1 + 1e-12).all()
    assert (relative >= variance / largest - 1e-9).all()
    law = each.law()
    made = law.terms * law.step**2 / (2 * np.sinh(law.rate / 2) ** 2)
    assert made == pytest.approx(each.deviation() ** 2, rel=1e-6)
