"""The account of a device's reports: exact composition, a count that survives the process, refusal in time."""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import os
import threading
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil_client.errors import BudgetExceeded, InputError
from mapveil_client.gaussian_curve import gaussian_deviation
from mapveil_client.report_account import ReportAccount, ReportBudget, ReportCost, compose
from mapveil_client.vault import Vault

DELTA = Fraction(1, 100_000)
TEN = ReportCost(ratio=1 / gaussian_deviation(10, float(DELTA), 1.0))
KEY = bytes(32)
_REFUSED = 7


def test_a_hundred_reports_of_epsilon_10_are_of_285_at_most_and_not_of_1000() -> None:
    assert compose({TEN: 1}, DELTA).epsilon == pytest.approx(10, rel=1e-6)
    assert compose({TEN: 100}, DELTA).epsilon == pytest.approx(284.5, abs=0.01)


@given(st.integers(1, 50), st.integers(0, 20), st.integers(0, 20))
def test_what_is_composed_in_parts_is_what_is_composed_at_once(
    gaussians: int, first: int, second: int
) -> None:
    half, third = ReportCost(epsilon=Fraction(1, 2)), ReportCost(epsilon=Fraction(1, 3), delta=DELTA / 100)
    total = compose({TEN: gaussians, half: first, third: second}, DELTA)
    alone = compose({TEN: gaussians}, DELTA - second * DELTA / 100).epsilon
    assert total.epsilon == pytest.approx(alone + first / 2 + second / 3)
    assert total.reports == gaussians + first + second
    assert total.epsilon <= gaussians * 10 + first / 2 + second / 3 + 1


def test_a_report_that_nothing_bounds_makes_the_total_infinite() -> None:
    assert math.isinf(compose({ReportCost(epsilon=None): 1, TEN: 3}, DELTA).epsilon)
    # Slack that is added up leaves nothing of delta for the Gaussian reports.
    assert math.isinf(compose({TEN: 1, ReportCost(delta=DELTA): 1}, DELTA).epsilon)


@given(st.integers(1, 400))
def test_the_most_reports_are_the_last_that_the_budget_allows(epsilon: int) -> None:
    budget = ReportBudget(Fraction(epsilon), DELTA)
    most = budget.most(TEN)
    assert most is not None
    assert most == 0 or budget.allows({TEN: most})
    assert not budget.allows({TEN: most + 1})


def test_the_count_outlives_the_process_and_the_total_is_never_passed(tmp_path: Path) -> None:
    budget = ReportBudget(Fraction(30), DELTA)
    most = budget.most(TEN)
    assert most is not None
    assert most > 2
    account = ReportAccount(Vault(tmp_path / "reports", KEY), budget)
    account.charge(TEN, most - 1)
    account.close()
    account = ReportAccount(Vault(tmp_path / "reports", KEY), budget)
    assert account.total.reports == most - 1
    with pytest.raises(
        BudgetExceeded, match=r"at most 30 at delta 1e-05.*nothing is charged and nothing sent"
    ):
        account.charge(TEN, 2)
    account.charge(TEN)
    with pytest.raises(BudgetExceeded):
        account.charge(TEN)
    assert account.total == compose({TEN: most}, DELTA)


def test_reports_without_an_epsilon_need_a_number(tmp_path: Path) -> None:
    free = ReportCost(epsilon=None)
    with pytest.raises(BudgetExceeded, match="no epsilon bounds such a report"):
        ReportAccount(Vault(tmp_path / "a", KEY), ReportBudget(Fraction(1))).charge(free)
    account = ReportAccount(Vault(tmp_path / "b", KEY), ReportBudget(None, reports=2))
    account.charge(free, 2)
    with pytest.raises(BudgetExceeded, match="reports must be at most 2 in all, got 3"):
        account.charge(free)
    assert ReportBudget(None, reports=2).most(free) == 2
    assert ReportBudget(Fraction(1)).most(free) == 0


def test_a_file_that_is_no_account_is_refused(tmp_path: Path) -> None:
    vault = Vault(tmp_path / "v", KEY)
    vault.open()
    vault.write(b'{"layout": 9}')
    vault.close()
    with pytest.raises(InputError, match="is no account of reports"):
        ReportAccount(vault, ReportBudget(Fraction(1)))
    with pytest.raises(InputError, match="an epsilon, a number of reports, or both"):
        ReportAccount(Vault(tmp_path / "w", KEY), ReportBudget(None))


@pytest.mark.parametrize(
    ("cost", "named"),
    [
        (ReportCost(ratio=-1.0), "ratio"),
        (ReportCost(ratio=math.nan), "ratio"),
        (ReportCost(ratio=math.inf), "ratio"),
        (ReportCost(epsilon=Fraction(-1)), "epsilon"),
        (ReportCost(delta=Fraction(-1)), "delta"),
        (ReportCost(delta=Fraction(1)), "delta"),
        (ReportCost(distance=Fraction(-1)), "distance"),
    ],
)
def test_a_cost_that_would_refund_is_refused(tmp_path: Path, cost: ReportCost, named: str) -> None:
    with pytest.raises(InputError, match=f"^{named} must be"):
        ReportCost.from_list(cost.to_list())
    account = ReportAccount(Vault(tmp_path / "reports", KEY), ReportBudget(Fraction(1)))
    with pytest.raises(InputError, match=f"^{named} must be"):
        account.charge(cost)
    assert account.total.reports == 0


