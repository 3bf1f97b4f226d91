"""Charges of one release to a dataset's budget, from before the noise to the written files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from os import PathLike
from typing import Any

from mapveil.privacy.claim import AccountReference
from mapveil.privacy.ledger import Fingerprinted, Ledger
from mapveil.privacy.ledger_accounts import Account, SpendId
from mapveil_client.errors import ParameterError


class Accounting:
    """The charges of one release, made by the function that releases and marked by whoever writes the outputs.

    Parameters
    ----------
    ledger : Ledger or callable, optional
        The ledger that is charged, or a function that opens it when it is needed; without one nothing is charged,
        and every method does nothing.
    dataset : str, optional
        A name for the dataset; data of one name share one budget.
    outputs : sequence of paths
        The files that will be written, recorded with each charge.
    """

    def __init__(
        self,
        ledger: Ledger | Callable[[], Ledger | None] | None = None,
        dataset: str | None = None,
        outputs: Sequence[str | PathLike[str]] = (),
    ) -> None:
        self._given, self._dataset, self._outputs = ledger, dataset, outputs
        self._ledger: Ledger | None = None
        self._spends: list[SpendId] = []
        self._identity = ""
        self._about: dict[str, Any] = {}

    @classmethod
    def of(cls, account: Ledger | Accounting | None) -> Accounting:
        """The charges of one release in ``account``."""
        return account if isinstance(account, Accounting) else cls(account)

    def open(
        self,
        data: Fingerprinted | None,
        *,
        method: str,
        parameters: Mapping[str, Any],
        tiling: str,
        region: str,
    ) -> None:
        """Recognise the dataset, which takes one pass over a table; see :meth:`Ledger.spend` for the record."""
        self._ledger = self._given() if callable(self._given) else self._given
        if self._ledger is not None:
            if data is None:
                raise ParameterError("an account needs data that were read from a table, to recognise them")
            self._identity = self._ledger.dataset_id(data)
            if self._dataset is not None:
                self._ledger.name(self._identity, self._dataset)
            self._about = {"method": method, "parameters": parameters, "tiling": tiling, "region": region}

    @property
    def reference(self) -> AccountReference | None:
        """The ledger's entries, by their random names; None before any charge.

        A dataset's fingerprint would tell whether two releases are of one table, which no noise covers.
        """
        return AccountReference(tuple(self._spends)) if self._spends else None

    def check(self, epsilon: Fraction) -> None:
        """Refuse an epsilon that the budget does not allow now; charge nothing."""
        if self._ledger is not None:
            self._ledger.check(self._identity, epsilon)

    def spend(self, epsilon: Fraction, purpose: str = "") -> None:
        """Charge an epsilon, or refuse; durable on return."""
        if self._ledger is not None:
            about = dict(self._about)
            if purpose:
                about["parameters"] = {**about["parameters"], "round": purpose}
            self._spends.append(self._ledger.spend(self._identity, epsilon, **about, outputs=self._outputs))

    def written(self) -> Account | None:
        """Note that every output was written, and return the budget as it stands then."""
        if self._ledger is None:
            return None
        for spend in self._spends:
            self._ledger.written(spend)
        return self._ledger.account(self._identity)
