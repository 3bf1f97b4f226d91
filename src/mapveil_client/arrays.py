"""Names of NumPy array types, and a division, that the whole project uses."""

from typing import Any

import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]
ComplexArray = npt.NDArray[np.complex128]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def quotient(numerator: npt.NDArray[Any], denominator: npt.NDArray[Any]) -> FloatArray:
    """Divide elementwise; 0 where the denominator is not above 0."""
    empty = np.zeros(np.broadcast(numerator, denominator).shape)
    return np.asarray(np.divide(numerator, denominator, out=empty, where=denominator > 0))
