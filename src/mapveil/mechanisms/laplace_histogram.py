"""Noise on every cell: the plain Laplace mechanism, the baseline of every paper."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mapveil.mechanisms.sum_mechanism import SumMechanism
from mapveil.trust.queries import Estimate, Plan, Query, Setting
from mapveil_client.arrays import FloatArray
from mapveil_client.encodings import NodeEncoding
from mapveil_client.morton import PrefixTree


@dataclass(frozen=True, kw_only=True)
class LaplaceHistogram(SumMechanism):
    r"""Ask for every cell at once, with the whole budget, and keep what is positive.

    .. math:: \hat{s}(c) = \max(0,\ s(c) + \nu_c), \qquad \nu_c \sim \mathrm{DLap}(\epsilon)

    where: :math:`s(c)` is the sum of the users' shares in cell c, :math:`\epsilon` is ``epsilon``. Secure sums are of
    sites: cells that share one get even parts of its sum. Source: the baseline of Ghazi et al. (2023), section 4,
    after Liu et al. (2019); Bagdasaryan et al. (2022), section 5.1 ("flat").

    Parameters
    ----------
    clip : bool
        Set negative cells to zero, as the paper's baseline does. Unclipped cells are unbiased.

    Examples
    --------
    >>> import mapveil as mv
    >>> city = mv.synthetic.city(users=500, seed=1)
    >>> heat = LaplaceHistogram(epsilon=1).release(city, mv.Quadtree(city.region, depth=4), rng=1)
    >>> heat.values.shape
    (256,)
    """

    name: ClassVar[str] = "laplace"
    summary: ClassVar[str] = "Laplace noise on every cell, negatives set to zero"
    source: ClassVar[str] = "Dwork et al. 2006; the baseline of Ghazi et al. 2023"
    of_cells: ClassVar[bool] = True

    clip: bool = True

    def plan(self, setting: Setting) -> Plan:
        """One query; see :meth:`SumMechanism.plan`."""
        used = np.flatnonzero(setting.members)
        tree = PrefixTree.of_nodes(setting.depth, np.full(used.shape, setting.depth), used)
        sums = yield Query("every cell", NodeEncoding(tree), self.budget)
        values, groups = np.zeros(setting.members.size), np.full(setting.members.size, -1, dtype=np.int64)
        values[used] = self._shown(sums.values)
        groups[used] = np.arange(used.size)
        return Estimate(values, (sums.measurement(groups),))

    def _shown(self, noisy: FloatArray) -> FloatArray:
        """The values of the map, from the noisy sums."""
        return np.maximum(noisy, 0.0) if self.clip else noisy
