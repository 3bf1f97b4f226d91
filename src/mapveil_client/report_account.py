r"""The account of a device's privatized reports: all that left together, and the total that none passes.

Reports of Gaussian noise compose exactly (:mod:`mapveil_client.gaussian_curve`), others by adding up. n reports of
ratios :math:`r_i` and epsilons :math:`\epsilon_i` are together :math:`(\epsilon, \delta + s)`-DP with

.. math:: \epsilon = \epsilon_G\Big(\delta - \sum_i \delta_i, \sqrt{\textstyle\sum_i r_i^2}\Big) + \sum_i \epsilon_i,
    \qquad s = (1 + e^\epsilon) \sum_i D_i

where: :math:`\epsilon_G(\delta, r)` is the least epsilon of Gaussian noise, :math:`\delta_i` the slack of a report that
is added up, and :math:`D_i` the total variation between its samples and their laws. A report that no epsilon bounds is
counted, and allowed only where the number of reports is bounded. What is not exact is rounded up.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Final, NamedTuple

from mapveil_client.epsilon import readable
from mapveil_client.errors import BudgetExceeded, InputError, check
from mapveil_client.gaussian_curve import gaussian_epsilon

if TYPE_CHECKING:
    from mapveil_client.vault import Vault

_LAYOUT: Final = 2
_WITHOUT_BUDGET: Final = 1  # an earlier layout: its next charge writes the budget
_LARGEST_RATIO: Final = 1e150  # its square, about twice epsilon, is near the largest float
_ROUNDING: Final = 1 + 2.0**-50  # far more than that of a square root and of a norm


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
        """Read back :meth:`to_list`.

        Raises
        ------
        ParameterError
            As :meth:`checked`.
        ValueError
            A number cannot be read.
        """
        ratio, epsilon, delta, distance = given
        bound = None if epsilon is None else Fraction(epsilon)
        return cls(float.fromhex(str(ratio)), bound, Fraction(str(delta)), Fraction(str(distance))).checked()

    def checked(self) -> ReportCost:
        """The cost, where it is one: a negative cost would refund an account.

        Raises
        ------
        ParameterError
            A number is outside its range.
        """
        check(math.isfinite(self.ratio) and self.ratio >= 0, "ratio", "finite and at least 0", self.ratio)
        check(self.epsilon is None or self.epsilon >= 0, "epsilon", "at least 0", self.epsilon)
        check(0 <= self.delta < 1, "delta", "at least 0 and below 1", self.delta)
        check(self.distance >= 0, "distance", "at least 0", self.distance)
        return self

    def covers(self, other: ReportCost) -> bool:
        """Whether each of its numbers is at least the other's."""
        bounded = self.epsilon is None or (other.epsilon is not None and self.epsilon >= other.epsilon)
        added = self.delta >= other.delta and self.distance >= other.distance
        return bounded and self.ratio >= other.ratio and added


class ReportTotal(NamedTuple):
    """The guarantee of all reports of one user together."""

    epsilon: float  # infinite where no epsilon bounds a report, or slack leaves nothing of delta; rounded up
    delta: float
    reports: int

    @property
    def bounded(self) -> bool:
        """Whether it promises anything: a finite epsilon, at a delta below 1."""
        return math.isfinite(self.epsilon) and self.delta < 1


