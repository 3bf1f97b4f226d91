"""A device's frequencies: drawn once, kept, and never drawn again.

A second, independent set for the same place would narrow it down as a second feature does, so the store is where
privacy lives: it draws once for the policy's largest number of features, and later queries take the first of those.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mapveil.privacy.random import Randomness
from mapveil.projection.kernels import Kernel

__all__ = ["unit_frequencies"]

FloatArray = npt.NDArray[np.float64]


def unit_frequencies(
    devices: int, features: int, kernel: Kernel, dimension: int, rng: Randomness
) -> FloatArray:
    """Draw frequencies for bandwidth 1 for many devices at once. Run by: each client, or a simulation of them.

    Parameters
    ----------
    devices, features : int
        How many.
    kernel : Kernel
        Whose spectral law.
    dimension : int
        Number of axes.
    rng : Randomness
        The source of bits.

    Returns
    -------
    ndarray of float64, shape (dimension, devices, features)
        Radians per bandwidth.
    """
    drawn = kernel.frequencies(devices * features, dimension, rng)
    return drawn.reshape(dimension, devices, features)
