"""The privacy budget of a device, by collection: charged before anything leaves, and never given back.

A charge is for a round (or a report) that left or may have left the device. A device cannot check that a round was
aborted: it stays charged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from mapveil_client.errors import BudgetExceeded, InputError


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
    """

    granted: Fraction
    charges: dict[int, Fraction] = field(default_factory=dict)
    ended: bool = False

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
    >>> account.grant("a" * 32, Fraction(1), lifetime=Fraction(4))
    >>> account.charge("a" * 32, 1, Fraction(1, 4), lifetime=Fraction(4))
    >>> account.spent, account.left(Fraction(4))
    (Fraction(1, 4), Fraction(3, 1))
    >>> account.end("a" * 32)
    >>> account.left(Fraction(4))
    Fraction(15, 4)
    """

    def __init__(self, entries: Mapping[str, Entry] | None = None) -> None:
        self.entries: dict[str, Entry] = dict(entries or {})  # by collection

    @property
    def spent(self) -> Fraction:
        """The sum of all charges ever."""
        return sum((entry.spent for entry in self.entries.values()), Fraction(0))

    def spent_on(self, collection: str) -> Fraction:
        """The sum of a collection's charges."""
        return self.entries[collection].spent if collection in self.entries else Fraction(0)

    def left(self, lifetime: Fraction) -> Fraction:
        """The budget that may still be granted, with every running grant set aside."""
        return lifetime - sum((entry.held for entry in self.entries.values()), Fraction(0))

    def grant(self, collection: str, epsilon: Fraction, *, lifetime: Fraction) -> None:
        """Set a collection's whole cost aside. A grant of what is granted already changes nothing.

        Raises
        ------
        BudgetExceeded
            That is more than is left, or the collection was granted something before.
        """
        known = self.entries.get(collection)
        if known is None:
            _check_left(epsilon, self.left(lifetime), lifetime)
            self.entries[collection] = Entry(epsilon)
        elif known.granted != epsilon or known.ended:
            raise BudgetExceeded("the collection is in the account already, and over or with another epsilon")

    def check(self, collection: str, number: int, epsilon: Fraction, *, lifetime: Fraction) -> None:
        """Refuse a charge that :meth:`charge` would refuse; nothing changes.

        Raises
        ------
        BudgetExceeded
            Nothing or less was granted, the round was charged otherwise before, or the lifetime's budget (which may
            have been lowered since) is too small.
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
                f"epsilon of round {number} must be at most {float(entry.granted - entry.spent):.6g} "
                f"(left of what the terms promised), got {float(epsilon):.6g}"
            )
        _check_left(epsilon, lifetime - self.spent, lifetime)

    def charge(self, collection: str, number: int, epsilon: Fraction, *, lifetime: Fraction) -> None:
        """Charge a round that passes :meth:`check`, once. Save the account before anything is sent."""
        self.check(collection, number, epsilon, lifetime=lifetime)
        self.entries[collection].charges[number] = epsilon

    def end(self, collection: str) -> None:
        """End a collection: its grant that was not charged is free again."""
        if collection in self.entries:
            self.entries[collection].ended = True

    def to_record(self) -> dict[str, Any]:
        """A JSON-ready record."""
        return {
            name: {
                "granted": str(entry.granted),
                "charges": {str(number): str(epsilon) for number, epsilon in entry.charges.items()},
                "ended": entry.ended,
            }
            for name, entry in self.entries.items()
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Account:
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
                    )
                    for name, each in record.items()
                }
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"the account of a device cannot be read ({type(error).__name__})") from None

    def __repr__(self) -> str:
        return f"Account({float(self.spent):.6g} spent on {len(self.entries)} collections)"


def _check_left(epsilon: Fraction, left: Fraction, lifetime: Fraction) -> None:
    if epsilon > left:
        raise BudgetExceeded(
            f"epsilon must be at most {float(left):.6g} (left of {float(lifetime):.6g} for this device's lifetime), "
            f"got {float(epsilon):.6g}"
        )
