"""The account: never past a grant or the lifetime, whatever the order of what is asked."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil_client.device_account import Account, Budget
from mapveil_client.errors import BudgetExceeded, InputError

LIFE = Budget(Fraction(2))
EPSILONS = st.fractions(min_value=Fraction(1, 16), max_value=Fraction(3, 2), max_denominator=16)
ASKED = st.tuples(
    st.sampled_from(["grant", "charge", "end"]), st.sampled_from("abc"), st.integers(0, 3), EPSILONS
)


@given(st.lists(ASKED, max_size=40))
def test_no_order_of_requests_passes_a_grant_or_the_lifetime(asked) -> None:
    account = Account()
    oracle: dict[str, dict[int, Fraction]] = {}
    for what, name, number, epsilon in asked:
        before = account.to_record()
        try:
            if what == "grant":
                account.grant(name, epsilon, budget=LIFE)
            elif what == "charge":
                account.charge(name, number, epsilon, budget=LIFE)
                oracle.setdefault(name, {})[number] = epsilon
            else:
                account.end(name)
        except BudgetExceeded:
            assert account.to_record() == before
    assert account.spent == sum((sum(each.values()) for each in oracle.values()), Fraction(0)) <= LIFE.epsilon
    for name, entry in account.entries.items():
        assert entry.spent <= entry.granted
        assert entry.charges == oracle.get(name, {})
    assert Account.from_record(account.to_record()).to_record() == account.to_record()


def test_the_same_charge_again_is_no_second_one() -> None:
    account = Account()
    account.grant("a", Fraction(1), budget=LIFE)
    for _ in range(3):
        account.charge("a", 1, Fraction(3, 4), budget=LIFE)
    assert account.spent == Fraction(3, 4)
    with pytest.raises(BudgetExceeded, match="another epsilon"):
        account.charge("a", 1, Fraction(1, 2), budget=LIFE)
    with pytest.raises(BudgetExceeded, match=r"at most 0\.25 \(left of what the terms promised"):
        account.charge("a", 2, Fraction(1, 2), budget=LIFE)
    with pytest.raises(BudgetExceeded, match="nothing is granted"):
        account.charge("b", 1, Fraction(1, 2), budget=LIFE)


def test_epsilons_are_told_exactly_and_can_be_typed_back() -> None:
    budget = Budget(Fraction(1, 3), 30)
    assert str(budget) == "1/3 per 30 days"
    assert Budget.parse(str(budget)) == budget
    account = Account()
    with pytest.raises(BudgetExceeded, match=r"at most 1/3 \(left of 1/3 per 30 days\), got 2/3$"):
        account.grant("a", Fraction(2, 3), budget=budget)
    account.grant("a", Fraction(1, 3), budget=budget)
    with pytest.raises(BudgetExceeded, match=r"at most 1/3 \(left of what the terms promised\), got 1$"):
        account.charge("a", 1, Fraction(1), budget=budget)
    account.charge("a", 1, Fraction(1, 3), budget=budget)
    account.end("a")
    with pytest.raises(
        BudgetExceeded, match=r"at most 0 \(left of 0\.1 for this device's lifetime\), got 0\.5"
    ):
        account.grant("b", Fraction(1, 2), budget=Budget(Fraction(1, 10)))


def test_what_is_set_aside_is_free_again_when_it_is_over() -> None:
    account = Account()
    account.grant("a", Fraction(2), budget=LIFE)
    account.charge("a", 1, Fraction(1, 2), budget=LIFE)
    assert account.left(LIFE) == 0
    with pytest.raises(BudgetExceeded, match=r"at most 0 \(left of 2 for"):
        account.grant("b", Fraction(1), budget=LIFE)
    account.end("a")
    assert account.left(LIFE) == Fraction(3, 2)
    with pytest.raises(BudgetExceeded, match="in the account already"):
        account.grant("a", Fraction(2), budget=LIFE)
    with pytest.raises(BudgetExceeded, match="nothing is granted"):
        account.charge("a", 2, Fraction(1, 2), budget=LIFE)


@pytest.mark.parametrize(
    "record", [{"a": {}}, {"a": {"granted": "x", "charges": {}, "ended": False, "at": 0}}, {"a": 1}]
)
def test_a_record_of_something_else_is_refused(record) -> None:
    for whole in (record, {"latest": 0, "entries": record}, {"latest": "x", "entries": {}}):
        with pytest.raises(InputError, match="cannot be read"):
            Account.from_record(whole)


DAY = 86_400.0


class Hands:
    """A clock whose hands the test moves."""

    def __init__(self) -> None:
        self.now = 1e9

    def __call__(self) -> float:
        return self.now


def spend(account: Account, name: str, epsilon: Fraction, budget: Budget) -> None:
    account.grant(name, epsilon, budget=budget)
    account.charge(name, 1, epsilon, budget=budget)
    account.end(name)


def test_a_budget_per_period_renews_so_many_days_after_each_charge() -> None:
    hands, monthly = Hands(), Budget(Fraction(2), 30)
    account = Account(clock=hands)
    spend(account, "a", Fraction(1), monthly)
    hands.now += 10 * DAY
    spend(account, "b", Fraction(1), monthly)
    with pytest.raises(BudgetExceeded, match=r"at most 0 \(left of 2 per 30 days"):
        account.grant("c", Fraction(1), budget=monthly)
    hands.now += 20 * DAY + 1  # the first charge is over, the second is not
    assert account.left(monthly) == 1
    hands.now += 10 * DAY
    assert (account.left(monthly), account.spent) == (2, 2)
    assert account.left(Budget(Fraction(3))) == 1  # of a lifetime nothing is ever over


def test_a_collection_that_runs_counts_however_long_it_does() -> None:
    hands, monthly = Hands(), Budget(Fraction(2), 30)
    account = Account(clock=hands)
    account.grant("a", Fraction(2), budget=monthly)
    hands.now += 400 * DAY
    assert account.left(monthly) == 0
    account.charge("a", 1, Fraction(2), budget=monthly)
    account.end("a")
    hands.now += 29 * DAY
    assert account.left(monthly) == 0


def test_a_clock_that_is_set_back_renews_nothing_not_even_after_a_restart() -> None:
    hands, monthly = Hands(), Budget(Fraction(1), 30)
    account = Account(clock=hands)
    spend(account, "a", Fraction(1), monthly)
    for away in (-400 * DAY, -31 * DAY, 29 * DAY, -1e9):
        hands.now = 1e9 + away
        account = Account.from_record(account.to_record(), hands)
        assert account.left(monthly) == 0
    # Set ahead it renews early, once: what is charged then counts until the clock has come so far again.
    hands.now = 1e9 + 31 * DAY
    spend(account, "b", Fraction(1), monthly)
    hands.now = 1e9 + 35 * DAY
    account = Account.from_record(account.to_record(), hands)
    assert account.left(monthly) == 0


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "4 per day", "4 per 0 days", "1/0", "4 per 30 days and more", "x"]
)
def test_a_text_that_is_no_budget_is_refused(text) -> None:
    with pytest.raises(InputError, match="budget"):
        Budget.parse(text)
