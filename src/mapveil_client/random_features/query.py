"""The query of a server to every device: a kernel, a bandwidth, a number of features, and a region."""

import math
from dataclasses import dataclass

import numpy as np

from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError, check
from mapveil_client.random_features.kernels import Kernel, kernel_named


@dataclass(frozen=True)
class EvenGrid:
    """Points ``start + index * step`` along each axis: x (east), y (north), then time.

    Parameters
    ----------
    start : tuple of float
        First point of each axis, metres (seconds).
    step : tuple of float
        Distance to the next, not 0; negative where the index runs south, as rows do.
    count : tuple of int
        Points of each axis, at least 1.

    Raises
    ------
    ParameterError
        A step of 0, a number that is not finite, or no point.

    Examples
    --------
    >>> EvenGrid((0.0, 10.0), (2.0, -5.0), (3, 2)).middle
    (2.0, 5.0)
    """

    start: tuple[float, ...]
    step: tuple[float, ...]
    count: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.start) == len(self.step) == len(self.count) <= 3:
            raise ParameterError("a grid has one to three axes, each with a start, a step and a count")
        if not all(math.isfinite(value) for value in (*self.start, *self.step)) or 0.0 in self.step:
            raise ParameterError(
                f"a grid needs finite starts and finite steps other than 0, got {self.start} and {self.step}"
            )
        if min(self.count) < 1:
            raise ParameterError(f"a grid must have 1 point or more along each axis, got {self.count}")

    @property
    def dimension(self) -> int:
        """Number of axes."""
        return len(self.count)

    @property
    def size(self) -> int:
        """Number of points."""
        return math.prod(self.count)

    @property
    def middle(self) -> tuple[float, ...]:
        """The point of index ``count // 2`` along each axis, the origin of a transform."""
        axes = zip(self.start, self.step, self.count, strict=True)
        return tuple(start + (count // 2) * step for start, step, count in axes)

    def axis(self, which: int) -> FloatArray:
        """Coordinates along one axis, shape (count[which],)."""
        offset = np.arange(self.count[which]) - self.count[which] // 2
        return np.asarray(self.middle[which] + offset * self.step[which])

    def points(self) -> FloatArray:
        """All points, the last axis fastest, shape (dimension, size)."""
        axes = [self.axis(which) for which in range(self.dimension)]
        return np.stack([part.ravel() for part in np.meshgrid(*axes, indexing="ij")])


@dataclass(frozen=True)
class Query:
    """A public query; a device's policy decides whether it answers.

    Parameters
    ----------
    bandwidth : tuple of float
        h of each axis: metres for x and y, seconds for time; above 0.
    low, high : tuple of float
        The corners of the region, in the same units.
    features : int
        B, at least 1.
    kernel : str
        Name of a kernel.
    grid : EvenGrid, optional
        Points of the surface (P x Q). With a grid, both forms of reports carry the information of the evaluations on
        it; without, the server may evaluate them anywhere.
    crs : str
        The plane of x and y, as text that PROJ knows; empty where places come in the plane's own coordinates.

    Raises
    ------
    ParameterError
        A parameter is outside its range.
    """

    bandwidth: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    features: int = 1
    kernel: str = "gaussian"
    grid: EvenGrid | None = None
    crs: str = ""

    def __post_init__(self) -> None:
        kernel_named(self.kernel)
        if isinstance(self.features, bool) or not isinstance(self.features, int) or self.features < 1:
            raise ParameterError(f"features must be a whole number of at least 1, got {self.features!r}")
        if not 1 <= len(self.bandwidth) == len(self.low) == len(self.high) <= 3:
            raise ParameterError("a query has one to three axes, each with a bandwidth, a low and a high end")
        for value in self.bandwidth:
            check(math.isfinite(value) and value > 0, "bandwidth", "a number of metres above 0", value)
        for low, high in zip(self.low, self.high, strict=True):
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise ParameterError(f"low must be below high along each axis, got {low!r} and {high!r}")
        if self.grid is not None and self.grid.dimension != self.dimension:
            raise ParameterError(f"the grid must have {self.dimension} axes, got {self.grid.dimension}")

    @property
    def dimension(self) -> int:
        """Number of axes."""
        return len(self.bandwidth)

    @property
    def law(self) -> Kernel:
        """The kernel."""
        return kernel_named(self.kernel)

    @property
    def kernel_integral(self) -> float:
        """The kernel's integral over the plane, square metres (metres, cubic metres and seconds)."""
        return self.law.integral(self.dimension) * math.prod(self.bandwidth)

    @property
    def sides(self) -> tuple[float, ...]:
        """Extent of the region along each axis."""
        return tuple(high - low for low, high in zip(self.low, self.high, strict=True))

    @property
    def origin(self) -> tuple[float, ...]:
        """The origin of all phases: the middle of the grid, or of the region."""
        if self.grid is not None:
            return self.grid.middle
        return tuple((low + high) / 2 for low, high in zip(self.low, self.high, strict=True))
