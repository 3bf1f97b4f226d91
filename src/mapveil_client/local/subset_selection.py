"""Subset selection: a random set of k sites that holds the place more often than not."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import IntArray
from mapveil_client.errors import InputError, check
from mapveil_client.local.domain import Domain
from mapveil_client.local.random_sets import put_bits, set_sizes, uniform_sets
from mapveil_client.local.randomizer import LocalMethod, SetRandomizer, odds_for
from mapveil_client.randomness.random import Randomness, uniform_below


def best_subset_size(epsilon: Fraction, sites: int) -> int:
    r"""k with the least variance: the better of the whole numbers around :math:`d / (e^\epsilon + 1)`.

    where: d is ``sites``.
    """
    e = math.exp(min(float(epsilon), 60.0))
    middle = sites / (e + 1)

    def variance(k: int) -> float:
        held = e * k / (e * k + sites - k)
        other = (k - held) / (sites - 1)
        return other * (1 - other) / (held - other) ** 2

    return min({max(1, min(sites - 1, int(near(middle)))) for near in (math.floor, math.ceil)}, key=variance)


class SubsetRandomizer(SetRandomizer):
    """The randomizer of :class:`SubsetSelection` on one domain: k is ``subset``."""

    kind: ClassVar[int] = 5

    def __init__(self, domain: Domain, epsilon: Fraction, subset: int | None) -> None:
        super().__init__(domain, epsilon)
        d = domain.size
        self.subset = best_subset_size(epsilon, d) if subset is None else subset
        check(1 <= self.subset < d, "subset", f"1 to {d - 1} for {d} sites", subset)
        self.weights = odds_for(epsilon, d)
        self._holding = self.weights.more * self.subset
        self._total = self._holding + self.weights.less * (d - self.subset)
        self.held = self._holding / self._total
        self.other = (self.subset - self.held) / (d - 1)

    def _draw(self, sites: IntArray, rng: Randomness) -> npt.NDArray[np.uint8]:
        holds = uniform_below(sites.size, self._total, rng) < self._holding
        sets = uniform_sets(self.size, sites, self.subset - holds.astype(np.int64), rng)
        put_bits(sets, sites, holds)
        return sets

    def check_sets(self, values: npt.NDArray[np.uint8]) -> None:
        """See :meth:`SetRandomizer.check_sets`."""
        super().check_sets(values)
        if (set_sizes(values) != self.subset).any():
            raise InputError(f"each report must be a set of {self.subset} sites, got another number")

    def identity(self) -> str:
        """See :meth:`Randomizer.identity`."""
        return f"subset {self.subset} {self.weights.more}:{self.weights.less}"


@dataclass(frozen=True, kw_only=True)
class SubsetSelection(LocalMethod):
    r"""Report a set of k sites, one that holds the place :math:`e^\epsilon` times likelier than one that does not.

    .. math:: q(Y \mid x) \propto e^\epsilon \text{ if } x \in Y, \quad 1 \text{ otherwise}, \qquad |Y| = k

    where: k is about :math:`d / (e^\epsilon + 1)`, d the number of sites. No mechanism has a lower variance per site.
    A report takes d / 8 bytes, and about 2 d random bits are drawn for it.

    Source: Ye, Barg, "Optimal Schemes for Discrete Distribution Estimation under Locally Differential Privacy"
    (2018).

    Parameters
    ----------
    subset : int, optional
        k; the best by default.
    """

    name: ClassVar[str] = "subset"
    summary: ClassVar[str] = "each client reports a random set of sites, likelier one that holds its place"
    source: ClassVar[str] = "Ye and Barg 2018"
    randomizer = SubsetRandomizer

    subset: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        held = self.subset is None or self.subset >= 1
        self._check(held, "subset", "a whole number of at least 1, or none")
