"""Flat one-hot encoding: one round over every site, the first baseline of Bagdasaryan et al. (2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mapveil.distributed.mechanism import DistributedMechanism, ServerHalf
from mapveil.distributed.query import Query, Setting
from mapveil.mechanisms.mechanism import Estimate
from mapveil_client.encodings import NodeEncoding
from mapveil_client.prefix_tree import PrefixTree


@dataclass(frozen=True, kw_only=True)
class FlatHistogram(DistributedMechanism):
    r"""Ask for every site of the raster at once, with the whole budget, Algorithm 1.

    .. math:: \hat{n}_x = \max(0, \tilde{n}_x)

    where: :math:`\tilde{n}_x` is the noisy sum at site x. The vector is as long as the raster has sites that can hold
    anybody. Source: Bagdasaryan et al. (2022), section 5.1.

    Parameters
    ----------
    clip : bool
        Whether negative estimates become zero.
    """

    name: ClassVar[str] = "flat"
    summary: ClassVar[str] = "one round over every cell of the map"
    source: ClassVar[str] = "Bagdasaryan et al. 2022, section 5.1"

    clip: bool = True

    def server(self, setting: Setting) -> ServerHalf:
        """One query; see :meth:`DistributedMechanism.server`."""
        used = np.flatnonzero(setting.members)
        tree = PrefixTree.of_nodes(setting.depth, np.full(used.shape, setting.depth), used)
        sums = yield Query("every cell", NodeEncoding(tree), self.budget)
        values = np.zeros(setting.members.size)
        values[used] = np.maximum(sums.values, 0.0) if self.clip else sums.values
        groups = np.full(setting.members.size, -1, dtype=np.int64)
        groups[used] = np.arange(used.size)
        return Estimate(values, (sums.measurement(groups),), ())
