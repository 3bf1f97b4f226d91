"""Coverage by sums in a trade-off: every trust model answers, the curve over units, the best adversary on reports."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from mapveil.analysis.signal_models.kriging import FittedKriging, Kriging
from mapveil.attacks.report_posterior import ReportedRows, attack_reports
from mapveil.attacks.signal_evidence import SignalEvidence
from mapveil.attacks.signal_score import AdversaryScore
from mapveil.evaluation.coverage_report import curve_rows, error_plane
from mapveil.evaluation.coverage_trials import (
    SUMS,
    CurvePoint,
    attack_local,
    change_of,
    corrected,
    curve_gains,
    curve_of,
    sums_tiling,
    unit_counts,
    units_needed,
)
from mapveil.evaluation.signal_tradeoff import TradeoffPoint
from mapveil.geo.collection_roles import CollectionRoles, collection_roles
from mapveil.geo.measurements import LAT, Measurements, joined
from mapveil.obfuscation.privatizers.normalisation import Normalisation
from mapveil_client.local.cell_labels import CellLabelReports
from mapveil_client.randomness.random import Randomness

DAY = 86_400_000_000


@pytest.fixture(scope="module")
def roles() -> CollectionRoles:
    """Sixty phones on five days; a field that falls eastwards, and rises by 12 dB after the pilot's day."""
    draw = np.random.default_rng(1)
    users = np.repeat(np.arange(60), 25)
    day = np.tile(np.repeat(np.arange(5), 5), 60)
    lat, lon = 35.5 + 0.02 * draw.random(users.size), 24.0 + 0.02 * draw.random(users.size)
    strength = -80 - 500 * (lon - 24.0) + 12.0 * (day > 0) + draw.normal(0, 2, users.size)
    rows = np.column_stack([lat, lon, strength])
    time = day * DAY + np.arange(users.size)
    ids = tuple(map(str, range(60)))
    table = Measurements(rows, ("lat", "lon", "rss_dbm"), users, ids, time, np.arange(users.size))
    return collection_roles(table, Randomness(1), pilot=0.2, later=0.2)


@pytest.fixture(scope="module")
def prior(roles: CollectionRoles) -> FittedKriging:
    return Kriging(blocks=40).fit(roles.pilot, rng=1)


@pytest.mark.parametrize("trust", list(SUMS.values()))
def test_sums_under_every_trust_follow_a_signal_that_changed(
    roles: CollectionRoles, prior: FittedKriging, trust: str
) -> None:
    tiling = sums_tiling(roles.pilot)
    made = corrected(roles.held_out, prior, tiling, 8.0, trust, Randomness(3))
    change = change_of(made, tiling)(roles.later.rows)
    # By 12 dB everywhere, of which a phone can say no more than the clip.
    assert change.min() > 0
    assert change.mean() > (0.2 if trust == "local" else 1.0)
    assert change_of(None, tiling)(roles.later.rows).max() == 0


def test_the_curve_rises_with_the_units(roles: CollectionRoles, prior: FittedKriging) -> None:
    gains = curve_gains(roles, prior, Randomness(2), draws=1)
    curve = curve_of([gains, gains])
    assert {each.units for each in curve} == set(unit_counts(60))
    best = {each.units: each.gain_db for each in curve if each.epsilon == 4}
    assert best[60] > max(0.5, best[min(best)])
    needed = units_needed(curve)[4.0]
    assert needed.over_pilot <= needed.over_nothing <= 60
    assert all(each.pilot_gain_db >= each.gain_db for each in curve)
    header, rows = curve_rows(curve, "user")
    assert header[0] == "users"
    assert [row[0] for row in rows[:-2]] == [str(count) for count in unit_counts(60)]


