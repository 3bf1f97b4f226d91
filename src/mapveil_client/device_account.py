"""The privacy budget of a device, by collection: charged before anything leaves, and never given back.

A charge is for a round (or a report) that left or may have left the device. A device cannot check that a round was
aborted: it stays charged.

A budget is for the device's lifetime, or for every period of a number of days: then a collection counts until so many
days after its last charge. Time never runs backwards here: the latest time that was ever read is kept with the charges,
so a clock that is set back renews nothing. One that is set ahead renews early, and everything after it late.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from mapveil_client.epsilon import readable
from mapveil_client.errors import BudgetExceeded, InputError, check

_DAY_SECONDS: Final = 86_400
_BUDGET: Final = re.compile(r"([0-9.]+(?:/[0-9]+)?)(?: per ([0-9]{1,5}) days)?")


@dataclass(frozen=True)
class Budget:
    """The total cost of a device's answers, ever or within any so many days.

    Parameters
    ----------
    epsilon : Fraction
        Above 0.
    days : int, optional
        Length of the period; without it, the device's lifetime. Over a longer time than that, the costs of the periods
        add up.

    Examples
    --------
    >>> print(Budget.parse("4"), "|", Budget.parse("1/3 per 30 days"))
    4 for this device's lifetime | 1/3 per 30 days
    """

    epsilon: Fraction
    days: int | None = None

    def __post_init__(self) -> None:
        check(self.epsilon > 0, "budget", "above 0", self.epsilon)
        check(self.days is None or self.days >= 1, "days of a budget", "1 or more", self.days)

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Read ``"4"`` or ``"4 per 30 days"``; an InputError where it is neither."""
        found = _BUDGET.fullmatch(text.strip())
        try:
            if found is not None:
                return cls(Fraction(found[1]), None if found[2] is None else int(found[2]))
        except (ValueError, ZeroDivisionError):
            pass
        raise InputError(f"a budget must be an epsilon, or one such as '4 per 30 days', got {text[:40]!r}")

    def __str__(self) -> str:
        return f"{readable(self.epsilon)} " + (
            "for this device's lifetime" if self.days is None else f"per {self.days} days"
        )


@dataclass
class Entry:
    """One collection in the account.

    Parameters
    ----------
    granted : Fraction
        Largest total cost of the collection, as its terms say.
    charges : dict of int to Fraction
        Charges by round; round 0 is a report.
    ended : bool
        Whether it is over: then only the charges count.
    at : float
        Time of the grant or the last charge, seconds since 1970.
    """

    granted: Fraction
    charges: dict[int, Fraction] = field(default_factory=dict)
    ended: bool = False
    at: float = 0.0

    @property
    def spent(self) -> Fraction:
        """The sum of the charges."""
        return sum(self.charges.values(), Fraction(0))

    @property
    def held(self) -> Fraction:
        """The budget set aside: the grant while the collection runs, the charges after."""
        return self.spent if self.ended else max(self.granted, self.spent)


