"""A release's lines in the ledger: opened once, spent at once or round by round, marked when written."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapveil.privacy.ledger import Ledger

if TYPE_CHECKING:
    from mapveil.geo.counts import Counts
    from mapveil.geo.points import Points
    from mapveil.privacy.accounts import Account
    from mapveil.privacy.ledger import SpendId


class Accounting:
    """What one release spends of a dataset's budget.

    Parameters
    ----------
    ledger : Ledger or None
        Where; nothing is accounted for without one.
    data : Points or Counts
        Whose budget; takes one pass over the table.
    dataset : str, optional
        A name for it.
    method, parameters, tiling, region, outputs
        What is recorded with each line; see :meth:`mapveil.privacy.ledger.Ledger.spend`.
    """

    def __init__(
        self,
        ledger: Ledger | None,
        data: Points | Counts,
        dataset: str | None,
        *,
        method: str,
        parameters: Mapping[str, Any],
        tiling: str,
        region: str,
        outputs: tuple[Path, ...],
    ) -> None:
        self._ledger = ledger
        self._about: dict[str, Any] = {
            "method": method,
            "parameters": parameters,
            "tiling": tiling,
            "region": region,
            "outputs": outputs,
        }
        self._lines: list[SpendId] = []
        self._identity = ""
        if ledger is not None:
            self._identity = ledger.dataset_id(data)
            if dataset is not None:
                ledger.name(self._identity, dataset)

    def check(self, epsilon: Fraction) -> None:
        """Refuse what could not be spent now."""
        if self._ledger is not None:
            self._ledger.check(self._identity, epsilon)

    def spend(self, epsilon: Fraction, purpose: str = "") -> None:
        """Spend, or refuse; durable on return."""
        if self._ledger is not None:
            about = dict(self._about)
            if purpose:
                about["parameters"] = {**about["parameters"], "round": purpose}
            self._lines.append(self._ledger.spend(self._identity, epsilon, **about))

    def written(self) -> Account | None:
        """Note that every output was written; how the budget stands then."""
        if self._ledger is None:
            return None
        for line in self._lines:
            self._ledger.written(line)
        return self._ledger.account(self._identity)
