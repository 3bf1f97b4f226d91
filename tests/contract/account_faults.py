"""Faults of charging that a test plants into the real code; the table of them is :mod:`.planted_faults`."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from mapveil.analysis import neighbour_map
from mapveil.mechanisms.session import Session
from mapveil.mechanisms.sum_mechanism import SumMechanism
from mapveil.privacy.charges import Charges
from mapveil.privacy.claim import Share
from mapveil.trust.queries import BeforeReveal

Patch = pytest.MonkeyPatch


def spends(fraction: Fraction) -> Callable[[Patch], None]:
    """Every charge is a fraction of what was answered."""
    spend = Charges.spend

    def less(self: Charges, epsilon: Fraction, purpose: str = "") -> None:
        spend(self, epsilon * fraction, purpose)

    return lambda patch: patch.setattr(Charges, "spend", less)


def later_rounds_not_charged(patch: Patch) -> None:
    each = Charges.each
    patch.setattr(Charges, "each", lambda self, share: None if self.charged else each(self, share))


def search_not_charged(patch: Patch) -> None:
    before = SumMechanism.before_reveal

    def free(self: SumMechanism, charges: Charges, epsilon: Fraction) -> BeforeReveal:
        return before(self, charges, epsilon) if epsilon > self.budget / 2 else lambda share: None

    patch.setattr(SumMechanism, "before_reveal", free)


def charged_at_the_end(patch: Patch) -> None:
    leave, due = Charges.__exit__, list[tuple[Charges, Share]]()

    def later(self: Charges, epsilon: Fraction, purpose: str = "") -> Callable[[Share], None]:
        due.append((self, Share(purpose, epsilon)))
        return lambda share: None

    def settle(self: Charges, *error: Any) -> None:
        for charges, share in due:
            charges.spend(share.epsilon, share.purpose)
        leave(self, *error)

    patch.setattr(Charges, "at_first", later)
    patch.setattr(Charges, "__exit__", settle)


def second_of_a_session_not_charged(patch: Patch) -> None:
    release = Session.release

    def once(self: Session, *given: Any, **named: Any) -> Any:
        made = release(self, *given, **named)
        self._account = None
        return made

    patch.setattr(Session, "release", once)


def neighbours_not_charged(patch: Patch) -> None:
    release = neighbour_map.release
    patch.setattr(
        neighbour_map, "release", lambda *given, **named: release(*given, **named | {"account": None})
    )


def budget_not_checked_first(patch: Patch) -> None:
    patch.setattr(Charges, "check", lambda self, epsilon: None)


def resumed_draws_anew(patch: Patch) -> None:
    patch.setattr(Charges, "keep", lambda self, purpose, kind, draw: draw())
