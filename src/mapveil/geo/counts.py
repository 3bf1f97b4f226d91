"""Ready-made counts: a raster where each unit is one user at one place."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mapveil.geo.tiling import Tiling
from mapveil_client.errors import InputError


@dataclass(frozen=True, eq=False)
class Counts:
    """Users per cell, each user in exactly one cell; an alternative to ``Points`` everywhere.

    Parameters
    ----------
    values : ndarray of int64, shape (tiling.size,)
        Whole users per cell, none negative.
    tiling : Tiling
        The cells.
    source : str
        Name of the source in messages.

    Raises
    ------
    InputError
        A negative value, or another number of values than of cells.
    """

    values: npt.NDArray[np.int64]
    tiling: Tiling
    source: str = "counts"

    def __post_init__(self) -> None:
        if self.values.shape != (self.tiling.size,):
            raise InputError(
                f"{self.source}: {self.values.shape} values for the {self.tiling.size} cells "
                f"of {self.tiling.spec}"
            )
        if self.values.dtype != np.int64 or (self.values.size and int(self.values.min()) < 0):
            raise InputError(f"{self.source}: counts must be whole numbers (int64), none negative")

    def fingerprint(self) -> bytes:
        """32 bytes that tell these counts on these cells from others, for the ledger."""
        cells = json.dumps(self.tiling.to_dict(), sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(f"mapveil counts 1 {cells}\n".encode())
        digest.update(np.ascontiguousarray(self.values, dtype="<i8").data)
        return digest.digest()

    def __repr__(self) -> str:
        # No totals: a repr ends up in logs, and the total is data.
        return f"Counts({self.source}, {self.tiling.spec})"
