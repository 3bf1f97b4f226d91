r"""The local dimension of a density on a raster: how a block's users grow with the area around it.

.. math:: \alpha = \log_3 \frac{X_{3 \times 3}}{x}, \qquad \alpha_{\min} \le \alpha \le 2

where: x is the number of users of a block and :math:`X_{3 \times 3}` that of the three rows by three columns of blocks
around it, blocks without members counting as the others. A block that is like its surroundings has dimension 2, one on
a line of equal blocks 1, an isolated hot spot 0. If it goes on so inside the block, quartering it d times leaves
:math:`2^{-\alpha d}` of its users in the quarter of a typical user, not :math:`4^{-d}`.

Source: the pointwise dimension of a measure; box counting of Belussi and Faloutsos, "Estimating the Selectivity of
Spatial Queries Using the 'Correlation' Fractal Dimension" (VLDB 1995).
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import FloatArray, quotient

_LEAST: Final = 0.6  # alpha_min; 1 is as good for all maps together (docs/reference/mechanism-constants.md)


def local_dimension(users: FloatArray, members: npt.NDArray[Any]) -> FloatArray:
    """The local dimension of every block. Run by: whoever holds the estimates.

    Parameters
    ----------
    users : ndarray of float64, shape (rows, columns)
        Estimated users per block, not negative.
    members : ndarray, same shape
        Number of cells in each block, 0 where nobody can be.

    Returns
    -------
    ndarray of float64, same shape

    Examples
    --------
    >>> local_dimension(np.ones((3, 3)), np.ones((3, 3)))[1].tolist()
    [2.0, 2.0, 2.0]
    >>> spot = np.array([[0.0, 0.0, 0.0], [0.0, 9.0, 0.0], [0.0, 0.0, 0.0]])
    >>> float(local_dimension(spot, np.ones((3, 3)))[1, 1])
    0.6
    """
    around = 9 * members * quotient(_of_three_by_three(users), _of_three_by_three(members))
    ratio = quotient(around, users)
    return np.asarray(np.clip(np.log(np.where(ratio > 0, ratio, 9.0)) / np.log(3.0), _LEAST, 2.0))


def _of_three_by_three(values: npt.NDArray[Any]) -> FloatArray:
    rows, columns = values.shape
    padded = np.pad(np.asarray(values, dtype=np.float64), 1)
    summed = np.zeros(values.shape)
    for row in range(3):
        for column in range(3):
            summed += padded[row : row + rows, column : column + columns]
    return summed