class ReportBudget(NamedTuple):
    """The total that a device's reports may reach.

    Parameters
    ----------
    epsilon : Fraction or None
        Of all reports together; None leaves it unbounded, for reports that no epsilon bounds.
    delta : Fraction
        At which epsilon is composed, above 0 and below 1. The slack of reports that are added up stays within delta;
        samplers' distances come on top, at most as much again.
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
        return self.refusal(counts) is None

    def refusal(self, counts: Mapping[ReportCost, int]) -> str | None:
        """The bound that so many reports of each cost pass, in words; None where they stay within it."""
        total = compose(counts, self.delta)
        if self.reports is not None and total.reports > self.reports:
            return f"reports must be at most {self.reports} in all, got {total.reports}"
        if self.epsilon is None:
            return None
        if any(cost.epsilon is None for cost, count in counts.items() if count):
            return "no epsilon bounds such a report: only a budget of a number of reports alone allows it"
        slack, epsilon = _slack(counts), _epsilon(counts, self.delta)
        if slack > self.delta or (slack == self.delta and epsilon is None):
            left = ", which leaves nothing for the Gaussian reports" if slack == self.delta else ""
            return (
                f"delta of the reports that are added up must be at most {float(self.delta):g}, got "
                f"{float(slack):.4g} after {total.reports} reports{left}"
            )
        if epsilon is None or epsilon > self.epsilon:
            return (
                f"epsilon of all reports must be at most {readable(self.epsilon)} at delta {float(self.delta):g}, got "
                f"{total.epsilon:.4g} after {total.reports} reports"
            )
        if total.delta > 2 * self.delta:
            return (
                f"delta of all reports, their samplers' distances included, must be at most {float(2 * self.delta):g}, "
                f"got {total.delta:.4g} after {total.reports} reports"
            )
        return None

    def looser_than(self, other: ReportBudget) -> bool:
        """Whether it allows reports that another budget refuses."""

        def above(mine: Fraction | int | None, its: Fraction | int | None) -> bool:
            return its is not None and (mine is None or mine > its)

        composed = other.epsilon is not None and self.delta > other.delta
        return above(self.epsilon, other.epsilon) or composed or above(self.reports, other.reports)

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
    exact, slack = _epsilon(counts, delta), _slack(counts)
    epsilon = math.inf if exact is None else _up(exact)
    distance = _up(sum((count * cost.distance for cost, count in counts.items()), Fraction(0)))
    sampled = (1 + math.exp(min(epsilon, 700.0))) * distance * _ROUNDING if distance else 0.0
    return ReportTotal(epsilon, min(float(max(delta, slack)) + sampled, 1.0), reports)


def _epsilon(counts: Mapping[ReportCost, int], delta: Fraction) -> Fraction | None:
    """Epsilon of reports that are bounded, exact where none is Gaussian; None where slack leaves nothing of delta."""
    added = sum((count * (cost.epsilon or Fraction(0)) for cost, count in counts.items()), Fraction(0))
    ratio = math.hypot(*(math.sqrt(count) * cost.ratio for cost, count in counts.items())) * _ROUNDING
    if not ratio:
        return added
    left = math.nextafter(float(delta - _slack(counts)), 0.0)
    epsilon = gaussian_epsilon(left, ratio) if left > 0 and ratio < _LARGEST_RATIO else math.inf
    return added + Fraction(epsilon) if math.isfinite(epsilon) else None


def _slack(counts: Mapping[ReportCost, int]) -> Fraction:
    return sum((count * cost.delta for cost, count in counts.items()), Fraction(0))


def _up(exact: Fraction) -> float:
    """The least float that is at least so much."""
    try:
        near = float(exact)
    except OverflowError:
        return math.inf
    return near if near >= exact else math.nextafter(near, math.inf)


class ReportAccount:
    """Counts a device's reports in a sealed file, and refuses those that would pass the budget. Run by: the client.

    Parameters
    ----------
    vault : Vault
        A file of its own; this account opens it and holds it until :meth:`close`.
    budget : ReportBudget
        The total of all reports ever. The first charge writes it into the file, which refuses a looser one for ever.

    Raises
    ------
    InputError
        The file is in use, damaged, of another key, or no account; or the budget is looser than the file's.

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
        self._vault, self._charging = vault, threading.Lock()
        content = vault.open()
        self._counts: dict[ReportCost, int] = {}
        self._first = self.budget  # of the first charge
        try:
            if content is not None:
                self._counts, first = _read(content)
                self._first = first or self.budget
            if self.budget.looser_than(self._first):
                raise InputError(
                    f"holds an account of {_in_words(self._first)}; expected a budget that is no looser, got "
                    f"{_in_words(self.budget)}: nothing is charged and nothing sent"
                )
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
        ParameterError
            The number of reports or the cost is outside its range.
        """
        check(reports >= 1, "reports", "at least 1", reports)
        cost = cost.checked()
        with self._charging:
            after = {**self._counts, cost: self._counts.get(cost, 0) + reports}
            if (refusal := self.budget.refusal(after)) is not None:
                before = self.total
                raise BudgetExceeded(
                    f"{refusal} ({before.epsilon:.4g} is spent on {before.reports}): nothing is charged and nothing "
                    "sent"
                )
            self._vault.write(_content(after, self._first))
            self._counts = after

    def close(self) -> None:
        """Leave the file to the next handle."""
        self._vault.close()

    def __repr__(self) -> str:
        total = self.total
        return (
            f"ReportAccount({total.reports} reports, epsilon {total.epsilon:.4g} at delta {total.delta:.3g})"
        )


def _in_words(budget: ReportBudget) -> str:
    bounds = (
        []
        if budget.epsilon is None
        else [f"epsilon {readable(budget.epsilon)}", f"delta {float(budget.delta):g}"]
    )
    return ", ".join(bounds + ([] if budget.reports is None else [f"{budget.reports} reports"]))


def _content(counts: Mapping[ReportCost, int], budget: ReportBudget) -> bytes:
    epsilon = None if budget.epsilon is None else str(budget.epsilon)
    record = {
        "layout": _LAYOUT,
        "budget": [epsilon, str(budget.delta), budget.reports],
        "reports": [[*cost.to_list(), count] for cost, count in counts.items()],
    }
    return json.dumps(record).encode()


def _read(content: bytes) -> tuple[dict[ReportCost, int], ReportBudget | None]:
    try:
        record = json.loads(content)
        if record["layout"] not in (_WITHOUT_BUDGET, _LAYOUT):
            raise ValueError("layout")
        counts = {ReportCost.from_list(row[:4]): int(row[4]) for row in record["reports"]}
        if record["layout"] == _WITHOUT_BUDGET:
            return counts, None
        epsilon, delta, reports = record["budget"]
        bound = None if epsilon is None else Fraction(epsilon)
        most = None if reports is None else int(reports)
        return counts, ReportBudget(bound, Fraction(delta), most).checked()
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"is no account of reports ({type(error).__name__}); nothing is begun anew and nothing sent"
        ) from None
