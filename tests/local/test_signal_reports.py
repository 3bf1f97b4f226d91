"""Reports of cell and label: the exact ratio, an audit from reports alone, unbiased sums with the stated noise."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import beta

from mapveil.geo.points import Points
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.local.randomizers.randomizer import Tally
from mapveil.local.signal_reports import SignalReports
from mapveil.maps.proportion_map import EstimatedLabels
from mapveil.privacy.account import Account
from mapveil.privacy.claim import Adversary, Assumes, Neighbouring, TrustModel, Unit
from mapveil_client.errors import BudgetExceeded, InputError, ParameterError
from mapveil_client.local.cell_labels import CellLabelReports
from mapveil_client.randomness.random import Randomness

TILING = Quadtree(Region.from_bbox(0.0, 0.0, 1.0, 1.0), depth=3)
PHONES = 60_000


def law_of_phone(law: CellLabelReports, pairs: list[int], weights: list[int]) -> np.ndarray:
    """The probability of every tuple of a phone's symbols, written out."""
    one = np.zeros(law.pairs)
    np.add.at(one, pairs, np.array(weights) / sum(weights))
    single = law.forward(one)
    made = single
    for _ in range(law.reports - 1):
        made = np.multiply.outer(made, single)
    return made.reshape(-1)


@pytest.mark.parametrize("reports", [1, 2])
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(3)])
def test_two_phones_reports_differ_by_at_most_epsilon(epsilon: Fraction, reports: int) -> None:
    law = CellLabelReports(4, epsilon, reports)
    first, second = law_of_phone(law, [0], [1]), law_of_phone(law, [7, 2], [3, 1])
    single = law_of_phone(law, [7], [1])
    for other in (second, single):
        worst = float(np.abs(np.log(first / other)).max())
        assert worst <= float(epsilon) + 1e-9
    assert np.abs(np.log(first / single)).max() > 0.99 * float(epsilon)


def symbols(epsilon: Fraction, pair: int, seed: int) -> np.ndarray:
    law = CellLabelReports(4, epsilon, 1)
    starts = np.arange(PHONES + 1)
    ones = np.ones(PHONES, dtype=np.int64)
    return law.randomize(starts, np.full(PHONES, pair), ones, Randomness(seed))


def shown(epsilon: Fraction) -> float:
    """A lower bound on the epsilon that reports show, sure but for 1e-9."""
    halves = [np.array_split(symbols(epsilon, pair, 5 + pair), 2) for pair in (0, 7)]
    size = 1 + max(int(each.max()) for parts in halves for each in parts)
    chosen, other = (np.bincount(parts[0], minlength=size) + 0.5 for parts in halves)
    event = np.log(chosen / other) > float(epsilon) / 2  # a ratio is e^epsilon, its inverse, or 1
    hits, misses = (int(event[parts[1]].sum()) for parts in halves)
    n = PHONES // 2
    return math.log(beta.ppf(5e-10, hits, n - hits + 1) / beta.ppf(1 - 5e-10, misses + 1, n - misses))


def test_reports_show_no_more_than_the_claim_and_half_the_noise_is_caught() -> None:
    assert 0.5 < shown(Fraction(1)) <= 1
    assert shown(Fraction(2)) > 1


def contributions(phones: int, seed: int) -> Points:
    """Each phone at two places, half a weight each, strong by three quarters in the west and a quarter in the east."""
    draw = np.random.default_rng(seed)
    who = np.repeat(np.arange(phones), 4)
    place = np.repeat(draw.random((phones * 2, 2)), 2, axis=0)
    label = np.tile([0, 1], phones * 2)
    strong = np.where(place[:, 0] < 0.5, 0.75, 0.25)
    return Points.from_arrays(
        who, place[:, 0], place[:, 1], weight=np.where(label == 1, strong, 1 - strong) / 2, label=label
    )


@pytest.mark.parametrize("reports", [1, 3])
def test_estimates_are_unbiased_with_the_variance_that_is_stated(reports: int) -> None:
    # Phones of two pairs: strong by three quarters in cells 0 and 1, by one quarter in 2 and 3.
    phones, runs = 1500, 60
    cell = np.repeat(np.arange(phones) % 4, 2)
    pairs = cell * 2 + np.tile([0, 1], phones)
    weights = np.where((cell < 2) == (pairs % 2 == 1), 3, 1)
    starts = 2 * np.arange(phones + 1)
    method = SignalReports(epsilon=3, depth=1, reports=reports)
    design = method.design(TILING, phones)

    def once(seed: int) -> EstimatedLabels:
        drawn = design.law.randomize(starts, pairs, weights, Randomness(seed))
        tally = Tally(np.bincount(drawn, minlength=design.law.symbols), drawn.size)
        made = method.estimate(tally, design, TILING).measurements[0]
        assert isinstance(made, EstimatedLabels)
        return made

    found = [once(seed) for seed in range(runs)]
    contrast = np.array([each.by_label[:, 1] - each.by_label[:, 0] for each in found])
    expected = np.array([1, 1, -1, -1]) / 2 * phones / 4
    variance = found[0].contrast_variance(np.full(4, phones / 4)).mean()
    assert np.abs(contrast.mean(axis=0) - expected).max() < 4 * math.sqrt(variance / runs)
    assert 0.7 < contrast.var(axis=0, ddof=1).mean() / variance < 1.2
    assert np.mean([each.noisy.sum() for each in found]) == pytest.approx(phones, rel=0.02)


def test_the_promise_is_typed_and_charged(tmp_path) -> None:
    made = SignalReports(epsilon=1, unit="user's day").guarantee()
    assert (made.model, made.neighbours) == (TrustModel.LOCAL, Neighbouring.REPLACE_ONE)
    assert (made.adversary, made.delta, made.unit) == (Adversary.REPORTS, 0, Unit.DAY)
    assert {Assumes.COMPOSES(), Assumes.PILOT_PUBLIC(), Assumes.PARTICIPATION_PUBLIC()} <= set(
        made.assumptions
    )
    account = Account.open("coverage", budget=1, ledger=tmp_path / "ledger.sqlite")
    points = contributions(20, 2)
    released = SignalReports(epsilon=1).release(points, TILING, account=account)
    assert released.guarantee.simulated
    assert released.guarantee.account.after == 1
    with pytest.raises(BudgetExceeded):
        SignalReports(epsilon=1).release(points, TILING, account=account)


def test_more_reports_ask_for_finer_cells_and_bad_input_is_refused() -> None:
    few, many = (
        SignalReports(epsilon=4).release(contributions(count, 3), TILING, account=None, rng=1).measurements[0]
        for count in (30, 4_000)
    )
    assert few.noisy.size < many.noisy.size
    with pytest.raises(InputError, match="has no residuals"):
        SignalReports(epsilon=1).release(Points.from_arrays(["a"], [0.5], [0.5]), TILING, account=None, rng=1)
    wrong = Points.from_arrays(["a"], [0.5], [0.5], label=[2])
    with pytest.raises(InputError, match="labels must be 0"):
        SignalReports(epsilon=1).release(wrong, TILING, account=None, rng=1)
    with pytest.raises(ParameterError, match="reports must be"):
        SignalReports(epsilon=1, reports=0)
