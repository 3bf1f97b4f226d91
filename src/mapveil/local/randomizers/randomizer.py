"""The server half of every randomizer: adding up reports, unbiased estimates, and what the noise does to them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

import numpy as np

from mapveil.local.estimators.covariance import Covariance, DenseCovariance, SiteNoise, two_level_noise
from mapveil.local.randomizers.report import Tally
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.local import randomizer as client
from mapveil_client.local.randomizer import MOST_SITES, Reports

_BITS: Final = 1 << 24  # of a chunk
_BYTE: Final = 255


class Randomizer(client.Randomizer):
    """A randomizer on one domain, with the server half."""

    @abstractmethod
    def tally(self, reports: Reports) -> Tally:
        """Add up reports. Run by: the server.

        Raises
        ------
        InputError
            A report is of another kind, or out of range.
        """

    @abstractmethod
    def invert(self, tally: Tally) -> FloatArray:
        """The unbiased estimate of the distribution of users over the sites, shape (sites,); entries may be negative.

        Run by: the server.

        Raises
        ------
        ParameterError
            The system of equations is singular: different distributions have the same reports.
        """

    def covariance(self, distribution: FloatArray) -> Covariance:
        """How what one report adds to :meth:`invert`'s estimates varies, given the users' places. Run by: the server.

        Parameters
        ----------
        distribution : ndarray of float64, shape (sites,)
            Where the users are, as far as is known: the noise depends on it a little.

        Raises
        ------
        ParameterError
            It is not known, or the matrix would be too large.
        """
        raise ParameterError(
            "the covariance of this randomizer's estimates is not written down; expected the "
            "estimator 'smoothed-em'"
        )

    def site_noise(self, distribution: FloatArray) -> SiteNoise:
        """What the reports' noise does to the estimate of each site. Run by: the server.

        Parameters
        ----------
        distribution : ndarray of float64, shape (sites,)
            Where the users are, as far as is known.

        Raises
        ------
        ParameterError
            It is not known.
        """
        raise ParameterError("the noise of this randomizer's estimates is not written down")


class SymbolRandomizer(client.SymbolRandomizer, Randomizer):
    """A randomizer whose report is one of finitely many symbols: all the server needs is how often each came."""

    def tally(self, reports: Reports) -> Tally:
        """Count every symbol; see :meth:`Randomizer.tally`."""
        values = reports.values
        if values.ndim != 1 or values.dtype.kind not in "iu":
            raise InputError(f"reports of shape {values.shape}, {values.dtype}; expected one symbol each")
        if values.size and (int(values.min()) < 0 or int(values.max()) >= self.symbols):
            raise InputError(f"a report is no symbol of this randomizer; expected 0 to {self.symbols - 1}")
        return Tally(np.bincount(values, minlength=self.symbols), values.size)

    def _inverse_covariance(self, distribution: FloatArray) -> DenseCovariance:
        """The covariance of the inverse of a square channel, for small domains."""
        if self.size > MOST_SITES:
            raise ParameterError(
                f"the covariance matrix of {self.size} sites; expected {MOST_SITES} at most, or the "
                "estimator 'smoothed-em'"
            )
        return DenseCovariance.of_channel(self.transition_matrix(), distribution)


class SetRandomizer(client.SetRandomizer, Randomizer):
    """A randomizer of sets: the server counts how many hold each site."""

    def tally(self, reports: Reports) -> Tally:
        """Count how many sets hold each site; see :meth:`Randomizer.tally`."""
        values = reports.values
        if values.ndim != 2 or values.dtype != np.uint8 or values.shape[1] != self.bytes:
            raise InputError(
                f"reports of shape {values.shape}, {values.dtype}; expected sets of {self.size} sites in "
                f"{self.bytes} bytes each"
            )
        self.check_sets(values)
        counts = np.zeros(self.size, dtype=np.int64)
        rows = max(1, _BITS // self.size)
        for start in range(0, values.shape[0], rows):
            bits = np.unpackbits(values[start : start + rows], axis=1, count=self.size)
            for first in range(0, bits.shape[0], _BYTE):  # sums of so many bits fit a byte
                counts += np.add.reduce(bits[first : first + _BYTE], axis=0, dtype=np.uint8)
        return Tally(counts, values.shape[0])

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