LOOSER = [
    ReportBudget(Fraction(5), DELTA, 9),
    ReportBudget(Fraction(4), 2 * DELTA, 9),
    ReportBudget(Fraction(4), DELTA, 10),
    ReportBudget(Fraction(4), DELTA),
    ReportBudget(None, DELTA, 9),
]


@pytest.mark.parametrize("looser", LOOSER, ids=str)
def test_the_budget_of_the_first_charge_is_never_loosened(tmp_path: Path, looser: ReportBudget) -> None:
    def opened(budget: ReportBudget) -> ReportAccount:
        return ReportAccount(Vault(tmp_path / "reports", KEY), budget)

    first, stricter = ReportBudget(Fraction(4), DELTA, 9), ReportBudget(Fraction(3), DELTA / 2, 8)
    opened(looser).close()  # nothing is charged yet, so nothing is fixed
    for budget in (first, stricter, first):
        account = opened(budget)
        account.charge(ReportCost(epsilon=Fraction(1)))
        account.close()
    with pytest.raises(
        InputError, match=r"holds an account of epsilon 4, delta 1e-05, 9 reports; .* no looser"
    ):
        opened(looser)
    assert opened(first).total.reports == 3  # and the refusal left the file to the next handle


def test_an_account_of_the_layout_without_a_budget_goes_on_and_keeps_one_from_then(tmp_path: Path) -> None:
    vault = Vault(tmp_path / "reports", KEY)
    vault.open()
    vault.write(
        json.dumps({"layout": 1, "reports": [[*ReportCost(epsilon=Fraction(1)).to_list(), 3]]}).encode()
    )
    vault.close()
    account = ReportAccount(vault, ReportBudget(Fraction(4)))
    account.charge(ReportCost(epsilon=Fraction(1)))
    account.close()
    with pytest.raises(InputError, match="no looser"):
        ReportAccount(vault, ReportBudget(Fraction(5)))


def test_slack_beyond_delta_is_refused_by_its_name(tmp_path: Path) -> None:
    account = ReportAccount(Vault(tmp_path / "reports", KEY), ReportBudget(Fraction(4), DELTA))
    approximate = ReportCost(epsilon=Fraction(1), delta=DELTA)
    account.charge(approximate)
    with pytest.raises(
        BudgetExceeded, match=r"^delta of the reports that are added up must be at most 1e-05, got 2e-05"
    ):
        account.charge(approximate)
    with pytest.raises(BudgetExceeded, match=r"^delta of .* nothing for the Gaussian reports"):
        account.charge(ReportCost(ratio=0.01))
    with pytest.raises(BudgetExceeded, match=r"^delta of all reports, their samplers' distances included"):
        account.charge(ReportCost(epsilon=Fraction(1), distance=DELTA))
    account.charge(ReportCost(epsilon=Fraction(1)))
    assert account.total.reports == 2


@given(st.fractions(Fraction(1, 1000), 10), st.integers(1, 50))
def test_epsilons_are_added_up_exactly_and_rounded_up(epsilon: Fraction, reports: int) -> None:
    counts = {ReportCost(epsilon=epsilon): reports}
    exact = epsilon * reports
    assert ReportBudget(exact).allows(counts)
    assert not ReportBudget(exact - Fraction(1, 10**30)).allows(counts)
    total = Fraction(compose(counts, DELTA).epsilon)
    assert exact <= total <= exact * (1 + Fraction(1, 1 << 52))


def test_threads_of_one_phone_spend_its_budget_once(tmp_path: Path) -> None:
    """The attack: whoever charges beside another sees the count before the other's."""
    account = ReportAccount(Vault(tmp_path / "reports", KEY), ReportBudget(Fraction(12)))
    start, charged = threading.Barrier(6), []

    def spend() -> None:
        start.wait()
        for _ in range(8):
            with contextlib.suppress(BudgetExceeded):
                account.charge(ReportCost(epsilon=Fraction(1)))
                charged.append(1)

    threads = [threading.Thread(target=spend) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(charged) == account.total.reports == 12


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks on this system")
def test_a_fork_of_the_phones_program_charges_nothing(tmp_path: Path) -> None:
    account = ReportAccount(Vault(tmp_path / "reports", KEY), ReportBudget(Fraction(4)))
    child = multiprocessing.get_context("fork").Process(target=_charged_by_fork, args=(account,))
    child.start()
    child.join()
    assert child.exitcode == _REFUSED
    account.charge(ReportCost(epsilon=Fraction(4)))


def _charged_by_fork(account: ReportAccount) -> None:
    try:
        account.charge(ReportCost(epsilon=Fraction(4)))
    except InputError:
        os._exit(_REFUSED)
    os._exit(0)
