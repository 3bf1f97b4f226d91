"""Randomizers whose report is a set of sites, likelier to hold the place than any other site."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from mapveil.local.estimators.covariance import SiteNoise, two_level_noise
from mapveil.local.randomizers.randomizer import Randomizer
from mapveil.local.randomizers.report import Reports, Tally
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import InputError

_BITS: Final = 1 << 24  # of a chunk
_BYTE: Final = 255


class SetRandomizer(Randomizer):
    """A randomizer of sets: the server counts how many hold each site.

    Subclasses set :attr:`held` and :attr:`other`.

    Attributes
    ----------
    held, other : float
        Probability that a report holds its phone's place, and that it holds any one other site.
    """

    held: float
    other: float

    @property
    def symbols(self) -> int:
        """One count for each site."""
        return self.size

    def tally(self, reports: Reports) -> Tally:
        """Count how many sets hold each site; see :meth:`Randomizer.tally`."""
        values = reports.values
        if values.ndim != 2 or values.dtype != np.uint8 or values.shape[1] != self.bytes:
            raise InputError(
                f"reports of shape {values.shape}, {values.dtype}; sets of {self.size} sites in "
                f"{self.bytes} bytes each are accepted"
            )
        self.check_sets(values)
        counts = np.zeros(self.size, dtype=np.int64)
        rows = max(1, _BITS // self.size)
        for start in range(0, values.shape[0], rows):
            bits = np.unpackbits(values[start : start + rows], axis=1, count=self.size)
            for first in range(0, bits.shape[0], _BYTE):  # sums of so many bits fit a byte
                counts += np.add.reduce(bits[first : first + _BYTE], axis=0, dtype=np.uint8)
        return Tally(counts, values.shape[0])

    @property
    def bytes(self) -> int:
        """Bytes of a report."""
        return -(-self.size // 8)

    def invert(self, tally: Tally) -> FloatArray:
        """See :meth:`Randomizer.invert`."""
        return np.asarray((tally.counts / max(tally.reports, 1) - self.other) / (self.held - self.other))

    def holding(self, distribution: FloatArray) -> FloatArray:
        """How likely a report holds each site, shape (sites,). Run by: the server.

        Parameters
        ----------
        distribution : ndarray of float64, shape (sites,)
            Where the users are.
        """
        return np.asarray(self.other + (self.held - self.other) * distribution)

    def site_noise(self, distribution: FloatArray) -> SiteNoise:
        """See :meth:`Randomizer.site_noise`."""
        return two_level_noise(distribution, self.held, self.other)

    def check_sets(self, values: npt.NDArray[np.uint8]) -> None:
        """Refuse sets that no phone sends.

        Raises
        ------
        InputError
            Bits beyond the last site, or a set of a size that does not occur.
        """
        spare = 8 * self.bytes - self.size
        if spare and (values[:, -1] & ((1 << spare) - 1)).any():
            raise InputError("a report has bits beyond the last site; zeros are accepted there")

    def _chunk(self) -> int:
        return max(1, _BITS // self.size)
