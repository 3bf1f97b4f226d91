"""Refusals: one code and one status each, and what they are made of."""

from __future__ import annotations

import inspect

import pytest

from mapveil.collector import faults
from mapveil.collector.faults import Conflict, Invalid, Refusal, StoreUnavailable, TooMany, refusal_of
from mapveil_client.errors import BudgetExceeded, InputError, ParameterError

KINDS = [
    kind
    for _, kind in inspect.getmembers(faults, inspect.isclass)
    if issubclass(kind, Refusal) and kind is not Refusal
]


def test_the_table_of_the_module_is_true():
    rows = [line.split()[:2] for line in faults.__doc__.splitlines() if line[:1].isalpha() and "  " in line]
    assert {(code, int(status)) for code, status in rows if status.isdigit()} == {
        (kind.code, kind.status) for kind in KINDS
    }


def test_no_two_kinds_share_a_code():
    assert len({kind.code for kind in KINDS}) == len(KINDS) == 9


def test_a_refusal_says_what_is_accepted():
    refusal = Invalid("epsilon is 0", "a number above 0")
    assert str(refusal) == "epsilon is 0; expected a number above 0"
    assert (refusal.message, refusal.expected) == ("epsilon is 0", "a number above 0")
    assert TooMany("slower", 2.5).retry_after == 2.5


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (InputError("no"), Invalid),
        (ParameterError("no"), Invalid),
        (BudgetExceeded("no"), Conflict),
        (StoreUnavailable("no"), StoreUnavailable),
    ],
)
def test_every_failure_is_a_refusal(error, kind):
    found = refusal_of(error)
    assert type(found) is kind
    assert str(found) == "no"
