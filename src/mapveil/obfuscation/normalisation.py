"""Features brought to mean 0 and deviation 1 by what a pilot part shows, and back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mapveil.errors import InputError
from mapveil.geo.measurements import Measurements

__all__ = ["Normalisation"]


@dataclass(frozen=True, eq=False)
class Normalisation:
    r"""An affine map per feature, learnt on a pilot part only and kept with the privatizer.

    .. math:: z_j = (x_j - m_j) / s_j

    where: x is a row of ``names`` in their own units, m is ``mean`` and s is ``scale``, the pilot's standard
    deviation. Run by: the curator of the pilot (``learn``), the client (``apply`` and ``undo``).

    Parameters
    ----------
    names : tuple of str
        The features, in order.
    mean, scale : ndarray of float64, shape (features,)
        In the features' own units.

    Source: Section 5.1 of Zhang et al. 2022 (the data are normalised feature by feature).
    """

    names: tuple[str, ...]
    mean: npt.NDArray[np.float64]
    scale: npt.NDArray[np.float64]

    @classmethod
    def learn(cls, pilot: Measurements) -> Normalisation:
        """Mean and deviation of the pilot's features.

        Raises
        ------
        InputError
            Fewer than two rows, or a feature that is the same in every row.
        """
        if len(pilot) < 2:
            raise InputError(f"{pilot.source}: {len(pilot)} rows in the pilot; at least two are needed")
        mean, scale = pilot.rows.mean(axis=0), pilot.rows.std(axis=0)
        flat = np.ptp(pilot.rows, axis=0) == 0
        if flat.any():
            constant = ", ".join(repr(pilot.names[at]) for at in np.flatnonzero(flat))
            raise InputError(
                f"{pilot.source}: {constant} has the same value in every row of the pilot; features that vary "
                "are accepted, so leave it out"
            )
        return cls(pilot.names, mean, scale)

    def apply(self, rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Own units to normalised ones; shape (..., features)."""
        return (rows - self.mean) / self.scale

    def undo(self, normalised: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Normalised units to the features' own; shape (..., features)."""
        return normalised * self.scale + self.mean