def test_units_needed_are_those_from_which_on_it_is_better() -> None:
    gains = {10: 0.5, 20: -0.1, 40: 0.2, 80: 0.4}
    curve = [
        CurvePoint(1.0, units, gain, gain - 0.3, gain + 0.3, gain + 0.2, gain - 0.1, gain + 0.5)
        for units, gain in gains.items()
    ]
    assert units_needed(curve)[1.0] == (80, 40)
    assert units_needed(curve)[2.0] == (None, None)
    _, (*_, needed) = curve_rows(curve, "user")
    assert needed == ["that over the pilot's map from", "40", "none of those tried", "none of those tried"]


def evidence(places: np.ndarray, users: np.ndarray) -> SignalEvidence:
    count = len(users)
    observed = np.zeros((count, 1, 3))
    return SignalEvidence(observed, users, places[:, None], int(users.max()) + 1, np.zeros(2), np.ones(2))


def test_the_posterior_is_the_best_guess_of_every_report() -> None:
    draw = np.random.default_rng(4)
    law = CellLabelReports(2, Fraction(2), 1)
    square = draw.integers(2, size=40)
    rows = ReportedRows(
        evidence(draw.random((40, 2)) + 3 * square[:, None], draw.integers(3, size=40)),
        square,
        draw.random(40),
    )
    # Written out: every symbol's best candidate and likeliest user, by all weights.
    pairs = np.array([law.forward(unit) for unit in np.eye(4)])
    chance = (1 - rows.strong)[:, None] * pairs[square * 2] + rows.strong[:, None] * pairs[square * 2 + 1]
    places, users = rows.evidence.places[:, 0], rows.evidence.users
    candidates = [places[square == 0].mean(axis=0), places[square == 1].mean(axis=0), places.mean(axis=0)]
    p1 = p2 = 0.0
    for symbol in range(law.symbols):
        weight = chance[:, symbol]
        p2 += min(float(weight @ np.hypot(*(places - each).T)) for each in candidates) / 40
        p1 += (weight.sum() - max(weight[users == user].sum() for user in range(3))) / 40
    found = attack_reports(law, rows, rows, Randomness(1))
    assert found.p2 == pytest.approx(p2)
    assert found.p1 == pytest.approx(p1)
    blind = min(float(np.hypot(*(places - each).T).mean()) for each in candidates)
    assert found.p2 <= blind + 1e-12


def test_the_plane_shows_sums_and_the_maps_of_the_pilot() -> None:
    pytest.importorskip("matplotlib")

    def point(name: str, value: float, **means: float) -> TradeoffPoint:
        return TradeoffPoint("g", name, "epsilon", value, 1, means, means, means)

    points = [
        point("pilot only, collect nothing", 0, p2_m=800, places_db=5.0, later_db=math.nan),
        *(point(name, 1.0, p2_m=700, places_db=4.0, later_db=math.nan) for name in SUMS),
        point("gap", 0.5, p2_m=300, places_db=9.0, later_db=math.nan),
    ]
    figure = error_plane(points)
    assert [axes.get_title() for axes in figure.axes] == ["at held-out places (one trial: no intervals)"]
    assert {text.get_text() for text in figure.legends[0].get_texts()} == {*SUMS, "gap"}


def test_a_local_report_is_judged_wherever_rows_and_known_users_are(
    roles: CollectionRoles, prior: FittedKriging
) -> None:
    normalisation, first = Normalisation.learn(roles.pilot), roles.held_out.users % 2 == 0
    known, other = roles.held_out.take(first), roles.held_out.take(~first)
    away = roles.held_out.rows.copy()
    away[:, LAT] += 1.0
    outside = roles.held_out.with_rows(away).take(first)

    def attack(*labelled: Measurements) -> AdversaryScore | None:
        return attack_local(roles, prior, 2.0, labelled, normalisation, Randomness(1))

    assert attack(known, outside) is None
    assert attack(outside, known) is None
    strangers = attack(known, other)
    assert math.isnan(strangers.p1)
    assert strangers.p == strangers.p2
    # A row outside is answered by the guess without a report, whoever can be named there.
    both = joined(other, outside)
    met = attack(known, both)
    assert 0 < met.p1 <= 1
    assert met.p == met.p1 + met.p2
    assert met.runs == len(both)
