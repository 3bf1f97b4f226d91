"""Mapveil's own: one round of noisy counts at a depth chosen beforehand, shrunk at all scales and shifts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from mapveil.distributed.encoding import NodeEncoding
from mapveil.distributed.mechanism import DistributedMechanism, ServerHalf
from mapveil.distributed.prefix_tree import PrefixTree
from mapveil.distributed.query import NoisySums, Query, Setting
from mapveil.distributed.uniform_grid import cells_at, nearest_level, noise_deviation
from mapveil.geo.morton import deinterleave
from mapveil.maps.interpolation import interpolate, slope_exponent
from mapveil.maps.mechanism import Estimate
from mapveil.maps.shrinkage import multiscale_shrinkage, pool

__all__ = ["MultiscaleHistogram"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_FLOOR = 0.5


@dataclass(frozen=True, kw_only=True)
class MultiscaleHistogram(DistributedMechanism):
    r"""Ask for every cell of one level at once, then make the most of the noisy sums.

    The level is chosen before any data are seen: the one whose number of cells is nearest (as a ratio) to

    .. math:: B = \frac{k\, n}{\sqrt{\sigma^2 + 1}}, \qquad \sigma^2 = \frac{2 T}{\epsilon^2}

    so that a cell holds on average one standard deviation of noise and sampling together

    where: n is the number of devices asked, :math:`\sigma^2` the variance of a sum's noise, T the discrete Laplace
    variables in it (the number of shards, if nothing is provisioned for), :math:`\epsilon` is ``epsilon`` and k is
    ``concentration``, what is known in public of how unevenly people live. Everything after the sums is
    post-processing and costs nothing:

    - the sums are shrunk at all scales and shifts by an expansion whose weights minimise the estimated error
      (:mod:`mapveil.maps.shrinkage`, :mod:`mapveil.maps.threshold_expansion`);
    - inside a cell, people follow the slope of the cells around it (:mod:`mapveil.maps.interpolation`).

    The rule is a compromise: a map of which every part is crowded (the image of Bagdasaryan et al. 2022) is best at
    this depth; of one where most people live in few places the next deeper levels are better still, at four times the
    vector each.

    Parameters
    ----------
    depth : int, optional
        The level, instead of the rule's; at most the tiling's own.
    concentration : float
        k, at least 1: how much denser than the average the surroundings of an average person are, by public
        knowledge such as a census (``mean(x**2) / mean(x)**2`` of its density x); 1 where nothing is known.
    longest : int, optional
        The longest vector a device may send; no limit by default.
    of : str
        Whose map it is: ``"population"``, of all those of whom the devices are a sample, so that chance in who was
        asked is smoothed as noise is; or ``"devices"``, of the devices asked and nobody else.
    shifts : int
        Boxes of so many cells a side are cut at every offset, larger ones at as many; at least 1.
    """

    name: ClassVar[str] = "multiscale"
    summary: ClassVar[str] = (
        "one round of noisy counts, shrunk at all scales and shifts, sloping inside cells"
    )
    source: ClassVar[str] = "Mapveil, after Coifman and Donoho 1995 and Blu and Luisier 2007"

    depth: int | None = None
    concentration: float = 1.0
    longest: int | None = None
    of: Literal["population", "devices"] = "population"
    shifts: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(self.depth is None or 0 <= self.depth <= 23, "depth", "a level from 0 to 23, or none,")
        self._check(
            self.concentration >= 1 and math.isfinite(self.concentration), "concentration", "a number from 1"
        )
        self._check(self.longest is None or self.longest >= 1, "longest", "a whole number from 1, or none,")
        self._check(self.of in ("population", "devices"), "of", "population or devices")
        self._check(self.shifts >= 1, "shifts", "a whole number of at least 1")

    def level(self, setting: Setting) -> int:
        """The level that is asked for."""
        if self.depth is not None:
            level = min(self.depth, setting.depth)
        else:
            deviation = math.hypot(noise_deviation(setting, float(self.budget)), 1.0)
            level = nearest_level(setting, self.concentration * setting.devices / deviation)
        while level > 0 and self.longest is not None and cells_at(setting, level).size > self.longest:
            level -= 1
        return level

    def server(self, setting: Setting) -> ServerHalf:
        """One query; see :meth:`DistributedMechanism.server`."""
        level = self.level(setting)
        codes = cells_at(setting, level)
        tree = PrefixTree.of_nodes(setting.depth, np.full(codes.shape, level), codes)
        sums = yield Query(f"every cell of level {level}", NodeEncoding(tree), self.budget)
        return Estimate(
            self._map(setting, level, codes, sums),
            (sums.measurement(tree.owner(np.arange(setting.members.size))),),
            (),
            (f"measured at level {level}; inside its cells the map follows the slope around them",),
        )

    def _map(self, setting: Setting, level: int, codes: IntArray, sums: NoisySums) -> FloatArray:
        row, col = deinterleave(np.arange(setting.members.size))
        members = np.zeros((1 << setting.depth,) * 2, dtype=np.int64)
        members[row, col] = setting.members
        held = pool(members, setting.depth - level)
        noisy = np.zeros(held.shape)
        noisy[deinterleave(codes)] = sums.values
        shrunk = multiscale_shrinkage(
            noisy, sums.variance, held, shifts=self.shifts, rule="expansion", sampled=self.of == "population"
        )
        floor = _FLOOR * math.sqrt(sums.variance) * codes.size / max(int(held.sum()), 1)
        exponent = slope_exponent(noisy, shrunk, sums.variance, held, floor)
        return interpolate(shrunk, members, exponent, floor)[row, col]
