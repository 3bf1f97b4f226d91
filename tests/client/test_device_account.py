"""The account: never past a grant or the lifetime, whatever the order of what is asked."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil_client.device_account import Account
from mapveil_client.errors import BudgetExceeded, InputError

LIFE = Fraction(2)
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
                account.grant(name, epsilon, lifetime=LIFE)
            elif what == "charge":
                account.charge(name, number, epsilon, lifetime=LIFE)
                oracle.setdefault(name, {})[number] = epsilon
            else:
                account.end(name)
        except BudgetExceeded:
            assert account.to_record() == before
    assert account.spent == sum((sum(each.values()) for each in oracle.values()), Fraction(0)) <= LIFE
    for name, entry in account.entries.items():
        assert entry.spent <= entry.granted
        assert entry.charges == oracle.get(name, {})
    assert Account.from_record(account.to_record()).to_record() == account.to_record()


def test_the_same_charge_again_is_no_second_one() -> None:
    account = Account()
    account.grant("a", Fraction(1), lifetime=LIFE)
    for _ in range(3):
        account.charge("a", 1, Fraction(3, 4), lifetime=LIFE)
    assert account.spent == Fraction(3, 4)
    with pytest.raises(BudgetExceeded, match="another epsilon"):
        account.charge("a", 1, Fraction(1, 2), lifetime=LIFE)
    with pytest.raises(BudgetExceeded, match=r"at most 0\.25 \(left of what the terms promised"):
        account.charge("a", 2, Fraction(1, 2), lifetime=LIFE)
    with pytest.raises(BudgetExceeded, match="nothing is granted"):
        account.charge("b", 1, Fraction(1, 2), lifetime=LIFE)


def test_what_is_set_aside_is_free_again_when_it_is_over() -> None:
    account = Account()
    account.grant("a", Fraction(2), lifetime=LIFE)
    account.charge("a", 1, Fraction(1, 2), lifetime=LIFE)
    assert account.left(LIFE) == 0
    with pytest.raises(BudgetExceeded, match=r"at most 0 \(left of 2 for"):
        account.grant("b", Fraction(1), lifetime=LIFE)
    account.end("a")
    assert account.left(LIFE) == Fraction(3, 2)
    with pytest.raises(BudgetExceeded, match="in the account already"):
        account.grant("a", Fraction(2), lifetime=LIFE)
    with pytest.raises(BudgetExceeded, match="nothing is granted"):
        account.charge("a", 2, Fraction(1, 2), lifetime=LIFE)


@pytest.mark.parametrize(
    "record", [{"a": {}}, {"a": {"granted": "x", "charges": {}, "ended": False}}, {"a": 1}]
)
def test_a_record_of_something_else_is_refused(record) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        Account.from_record(record)
