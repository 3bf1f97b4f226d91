"""Features brought to mean 0 and deviation 1 by what a pilot part shows, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mapveil.geo.measurements import RSS, Measurements
from mapveil_client.errors import InputError

_TAIL = 0.0005
_ABSENT = 10.0  # deviations: nothing that is cut reaches so far


@dataclass(frozen=True, eq=False)
class Normalisation:
    r"""An affine map per feature, learnt on a pilot part only and kept with the privatizer.

    .. math:: z_j = \frac{\min(\max(x_j, l_j), h_j) - m_j}{s_j}

    where: x is a row of ``names`` in their own units, l and h are ``low`` and ``high``, the pilot's quantiles at
    0.05 % and 99.95 %, and m and s are ``mean`` and ``scale``, mean and standard deviation of the pilot's values
    brought between them. Run by: the curator of the pilot (``learn``), the client (``apply`` and ``undo``).

    Deviation: the paper neither cuts nor says how outliers fare. A phone that reports a place at latitude 0 would
    set the scale of everybody's latitude, and stand out whatever it is privatized to.

    Parameters
    ----------
    names : tuple of str
        The features, in order.
    mean, scale, low, high : ndarray of float64, shape (features,)
        In the features' own units.

    Source: Section 5.1 of Zhang et al. 2022 (the data are normalised feature by feature).
    """

    names: tuple[str, ...]
    mean: npt.NDArray[np.float64]
    scale: npt.NDArray[np.float64]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]

    @classmethod
    def learn(cls, pilot: Measurements) -> Normalisation:
        """Mean and deviation of the pilot's features.

        Raises
        ------
        InputError
            Fewer than two rows, or a feature that is the same in all but one row in a thousand.
        """
        if len(pilot) < 2:
            raise InputError(f"{pilot.source}: {len(pilot)} rows in the pilot; at least two are needed")
        low, high = np.quantile(pilot.rows, [_TAIL, 1 - _TAIL], axis=0, method="nearest")
        kept = np.clip(pilot.rows, low, high)
        mean, scale = kept.mean(axis=0), kept.std(axis=0)
        flat = low == high
        if flat.any():
            constant = ", ".join(repr(pilot.names[at]) for at in np.flatnonzero(flat))
            wanted = (
                "features that vary, so leave it out"
                if flat[RSS + 1 :].any()
                else "places and strengths that vary"
            )
            raise InputError(
                f"{pilot.source}: {constant} has the same value in nearly every row of the pilot; expected {wanted}"
            )
        return cls(pilot.names, mean, scale, low, high)

    def apply(self, rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Own units to normalised ones; shape (..., features)."""
        return (np.clip(rows, self.low, self.high) - self.mean) / self.scale

    def standardise(self, rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Own units to normalised ones without cutting, for rows that are privatized already; (..., features)."""
        return (rows - self.mean) / self.scale

    def undo(self, normalised: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Normalised units to the features' own; shape (..., features)."""
        return normalised * self.scale + self.mean

    def take(self, columns: Sequence[int]) -> Normalisation:
        """Some of the features, in the order of their numbers."""
        kept = list(columns)
        arrays = (self.mean[kept], self.scale[kept], self.low[kept], self.high[kept])
        return Normalisation(tuple(self.names[at] for at in kept), *arrays)

    @property
    def absent(self) -> npt.NDArray[np.float64]:
        """A value of each feature, far from all that the pilot has, that stands for an empty one; (features,)."""
        return self.mean + _ABSENT * self.scale

    def empty(self, rows: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """Whether each row, in own units, is an empty report: every feature is :attr:`absent`; (rows,)."""
        return np.asarray((rows == self.absent).all(axis=1))


def whole_runs(rows: npt.NDArray[np.float64], length: int, names: Sequence[str]) -> npt.NDArray[np.float64]:
    """A row, a run or many as a table of float64, shape (rows, features).

    Raises
    ------
    InputError
        Another number of features, an incomplete run, or a value that is not finite.
    """
    given = np.asarray(rows, dtype=np.float64)
    table = np.atleast_2d(given)
    if table.ndim != 2 or table.shape[1] != len(names) or len(table) % length:
        raise InputError(
            f"rows of shape {given.shape}; expected whole runs of {length} with {len(names)} features "
            f"({', '.join(names)})"
        )
    if not np.isfinite(table).all():
        raise InputError("a value is missing or not finite; expected finite numbers")
    return table
