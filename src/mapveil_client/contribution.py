"""The weight rule of a user's contribution, and what becomes of rows outside: the same on a device and on a table."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

WEIGHT_UNITS: Final = 1_000_000
"""Whole units of a row's weight 1: weights count to a millionth, so that sums of them are exact."""


class Outside(StrEnum):
    """Treatment of a row whose location lies in no cell.

    ``DROP``: the row does not count, and a user without any other has no contribution: their client abstains.
    ``KEEP``: the row keeps its fraction of the user's contribution, which no cell receives.
    ``NEAREST``: the row counts in the cell whose centre is nearest.
    ``REFUSE``: nothing is collected or released (on a device: the client abstains).
    """

    DROP = "drop"
    KEEP = "keep"
    NEAREST = "nearest"
    REFUSE = "refuse"
