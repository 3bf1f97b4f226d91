"""Sums of a raster over boxes at any offsets, by integral images."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from mapveil_client.arrays import FloatArray, IntArray


class Cuts(NamedTuple):
    """Boxes of one length along one axis: the first site of each, in order."""

    length: int
    first: IntArray

    def inside(self, side: int) -> tuple[IntArray, IntArray]:
        """First site and end of each box, cut at the borders of the raster."""
        return np.maximum(self.first, 0), np.minimum(self.first + self.length, side)

    def halved(self, side: int) -> Cuts:
        """Both halves of all boxes, but for those wholly outside the raster."""
        length = self.length // 2
        first = np.unique(np.concatenate([self.first, self.first + length]))
        return Cuts(length, first[(first > -length) & (first < side)])


class BoxSums(Protocol):
    """Sums over boxes."""

    def sums(self, rows: Cuts, columns: Cuts) -> FloatArray:
        """Sums over the boxes, shape (rows, columns)."""
        ...


class _Boxes:
    """Sums of an array over boxes, by an integral image."""

    def __init__(self, values: FloatArray) -> None:
        side = values.shape[0]
        self._integral = np.zeros((side + 1, side + 1))
        inner = self._integral[1:, 1:]
        np.cumsum(values, axis=1, out=inner)
        np.cumsum(inner, axis=0, out=inner)

    def sums(self, rows: Cuts, columns: Cuts) -> FloatArray:
        """Sums over the boxes, shape (rows, columns)."""
        side = self._integral.shape[0] - 1
        start, stop = rows.inside(side)
        running = self._integral.take(stop, 0)
        running -= self._integral.take(start, 0)
        start, stop = columns.inside(side)
        summed = columns_of(running, stop)
        summed -= columns_of(running, start)
        return summed


class _EvenBoxes:
    """The same where all sites have one value."""

    def __init__(self, value: float, side: int) -> None:
        self._value, self._side = value, side

    def sums(self, rows: Cuts, columns: Cuts) -> FloatArray:
        """Sums over the boxes, shape (rows, columns)."""
        lengths = [stop - start for start, stop in (rows.inside(self._side), columns.inside(self._side))]
        return np.asarray(np.multiply.outer(self._value * lengths[0], lengths[1]))


class _ScaledBoxes(NamedTuple):
    """A multiple of other sums."""

    factor: float
    of: BoxSums

    def sums(self, rows: Cuts, columns: Cuts) -> FloatArray:
        """Sums over the boxes, shape (rows, columns)."""
        return self.factor * self.of.sums(rows, columns)


def box_sums(values: FloatArray) -> BoxSums:
    """Sums of a square raster, shape (side, side), over any boxes. Run by: whoever holds it.

    Examples
    --------
    >>> rows = Cuts(2, np.array([-1, 0]))
    >>> box_sums(np.array([[1.0, 2.0], [3.0, 4.0]])).sums(rows, rows).tolist()
    [[1.0, 3.0], [4.0, 10.0]]
    """
    one = float(values.flat[0])
    return _EvenBoxes(one, values.shape[0]) if bool((values == one).all()) else _Boxes(values)


def scaled_sums(factor: float, of: BoxSums) -> BoxSums:
    """A multiple of other sums."""
    return _ScaledBoxes(factor, of)


def columns_of(array: FloatArray, index: IntArray) -> FloatArray:
    """A copy of columns; runs of neighbours are copied as such, which is many times faster."""
    breaks = np.flatnonzero(np.diff(index) != 1) + 1
    if 16 * breaks.size > index.size:
        return array.take(index, 1)
    taken = np.empty((array.shape[0], index.size))
    for start, stop in zip([0, *breaks], [*breaks, index.size], strict=True):
        taken[:, start:stop] = array[:, index[start] : index[start] + stop - start]
    return taken


def measured_half(
    parent: FloatArray, first: FloatArray, second: FloatArray, v1: FloatArray, v2: FloatArray
) -> tuple[FloatArray, FloatArray]:
    r"""Two measurements of the first half of each box as one: its own sum, and what the second leaves of the box.

    .. math:: z = y_1 + \frac{v_1}{v_1 + v_2} (P - y_2 - y_1), \qquad \tau^2 = \frac{v_1 v_2}{v_1 + v_2}

    where: P is ``parent``, users of the box; :math:`y_1, y_2` are the noisy sums ``first`` and ``second`` of its
    halves, of variances ``v1`` and ``v2``. Both variances 0 leave :math:`z = y_1`.

    Returns
    -------
    tuple of ndarray of float64
        z and its variance, of the shape of ``parent``.

    Examples
    --------
    >>> [float(each[0]) for each in measured_half(*(np.array([value]) for value in (10.0, 3.0, 5.0, 1.0, 3.0)))]
    [3.5, 0.75]
    """
    both = v1 + v2
    both[both <= 0] = 1.0
    weight = v1 / both
    measured = parent - second
    measured -= first
    measured *= weight
    measured += first
    weight *= v2
    return measured, weight
