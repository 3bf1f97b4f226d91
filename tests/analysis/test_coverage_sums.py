"""Coverage by sums: towards the truth with little noise, to the pilot's map with much, honest about what it knows."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from scipy.sparse import eye

from mapveil.analysis.coverage_contributions import coverage_contributions
from mapveil.analysis.coverage_sums import correct, coverage_by_sums, release_correction
from mapveil.analysis.signal_models.kriging import FieldLaw, FittedKriging, Kriging, _solved
from mapveil.analysis.signal_models.signal_model import LocalPlane
from mapveil.engines import user_sums
from mapveil.geo.measurements import RSS, Measurements
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.local.signal_reports import SignalReports
from mapveil.mechanisms.laplace_histogram import LaplaceHistogram
from mapveil.mechanisms.signal_sums import SignalSums
from mapveil.privacy.account import Account
from mapveil.privacy.claim import TrustModel, Unit
from mapveil.secure_sum.drivers import IdealSum
from mapveil.trust.secure_aggregation.model import SecureAggregation
from mapveil.trust.two_operators import TwoOperators
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.morton import deinterleave

PLANE = LocalPlane.around(np.array([[40.0, -40.0]]))


def field(metres: np.ndarray) -> np.ndarray:
    return -85 + 8 * np.sin(metres[:, 0] / 300) + 6 * np.cos(metres[:, 1] / 400)


def measure(users: int, each: int, seed: int, *, east: float = 1000.0) -> Measurements:
    """Rows in a square of 2 km, west of ``east``; every user has an offset of 2 dB, every row a spread of 3."""
    draw = np.random.default_rng(seed)
    who = np.repeat(np.arange(users, dtype=np.int64), each)
    metres = draw.uniform(-1000, 1000, (who.size, 2))
    metres[:, 0] = -1000 + (metres[:, 0] + 1000) * (east + 1000) / 2000
    strength = field(metres) + draw.normal(0, 2, users)[who] + draw.normal(0, 3, who.size)
    lat, lon = (
        PLANE.lat + metres[:, 1] / PLANE.metres_per_lat,
        PLANE.lon + metres[:, 0] / PLANE.metres_per_lon,
    )
    rows = np.column_stack([lat, lon, strength])
    ids = tuple(f"{seed}-{at}" for at in range(users))
    return Measurements(rows, ("lat", "lon", "rss_dbm"), who, ids, None, np.arange(who.size))


def square() -> Region:
    across, up = 1000 / PLANE.metres_per_lon, 1000 / PLANE.metres_per_lat
    return Region.from_bbox(PLANE.lon - across, PLANE.lat - up, PLANE.lon + across, PLANE.lat + up)


TILING = Quadtree(square(), depth=4)


@pytest.fixture(scope="module")
def prior() -> FittedKriging:
    return Kriging(blocks=60).fit(measure(4, 40, 1, east=-300.0), rng=1)


def truth() -> np.ndarray:
    centres = TILING.centres()
    return field(PLANE.metres(np.column_stack([centres.lat, centres.lon])))


def off(prior: FittedKriging, change: np.ndarray | float) -> float:
    centres = TILING.centres()
    return float(np.sqrt(np.mean((prior.at(centres.lat, centres.lon).mean_dbm + change - truth()) ** 2)))


def test_many_phones_correct_a_pilot_that_saw_a_third_of_the_city(prior: FittedKriging) -> None:
    reports = measure(4000, 6, 2)
    made = release_correction(reports, prior, TILING, SignalSums(epsilon=2), account=None, rng=3)
    assert off(prior, made.change_db) < 0.6 * off(prior, 0.0)


def test_error_falls_with_epsilon_and_without_any_the_pilot_stays(prior: FittedKriging) -> None:
    reports = measure(800, 6, 2)

    def error(epsilon: float) -> float:
        sums = SignalSums(epsilon=epsilon, depth=3, accept_large_epsilon=True)
        runs = [release_correction(reports, prior, TILING, sums, account=None, rng=seed) for seed in range(4)]
        return float(np.mean([off(prior, run.change_db) for run in runs]))

    little, some, much = error(0.01), error(2), error(200)
    assert little == pytest.approx(off(prior, 0.0), rel=0.05)
    assert much < some < little


class Regime(NamedTuple):
    """Reports under a law that is known, each of one cell or of rows anywhere."""

    users: int
    epsilon: float
    length_m: float
    rows_each: int = 1
    spread: float = 36.0
    clip_db: float = 30.0
    depth: int | None = None
    local: bool = False
    street: bool = False  # everybody in one column of cells in four

    @property
    def sums(self) -> SignalSums | SignalReports:
        if self.local:
            return SignalReports(epsilon=self.epsilon, accept_large_epsilon=True)
        return SignalSums(epsilon=self.epsilon, depth=self.depth, accept_large_epsilon=True)

    def covered(self, prior: FittedKriging, seeds: int = 6) -> float:
        """Fraction of cells whose 95 % interval holds the field, drawn from the law."""
        averages = prior.averages._replace(
            spread=self.spread, noise=prior.averages.noise * self.spread / prior.averages.spread
        )
        law = FieldLaw(30.0, self.length_m, 4.0, 1e6)
        known = replace(prior, averages=averages, law=law, solved=_solved(averages, law))
        centres = TILING.centres()
        places = np.column_stack([centres.lat, centres.lon, np.zeros(TILING.size)])
        covariance = known.covariance(places, known.means(places, eye(TILING.size, format="csr")))
        root = np.linalg.cholesky(covariance + 1e-6 * np.eye(TILING.size))
        public = known.at(centres.lat, centres.lon).mean_dbm
        inside = []
        for seed in range(seeds):
            draw = np.random.default_rng(seed)
            truth = root @ draw.standard_normal(TILING.size)
            who = np.repeat(np.arange(self.users), self.rows_each)
            column = deinterleave(np.arange(TILING.size))[1]
            cells = np.flatnonzero(column % (4 if self.street else 1) == 0)
            cell = draw.choice(cells, who.size)
            strength = public[cell] + truth[cell] + draw.normal(0, 2, self.users)[who]
            strength += draw.normal(0, np.sqrt(self.spread), who.size)
            rows = np.column_stack([centres.lat[cell], centres.lon[cell], strength])
            ids = tuple(map(str, range(self.users)))
            reports = Measurements(rows, ("lat", "lon", "rss_dbm"), who, ids, None, np.arange(who.size))
            made = release_correction(
                reports, known, TILING, self.sums, clip_db=self.clip_db, account=None, rng=seed
            )
            inside.append(np.abs(made.change_db - truth) < 1.96 * np.sqrt(made.variance))
        return float(np.mean(inside))


@pytest.mark.parametrize(
    "regime",
    [
        Regime(3000, 0.5, 300),
        Regime(3000, 4, 300),
        # Levels that count as independent observations of one trace cover 0.89 here.
        Regime(3000, 4, 2000),
        Regime(3000, 4, 5000),
        # Without the rows' own spread 0.58 and 0.43.
        Regime(300, 200, 300),
        Regime(300, 200, 2000),
        # 0.80 where the sum of a node is taken to observe the field at its centre.
        Regime(3000, 200, 1500, spread=9, depth=2),
        # Clips below a residual's deviation: 0.88 where clipping is a slope alone.
        Regime(3000, 200, 2000, spread=4, clip_db=4),
        Regime(3000, 4, 300, local=True),
        Regime(3000, 20, 2000, local=True),
        Regime(3000, 4, 300, street=True),
    ],
    ids=str,
)
def test_intervals_cover_a_field_of_their_own_law(prior: FittedKriging, regime: Regime) -> None:
    assert 0.92 < regime.covered(prior) < 0.985


def test_streets_in_coarse_squares_are_covered_by_less(prior: FittedKriging) -> None:
    """A stated limit: units that are not spread evenly over a square."""
    assert 0.8 < Regime(3000, 4, 300, depth=2, street=True).covered(prior) < 0.92


def test_intervals_of_users_of_many_rows_cover_at_least_as_much(prior: FittedKriging) -> None:
    # The number of a user's rows is unknown: the spread is that of one.
    assert Regime(300, 200, 2000, rows_each=20).covered(prior, 3) > 0.95


def test_a_map_knows_what_neither_pilot_nor_sums_tell(prior: FittedKriging) -> None:
    alone = coverage_by_sums(measure(2, 3, 2), prior, TILING, SignalSums(epsilon=0.1), account=None, rng=1)
    many = coverage_by_sums(measure(4000, 6, 2), prior, TILING, SignalSums(epsilon=4), account=None, rng=1)
    east = TILING.centres().lon > PLANE.lon + 500 / PLANE.metres_per_lon
    assert not alone.known[east].any()
    assert many.known[east].mean() > 0.5
    assert alone.known[~east].any()
    # Where the pilot measured, or phones surely did, nothing is extrapolated; a few phones tell of no place.
    assert not many.unmeasured[many.known & (many.measurements > 20)].any()
    assert alone.unmeasured.any()
    assert "users who measured" in {layer.title.split(",")[0] for layer in many.columns()}


def test_clients_answer_as_a_curator_does(prior: FittedKriging) -> None:
    sums = SignalSums(epsilon=4, depth=2, trust=SecureAggregation())
    made = coverage_by_sums(measure(1500, 3, 2), prior, TILING, sums, account=None, rng=1)
    assert made.guarantee.model is TrustModel.SECURE_AGGREGATION
    assert made.guarantee.simulated
    assert float(np.sqrt(np.nanmean((made.mean_dbm - truth()) ** 2))) < off(prior, 0.0)


def test_two_operators_and_randomized_reports_correct_the_map(prior: FittedKriging) -> None:
    reports = measure(3000, 3, 2)
    for sums, model in (
        (SignalSums(epsilon=4, trust=TwoOperators()), TrustModel.TWO_OPERATORS),
        (SignalReports(epsilon=4), TrustModel.LOCAL),
    ):
        made = coverage_by_sums(reports, prior, TILING, sums, account=None, rng=1)
        assert made.guarantee.model is model
        assert made.guarantee.simulated
        assert float(np.sqrt(np.nanmean((made.mean_dbm - truth()) ** 2))) < off(prior, 0.0)
    with pytest.raises(ParameterError, match="secure_sum must be None"):
        coverage_by_sums(
            reports, prior, TILING, SignalReports(epsilon=4), account=None, rng=1, secure_sum=IdealSum()
        )


def test_only_users_are_charged(prior: FittedKriging, tmp_path) -> None:
    reports = replace(measure(20, 6, 2), time=np.arange(120, dtype=np.int64) * 10**10)
    account = Account.open("coverage", budget=1, ledger=tmp_path / "ledger.sqlite")
    made = coverage_by_sums(reports, prior, TILING, SignalSums(epsilon=1), account=account)
    assert made.guarantee.account is not None
    assert made.guarantee.account.after == 1
    day = SignalSums(epsilon=1, unit=Unit.DAY)
    with pytest.raises(ParameterError, match="unit user's day is charged to no account"):
        coverage_by_sums(reports, prior, TILING, day, account=account)


def test_a_pilot_is_others_than_those_who_report(prior: FittedKriging) -> None:
    reports = measure(20, 6, 2)
    with pytest.raises(InputError, match="the pilot must be measurements of people who opted in"):
        coverage_by_sums(
            reports, reports.with_rows(reports.rows.copy()), TILING, SignalSums(epsilon=1), rng=1
        )
    made = coverage_by_sums(reports, prior, TILING, SignalSums(epsilon=1), account=None, rng=1)
    assert "the pilot's users are not protected" in made.guarantee.in_words()


def test_other_maps_correct_nothing(prior: FittedKriging) -> None:
    from mapveil.geo.points import Points

    rows = measure(20, 2, 2)
    points = Points.from_arrays(rows.users, rows.rows[:, 1], rows.rows[:, 0])
    heat = LaplaceHistogram(epsilon=1).release(points, TILING, account=None, rng=1)
    with pytest.raises(InputError, match="holds no sums of residuals"):
        correct(heat, prior, 5.0)


def test_rows_of_one_trace_are_no_thousand_visits() -> None:
    # A drive whose phone is 6 dB off: without traces its thousand rows would be certain of the offset.
    draw = np.random.default_rng(1)
    few = measure(6, 80, 5)
    shifted = few.with_rows(few.rows + np.array([0, 0, 1.0]) * draw.normal(0, 6, 6)[few.users][:, None])
    fitted = Kriging(blocks=80).fit(shifted, rng=1)
    judged = measure(60, 20, 7)
    new = judged.with_rows(judged.rows + np.array([0, 0, 1.0]) * draw.normal(0, 6, 60)[judged.users][:, None])
    found = fitted.predict(new.rows)
    inside = np.abs(found.mean_dbm - new.rows[:, RSS]) < 1.96 * found.deviation_db
    assert inside.mean() > 0.9
    assert found.deviation_db.mean() < 12


def test_two_ids_that_end_in_a_nul_and_not_are_two_users() -> None:
    reports = replace(measure(2, 3, 1), user_ids=("a", "a\0"))
    made = coverage_contributions(reports, TILING, np.full(TILING.size, -80.0), 10.0)
    sums = user_sums(made, TILING, labels=2)
    assert sums.sums.sum() == pytest.approx(2 * 2**28, rel=1e-6)


@pytest.mark.parametrize("order", [1, -1])
def test_a_pilot_of_the_reports_own_rows_is_refused_in_any_order(order: int) -> None:
    reports = measure(4, 40, 1)
    pilot = reports.take(np.arange(len(reports))[::order])
    with pytest.raises(InputError, match="160 of the 160 rows of those who report"):
        coverage_by_sums(reports, pilot, TILING, SignalSums(epsilon=1), rng=1)


def test_a_pilot_elsewhere_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    pilot = measure(4, 40, 1)
    swapped = replace(pilot, rows=pilot.rows[:, [1, 0, *range(2, pilot.rows.shape[1])]])
    account = Account.open("coverage", budget=1, ledger=tmp_path / "ledger.sqlite")
    with pytest.raises(InputError, match="are latitude and longitude swapped"):
        coverage_by_sums(measure(9, 9, 2), swapped, TILING, SignalSums(epsilon=1), account=account, rng=1)
    assert account.spent == 0


@pytest.mark.parametrize("clip", [0.0, 1e-300, 1e160, math.inf, math.nan])
def test_a_clip_that_is_no_number_of_decibels_is_refused(prior: FittedKriging, clip: float) -> None:
    with pytest.raises(ParameterError, match="clip_db"):
        release_correction(
            measure(9, 9, 2), prior, TILING, SignalSums(epsilon=1), clip_db=clip, account=None, rng=1
        )


def test_a_day_needs_times(prior: FittedKriging) -> None:
    sums = SignalSums(epsilon=1, unit="user's day")
    with pytest.raises(InputError, match="needs times"):
        release_correction(measure(9, 9, 2), prior, TILING, sums, account=None, rng=1)


def test_few_people_in_large_squares_are_not_known_to_have_measured_in_every_cell(
    prior: FittedKriging,
) -> None:
    made = coverage_by_sums(measure(30, 6, 2), prior, TILING, SignalSums(epsilon=4), rng=3)
    assert made.extrapolated.sum() > TILING.size / 2


def test_an_empty_region_is_answered_by_randomized_reports_too(prior: FittedKriging, tmp_path: Path) -> None:
    """It was charged, and the failure told that nobody is there."""
    away = measure(6, 6, 2)
    north = away.with_rows(away.rows + np.array([9.0, 0, 0]))
    account = Account.open("coverage", budget=1, ledger=tmp_path / "ledger.sqlite")
    made = coverage_by_sums(north, prior, TILING, SignalReports(epsilon=1), account=account, rng=1)
    assert "moved it by at most 0.0 dB" in made.notes[-1]


@pytest.mark.parametrize("sums", [SignalSums, SignalReports])
def test_nodes_whose_correction_would_take_hours_are_refused(sums: type) -> None:
    with pytest.raises(ParameterError, match="depth must be a level from 0 to 5"):
        sums(epsilon=1, depth=6)
