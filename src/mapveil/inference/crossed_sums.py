r"""Noisy sums of a matrix's rows, of its columns and of nested blocks of it: the best estimate of linear functionals.

The entries of a matrix are users from each origin to each destination. A functional weighs the leaves (the finest
blocks) by f, the rows by g and the columns by h:

.. math:: q = f^T x + g^T o + h^T d, \qquad
    \hat q = (g + C_o u)^T y_o + (h + C_d v)^T y_d + (f - B_o u - B_d v)^T \hat x

where: x, o and d are the users of the leaves, of the rows and of the columns; :math:`y_o`, :math:`y_d` are noisy sums
of rows and of columns, of noise variances :math:`\sigma_o^2`, :math:`\sigma_d^2`; :math:`\hat x` is the estimate of the
leaves from the blocks alone, whose errors have covariance V (:mod:`mapveil.inference.nested_sums`). Rows that one leaf
crosses together are known together only: they are one class, and :math:`C_o`, :math:`B_o` say of which class each row,
and each leaf, is. The rows of a class sum to its leaves, so :math:`\hat q` is unbiased whatever u and v are. Its
variance is least at

.. math:: (N + B^T V B)\, (u, v) = B^T V f - (\sigma_o^2 C_o^T g, \sigma_d^2 C_d^T h), \qquad
    N = \mathrm{diag}(\sigma_o^2 C_o^T 1, \sigma_d^2 C_d^T 1)

with :math:`B = [B_o\ B_d]`, which is least squares over all noisy sums at once. The law of the error is that of its
coefficients.

Source: Gauss-Markov; Hay et al. (VLDB 2010) for the blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from mapveil.inference.nested_sums import LinearError, NestedSums, binned_laws
from mapveil.maps.measurement import Measurement, are_one_release
from mapveil_client.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_AT_ONCE: Final = 1 << 22  # coefficients


class Margin(NamedTuple):
    """Noisy sums of the rows, or of the columns, of a matrix."""

    measurement: Measurement  # ``groups`` has shape (lines,), -1 for a line that holds nobody
    line_class: IntArray  # of each row or column, from 0, -1 where it holds nobody; shape (lines,)
    leaf_class: IntArray  # of each leaf, -1 where it holds nobody; shape (leaves,)


class CrossedSums:
    """Noisy sums of nested blocks of a matrix, of its rows and of its columns.

    Functionals weigh the leaves, then the rows, then the columns.

    Parameters
    ----------
    blocks : NestedSums
        The blocks.
    rows, columns : Margin
        The margins; their noises and those of the blocks are independent.
    """

    def __init__(self, blocks: NestedSums, rows: Margin, columns: Margin) -> None:
        self._blocks, self._margins = blocks, (rows, columns)

    def is_same(self, other: object) -> bool:
        """Whether both are of one release; see :meth:`mapveil.inference.nested_sums.NestedSums.is_same`."""
        return self is other or (
            isinstance(other, CrossedSums)
            and self._blocks.is_same(other._blocks)
            and are_one_release(*([each.measurement for each in of._margins] for of in (self, other)))
        )

    def has_window(self, other: object) -> bool:
        """Whether the other's noisy sums are of reports that these are of too: never, a matrix has no reports."""
        return False

    @property
    def starts(self) -> tuple[int, int, int]:
        """The numbers of the first row and of the first column among the weights, and the number of weights."""
        leaves = self._blocks.cells.size
        rows, columns = (each.line_class.size for each in self._margins)
        return leaves, leaves + rows, leaves + rows + columns

    @cached_property
    def estimate(self) -> FloatArray:
        """Least-squares estimates of the leaves, the rows and the columns, users; they may be negative."""
        blocks, found = self._blocks.estimate, [np.zeros(each.line_class.size) for each in self._margins]
        for values, (margin, line_class, _) in zip(found, self._margins, strict=True):
            held = line_class >= 0
            values[held] = margin.noisy[margin.groups[held]]
        apart = self._of_classes(found) - self._classes @ blocks
        moved = self._solved(apart)
        leaves = blocks + self._blocks.covariance_with(self._classes.T @ moved)
        for values, part, (margin, line_class, _) in zip(
            found, self._split(moved), self._margins, strict=True
        ):
            held = line_class >= 0
            values[held] -= margin.deviation() ** 2 * part[line_class[held]]
        return np.concatenate([leaves, *found])

    def errors(self, weights: csr_array) -> Iterator[LinearError]:
        """The error of each functional's estimate.

        Parameters
        ----------
        weights : csr_array of float64, shape (functionals, leaves + rows + columns)
            f, g and h of each.
        """
        first, own = self._alike(weights)
        chunk, apart = max(1, _AT_ONCE // self.starts[-1]), weights[first]
        found = [
            each
            for start in range(0, first.size, chunk)
            for each in self._errors(apart[start : start + chunk])
        ]
        yield from (found[at] for at in own.tolist())

    def _alike(self, weights: csr_array) -> tuple[IntArray, IntArray]:
        """Functionals of different laws, and which of them has that of each: single lines of a class have one law."""
        rows, columns = (each.line_class for each in self._margins)
        of_columns = np.where(columns >= 0, columns + self._sizes[0], -1)
        line_class = np.concatenate([np.full(self.starts[0], -1), rows, of_columns])
        key = np.stack([-1.0 - np.arange(weights.shape[0]), np.zeros(weights.shape[0])], axis=1)
        alone = np.flatnonzero(np.diff(weights.indptr) == 1)
        at = weights.indptr[alone]
        found = line_class[weights.indices[at]]
        held = found >= 0
        key[alone[held]] = np.stack([found, weights.data[at]], axis=1)[held]
        _, first, own = np.unique(key, axis=0, return_index=True, return_inverse=True)
        return first, own.ravel()

    def coefficients(self, weights: csr_array) -> tuple[csr_array, list[FloatArray]]:
        """The weights of the blocks' leaves, and the coefficients of both margins, shape (functionals, lines)."""
        from scipy.sparse import csr_array

        first, second, _ = self.starts
        leaves, lines = (
            weights[:, :first],
            [weights[:, first:second].toarray(), weights[:, second:].toarray()],
        )
        variances = [each.measurement.deviation() ** 2 for each in self._margins]
        known = [each.T * variance for each, variance in zip(lines, variances, strict=True)]
        moved = self._solved(self._blocks.covariance(self._classes, leaves) - self._of_classes(known))
        for values, part, each in zip(lines, self._split(moved), self._margins, strict=True):
            held = each.line_class >= 0
            values[:, held] += part[each.line_class[held]].T
            values[:, ~held] = 0.0
        return csr_array(leaves.toarray() - moved.T @ self._classes), lines

    def _errors(self, weights: csr_array) -> Iterator[LinearError]:
        leaves, lines = self.coefficients(weights)
        count = leaves.shape[0]
        found = list(self._blocks.errors(leaves))
        for values, each in zip(lines, self._margins, strict=True):
            zone = np.repeat(np.arange(count), values.shape[1])
            law = each.measurement
            laws = binned_laws(values.ravel(), zone, np.ones(values.size), count, law)
            variance = law.deviation() ** 2 * np.square(values).sum(axis=1)
            found = [
                LinearError(one.variance + float(more), one.noise.joined(noise))
                for one, more, noise in zip(found, variance, laws, strict=True)
            ]
        yield from found

    @cached_property
    def _sizes(self) -> tuple[int, int]:
        """Number of classes of rows, and of columns."""
        rows, columns = (int(each.line_class.max(initial=-1)) + 1 for each in self._margins)
        return rows, columns

    @cached_property
    def _classes(self) -> csr_array:
        """B transposed: the leaves of each class of rows, then of columns; shape (classes, leaves)."""
        from scipy.sparse import csr_array

        leaves, start, rows, columns = self._blocks.cells.size, 0, [], []
        for each, size in zip(self._margins, self._sizes, strict=True):
            held = np.flatnonzero(each.leaf_class >= 0)
            rows.append(start + each.leaf_class[held])
            columns.append(held)
            start += size
        at = np.concatenate(rows), np.concatenate(columns)
        return csr_array((np.ones(at[0].size), at), shape=(start, leaves))

    def _of_classes(self, lines: list[FloatArray]) -> FloatArray:
        """Sums of values of rows and of columns, shape (lines, ...), by their classes; shape (classes, ...)."""
        made = []
        for values, each, size in zip(lines, self._margins, self._sizes, strict=True):
            total, held = np.zeros((size, *values.shape[1:])), each.line_class >= 0
            np.add.at(total, each.line_class[held], values[held])
            made.append(total)
        return np.concatenate(made)

    def _split(self, classes: FloatArray) -> list[FloatArray]:
        return [classes[: self._sizes[0]], classes[self._sizes[0] :]]

    @cached_property
    def _factor(self) -> Any:
        """The Cholesky factor of the equations' matrix."""
        from scipy.linalg import cho_factor

        made = self._blocks.covariance(self._classes, self._classes)
        known = [
            np.full(each.line_class.size, max(each.measurement.deviation() ** 2, 1e-300))
            for each in self._margins
        ]
        made[np.diag_indices_from(made)] += self._of_classes(known)
        return cho_factor(made, lower=True)

    def _solved(self, right: FloatArray) -> FloatArray:
        from scipy.linalg import cho_solve

        return np.asarray(cho_solve(self._factor, right), dtype=np.float64)
