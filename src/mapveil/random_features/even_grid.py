"""Where a surface is asked for: evenly spaced points along one to three axes of metres (and seconds)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError


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
                f"a grid from {self.start} by {self.step}; finite numbers, steps other than 0 accepted"
            )
        if min(self.count) < 1:
            raise ParameterError(f"a grid of {self.count} points; at least 1 along each axis is accepted")

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
        """The point of index ``count // 2`` along each axis: where a transform has its origin."""
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
