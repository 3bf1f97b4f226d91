"""The audit: every method of the table keeps its claim, and half the noise is caught for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, NamedTuple

import numpy as np
import pytest
from scipy import stats

import mapveil as mv
from mapveil.attacks import epsilon_audit
from mapveil.attacks.audit import audit
from mapveil.attacks.audited_inputs import Neighbours, worst_neighbours, worst_replacements
from mapveil.attacks.epsilon_audit import AuditReport, audit_epsilon
from mapveil.engines import UNIT
from mapveil.mechanisms.laplace_histogram import LaplaceHistogram
from mapveil.mechanisms.methods import METHODS, find_method
from mapveil.mechanisms.sum_mechanism import SumMechanism
from mapveil.privacy.claim import Share
from mapveil.trust.curator import noisy_sums
from mapveil.trust.queries import Estimate
from mapveil_client.errors import ParameterError

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
TILING = mv.Quadtree(REGION, depth=2)


# Every plan is checked exactly in tests/contract, and audited at length in test_long_audits.
@pytest.mark.parametrize(("name", "trials"), [("laplace", 3_000), ("emd", 3_000)])
def test_the_claimed_epsilon_is_not_refuted_and_half_the_noise_is_caught(name, trials):
    method, pairs = find_method(name, "central"), worst_neighbours(TILING)
    report = audit_epsilon(method.make(1), pairs, trials=trials, rng=3)
    assert report.holds, report
    assert report.epsilon_lower > 0.4, "the audit saw nothing, so it could not have seen a fault"
    assert not audit_epsilon(method.make(2), pairs, claimed=1, trials=trials, rng=3).holds


def test_noise_15_percent_small_is_caught():
    mechanism = find_method("laplace", "central").make(Fraction(20, 17))
    assert not audit_epsilon(mechanism, worst_neighbours(TILING)[5:6], claimed=1, trials=8_000, rng=3).holds


@pytest.mark.parametrize("name", [method.name for method in METHODS if method.trust == "local"])
def test_one_report_of_a_local_method_keeps_the_claim_and_half_the_noise_is_caught(name):
    method, pairs = find_method(name, "local"), worst_replacements(TILING)
    report = audit_epsilon(method.make(1), pairs, trials=20_000, rng=3)
    assert report.holds, report
    assert report.epsilon_lower > 0.5, "the audit saw nothing, so it could not have seen a fault"
    assert report.statistic.startswith("likelihood ratio of a report")
    assert not audit_epsilon(method.make(2), pairs, claimed=1, trials=20_000, rng=3).holds


class _FromExactSums(NamedTuple):
    """A curator's query answered by any function of the exact sums: where a fault can hide."""

    function: Callable
    share: Share
    kind: type = np.ndarray

    def check(self):
        pass

    def reply(self, sums, rng, progress):
        return self.function(sums, rng)


@dataclass(frozen=True, kw_only=True)
class Broken(SumMechanism):
    """Noise on every cell, and one of the classic faults."""

    name: ClassVar[str] = "broken"
    summary: ClassVar[str] = "for tests"
    source: ClassVar[str] = "none"

    of_cells: ClassVar[bool] = True

    fault: str

    def plan(self, setting):
        values = yield _FromExactSums(self._noisy, Share("every cell", self.budget))
        return Estimate(values, ())

    def _noisy(self, sums, rng):
        noisy = noisy_sums(sums, self.budget, rng)
        if self.fault == "scaled to the true total":
            noisy = noisy * (sums.sum() / UNIT / max(abs(noisy.sum()), 1e-9))
        elif self.fault == "no noise where nobody is":
            noisy = np.where(sums > 0, noisy, 0.0)
        elif self.fault == "noise for a larger budget":
            noisy = noisy_sums(sums, 2 * self.budget, rng)
        elif self.fault == "rounded to sums":
            noisy = np.where(noisy > 0.5, sums / UNIT, 0.0)
        elif self.fault == "the budget spent twice":
            noisy = (noisy + noisy_sums(sums, self.budget, rng)) / 2
        return noisy


@pytest.mark.parametrize(
    "fault",
    [
        "scaled to the true total",
        "no noise where nobody is",
        "noise for a larger budget",
        "rounded to sums",
        "the budget spent twice",
    ],
)
def test_classic_faults_are_caught_from_released_values_alone(fault):
    report = audit_epsilon(Broken(epsilon=1, fault=fault), worst_neighbours(TILING), trials=4_000, rng=1)
    assert not report.holds, report


def test_without_a_fault_the_same_mechanism_stands():
    report = audit_epsilon(Broken(epsilon=1, fault=""), worst_neighbours(TILING), trials=4_000, rng=1)
    assert report.holds
    assert report.epsilon_lower > 0.5


@dataclass(frozen=True, kw_only=True)
class Coin(SumMechanism):
    """Says whether somebody is there, truly with probability 3/4: exactly ln 3."""

    name: ClassVar[str] = "coin"
    summary: ClassVar[str] = "for tests"
    source: ClassVar[str] = "none"

    def plan(self, setting):
        said = yield _FromExactSums(self._said, Share("whether somebody is there", self.budget))
        return Estimate(np.full(setting.members.size, float(said)), ())

    @staticmethod
    def _said(sums, rng):
        truth = bool(sums.any())
        return truth if int(rng.words(1, np.uint8)[0]) < 192 else not truth


