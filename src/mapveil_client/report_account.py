r"""The account of a device's privatized reports: all that left together, and the total that none passes.

Reports of Gaussian noise compose exactly (:mod:`mapveil_client.gaussian_curve`), others by adding up. n reports of
ratios :math:`r_i` and epsilons :math:`\epsilon_i` are together :math:`(\epsilon, \delta + s)`-DP with

.. math:: \epsilon = \epsilon_G\Big(\delta - \sum_i \delta_i, \sqrt{\textstyle\sum_i r_i^2}\Big) + \sum_i \epsilon_i,
    \qquad s = (1 + e^\epsilon) \sum_i D_i

where: :math:`\epsilon_G(\delta, r)` is the least epsilon of Gaussian noise, :math:`\delta_i` the slack of a report that
is added up, and :math:`D_i` the total variation between its samples and their laws. A report that no epsilon bounds is
counted, and allowed only where the number of reports is bounded.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Final, NamedTuple

from mapveil_client.epsilon import readable
from mapveil_client.errors import BudgetExceeded, InputError, check
from mapveil_client.gaussian_curve import gaussian_epsilon

if TYPE_CHECKING:
    from mapveil_client.vault import Vault

_LAYOUT: Final = 1


class ReportCost(NamedTuple):
    """The cost of one report, before it is composed with others."""

    ratio: float = 0.0  # sensitivity over deviation of Gaussian noise; 0 where the noise is another
    epsilon: Fraction | None = Fraction(0)  # of other noise; None where no epsilon bounds the report
    delta: Fraction = Fraction(0)  # of other noise
    distance: Fraction = Fraction(0)  # total variation between all its samples and their laws

    def to_list(self) -> list[str | None]:
        """JSON-ready; exact."""
        epsilon = None if self.epsilon is None else str(self.epsilon)
        return [self.ratio.hex(), epsilon, str(self.delta), str(self.distance)]

    @classmethod
    def from_list(cls, given: list[str | None]) -> ReportCost:
        """Read back :meth:`to_list`."""
        ratio, epsilon, delta, distance = given
        bound = None if epsilon is None else Fraction(epsilon)
        return cls(float.fromhex(str(ratio)), bound, Fraction(str(delta)), Fraction(str(distance)))


class ReportTotal(NamedTuple):
    """The guarantee of all reports of one user together."""

    epsilon: float  # infinite where no epsilon bounds a report; rounded up
    delta: float
    reports: int


class ReportBudget(NamedTuple):
    """The total that a device's reports may reach.

    Parameters
    ----------
    epsilon : Fraction or None
        Of all reports together; None leaves it unbounded, for reports that no epsilon bounds.
    delta : Fraction
        At which epsilon is composed, above 0 and below 1; samplers' distances add to it (at most as much again).
    reports : int or None
        Number of reports ever.
    """

    epsilon: Fraction | None
    delta: Fraction = Fraction(1, 100_000)
    reports: int | None = None

    def checked(self) -> ReportBudget:
        """The budget, where it bounds something.

        Raises
        ------
        ParameterError
            It does not, or a number is outside its range.
        """
        bounded = self.epsilon is not None or self.reports is not None
        check(bounded, "a budget of reports", "an epsilon, a number of reports, or both", None)
        check(self.epsilon is None or self.epsilon > 0, "epsilon", "above 0", self.epsilon)
        check(0 < self.delta < 1, "delta", "above 0 and below 1", float(self.delta))
        check(self.reports is None or self.reports >= 0, "reports", "at least 0", self.reports)
        return self

    def allows(self, counts: Mapping[ReportCost, int]) -> bool:
        """Whether so many reports of each cost stay within it."""
        total = compose(counts, self.delta)
        if self.reports is not None and total.reports > self.reports:
            return False
        return self.epsilon is None or (total.epsilon <= self.epsilon and total.delta <= 2 * self.delta)

    def most(self, cost: ReportCost) -> int | None:
        """The most reports of one cost that it allows; None for any number."""
        if cost.epsilon is None and self.reports is None:
            return 0
        low, high = 0, 1
        while self.allows({cost: high}):
            if high > 1 << 40:
                return None
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.allows({cost: middle}) else (low, middle)
        return low


def compose(counts: Mapping[ReportCost, int], delta: Fraction) -> ReportTotal:
    """The least epsilon at a delta that holds for so many reports of each cost, whatever each depends on.

    Parameters
    ----------
    counts : mapping of ReportCost to int
        Number of reports of each cost.
    delta : Fraction
        At which epsilon is given; the samplers' distances come on top.
    """
    reports = sum(counts.values())
    if any(cost.epsilon is None for cost, count in counts.items() if count):
        return ReportTotal(math.inf, float(delta), reports)
    square = math.fsum(count * cost.ratio * cost.ratio for cost, count in counts.items())
    added = sum((count * (cost.epsilon or 0) for cost, count in counts.items()), Fraction(0))
    slack = sum((count * cost.delta for cost, count in counts.items()), Fraction(0))
    distance = sum((count * cost.distance for cost, count in counts.items()), Fraction(0))
    epsilon = float(added)
    if square:
        left = float(delta - slack)
        epsilon = epsilon + gaussian_epsilon(left, math.sqrt(square)) if left > 0 else math.inf
    sampled = (1 + math.exp(min(epsilon, 700.0))) * float(distance)
    return ReportTotal(epsilon, min(float(max(delta, slack)) + sampled, 1.0), reports)


class ReportAccount:
    """Counts a device's reports in a sealed file, and refuses those that would pass the budget. Run by: the client.

    Parameters
    ----------
    vault : Vault
        A file of its own; this account opens it and holds it until :meth:`close`.
    budget : ReportBudget
        The total of all reports ever.

    Raises
    ------
    InputError
        The file is in use, damaged, of another key, or no account.

    Examples
    --------
    >>> import tempfile
    >>> from mapveil_client.vault import Vault
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     account = ReportAccount(Vault(f"{folder}/reports", bytes(32)), ReportBudget(Fraction(4)))
    ...     account.charge(ReportCost(epsilon=Fraction(1)), 3)
    ...     account.close()
    ...     ReportAccount(Vault(f"{folder}/reports", bytes(32)), ReportBudget(Fraction(4))).total.epsilon
    3.0
    """

    def __init__(self, vault: Vault, budget: ReportBudget) -> None:
        self.budget = budget.checked()
        self._vault = vault
        content = vault.open()
        try:
            self._counts = {} if content is None else _counts(content)
        except InputError as error:
            vault.close()
            raise InputError(f"{vault.path}: {error}") from None

    @property
    def total(self) -> ReportTotal:
        """All that was charged, at the budget's delta."""
        return compose(self._counts, self.budget.delta)

    def charge(self, cost: ReportCost, reports: int = 1) -> None:
        """Count reports before they are drawn; the count is on the disk when this returns.

        Raises
        ------
        BudgetExceeded
            The total would be passed: nothing is charged, and none may be sent.
        """
        check(reports >= 1, "reports", "at least 1", reports)
        after = {**self._counts, cost: self._counts.get(cost, 0) + reports}
        if not self.budget.allows(after) or (cost.epsilon is None and self.budget.reports is None):
            raise BudgetExceeded(self._refusal(compose(after, self.budget.delta)))
        self._vault.write(_content(after))
        self._counts = after

    def close(self) -> None:
        """Leave the file to the next handle."""
        self._vault.close()

    def _refusal(self, after: ReportTotal) -> str:
        budget, before = self.budget, self.total
        kept = "nothing is charged and nothing sent"
        if budget.reports is not None and after.reports > budget.reports:
            return f"reports must be at most {budget.reports} in all, got {after.reports}: {kept}"
        if math.isinf(after.epsilon):
            return f"no epsilon bounds such a report: its number must be, which this budget does not: {kept}"
        return (
            f"epsilon of all reports must be at most {readable(budget.epsilon or Fraction(0))} at delta "
            f"{float(budget.delta):g}, got {after.epsilon:.4g} after {after.reports} reports "
            f"({before.epsilon:.4g} is spent on {before.reports}): {kept}"
        )

    def __repr__(self) -> str:
        total = self.total
        return (
            f"ReportAccount({total.reports} reports, epsilon {total.epsilon:.4g} at delta {total.delta:.3g})"
        )


def _content(counts: Mapping[ReportCost, int]) -> bytes:
    record = {
        "layout": _LAYOUT,
        "reports": [[*cost.to_list(), count] for cost, count in counts.items()],
    }
    return json.dumps(record).encode()


def _counts(content: bytes) -> dict[ReportCost, int]:
    try:
        record = json.loads(content)
        if record["layout"] != _LAYOUT:
            raise ValueError("layout")
        return {ReportCost.from_list(row[:4]): int(row[4]) for row in record["reports"]}
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"is no account of reports ({type(error).__name__}); nothing is begun anew and nothing sent"
        ) from None
