r"""The features themselves, recovered exactly by a server from evaluations on a grid.

A device's evaluations are a sum of B cosines, that is of 2 B complex exponentials :math:`e^{i k \cdot \theta_m}`
over the grid's indices k. Small windows of the grid, taken at all offsets, span a space of 2 B dimensions that a
shift by one step maps to itself by a matrix with eigenvalues :math:`e^{i \theta_m}`; along several axes these matrices
have the eigenvectors in common. Source: the shift-invariance method of Roy and Kailath (ESPRIT, 1989), without noise.

So the compact report shows nothing that the paper's form does not.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import ComplexArray, FloatArray
from mapveil_client.errors import InputError
from mapveil_client.random_features.query import Query
from mapveil_client.random_features.report import Reports

_WINDOW = 500  # points
_OFFSETS = 700


def solve_grid(evaluations: FloatArray, query: Query) -> Reports:
    """The compact report of one device, from its evaluations on the query's grid. Run by: the server.

    Parameters
    ----------
    evaluations : ndarray of float64, shape grid.count
        What the device sent, equation 7; features of distinct frequencies.
    query : Query
        What it answered; its grid has at least 4 B + 2 points along each axis.

    Returns
    -------
    Reports
        One device. The sign of each frequency and its phase together are not in the evaluations; the one with the
        non-negative first frequency is given, folded into the grid's band.

    Raises
    ------
    InputError
        There is no grid, or too small a one for so many features.
    """
    grid, exponentials = query.grid, 2 * query.features
    if grid is None or evaluations.shape != grid.count or min(grid.count) < 2 * exponentials + 2:
        raise InputError(f"a grid of at least {2 * exponentials + 2} points along each axis")
    # Long windows tell close frequencies apart.
    longest = int(_WINDOW ** (1 / grid.dimension))
    shape = tuple(max(exponentials + 1, min(n // 2, longest)) for n in grid.count)
    basis = _signal_space(evaluations, shape, exponentials)
    shifts = [_shift(basis, shape, axis) for axis in range(grid.dimension)]
    # One combination of all shifts: its eigenvectors are common to all, and its eigenvalues are distinct.
    weights = np.sqrt(np.arange(2, 2 + grid.dimension))
    mixed = sum((w * s for w, s in zip(weights, shifts, strict=True)), np.zeros_like(shifts[0]))
    vectors = np.linalg.eig(mixed)[1]
    inverse = np.linalg.inv(vectors)
    angles = np.stack([np.angle(np.diagonal(inverse @ shift @ vectors)) for shift in shifts])
    positive = _half(angles)
    frequencies = angles[:, positive] / np.asarray(grid.step)[:, None]
    # Cosines and sines of the found frequencies: their parts in the evaluations are the projections.
    points = grid.points() - np.asarray(query.origin)[:, None]
    phase = frequencies.T @ points
    found = np.linalg.lstsq(np.concatenate([np.cos(phase), np.sin(phase)]).T, evaluations.ravel())[0]
    projections = found[: query.features] + 1j * found[query.features :]
    flipped = np.where(frequencies[0] < 0, -1.0, 1.0)
    projections = np.where(flipped < 0, projections.conj(), projections)
    return Reports((frequencies * flipped)[:, None, :], projections[None, :])


def _signal_space(evaluations: FloatArray, shape: tuple[int, ...], exponentials: int) -> ComplexArray:
    """An orthonormal basis of what windows of this shape span, shape (prod(shape), exponentials)."""
    view = np.lib.stride_tricks.sliding_window_view(evaluations, shape)
    offsets = np.stack(
        np.unravel_index(np.arange(math.prod(view.shape[: len(shape)])), view.shape[: len(shape)])
    )
    # Offsets from all over the grid; some hundreds of them are plenty.
    chosen = offsets[:, :: max(1, offsets.shape[1] // _OFFSETS)]
    rows = view[tuple(chosen)].reshape(chosen.shape[1], -1)
    return np.asarray(np.linalg.svd(rows.T, full_matrices=False)[0][:, :exponentials], dtype=np.complex128)


def _shift(basis: ComplexArray, shape: tuple[int, ...], axis: int) -> ComplexArray:
    """The matrix that a step along one axis is, in the basis."""
    cube = basis.reshape(*shape, -1)
    first = np.take(cube, np.arange(shape[axis] - 1), axis=axis).reshape(-1, basis.shape[1])
    second = np.take(cube, np.arange(1, shape[axis]), axis=axis).reshape(-1, basis.shape[1])
    return np.asarray(np.linalg.lstsq(first, second)[0], dtype=np.complex128)


def _half(angles: FloatArray) -> npt.NDArray[np.int64]:
    """One of each pair of opposite frequencies: those whose first angle that is not 0 is positive."""
    order = np.argsort(-angles[0], kind="stable")
    return order[: angles.shape[1] // 2]
