"""The disk area mechanism: a pixel within a disk around the place, or with a smaller probability any other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from mapveil.local.estimators.covariance import DenseCovariance, SiteNoise
from mapveil.local.mechanism import LocalMechanism
from mapveil.local.randomizers.disk_raster import (
    DiskKernel,
    PixelRaster,
    disk_kernel,
    disk_reach,
    pixel_raster,
)
from mapveil.local.randomizers.domain import Domain
from mapveil.local.randomizers.odds import odds
from mapveil.local.randomizers.randomizer import SymbolRandomizer
from mapveil.local.randomizers.report import Tally
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness
from mapveil_client.randomness.uniform import uniform_below

_TOTAL_BITS: Final = 61
_LARGEST_OUTPUT: Final = 1 << 25
_DENSE: Final = 1 << 23
_BOUNDED: Final = 1 << 20
_SINGULAR: Final = 1e-10
_PAIRS: Final = 1 << 11
_SECTIONS: Final = 60
_GOLDEN: Final = (math.sqrt(5) - 1) / 2


def best_radius(epsilon: Fraction, width: float, height: float) -> float:
    r"""The radius that maximises the mutual information of an evenly distributed place and its report.

    .. math:: I(b) = \ln A(b) + \pi b^2\, p \ln p + (A(b) - \pi b^2)\, q \ln q, \qquad
        A(b) = w h + 2 (w + h) b + \pi b^2, \quad p = e^\epsilon q = \frac{e^\epsilon}{\pi b^2 (e^\epsilon - 1) +
        A(b)}

    where: w and h are the sides of the region, A(b) the area of all places within b of it. Deviation: the first term
    takes reports for evenly distributed, as the paper does; the maximum is found numerically instead of by its closed
    form for a square.

    Parameters
    ----------
    epsilon : Fraction
        Of a report.
    width, height : float
        w and h, any unit; the radius is in the same.
    """
    e = math.exp(min(float(epsilon), 60.0))

    def lost(b: float) -> float:
        disk = math.pi * b * b
        area = width * height + 2 * (width + height) * b + disk
        q = 1 / (disk * (e - 1) + area)
        p = e * q
        return -(math.log(area) + disk * p * math.log(p) + (area - disk) * q * math.log(q))

    # One minimum: by golden sections.
    low, high = 0.0, width + height
    for _ in range(_SECTIONS):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        low, high = (low, right) if lost(left) < lost(right) else (left, high)
    return (low + high) / 2


def _fast(side: int) -> int:
    """The least length from ``side`` on without prime factors above 5: those are transformed fastest."""
    while True:
        left = side
        for prime in (2, 3, 5):
            while left % prime == 0:
                left //= prime
        if left == 1:
            return side
        side += 1


class DiskRandomizer(SymbolRandomizer):
    """The halves of :class:`DiskArea` on one domain. Symbols are the pixels that some site's disk reaches, row by row.

    Attributes
    ----------
    radius_m : float
        b, metres.
    raster : PixelRaster
        The pixels of the sites, without the border around them.
    kernel : DiskKernel
        The disk on the raster.
    """

    kind: ClassVar[int] = 9

    def __init__(self, domain: Domain, epsilon: Fraction, radius_m: float | None) -> None:
        super().__init__(domain, epsilon)
        self.raster: PixelRaster = pixel_raster(domain)
        width, height = self.raster.extent_m
        self.radius_m = best_radius(epsilon, width, height) if radius_m is None else radius_m
        up, along = disk_reach(self.radius_m, self.raster)
        self._shape = (self.raster.rows + 2 * up, self.raster.columns + 2 * along)
        if self._shape[0] * self._shape[1] > _LARGEST_OUTPUT:
            raise ParameterError(
                f"radius {self.radius_m:g} m on {domain.tiling.spec}: a report is one of "
                f"{self._shape[0] * self._shape[1]} pixels; 2**25 at most are accepted"
            )
        self.kernel: DiskKernel = disk_kernel(self.radius_m, self.raster)
        # The corner of each site's kernel in the bordered raster.
        self._corner = self.raster.row * self._shape[1] + self.raster.column
        self._reached = np.flatnonzero(self._reach())
        room = _TOTAL_BITS - (self._reached.size + self.kernel.part.size).bit_length()
        self.weights = odds(epsilon, room, min(room, 40))
        surplus = self.weights.more - self.weights.less
        self._extra = (self.kernel.part * surplus).astype(np.int64)
        self._extra[self.kernel.part >= 1] = surplus
        self._ends = np.cumsum(self._extra.reshape(-1))
        self._surplus = int(self._ends[-1])
        self._total = self._surplus + self.weights.less * self._reached.size
        self._spectrum = self._transform(self._extra.astype(np.float64))

    def _reach(self) -> FloatArray:
        """Which pixels of the bordered raster some site's disk reaches."""
        held = np.zeros(self._shape)
        held.reshape(-1)[self._corner] = 1.0
        disk = self._transform((self.kernel.part > 0).astype(np.float64))
        return np.asarray(self._back(self._transform(held) * disk) > 0.5)

    def _transform(self, values: FloatArray) -> npt.NDArray[np.complex128]:
        """The Fourier transform of a raster with the corner of the bordered one."""
        # NumPy's: this is the client half too, and a phone has no SciPy.
        return np.asarray(np.fft.rfft2(values, [_fast(side) for side in self._shape]))

    def _back(self, spectrum: npt.NDArray[np.complex128]) -> FloatArray:
        """The bordered raster of a transform."""
        whole = np.fft.irfft2(spectrum, [_fast(side) for side in self._shape])
        return np.asarray(whole[: self._shape[0], : self._shape[1]])

    @property
    def symbols(self) -> int:
        """One for each pixel within reach of a site."""
        return int(self._reached.size)

    def worst_ratio(self) -> Fraction:
        """See :meth:`Randomizer.worst_ratio`.

        Whatever the place, all weights sum to the same, so that the ratio is that of two weights: the whole one to
        the least, unless all disks overlap in every pixel of theirs.
        """
        if self._separate():
            return Fraction(*self.weights)
        places = np.unique(self._corner)
        if places.size > _PAIRS:
            return Fraction(*self.weights)  # a bound
        worst = Fraction(1)
        for corner in places.tolist():
            extra = self._extra_from(int(corner))
            for other in places.tolist():
                worst = max(worst, self._pair_ratio(extra, self._extra_from(int(other))))
        return worst

    def _pair_ratio(self, first: IntArray, second: IntArray) -> Fraction:
        less = self.weights.less
        at = int(np.argmax((first + less) / (second + less)))
        return Fraction(int(first.flat[at]) + less, int(second.flat[at]) + less)

    def _extra_from(self, corner: int) -> IntArray:
        row, column = divmod(corner, self._shape[1])
        made = np.zeros(self._shape, dtype=np.int64)
        high, wide = self._extra.shape
        made[row : row + high, column : column + wide] = self._extra
        return made

    def _separate(self) -> bool:
        """Whether a site at one end has a pixel of the whole weight that one at the other end does not reach."""
        for along in (self.raster.row, self.raster.column):
            first, last = int(self._corner[np.argmin(along)]), int(self._corner[np.argmax(along)])
            whole = self._extra_from(first) == self.weights.more - self.weights.less
            if (whole & (self._extra_from(last) == 0)).any():
                return True
        return False

    def _draw(self, sites: IntArray, rng: Randomness) -> IntArray:
        left = uniform_below(sites.size, self._total, rng) - self._surplus
        drawn = left // self.weights.less
        near = np.flatnonzero(left < 0)
        if near.size:
            at = np.searchsorted(self._ends, left[near] + self._surplus, side="right")
            row, column = np.divmod(at, self._extra.shape[1])
            pixel = self._corner[sites[near]] + row * self._shape[1] + column
            drawn[near] = np.searchsorted(self._reached, pixel)
        return drawn

    def forward(self, distribution: FloatArray) -> FloatArray:
        """See :meth:`SymbolRandomizer.forward`: a convolution."""
        held = np.zeros(self._shape[0] * self._shape[1])
        np.add.at(held, self._corner, distribution)
        spread = self._back(self._transform(held.reshape(self._shape)) * self._spectrum)
        near = np.maximum(spread.reshape(-1)[self._reached], 0.0)  # what is below is the transform's rounding
        return np.asarray((near + self.weights.less * distribution.sum()) / self._total)

    def backward(self, values: FloatArray) -> FloatArray:
        """See :meth:`SymbolRandomizer.backward`: a correlation."""
        held = np.zeros(self._shape)
        held.reshape(-1)[self._reached] = values
        summed = self._back(self._transform(held) * np.conj(self._spectrum))
        return np.asarray((summed.reshape(-1)[self._corner] + self.weights.less * values.sum()) / self._total)

    def invert(self, tally: Tally) -> FloatArray:
        """See :meth:`Randomizer.invert`: least squares over the pixels, for small domains."""
        return np.asarray(self._least_squares @ (tally.counts / max(tally.reports, 1)))

    def covariance(self, distribution: FloatArray) -> DenseCovariance:
        """See :meth:`Randomizer.covariance`: of the least squares, for small domains."""
        return DenseCovariance.of_estimator(self._least_squares, self.forward(distribution), distribution)

    def site_noise(self, distribution: FloatArray) -> SiteNoise:
        """See :meth:`Randomizer.site_noise`: of the least squares, where they take no longer than the map itself."""
        if self.size * self.symbols > _BOUNDED:
            raise ParameterError(
                f"the noise of {self.size} sites by {self.symbols} pixels; 2**20 pairs at most are accepted"
            )
        inverse = self._least_squares
        reported = self.forward(distribution)
        return SiteNoise(inverse**2 @ reported - distribution, float(np.ptp(inverse, axis=1).max()))

    @cached_property
    def _least_squares(self) -> FloatArray:
        """The pseudo-inverse of the channel, shape (sites, symbols)."""
        if self.size * self.symbols > _DENSE:
            raise ParameterError(
                f"least squares over {self.size} sites and {self.symbols} pixels would need a matrix of more than "
                "2**23 entries; the estimators 'smoothed-em' and 'em' are accepted"
            )
        left, values, right = np.linalg.svd(self.transition_matrix().T, full_matrices=False)
        rank = int((values > _SINGULAR * values[0]).sum())
        if rank < self.size:
            raise ParameterError(
                f"the system of equations is singular: its rank is {rank} of {self.size} sites; "
                "the estimator 'smoothed-em' is accepted"
            )
        return np.asarray((right.T / values) @ left.T)

    def identity(self) -> str:
        """See :meth:`Randomizer.identity`."""
        return f"disk {self.radius_m!r} {self.weights.more}:{self.weights.less}"


