"""Sums of users and residuals: bounded contributions, the same sums by a curator and by clients, the unit's promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.analysis.coverage_contributions import coverage_contributions
from mapveil.engines import UNIT, user_sums
from mapveil.geo.measurements import Measurements
from mapveil.geo.points import Points
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.maps.proportion_map import LabelMeasurement
from mapveil.mechanisms.signal_sums import STRONG, WEAK, SignalSums
from mapveil.privacy.claim import Assumes, TrustModel, Unit
from mapveil.secure_sum.protocol_sum import ProtocolSum
from mapveil.trust.secure_aggregation.model import SecureAggregation
from mapveil.trust.two_operators import TwoOperators
from mapveil_client.errors import InputError, ParameterError

REGION = Region.from_bbox(0.0, 0.0, 1.0, 1.0)
TILING = Quadtree(REGION, depth=3)
DAY = 86_400_000_000


def rows(count: int, users: int, seed: int, days: int = 2) -> Measurements:
    draw = np.random.default_rng(seed)
    values = np.column_stack([draw.random((count, 2)) * 1.05, draw.uniform(-120, -60, count)])
    who = draw.integers(users, size=count).astype(np.int64)
    time = draw.integers(days, size=count).astype(np.int64) * DAY
    at = np.arange(count, dtype=np.int64)
    return Measurements(values, ("lat", "lon", "rss_dbm"), who, tuple(map(str, range(users))), time, at)


@settings(max_examples=20)
@given(st.integers(1, 60), st.integers(1, 5), st.integers(0, 1000), st.floats(0.5, 40))
def test_a_unit_s_sums_are_its_clipped_residuals_and_at_most_one(
    count: int, users: int, seed: int, clip: float
) -> None:
    table = rows(count, users, seed)
    reference = np.random.default_rng(seed).uniform(-100, -80, TILING.size)
    cell = TILING.locate(table.rows[:, 1], table.rows[:, 0])
    if not (cell >= 0).any():
        return
    sums = user_sums(coverage_contributions(table, TILING, reference, clip), TILING, labels=2).sums / UNIT
    expected = np.zeros((2, TILING.size))
    for user in range(users):  # written out, cell by cell
        own = [at for at in range(count) if table.users[at] == user and cell[at] >= 0]
        for c in {cell[at] for at in own}:
            here = [table.rows[at, 2] - reference[c] for at in own if cell[at] == c]
            mean = np.mean([min(max(each, -clip), clip) for each in here])
            weight = 1 / len({cell[at] for at in own})
            expected[STRONG, c] += weight * (1 + mean / clip) / 2
            expected[WEAK, c] += weight * (1 - mean / clip) / 2
    np.testing.assert_allclose(sums, expected, atol=2e-5 * users)
    assert sums.sum() <= users


def measured(released) -> list[LabelMeasurement]:
    return [each for each in released.measurements if isinstance(each, LabelMeasurement)]


@pytest.mark.parametrize("trust", [None, SecureAggregation(), TwoOperators()])
def test_with_almost_no_noise_every_level_holds_the_sums(trust) -> None:
    points = coverage_contributions(rows(400, 30, 1), TILING, np.full(TILING.size, -90.0), 10.0)
    given_trust = {} if trust is None else {"trust": trust}
    method = SignalSums(epsilon=2000, depth=3, levels=2, accept_large_epsilon=True, **given_trust)
    released = method.release(points, TILING, account=None, rng=1)
    exact = user_sums(points, TILING, labels=2).sums / UNIT
    assert [each.noisy.size for each in measured(released)] == [1, 16, 64]
    for each in measured(released):
        for label in (WEAK, STRONG):
            wanted = np.bincount(each.groups, exact[label], each.noisy.size)
            np.testing.assert_allclose(each.by_label[:, label], wanted, atol=0.15)
    np.testing.assert_allclose(released.values, exact.sum(axis=0), atol=0.15)


def test_the_noise_has_the_deviation_that_is_stated() -> None:
    points = coverage_contributions(rows(50, 5, 1), TILING, np.full(TILING.size, -90.0), 10.0)
    released = SignalSums(epsilon=1, depth=3, levels=1).release(points, TILING, account=None, rng=2)
    exact = user_sums(points, TILING, labels=2).sums / UNIT
    fine = measured(released)[-1]
    assert fine.deviation() == pytest.approx(np.sqrt(2 * 2 * 2**2), rel=0.01)  # two labels, two levels
    off = fine.noisy - np.bincount(fine.groups, exact.sum(axis=0), 64)
    assert 0.7 < off.std() / fine.deviation() < 1.4


def test_two_operators_add_labelled_reports_by_the_protocol() -> None:
    tiling = Quadtree(REGION, depth=1)
    points = coverage_contributions(rows(50, 12, 1), tiling, np.full(4, -90.0), 10.0)
    method = SignalSums(
        epsilon=500, depth=1, levels=1, accept_large_epsilon=True, trust=TwoOperators(scale=16)
    )
    exact = user_sums(points, tiling, labels=2).sums / UNIT
    released = method.release(points, tiling, account=None, rng=1, secure_sum=ProtocolSum())
    assert released.guarantee.model is TrustModel.TWO_OPERATORS
    fine = measured(released)[-1]
    wanted = np.array([[exact[label, fine.groups == node].sum() for label in (0, 1)] for node in range(4)])
    np.testing.assert_allclose(fine.by_label, wanted, atol=12 / 16)  # each client rounds to sixteenths


def test_the_promise_is_about_the_unit() -> None:
    day = SignalSums(epsilon=1, unit=Unit.DAY).guarantee()
    assert day.unit is Unit.DAY
    assert Assumes.COMPOSES() in day.assumptions
    assert "one user's day" in day.promise.sentences[0]
    assert SignalSums(epsilon=1).guarantee().unit is Unit.USER
    with pytest.raises(ParameterError, match="unit must be one of"):
        SignalSums(epsilon=1, unit="week")


def test_a_table_without_residuals_is_refused() -> None:
    with pytest.raises(InputError, match="has no residuals"):
        SignalSums(epsilon=1).release(Points.from_arrays(["a"], [0.5], [0.5]), TILING, account=None, rng=1)


def test_more_units_and_budget_ask_for_finer_levels() -> None:
    from types import SimpleNamespace

    setting = SimpleNamespace(members=np.ones(4**7, dtype=np.int64), depth=7, noise_terms=1.0)
    made = SignalSums(epsilon=1)
    finest = [made.level(setting, users, made.budget) for users in (1, 100, 10_000, 10**9)]
    assert finest == sorted(finest)
    assert finest[0] == 0
    assert finest[-1] == 5
    assert made.asked_levels(4) == (0, 3, 4)
    assert made.asked_levels(0) == (0,)
