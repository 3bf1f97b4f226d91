"""A release that is rehearsed: all its checks run, up to the charge; nothing is charged or drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

from mapveil.privacy.account import Account
from mapveil.privacy.charges import Charges
from mapveil.privacy.ledger_accounts import Balance
from mapveil.privacy.ledger_file import transaction
from mapveil.privacy.recognition import Recognition


class Rehearsed(Exception):
    """Ends a rehearsal where the release would be charged for the first time.

    Parameters
    ----------
    about : mapping
        Public facts for the ledger: method, parameters, tiling, region.
    epsilon : Fraction, optional
        The whole epsilon of the release; None where it has none.
    balance : Balance, optional
        The account as it stands, or would be opened; None where no account would be charged.
    """

    def __init__(
        self, about: Mapping[str, Any], epsilon: Fraction | None = None, balance: Balance | None = None
    ) -> None:
        super().__init__("rehearsed")
        self.about, self.epsilon, self.balance = about, epsilon, balance


class RehearsedCharges(Charges):
    """Charges that refuse what the account refuses, and end the rehearsal at the first charge."""

    def check(self, epsilon: Fraction) -> None:
        """See :meth:`Charges.check`; the epsilon is that of the whole release."""
        self._epsilon = epsilon
        super().check(epsilon)

    def spend(self, epsilon: Fraction, purpose: str = "") -> None:
        """End the rehearsal."""
        balance = None
        if self._ledger is not None and isinstance(self._dataset, Recognition):
            with transaction(self._ledger.path) as connection:
                balance = self._dataset.balance(connection)
        raise Rehearsed(self._about, self._epsilon, balance)


@dataclass(frozen=True)
class RehearsalAccount(Account):
    """An account that is never charged: a release ends with :class:`Rehearsed` instead. Run by: the curator.

    Parameters
    ----------
    name, ledger, outputs, resume, other_people
        As for :class:`~mapveil.privacy.account.Account`.
    accounted : bool
        Whether the release would be charged to an account at all.
    """

    kind: ClassVar[type[Charges]] = RehearsedCharges

    accounted: bool = True

    def charges(self, data: Any, about: Mapping[str, Any], request: Mapping[str, Any]) -> Charges:
        """See :meth:`Account.charges`."""
        return super().charges(data, about, request) if self.accounted else RehearsedCharges(about=about)

    def unaccounted(self, unit: str) -> Account | None:
        """See :meth:`Account.unaccounted`; a rehearsal stays one."""
        super().unaccounted(unit)
        return replace(self, accounted=False)
