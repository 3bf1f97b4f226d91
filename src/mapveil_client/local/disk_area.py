"""The disk area mechanism: a pixel within a disk around the place, or with a smaller probability any other."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.cells import GridCells, QuadtreeCells
from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.local.randomizer import LocalMethod, SymbolRandomizer, odds_for
from mapveil_client.randomness.random import Randomness, uniform_below
from mapveil_client.tiles_and_sites import TileCells

_LARGEST_OUTPUT: Final = 1 << 25  # pixels
_PIXELS_PER_SITE: Final = 16
_LONGEST: Final = 1024  # pixels along the longer side of a raster of scattered sites
_SAMPLES: Final = 16  # chords of a pixel
_PARTS: Final = 256  # steps of the covered fraction of a pixel
_PAIRS: Final = 1 << 11  # places all of whose pairs are compared for the exact worst ratio
_SECTIONS: Final = 60  # golden sections of a radius: beyond double precision
_GOLDEN: Final = (math.sqrt(5) - 1) / 2


class PixelRaster(NamedTuple):
    """The pixel of each site; row 0 is the northmost."""

    row: IntArray
    column: IntArray
    rows: int
    columns: int
    pixel_m: tuple[float, float]  # height and width

    @property
    def extent_m(self) -> tuple[float, float]:
        """Width and height, metres."""
        return self.columns * self.pixel_m[1], self.rows * self.pixel_m[0]


def pixel_raster(domain: Domain) -> PixelRaster:
    """The raster of a tiling of rows and columns; of scattered sites, square pixels, about 16 for each."""
    x, y = domain.plane
    if isinstance(domain.tiling, (QuadtreeCells, GridCells, TileCells)):
        lattice = domain.tiling.lattice()
        row, column = lattice.row[domain.cells], lattice.col[domain.cells]
        row, column = row - row.min(), column - column.min()
        width, height = (_step(along, place) for along, place in ((x, column), (-y, row)))
        pixel = (height or width, width or height)
    else:
        wide, high = float(np.ptp(x)), float(np.ptp(y))
        side = max(
            math.sqrt(max(wide * high, 1e-300) / (_PIXELS_PER_SITE * domain.size)), max(wide, high) / _LONGEST
        )
        row, column = ((part / side).astype(np.int64) for part in (y.max() - y, x - x.min()))
        pixel = (side, side)
    return PixelRaster(row, column, int(row.max()) + 1, int(column.max()) + 1, pixel)


def _step(along: FloatArray, place: IntArray) -> float:
    """Metres from a row (or column) to the next, on average; 0 where there is only one."""
    first, last = int(np.argmin(place)), int(np.argmax(place))
    count = int(place[last] - place[first])
    return float(along[last] - along[first]) / count if count else 0.0


def disk_reach(radius_m: float, raster: PixelRaster) -> tuple[int, int]:
    """The reach of a disk around the middle of a pixel: pixels up, and along."""
    up, along = (math.floor(radius_m / side + 0.5) for side in raster.pixel_m)
    return up, along


def disk_kernel(radius_m: float, raster: PixelRaster) -> FloatArray:
    """The fraction of each pixel in a disk around the middle of the central one, shape (2 up + 1, 2 along + 1).

    To 1/256 of a pixel, by 16 chords through each; the central pixel is 1.
    """
    high, wide = raster.pixel_m
    up, along = disk_reach(radius_m, raster)
    offset = (np.arange(_SAMPLES) + 0.5) / _SAMPLES - 0.5
    y = ((np.arange(-up, up + 1)[:, None] + offset) * high).reshape(-1)
    half = np.sqrt(np.maximum(radius_m * radius_m - y * y, 0.0)) / wide  # of the chord, in pixels
    middle = np.abs(np.arange(-along, along + 1))
    covered = np.clip(half[:, None] - middle + 0.5, 0.0, 1.0)
    covered[:, along] = np.minimum(2 * half, 1.0)
    part = np.rint(covered.reshape(2 * up + 1, _SAMPLES, -1).mean(axis=1) * _PARTS) / _PARTS
    part[up, along] = 1.0
    return np.asarray(part)


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
        Privacy parameter of a report.
    width, height : float
        w and h, any unit; the radius is in the same unit.
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
    """The least length from ``side`` on without prime factors above 5, whose transform is fastest."""
    while True:
        left = side
        for prime in (2, 3, 5):
            while left % prime == 0:
                left //= prime
        if left == 1:
            return side
        side += 1


class DiskRandomizer(SymbolRandomizer):
    """The randomizer of :class:`DiskArea` on one domain: symbols are the pixels in some site's disk, row by row.

    Attributes
    ----------
    radius_m : float
        b, metres.
    raster : PixelRaster
        The pixels of the sites, without the border around them.
    """

    kind: ClassVar[int] = 9

    def __init__(self, domain: Domain, epsilon: Fraction, radius_m: float | None) -> None:
        super().__init__(domain, epsilon)
        self.raster: PixelRaster = pixel_raster(domain)
        width, height = self.raster.extent_m
        self.radius_m = best_radius(epsilon, width, height) if radius_m is None else float(radius_m)
        up, along = disk_reach(self.radius_m, self.raster)
        self._shape = (self.raster.rows + 2 * up, self.raster.columns + 2 * along)
        if self._shape[0] * self._shape[1] > _LARGEST_OUTPUT:
            raise ParameterError(
                f"a report must be one of 2**25 pixels at most, got {self._shape[0] * self._shape[1]}: radius "
                f"{self.radius_m:g} m on {domain.tiling.spec}"
            )
        kernel = disk_kernel(self.radius_m, self.raster)
        # The corner of each site's kernel in the bordered raster.
        self._corner = self.raster.row * self._shape[1] + self.raster.column
        self._reached = np.flatnonzero(self._reach(kernel))
        self.weights = odds_for(epsilon, self._reached.size + kernel.size)
        surplus = self.weights.more - self.weights.less
        self._extra = (kernel * surplus).astype(np.int64)
        self._extra[kernel >= 1] = surplus
        self._ends = np.cumsum(self._extra.reshape(-1))
        self._surplus = int(self._ends[-1])
        self._total = self._surplus + self.weights.less * self._reached.size
        self._spectrum = self._transform(self._extra.astype(np.float64))

    def _reach(self, kernel: FloatArray) -> FloatArray:
        """Pixels of the bordered raster in some site's disk."""
        held = np.zeros(self._shape)
        held.reshape(-1)[self._corner] = 1.0
        disk = self._transform((kernel > 0).astype(np.float64))
        return np.asarray(self._back(self._transform(held) * disk) > 0.5)

    def _transform(self, values: FloatArray) -> npt.NDArray[np.complex128]:
        """The Fourier transform of a raster with the corner of the bordered one."""
        return np.asarray(np.fft.rfft2(values, [_fast(side) for side in self._shape]))

    def _back(self, spectrum: npt.NDArray[np.complex128]) -> FloatArray:
        """The bordered raster of a transform."""
        whole = np.fft.irfft2(spectrum, [_fast(side) for side in self._shape])
        return np.asarray(whole[: self._shape[0], : self._shape[1]])

    @property
    def symbols(self) -> int:
        """Number of pixels within reach of a site."""
        return int(self._reached.size)

    def worst_ratio(self) -> Fraction:
        """See :meth:`Randomizer.worst_ratio`.

        The weights of every place have the same sum, so the ratio is that of two weights: the largest to the least,
        unless all disks overlap in every pixel. Of very many places it is a bound.
        """
        places = np.unique(self._corner)
        if self._separate() or places.size > _PAIRS:
            return super().worst_ratio()
        worst = Fraction(1)
        for corner in places.tolist():
            weight = self._extra_from(corner) + self.weights.less
            for other in places.tolist():
                another = self._extra_from(other) + self.weights.less
                at = int(np.argmax(weight / another))
                worst = max(worst, Fraction(int(weight.flat[at]), int(another.flat[at])))
        return worst

    def _extra_from(self, corner: int) -> IntArray:
        """The weights beyond the least one of a kernel whose corner is there, on the bordered raster."""
        row, column = divmod(corner, self._shape[1])
        made = np.zeros(self._shape, dtype=np.int64)
        high, wide = self._extra.shape
        made[row : row + high, column : column + wide] = self._extra
        return made

    def _separate(self) -> bool:
        """Whether a site at one end has a pixel of the largest weight that one at the other end does not reach."""
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
        near = np.maximum(spread.reshape(-1)[self._reached], 0.0)  # below 0 by the transform's rounding
        return np.asarray((near + self.weights.less * distribution.sum()) / self._total)

    def backward(self, values: FloatArray) -> FloatArray:
        """See :meth:`SymbolRandomizer.backward`: a correlation."""
        held = np.zeros(self._shape)
        held.reshape(-1)[self._reached] = values
        summed = self._back(self._transform(held) * np.conj(self._spectrum))
        return np.asarray((summed.reshape(-1)[self._corner] + self.weights.less * values.sum()) / self._total)

    def identity(self) -> str:
        """See :meth:`Randomizer.identity`."""
        return f"disk {self.radius_m!r} {self.weights.more}:{self.weights.less}"


