"""The server half of every randomizer: adding up reports, unbiased estimates, and what the noise does to them."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from mapveil.local.estimators.covariance import Covariance, DenseCovariance, SiteNoise, two_level_noise
from mapveil.local.estimators.likelihood import ChannelLikelihood, LevelSupport, Likelihood, SupportLikelihood
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.local import randomizer as client
from mapveil_client.local.randomizer import MOST_SITES, Reports
from mapveil_client.local.staircase_groups import Blocks

_BITS: Final = 1 << 24  # bits of the sets counted at a time


@dataclass(frozen=True, eq=False, repr=False)
class Tally:
    """Reports added up.

    Parameters
    ----------
    counts : ndarray of int64
        Number of reports that were each symbol, or held each site.
    reports : int
        Number of reports.
    """

    counts: IntArray
    reports: int

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.counts + other.counts, self.reports + other.reports)

    def __repr__(self) -> str:
        return f"Tally({self.reports} reports, {self.counts.size} counts)"


class NodeEstimates(NamedTuple):
    """Unbiased estimates of nodes that divide the sites, and the noise of one report in them.

    A weighted sum over nodes has at most the variance that uncorrelated nodes would give it.
    """

    node: IntArray  # of each site, shape (sites,)
    estimates: FloatArray  # fraction of all users at each node
    variance: float  # of a node's term where nobody is
    slope: float  # added where everybody is at one node
    step: float  # largest term


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

    @abstractmethod
    def likelihood(self, tally: Tally) -> Likelihood:
        """The likelihood of the reports. Run by: the server."""

    def covariance(self, distribution: FloatArray) -> Covariance:
        """The covariance of one report's terms of :meth:`invert`, given the users' places. Run by: the server.

        The places are estimated by ``distribution``, shape (sites,); the noise depends on them a little.

        Raises
        ------
        ParameterError
            It is not known, or the matrix would be too large.
        """
        raise ParameterError(
            "the covariance of this randomizer's estimates is not known; use the estimator 'smoothed-em'"
        )

    def site_noise(self, distribution: FloatArray) -> SiteNoise:
        """The noise of one report in the estimate of each site, as for :meth:`covariance`. Run by: the server.

        Raises
        ------
        ParameterError
            It is not known.
        """
        raise ParameterError("the noise of this randomizer's estimates is not known")

    def node_estimates(self, tally: Tally) -> tuple[NodeEstimates, ...]:
        """The estimates of each level, the coarsest first, of independent reports each; none where none are known.

        Run by: the server.
        """
        del tally
        return ()

    def _check_dense(self) -> None:
        """Refuse a covariance matrix that would be too large."""
        if self.size > MOST_SITES:
            raise ParameterError(
                f"a covariance matrix must be of {MOST_SITES} sites at most, got {self.size}; use the estimator "
                "'smoothed-em'"
            )


class SymbolRandomizer(client.SymbolRandomizer, Randomizer):
    """A randomizer whose report is one of finitely many symbols, with the server half."""

    def tally(self, reports: Reports) -> Tally:
        """Count every symbol; see :meth:`Randomizer.tally`."""
        values = reports.values
        if values.ndim != 1 or values.dtype.kind not in "iu":
            raise InputError(f"reports must be one symbol each, got shape {values.shape}, {values.dtype}")
        if values.size and (int(values.min()) < 0 or int(values.max()) >= self.symbols):
            raise InputError(f"each report must be a symbol from 0 to {self.symbols - 1}, got another number")
        return Tally(np.bincount(values, minlength=self.symbols), values.size)

    def likelihood(self, tally: Tally) -> Likelihood:
        """See :meth:`Randomizer.likelihood`."""
        return ChannelLikelihood(self, tally.counts, tally.reports)

    def _inverse_covariance(self, distribution: FloatArray) -> DenseCovariance:
        """The covariance of the inverse of a square channel, for small domains."""
        self._check_dense()
        channel = self.transition_matrix()
        inverse = np.asarray(np.linalg.inv(channel), dtype=np.float64)
        return DenseCovariance.of_estimator(inverse.T, distribution @ channel, distribution)


class SetRandomizer(client.SetRandomizer, Randomizer):
    """A randomizer of sets, with the server half."""

    def tally(self, reports: Reports) -> Tally:
        """Count how many sets hold each site; see :meth:`Randomizer.tally`."""
        values = reports.values
        if values.ndim != 2 or values.dtype != np.uint8 or values.shape[1] != self.bytes:
            raise InputError(
                f"reports must be sets of {self.size} sites in {self.bytes} bytes each, got shape {values.shape}, "
                f"{values.dtype}"
            )
        self.check_sets(values)
        counts = np.zeros(self.size, dtype=np.int64)
        rows = max(1, _BITS // self.size)
        for start in range(0, values.shape[0], rows):
            bits = np.unpackbits(values[start : start + rows], axis=1, count=self.size)
            for first in range(0, bits.shape[0], 255):  # sums of so many bits fit a byte
                counts += np.add.reduce(bits[first : first + 255], axis=0, dtype=np.uint8)
        return Tally(counts, values.shape[0])

    def invert(self, tally: Tally) -> FloatArray:
        """See :meth:`Randomizer.invert`."""
        return np.asarray((tally.counts / max(tally.reports, 1) - self.other) / (self.held - self.other))

    def likelihood(self, tally: Tally) -> Likelihood:
        """See :meth:`Randomizer.likelihood`: sites as if independent."""
        site = np.arange(self.size)
        singles, counts = Blocks(site, np.ones_like(site), site), tally.counts.astype(np.float64)
        support = LevelSupport(singles, counts, tally.reports, self.held, self.other)
        return SupportLikelihood(site, [support])

    def site_noise(self, distribution: FloatArray) -> SiteNoise:
        """See :meth:`Randomizer.site_noise`."""
        return two_level_noise(distribution, self.held, self.other)

    def node_estimates(self, tally: Tally) -> tuple[NodeEstimates, ...]:
        """See :meth:`Randomizer.node_estimates`: the sites.

        Two sites are in a set independently, or, in one of given size, less often: a covariance of -1 / (d - 1)
        variances at most.
        """
        held, other = self.site_noise(np.ones(1)), self.site_noise(np.zeros(1))
        empty, full = float(other.variance[0]), float(held.variance[0])
        site, apart = np.arange(self.size), self.size / (self.size - 1)
        return (NodeEstimates(site, self.invert(tally), empty * apart, max(full - empty, 0.0), other.step),)
