"""Models of signal strength, on fields that are known everywhere."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from pyproj import Geod

from mapveil.analysis.signal_models.kriging import Kriging
from mapveil.analysis.signal_models.linear import LinearSignal
from mapveil.analysis.signal_models.path_loss import PathLoss
from mapveil.analysis.signal_models.random_forest import ForestSignal
from mapveil.analysis.signal_models.signal_model import LocalPlane, SignalModel
from mapveil.geo.measurements import LAT, LON, RSS
from mapveil.inference.normal_interval import few_groups_factor
from mapveil_client.errors import InputError, ParameterError

MODELS: dict[str, SignalModel] = {
    "linear": LinearSignal(),
    "linear, place alone": LinearSignal(features=()),
    "path loss": PathLoss(),
    "path loss by cell": PathLoss(by="cell_id"),
    "forest": ForestSignal(trees=20),
    "kriging": Kriging(blocks=150),
}


@pytest.fixture(params=list(MODELS))
def model(request) -> SignalModel:
    pytest.importorskip("sklearn")
    return MODELS[request.param]


def test_every_model_predicts_finite_strengths(model: SignalModel, fields: SimpleNamespace) -> None:
    data = fields.measure(fields.waves, 400, seed=1, noise=2.0)
    fitted = model.fit(data, rng=1)
    found = fitted.predict(data.rows)
    assert found.mean_dbm.shape == found.deviation_db.shape == (400,)
    assert np.isfinite(found.mean_dbm).all()
    assert (found.deviation_db > 0).all()
    np.testing.assert_allclose(fitted.mean_dbm(data.rows), found.mean_dbm)
    # No model is worse than the mean where it was fitted, nor looks at what it predicts.
    assert fitted.rmse_dbm(data) <= data.rows[:, RSS].std() * 1.01
    hidden = data.rows.copy()
    hidden[:, RSS] = 999.0
    np.testing.assert_array_equal(fitted.predict(hidden).mean_dbm, found.mean_dbm)
    # A privatized place may be none on Earth.
    assert np.isfinite(fitted.at([35.5, 95.0], [24.0, 400.0]).mean_dbm).all()


def test_the_deviation_is_that_of_a_new_measurement(model: SignalModel, fields: SimpleNamespace) -> None:
    known = fields.measure(fields.waves, 4000, seed=1, noise=3.0)
    held_out = fields.measure(fields.waves, 4000, seed=2, noise=3.0)
    found = model.fit(known, rng=1).predict(held_out.rows)
    off = (held_out.rows[:, RSS] - found.mean_dbm) / found.deviation_db
    # 30 % too small a deviation would cover 0.85; 30 % too large a one 0.99 and a ratio of 0.77.
    assert 0.9 < float((np.abs(off) < 1.96).mean()) < 0.985
    assert 0.85 < float(np.sqrt(np.square(off).mean())) < 1.15


@pytest.mark.parametrize("kind", ["forest", "kriging"])
def test_flexible_models_find_a_field_between_its_measurements(kind: str, fields: SimpleNamespace) -> None:
    pytest.importorskip("sklearn")
    known = fields.measure(fields.waves, 4000, seed=1, noise=2.0)
    truth = fields.measure(fields.waves, 2000, seed=2, noise=0.0)
    assert MODELS[kind].fit(known, rng=1).rmse_dbm(truth) < 1.8
    assert MODELS["linear"].fit(known).rmse_dbm(truth) > 4


def test_rmse_is_written_out(fields: SimpleNamespace) -> None:
    data = fields.measure(fields.waves, 50, seed=1, noise=1.0)
    fitted = LinearSignal().fit(data)
    off = [(m - x) ** 2 for m, x in zip(fitted.predict(data.rows).mean_dbm, data.rows[:, RSS], strict=True)]
    assert fitted.rmse_dbm(data) == pytest.approx((sum(off) / 50) ** 0.5)
    with pytest.raises(InputError, match="no rows"):
        fitted.rmse_dbm(data.take(np.arange(0)))


def test_the_linear_model_is_least_squares(fields: SimpleNamespace) -> None:
    data = fields.measure(lambda metres: -80 + metres @ [0.01, -0.02], 500, seed=1, noise=1.0)
    design = np.column_stack([np.ones(500), np.delete(data.rows, RSS, axis=1) - [35.5, 24.0, 0, 7]])
    slow, left, *_ = np.linalg.lstsq(design, data.rows[:, RSS], rcond=None)
    found = LinearSignal().fit(data).predict(data.rows)
    np.testing.assert_allclose(found.mean_dbm, design @ slow, atol=1e-6)
    variance = left[0] / (500 - 5)
    own = np.einsum("ij,jk,ik->i", design, np.linalg.inv(design.T @ design), design)
    np.testing.assert_allclose(found.deviation_db, np.sqrt(variance * (1 + own)), rtol=1e-6)


def test_transmitters_are_found(fields: SimpleNamespace) -> None:
    data = fields.measure(fields.towers, 4000, seed=1, noise=1.0)
    west, east = PathLoss(by="cell_id").fit(data, rng=1).transmitters
    plane = fields.plane
    for found, key, place, level, exponent in (
        (west, 7.0, [-500.0, -200.0], -30.0, 2.2),
        (east, 8.0, [400.0, 300.0], -20.0, 3.0),
    ):
        assert found.key == key
        np.testing.assert_allclose(plane.metres(np.array([[found.lat, found.lon]]))[0], place, atol=8)
        assert found.exponent == pytest.approx(exponent, abs=0.1)
        assert found.at_1m_dbm == pytest.approx(level, abs=3)
        assert found.deviation_db == pytest.approx(1.0, rel=0.1)
    assert west.rows + east.rows == 4000


def test_a_place_without_a_cell_is_served_by_those_heard_there(fields: SimpleNamespace) -> None:
    data = fields.measure(fields.towers, 4000, seed=1, noise=0.5)
    fitted = PathLoss(by="cell_id").fit(data, rng=1)
    away = np.abs(fields.plane.metres(data.rows)[:, 0]) > 150  # from the line where the cells meet
    strange = data.rows[away].copy()
    strange[:, 4] = 99.0
    np.testing.assert_allclose(fitted.predict(strange).mean_dbm, fitted.predict(data.rows[away]).mean_dbm)
    at = fitted.at(strange[:, LAT], strange[:, LON])
    np.testing.assert_allclose(at.mean_dbm, fitted.predict(strange).mean_dbm)


def test_strength_never_rises_with_distance(fields: SimpleNamespace) -> None:
    # Far stronger than near: the exponent stays at 0, and the model is the mean.
    data = fields.measure(lambda metres: -100 + 0.02 * np.abs(metres).max(axis=1), 500, seed=1, noise=1.0)
    exponents = [each.exponent for each in PathLoss().fit(data, rng=1).transmitters]
    assert all(0 <= each <= 8 for each in exponents)


def test_kriging_knows_where_it_knows(fields: SimpleNamespace) -> None:
    pytest.importorskip("sklearn")
    data = fields.measure(fields.waves, 1500, seed=1, noise=1.0)
    fitted = Kriging(blocks=150).fit(data, rng=1)
    near, far = fitted.at([35.5], [24.0]), fitted.at([35.6], [24.1])
    assert far.deviation_db[0] > 3 * near.deviation_db[0]
    # The generalised mean: of the field, not of where rows happen to lie.
    assert far.mean_dbm[0] == pytest.approx(data.rows[:, RSS].mean(), abs=3)
    assert 100 < fitted.length_m < 2000


def test_few_traces_widen_the_interval(fields: SimpleNamespace) -> None:
    data = fields.measure(fields.waves, 300, seed=1, noise=1.0)
    five, one = (replace(data, users=np.arange(300) % count) for count in (5, 1))
    # 4 degrees of freedom: Student's 97.5 % quantile is 2.776. Held-out traces of a smooth field ask for little more.
    assert 2.775 / 1.96 < Kriging(blocks=50).fit(five, rng=1).interval_factor() < 1.1 * 2.776 / 1.96
    assert Kriging(blocks=50).fit(one, rng=1).interval_factor() == 1
    assert LinearSignal().fit(five).interval_factor() == 1
    # One trace with nearly all rows: as if there were two.
    assert few_groups_factor(np.where(np.arange(300) < 5, 1, 0)) == pytest.approx(12.706 / 1.96, rel=1e-3)


def test_traces_that_err_by_more_than_the_law_knows_widen_the_interval(fields: SimpleNamespace) -> None:
    pytest.importorskip("sklearn")
    data = fields.measure(fields.waves, 6000, seed=1, noise=1.0)
    traces = replace(data, users=np.arange(6000) % 60)
    shift = np.where(np.arange(60) % 10 == 0, 15.0, 0.0)[traces.users]  # one in ten: no normal law
    rows = traces.rows.copy()
    rows[:, RSS] += shift
    fitted = Kriging(blocks=100).fit(traces.with_rows(rows), rng=1)
    fresh = fields.measure(fields.waves, 6000, seed=2, noise=1.0)
    truth = fresh.rows[:, RSS] + np.where(np.arange(6000) % 10 == 0, 15.0, 0.0)
    found = fitted.predict(fresh.rows)
    off = np.abs(truth - found.mean_dbm) / found.deviation_db
    assert (off <= 1.96).mean() < 0.92
    assert (off <= 1.96 * fitted.interval_factor()).mean() >= 0.95


def test_the_plane_is_metric(fields: SimpleNamespace) -> None:
    rows = np.array([[51.9, -8.4], [51.91, -8.4], [51.9, -8.38]])
    plane = LocalPlane.around(rows[:1])
    found = np.hypot(*plane.metres(rows).T)
    geod = Geod(ellps="WGS84")
    expected = [geod.inv(-8.4, 51.9, lon, lat)[2] for lat, lon in rows]
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_forest_repeats_with_a_seed(fields: SimpleNamespace) -> None:
    pytest.importorskip("sklearn")
    data = fields.measure(fields.waves, 300, seed=1, noise=1.0)
    model = ForestSignal(trees=5, features=None)
    first, second, other = (model.fit(data, rng=seed).mean_dbm(data.rows) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()


def test_bad_input_is_refused(fields: SimpleNamespace) -> None:
    data = fields.measure(fields.waves, 30, seed=1, noise=1.0)
    with pytest.raises(InputError, match="no further feature 'height'"):
        LinearSignal(features=("height",)).fit(data)
    with pytest.raises(InputError, match="no further feature 'rss_dbm'"):
        LinearSignal(features=("rss_dbm",)).fit(data)
    with pytest.raises(InputError, match="no further feature 'tower'"):
        PathLoss(by="tower").fit(data)
    with pytest.raises(InputError, match="a path-loss model needs"):
        PathLoss().fit(data.take(np.arange(5)))
    with pytest.raises(InputError, match="no value of speed"):
        PathLoss(by="speed").fit(data.with_rows(data.rows * [1, 1, 1, 1e6, 1]))
    other = fields.measure(fields.waves, 30, seed=1, noise=1.0)
    renamed = type(other)(
        other.rows, (*other.names[:4], "x"), other.users, other.user_ids, None, other.positions
    )
    with pytest.raises(InputError, match="the model was fitted on"):
        LinearSignal().fit(data).rmse_dbm(renamed)


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        (PathLoss, {"nearest_m": 0.0}),
        (PathLoss, {"steepest": 0.0}),
        (PathLoss, {"most_rows": 3}),
        (ForestSignal, {"trees": 0}),
        (ForestSignal, {"leaf": 0}),
        (Kriging, {"blocks": 5}),
        (Kriging, {"features": None}),
    ],
)
def test_parameters_outside_their_range_are_refused(kind: type[SignalModel], parameters: dict) -> None:
    with pytest.raises(ParameterError, match=next(iter(parameters))):
        kind(**parameters)
