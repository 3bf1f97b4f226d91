"""Refusals: one code and one status each, and what they are made of."""

from __future__ import annotations

import inspect

from mapveil.collector import refusals
from mapveil.collector.refusals import Invalid, Refusal, TooMany

KINDS = [
    kind
    for _, kind in inspect.getmembers(refusals, inspect.isclass)
    if issubclass(kind, Refusal) and kind is not Refusal
]


def test_no_two_kinds_share_a_status():
    assert len({kind.status for kind in KINDS}) == len(KINDS) == 9


def test_a_refusal_says_what_is_accepted():
    refusal = Invalid("epsilon is 0", "a number above 0")
    assert str(refusal) == "epsilon is 0; expected a number above 0"
    assert (refusal.message, refusal.expected) == ("epsilon is 0", "a number above 0")
    assert TooMany("slower", 2.5).retry_after == 2.5