def test_the_bound_fails_as_seldom_as_it_says():
    tiling = mv.Quadtree(REGION, depth=0)
    pair = Neighbours("somebody", tiling, np.array([0]), np.array([UNIT]))
    reports = [audit_epsilon(Coin(epsilon=10), [pair], trials=200, confidence=0.8, rng=i) for i in range(150)]
    failures = sum(report.epsilon_lower > np.log(3) for report in reports)
    # Each bound fails with probability 0.1 at most, and both must err together: far below 0.2.
    assert stats.binomtest(failures, 150, 0.2, alternative="greater").pvalue > 1e-3
    assert np.median([report.epsilon_lower for report in reports]) > 0.5


def test_the_bound_is_the_logit_of_clopper_and_pearson():
    right, guesses = np.array([0, 1, 40, 99, 100]), np.full(5, 100)
    for error in (0.0005, 0.05):
        lows = [
            stats.binomtest(int(k), 100, alternative="greater").proportion_ci(1 - error).low for k in right
        ]
        with np.errstate(divide="ignore"):
            wanted = np.log(lows) - np.log1p(-np.array(lows))
        np.testing.assert_allclose(epsilon_audit._logit_bound(right, guesses, error), wanted, rtol=1e-9)


def test_neighbours_differ_by_one_user():
    for tiling in (TILING, mv.Grid(REGION, columns=3, rows=5), mv.Quadtree(REGION, depth=0)):
        for pair in worst_neighbours(tiling):
            more = pair.with_one - pair.without
            assert (more >= 0).all()
            assert UNIT - 4 < more.sum() <= UNIT
            assert (pair.without >= 0).all()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"neighbours": []}, "at least one pair"),
        (
            {"neighbours": [Neighbours("two", TILING, np.zeros(16, int), np.full(16, UNIT))]},
            "differ by one user",
        ),
        (
            {"neighbours": [Neighbours("none", TILING, np.zeros(16, int), np.zeros(16, int))]},
            "differ by one user",
        ),
        ({"trials": 10}, "trials must be at least 60, 20 for each of 3 pairs, got 10"),
        ({"confidence": 1.0}, "confidence must be a number between 0 and 1, got 1.0"),
        ({"claimed": 0}, "claimed must be"),
    ],
)
def test_senseless_audits_are_refused(changes, says):
    given = {"neighbours": worst_neighbours(TILING)[:3], "trials": 400, **changes}
    with pytest.raises(ParameterError, match=says):
        audit_epsilon(LaplaceHistogram(epsilon=1), given.pop("neighbours"), **given)


def test_local_methods_are_audited_by_replacement_only():
    method = find_method("grr", "local").make(1)
    for pair in (
        *worst_neighbours(TILING),
        Neighbours("same", TILING, *[np.eye(16, dtype=int)[0] * UNIT] * 2),
    ):
        with pytest.raises(ParameterError, match="one user in two different cells"):
            audit_epsilon(method, [pair], trials=400)
    with pytest.raises(ParameterError, match="differ by one user"):
        audit_epsilon(LaplaceHistogram(epsilon=1), worst_replacements(TILING), trials=400)


BUDGETED = [method for method in METHODS if method.has_budget]


@pytest.mark.parametrize("method", BUDGETED, ids=lambda method: f"{method.trust} {method.name}")
def test_smoke_the_audit_runs_on_whatever_claims_an_epsilon(method):
    """A smoke test: 100 runs on one pair hardly refute anything; faults are caught in test_long_audits."""
    pairs = worst_replacements(TILING) if method.trust == "local" else worst_neighbours(TILING)
    options = {"width": 64, "rows": 2} if method.name == "count-min" else {}
    assert audit_epsilon(method.make(1, options), pairs[:1], trials=100, rng=1).holds


def test_a_method_is_audited_under_the_first_trust_model_that_claims_an_epsilon_for_it():
    for name in ("olh-h", "planar-laplace"):
        assert audit(name, trials=1_400, rng=1).holds
    with pytest.raises(ParameterError, match="claims no epsilon: it is not differential privacy"):
        audit("fourier-kde", trust="random-features")


def test_the_trade_off_of_an_exact_coin():
    # Randomized response with probability 3/4 has errors of 1/4 each: as Gaussians 1.349 apart.
    tiling = mv.Quadtree(REGION, depth=0)
    pair = Neighbours("somebody", tiling, np.array([0]), np.array([UNIT]))
    report = audit_epsilon(Coin(epsilon=2), [pair], trials=20_000, rng=1)
    assert 1.2 < report.mu_lower < 2 * stats.norm.ppf(0.75)
    assert 1.0 < report.epsilon_lower < np.log(3)


def test_an_audit_repeats_by_seed_and_prints_its_verdict():
    first, second = (
        audit_epsilon(LaplaceHistogram(epsilon="1/2"), worst_neighbours(TILING)[:4], trials=500, rng=8)
        for _ in range(2)
    )
    assert first == second
    assert first.claimed == Fraction(1, 2)
    assert "no fault found; claimed epsilon 0.5" in repr(first)
    assert worst_neighbours(TILING)[4].name == "3 users in one cell, without or with one more"
    assert repr(AuditReport(1.5, Fraction(1), 10, "a value", "a pair", 0.999, 0.25)).splitlines() == [
        "Epsilon audit: REFUTED; claimed epsilon 1, these runs show at least 1.5 (99.9 % confidence)",
        "  inputs    a pair, 10 runs on each",
        "  told by   a value",
        "  mu-GDP    mu at least 0.25 (Gaussian differential privacy)",
    ]
