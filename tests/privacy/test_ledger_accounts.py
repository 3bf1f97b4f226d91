"""Accounts of the ledger: names stand for datasets, join budgets, and never open a fresh one."""

from __future__ import annotations

from fractions import Fraction

import pytest

from mapveil.privacy.ledger_records import DEFAULT_BUDGET
from mapveil_client.errors import BudgetExceeded, InputError, ParameterError


def test_names_stand_for_datasets_and_join_budgets(ledger, checkins, others):
    ledger.spend(checkins, 2, method="laplace")
    ledger.spend(others, 1, method="laplace")
    ledger.name(checkins, "nyc")
    assert ledger.account("nyc").spent == 2
    ledger.name(others, "nyc")
    assert ledger.remaining(checkins) == ledger.remaining(others) == ledger.remaining("nyc") == 0
    assert len(ledger.entries("nyc")) == 2
    (account,) = ledger.accounts()
    assert account.name == "nyc"
    assert account.datasets == (checkins[:12], others[:12])
    with pytest.raises(BudgetExceeded, match="account nyc"):
        ledger.spend(others, "0.1", method="laplace")


def test_a_second_name_never_opens_a_fresh_budget(ledger, checkins, others):
    ledger.spend(checkins, 3, method="laplace")
    ledger.name(checkins, "first")
    ledger.name(checkins, "second")
    ledger.name(others, "first")
    for dataset in ("first", "second", checkins, others):
        assert ledger.remaining(dataset) == 0
    ledger.recognise(None, dataset="third")
    ledger.name("second", "third")
    assert all(ledger.remaining(name) == 0 for name in ("first", "second", "third"))


@pytest.mark.parametrize("towards", ["checkins", "roomy"])
def test_joined_accounts_have_the_smaller_budget_its_owner_and_reason(ledger, checkins, others, towards):
    ledger.name(checkins, "checkins")
    ledger.name(others, "roomy")
    ledger.set_budget("checkins", 1, owner="A. Nowak", reason="ticket 481")
    ledger.set_budget("roomy", 9, reason="a test")
    ledger.spend("checkins", 1, method="laplace")
    ledger.spend("roomy", "0.1", method="laplace")
    before = {account.name: account for account in ledger.accounts()}
    (joining,) = before.keys() - {towards}
    assert ledger.name(joining, towards, accept_overspent=True) == (before[joining], before[towards])
    (account,) = ledger.accounts()
    assert (account.budget, account.owner, account.reason) == (1, "A. Nowak", "ticket 481")
    assert (account.spent, account.remaining) == (Fraction(11, 10), 0)


@pytest.mark.parametrize("own", ["1", "3", "9"])
def test_a_default_budget_is_joined_as_what_it_is(ledger, checkins, others, own):
    ledger.name(checkins, "first")
    ledger.set_budget(others, own, owner="A. Nowak")
    ledger.name(others, "first")
    (account,) = ledger.accounts()
    assert (account.budget, account.owner) == (min(int(own), DEFAULT_BUDGET), "A. Nowak")


@pytest.mark.parametrize(
    "name",
    ["", "  ", "default", "abcdef", "0123456789ab", " a", "a\n", "a\nb", "a\x1b[2J", "a\u200bb", "a" * 201],
)
def test_a_name_that_could_be_taken_for_something_else_is_refused(ledger, name, checkins):
    with pytest.raises(ParameterError, match="name must be"):
        ledger.name(checkins, name)


@pytest.mark.parametrize("called", ["nobody", "abcdef", "ab", "", "%", "*" * 12, "?" * 12])
def test_an_unknown_dataset_is_an_error_not_a_new_budget(ledger, called, checkins):
    ledger.spend(checkins, 1, method="laplace")
    with pytest.raises(InputError, match="no account in the ledger called"):
        ledger.spend(called, 1, method="laplace")


def test_leading_digits_name_a_dataset(ledger, checkins):
    ledger.spend(checkins, 1, method="laplace")
    for length in (6, 12, 32):
        assert ledger.account(checkins[:length]).spent == 1