@dataclass(frozen=True, kw_only=True)
class DiskArea(LocalMechanism):
    r"""Report a pixel: one within a disk around the place is :math:`e^\epsilon` times likelier than one outside.

    .. math:: q(y \mid x) \propto 1 + (e^\epsilon - 1)\, a(y - x)

    where: y is any pixel within the radius b of some site, and :math:`a(y - x)` the part of pixel y that lies in the
    disk of radius b around the middle of x's pixel, 1 for x's own. The sum of all weights is the same for every
    place: the disk lies wholly within the pixels that can be reported, beyond the border of the region where need be.
    Places are seen on the raster of their tiling, scattered sites on one of about 16 pixels for each.

    Deviation: the pixels are those some site's disk reaches, instead of a bordered square; the part of a border pixel
    is taken as such, where the paper shrinks the disk to whole pixels in two steps.

    Source: Du, Cheng, Zheng, Lian, Chen, Xi, Ni, "Numerical Estimation of Spatial Distributions under Differential
    Privacy" (2024).

    Parameters
    ----------
    radius_m : float, optional
        b, metres (cells without georeference); the one of :func:`best_radius` by default.
    """

    name: ClassVar[str] = "disk"
    summary: ClassVar[str] = "each phone reports a pixel, likelier one in a disk around its place"
    source: ClassVar[str] = "Du et al. 2024"

    radius_m: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        above = self.radius_m is None or (math.isfinite(self.radius_m) and self.radius_m >= 0)
        self._check(above, "radius_m", "a number of metres of at least 0, or none,")

    def on(self, domain: Domain) -> DiskRandomizer:
        """Both halves on a domain; see :meth:`LocalMechanism.on`."""
        return DiskRandomizer(domain, self.budget, None if self.radius_m is None else float(self.radius_m))
