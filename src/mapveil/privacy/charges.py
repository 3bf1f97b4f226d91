"""Charges of one release to a budget, from before the noise to the written files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from os import PathLike
from typing import Any

from mapveil.privacy.claim import AccountReference, Share
from mapveil.privacy.ledger import Ledger
from mapveil.privacy.ledger_accounts import SpendId


class Charges:
    """The charges of one release; without a ledger nothing is charged, and every method does nothing.

    Parameters
    ----------
    ledger : Ledger, optional
        The ledger that is charged.
    dataset : str
        Id of the dataset in the ledger.
    about : mapping
        Public facts of the release; see :meth:`Ledger.spend`.
    outputs : sequence of paths
        The files that will be written, recorded with each charge.
    """

    def __init__(
        self,
        ledger: Ledger | None = None,
        dataset: str = "",
        about: Mapping[str, Any] | None = None,
        outputs: Sequence[str | PathLike[str]] = (),
    ) -> None:
        self._ledger, self._dataset, self._about, self._outputs = ledger, dataset, dict(about or {}), outputs
        self._spends: list[SpendId] = []

    def check(self, epsilon: Fraction) -> None:
        """Refuse an epsilon that the budget does not allow now; charge nothing."""
        if self._ledger is not None:
            self._ledger.check(self._dataset, epsilon)

    def spend(self, epsilon: Fraction, purpose: str = "") -> None:
        """Charge an epsilon, or refuse; durable on return."""
        if self._ledger is not None:
            about = dict(self._about)
            if purpose:
                about["parameters"] = {**about["parameters"], "round": purpose}
            self._spends.append(self._ledger.spend(self._dataset, epsilon, **about, outputs=self._outputs))

    def each(self, share: Share) -> None:
        """Charge the share of one round, before its sums are revealed."""
        self.spend(share.epsilon, share.purpose)

    def at_first(self, epsilon: Fraction, purpose: str = "") -> Callable[[Share], None]:
        """Charge this epsilon whole when the first share is about to be revealed, and nothing at the others."""
        due = [epsilon]

        def spend(share: Share) -> None:
            while due:
                self.spend(due[0], purpose)
                due.clear()

        return spend

    @property
    def reference(self) -> AccountReference | None:
        """The ledger's entries, by their random names; None before any charge.

        A dataset's fingerprint would tell whether two releases are of one table, which no noise covers.
        """
        return AccountReference(tuple(self._spends)) if self._spends else None
