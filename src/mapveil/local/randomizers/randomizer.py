"""What every randomizer does: its client half, what the server must know of it, and its exact epsilon."""

from __future__ import annotations

from abc import ABC, abstractmethod
from fractions import Fraction
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from mapveil.local.estimators.covariance import MOST_SITES, Covariance, DenseCovariance, SiteNoise
from mapveil.local.randomizers.domain import Domain
from mapveil.local.randomizers.odds import ceil_log
from mapveil.local.randomizers.report import Reports, Tally
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness

_CHUNK: Final = 1 << 16
_DENSE: Final = 1 << 26


class Randomizer(ABC):
    """One way of randomizing on one domain.

    Parameters
    ----------
    domain : Domain
        The sites.
    epsilon : Fraction
        What is promised of each report.
    """

    kind: ClassVar[int]
    """The number of the kind in messages."""

    def __init__(self, domain: Domain, epsilon: Fraction) -> None:
        self.domain, self.epsilon = domain, epsilon

    @property
    def size(self) -> int:
        """Number of sites, d."""
        return self.domain.size

    @property
    @abstractmethod
    def symbols(self) -> int:
        """How many counts a tally has."""

    def randomize(self, cells: npt.ArrayLike, rng: Randomness) -> Reports:
        """Randomize the cell of each phone. Run by: the client.

        Parameters
        ----------
        cells : int or array of int
            The tiling's cell of each phone's one place.
        rng : Randomness
            The source of bits; every probability is a ratio of integers and exact.

        Raises
        ------
        InputError
            A cell is outside the domain.
        """
        sites = self.domain.sites_of(cells)
        parts = [
            self._draw(sites[start : start + self._chunk()], rng)
            for start in range(0, sites.size, self._chunk())
        ]
        return Reports(np.concatenate(parts) if parts else self._draw(sites, rng))

    @abstractmethod
    def tally(self, reports: Reports) -> Tally:
        """Add up reports. Run by: the server.

        Raises
        ------
        InputError
            A report is of another kind, or out of range.
        """

    @abstractmethod
    def worst_ratio(self) -> Fraction:
        """The largest ratio of one report's probabilities under two sites, exactly."""

    def exact_epsilon(self) -> float:
        """The logarithm of :meth:`worst_ratio`, rounded up: what each report's epsilon really is."""
        return ceil_log(self.worst_ratio())

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
            "the covariance of this randomizer's estimates is not written down; the estimator 'smoothed-em' is accepted"
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

    @abstractmethod
    def identity(self) -> str:
        """Its parameters as one line that differs where reports do."""

    @abstractmethod
    def _draw(self, sites: IntArray, rng: Randomness) -> npt.NDArray[np.generic]:
        """The reports' values for the given sites."""

    def _chunk(self) -> int:
        return _CHUNK


class SymbolRandomizer(Randomizer):
    """A randomizer whose report is one of finitely many symbols: all the server needs is how often each came.

    The channel is the matrix :math:`q(y \\mid x)`; it is never written out but by :meth:`transition_matrix`.
    """

    def tally(self, reports: Reports) -> Tally:
        """Count every symbol; see :meth:`Randomizer.tally`."""
        values = reports.values
        if values.ndim != 1 or values.dtype.kind not in "iu":
            raise InputError(f"reports of shape {values.shape}, {values.dtype}; one symbol each is accepted")
        if values.size and (int(values.min()) < 0 or int(values.max()) >= self.symbols):
            raise InputError(f"a report is no symbol of this randomizer; 0 to {self.symbols - 1} is accepted")
        return Tally(np.bincount(values, minlength=self.symbols), values.size)

    @abstractmethod
    def forward(self, distribution: FloatArray) -> FloatArray:
        r"""How likely each symbol is, :math:`\sum_x q(y \mid x)\, p(x)`, shape (symbols,). Run by: the server.

        Parameters
        ----------
        distribution : ndarray of float64, shape (sites,)
            p, which need not sum to 1.
        """

    @abstractmethod
    def backward(self, values: FloatArray) -> FloatArray:
        r"""The adjoint, :math:`\sum_y q(y \mid x)\, r(y)`, shape (sites,). Run by: the server.

        Parameters
        ----------
        values : ndarray of float64, shape (symbols,)
            r.
        """

    def _inverse_covariance(self, distribution: FloatArray) -> DenseCovariance:
        """The covariance of the inverse of a square channel, for small domains."""
        if self.size > MOST_SITES:
            raise ParameterError(
                f"the covariance matrix of {self.size} sites; {MOST_SITES} at most are accepted, or "
                "the estimator 'smoothed-em'"
            )
        return DenseCovariance.of_channel(self.transition_matrix(), distribution)

    def transition_matrix(self) -> FloatArray:
        """The whole matrix q, shape (sites, symbols), for tests, audits and small domains.

        Raises
        ------
        ParameterError
            It would have more than 2**26 entries.
        """
        if self.size * self.symbols > _DENSE:
            raise ParameterError(
                f"a matrix of {self.size} sites and {self.symbols} symbols has more than 2**26 entries; "
                "forward and backward multiply by it without writing it out"
            )
        matrix = np.empty((self.size, self.symbols))
        unit = np.zeros(self.size)
        for site in range(self.size):
            unit[site] = 1.0
            matrix[site] = self.forward(unit)
            unit[site] = 0.0
        return matrix
