"""Utility after privatization: distortion of the rows, and error of the linear signal model."""

from typing import Final, NamedTuple

import numpy as np

from mapveil.geo.measurements import RSS
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import InputError

_RCOND: Final = 1e-10  # of the Gram matrix: eigenvalues below this fraction of the largest count as 0


class Utility(NamedTuple):
    """The paper's three figures, at most 0 each."""

    u1: float  # minus mean distortion of a row, normalised units
    u2: float  # minus L1 distance between the parameters of the linear models
    total: float  # U, weighted


def distortion_utility(original: FloatArray, privatized: FloatArray) -> float:
    r"""Utility by the distance between the rows, in deviations of a feature.

    .. math:: U_1(x, y) = -\frac1n \sum_{i=1}^n \lVert y_i - x_i \rVert_2

    where: :math:`x_i` and :math:`y_i` are row i before and after privatization, n the number of rows.

    Parameters
    ----------
    original, privatized : ndarray of float64, shape (rows, features)
        Normalised; a sequence of L measurements is L rows.

    Raises
    ------
    InputError
        The tables differ in shape, or are empty.

    Source: equation 10 of Zhang et al. 2022.
    """
    _check_pair(original, privatized)
    return -float(np.sqrt(np.square(privatized - original).sum(axis=1)).mean())


def linear_parameters(rows: FloatArray) -> FloatArray:
    r"""Parameters of the server's linear model of signal strength, shape (features,).

    .. math:: x_3 = a_0 + \sum_{j \ne 3} a_j x_j, \qquad \alpha = (A^T A)^+ A^T x_3

    where: :math:`x_3` is signal strength, A the other columns behind a column of ones, and :math:`^+` the
    pseudo-inverse: where features depend on each other linearly, the parameters of least norm. :math:`a_0` comes first,
    then the parameter of every other feature in order. Run by: the server.

    Parameters
    ----------
    rows : ndarray of float64, shape (rows, features)
        Normalised; column 2 is signal strength.

    Raises
    ------
    InputError
        No rows, or fewer than three features.

    Source: equations 1 and 2 of Zhang et al. 2022.
    """
    if rows.ndim != 2 or len(rows) == 0 or rows.shape[1] <= RSS:
        raise InputError(
            f"rows of shape {rows.shape}; expected at least one row of at least {RSS + 1} features"
        )
    # The Gram matrix of all columns at once: no copy of the table without its third column.
    gram, sums = rows.T @ rows, rows.sum(axis=0)
    others = np.arange(rows.shape[1]) != RSS
    normal = np.block(
        [[np.array([[float(len(rows))]]), sums[None, others]], [sums[others, None], gram[others][:, others]]]
    )
    against = np.append(sums[RSS], gram[others, RSS])
    values, vectors = np.linalg.eigh(normal)
    kept = values > _RCOND * values[-1]
    return np.asarray(vectors[:, kept] @ ((vectors[:, kept].T @ against) / values[kept]))


def map_utility(original: FloatArray, privatized: FloatArray) -> float:
    r"""Utility by the distance between the linear models that the server fits.

    .. math:: U_2(x, y) = -\lVert \alpha_X - \alpha_Y \rVert_1

    where: :math:`\alpha_X` and :math:`\alpha_Y` are :func:`linear_parameters` of the rows before and after. Parameters
    and errors as for :func:`distortion_utility`.

    Source: equation 11 of Zhang et al. 2022.
    """
    _check_pair(original, privatized)
    return -float(np.abs(linear_parameters(original) - linear_parameters(privatized)).sum())


def utility(
    original: FloatArray, privatized: FloatArray, *, weights: tuple[float, float] = (1.0, 1.0)
) -> Utility:
    r"""Both utilities, and their weighted sum.

    .. math:: U = w_1 U_1 + w_2 U_2

    where: :math:`U_1` is :func:`distortion_utility`, :math:`U_2` is :func:`map_utility` and w is ``weights``.

    Source: equation 12 of Zhang et al. 2022.
    """
    u1, u2 = distortion_utility(original, privatized), map_utility(original, privatized)
    return Utility(u1, u2, weights[0] * u1 + weights[1] * u2)


def _check_pair(original: FloatArray, privatized: FloatArray) -> None:
    if original.shape != privatized.shape or original.ndim != 2 or len(original) == 0:
        raise InputError(
            f"rows of shape {original.shape} privatized to {privatized.shape}; expected two tables of "
            "one shape, at least one row"
        )
