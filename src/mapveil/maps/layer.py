"""A number per cell beside a map's estimate of users, which every export carries with it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Layer(NamedTuple):
    """One column, band or variable of an export."""

    name: str  # a column's name, such as "proportion_1"
    title: str  # in words
    unit: str
    values: npt.NDArray[np.float64]  # shape (cells,), NaN where there is none
