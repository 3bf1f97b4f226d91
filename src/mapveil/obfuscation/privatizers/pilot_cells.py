"""Cells of rows: the pilot divided among nearest centres."""

from typing import TypeVar

import numpy as np
import numpy.typing as npt

Rows32 = npt.NDArray[np.float32]
_Real = TypeVar("_Real", np.float32, np.float64)

_CHUNK = 1 << 12


def find_centres(
    rows: Rows32, count: int, generator: np.random.Generator, *, rounds: int = 12
) -> tuple[Rows32, npt.NDArray[np.int64]]:
    """Centres by Lloyd's iteration, shape (at most count, width), and the number of the one nearest to every row.

    Parameters
    ----------
    rows : ndarray of float32, shape (rows, width)
    count : int
        Maximum number of centres; a centre that no row is nearest to is left out.
    generator : numpy Generator
        Source of the first centres, which are rows at random.
    rounds : int
        Iterations.
    """
    centres = rows[generator.permutation(len(rows))[:count]].copy()
    for _ in range(rounds):
        nearest = nearest_centre(rows, centres)
        sums = np.stack([np.bincount(nearest, column, len(centres)) for column in rows.T], axis=1)
        sizes = np.bincount(nearest, minlength=len(centres))
        centres = np.where(
            sizes[:, None] > 0,
            sums / np.maximum(sizes, 1)[:, None],
            rows[generator.integers(len(rows), size=len(centres))],
        ).astype(np.float32)
    nearest = nearest_centre(rows, centres)
    kept, nearest = np.unique(nearest, return_inverse=True)
    return centres[kept], nearest.astype(np.int64)


def nearest_centre(rows: npt.NDArray[np.floating], centres: Rows32) -> npt.NDArray[np.int64]:
    """The centre nearest to every row in single precision, shape (rows,)."""
    made = np.empty(len(rows), dtype=np.int64)
    turned = np.ascontiguousarray(-2 * centres.T)
    squares = np.square(centres).sum(axis=1)
    for start in range(0, len(rows), _CHUNK):
        # |r|^2 is the same for every centre.
        off = np.asarray(rows[start : start + _CHUNK], dtype=np.float32) @ turned
        off += squares
        made[start : start + _CHUNK] = off.argmin(axis=1)
    return made


def row_distances(
    rows: npt.NDArray[_Real], others: npt.NDArray[_Real], length: int = 1
) -> npt.NDArray[_Real]:
    """Mean distance of every run of ``length`` rows from every other, shape (rows, others), above 0."""
    width = rows.shape[1] // length
    total = np.zeros((len(rows), len(others)), dtype=rows.dtype)
    for at in range(0, rows.shape[1], width):
        a, b = rows[:, at : at + width], others[:, at : at + width]
        squared = a @ np.ascontiguousarray(-2 * b.T)
        squared += np.square(a).sum(axis=1)[:, None]
        squared += np.square(b).sum(axis=1)
        # Cancellation may leave a small negative number; the weights of Weiszfeld divide by the distance.
        np.maximum(squared, 1e-8, out=squared)
        total += np.sqrt(squared, out=squared)
    return total if length == 1 else total / rows.dtype.type(length)