class Account:
    """The account of one device, kept in its memory.

    Examples
    --------
    >>> account = Account()
    >>> budget = Budget(Fraction(4))
    >>> account.grant("a" * 32, Fraction(1), budget=budget)
    >>> account.charge("a" * 32, 1, Fraction(1, 4), budget=budget)
    >>> account.spent, account.left(budget)
    (Fraction(1, 4), Fraction(3, 1))
    >>> account.end("a" * 32)
    >>> account.left(budget)
    Fraction(15, 4)
    """

    def __init__(
        self,
        entries: Mapping[str, Entry] | None = None,
        *,
        latest: float = 0.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.entries: dict[str, Entry] = dict(entries or {})  # by collection
        self.clock, self._latest = clock, latest

    def _now(self) -> float:
        """The latest time that the clock ever showed."""
        self._latest = max(self._latest, self.clock())
        return self._latest

    def _counting(self, budget: Budget) -> list[Entry]:
        """The collections that count against a budget: those that run, or were charged within its period."""
        since = 0.0 if budget.days is None else self._now() - budget.days * _DAY_SECONDS
        return [each for each in self.entries.values() if not each.ended or each.at >= since]

    @property
    def spent(self) -> Fraction:
        """The sum of all charges ever."""
        return sum((entry.spent for entry in self.entries.values()), Fraction(0))

    def spent_on(self, collection: str) -> Fraction:
        """The sum of a collection's charges."""
        return self.entries[collection].spent if collection in self.entries else Fraction(0)

    def spent_of(self, budget: Budget) -> Fraction:
        """The sum of the charges that count against a budget now."""
        return sum((entry.spent for entry in self._counting(budget)), Fraction(0))

    def left(self, budget: Budget) -> Fraction:
        """The budget that may still be granted, with every running grant set aside."""
        return budget.epsilon - sum((entry.held for entry in self._counting(budget)), Fraction(0))

    def grant(self, collection: str, epsilon: Fraction, *, budget: Budget) -> None:
        """Set a collection's whole cost aside. A grant of what is granted already changes nothing.

        Raises
        ------
        BudgetExceeded
            That is more than is left, or the collection was granted something before.
        """
        known = self.entries.get(collection)
        if known is None:
            _check_left(epsilon, self.left(budget), budget)
            self.entries[collection] = Entry(epsilon, at=self._now())
        elif known.granted != epsilon or known.ended:
            raise BudgetExceeded("the collection is in the account already, and over or with another epsilon")

    def check(self, collection: str, number: int, epsilon: Fraction, *, budget: Budget) -> None:
        """Refuse a charge that :meth:`charge` would refuse; nothing changes.

        Raises
        ------
        BudgetExceeded
            Nothing or less was granted, the round was charged otherwise before, or the budget (which may have been
            lowered since) is too small.
        """
        entry = self.entries.get(collection)
        if entry is None or entry.ended:
            raise BudgetExceeded("nothing is granted to the collection")
        known = entry.charges.get(number)
        if known is not None:
            if known != epsilon:
                raise BudgetExceeded(f"round {number} was charged with another epsilon before")
            return
        if epsilon <= 0 or entry.spent + epsilon > entry.granted:
            raise BudgetExceeded(
                f"epsilon of round {number} must be at most {readable(entry.granted - entry.spent)} "
                f"(left of what the terms promised), got {readable(epsilon)}"
            )
        _check_left(epsilon, budget.epsilon - self.spent_of(budget), budget)

    def charge(self, collection: str, number: int, epsilon: Fraction, *, budget: Budget) -> None:
        """Charge a round that passes :meth:`check`, once. Save the account before anything is sent."""
        self.check(collection, number, epsilon, budget=budget)
        entry = self.entries[collection]
        entry.charges[number], entry.at = epsilon, self._now()

    def end(self, collection: str) -> None:
        """End a collection: its grant that was not charged is free again."""
        if collection in self.entries:
            self.entries[collection].ended = True

    def to_record(self) -> dict[str, Any]:
        """A JSON-ready record."""
        entries = {
            name: {
                "granted": str(entry.granted),
                "charges": {str(number): str(epsilon) for number, epsilon in entry.charges.items()},
                "ended": entry.ended,
                "at": entry.at,
            }
            for name, entry in self.entries.items()
        }
        return {"latest": self._latest, "entries": entries}

    @classmethod
    def from_record(cls, record: Mapping[str, Any], clock: Callable[[], float] = time.time) -> Account:
        """Read back a record of :meth:`to_record`.

        Raises
        ------
        InputError
            It is no such record.
        """
        try:
            return cls(
                {
                    name: Entry(
                        Fraction(each["granted"]),
                        {int(number): Fraction(epsilon) for number, epsilon in each["charges"].items()},
                        bool(each["ended"]),
                        float(each["at"]),
                    )
                    for name, each in record["entries"].items()
                },
                latest=float(record["latest"]),
                clock=clock,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"the account of a device cannot be read ({type(error).__name__})") from None

    def __repr__(self) -> str:
        return f"Account({readable(self.spent)} spent on {len(self.entries)} collections)"


def _check_left(epsilon: Fraction, left: Fraction, budget: Budget) -> None:
    if epsilon > left:
        raise BudgetExceeded(
            f"epsilon must be at most {readable(max(left, Fraction(0)))} (left of {budget}), got {readable(epsilon)}"
        )