@dataclass(frozen=True, kw_only=True)
class DiskArea(LocalMethod):
    r"""Report a pixel: one within a disk around the place is :math:`e^\epsilon` times likelier than one outside.

    .. math:: q(y \mid x) \propto 1 + (e^\epsilon - 1)\, a(y - x)

    where: y is any pixel within the radius b of some site, and :math:`a(y - x)` the fraction of pixel y in the disk of
    radius b around the middle of x's pixel, 1 for x's own. The sum of all weights is the same for every place: pixels
    beyond the border of the region can be reported too. Cells are the pixels of their tiling's raster; scattered sites
    have a raster of about 16 pixels for each.

    Deviation: the pixels are those in some site's disk, instead of a bordered square; the fraction of a border pixel
    is used as such, where the paper shrinks the disk to whole pixels in two steps.

    Source: Du, Cheng, Zheng, Lian, Chen, Xi, Ni, "Numerical Estimation of Spatial Distributions under Differential
    Privacy" (2024).

    Parameters
    ----------
    radius_m : float, optional
        b, metres (cells without georeference); the one of :func:`best_radius` by default.
    """

    name: ClassVar[str] = "disk"
    summary: ClassVar[str] = "each client reports a pixel, likelier one in a disk around its place"
    source: ClassVar[str] = "Du et al. 2024"
    randomizer = DiskRandomizer

    radius_m: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        above = self.radius_m is None or (math.isfinite(self.radius_m) and self.radius_m >= 0)
        self._check(above, "radius_m", "a number of metres of at least 0, or none")
