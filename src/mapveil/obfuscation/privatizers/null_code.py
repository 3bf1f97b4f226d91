r"""The null code: rows unlike the pilot are recognised on the phone, and say nothing but that.

A certificate is about people like the pilot's. Of a run that is farther from the pilot's centres than all but 1 % of
the pilot itself, the report is empty. Whether it is empty is randomized, so that one report is deniable:

.. math:: \Pr[\varnothing \mid x] = 1 - \gamma \text{ where x is unlike the pilot, else } \gamma

A channel of epsilon e has, with a null code, at most :math:`e + \ln((1 - \gamma) / \gamma)`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from mapveil.obfuscation.privatizers.pilot_cells import Rows32, find_centres, row_distances
from mapveil_client.arrays import BoolArray, FloatArray

NULL_ERROR: Final = 0.01
"""Fraction of rows like the pilot that are answered empty, and of rows unlike it that are not (gamma)."""

NULL_EPSILON: Final = math.log((1 - NULL_ERROR) / NULL_ERROR)
"""Addition of the null code to the epsilon of a channel's worst case: 4.6."""

_BEYOND: Final = 0.99  # quantile of the pilot's distances
_MOST: Final = 128  # centres: 0.3 MB on a phone for runs of twenty measurements
_FEWEST: Final = 8  # runs of a centre
_SAMPLE: Final = 1 << 14
_PART: Final = 8  # one run in so many is not used to find the centres, and sets the distance
_CHUNK: Final = 1 << 13


@dataclass(frozen=True, eq=False)
class NullCode:
    """Centres of the pilot, and the distance beyond which a run is unlike it.

    Parameters
    ----------
    centres : ndarray of float32, shape (centres, width)
        Normalised.
    reach : ndarray of float64, shape ()
        Largest distance of a run like the pilot from its nearest centre, normalised.
    """

    centres: Rows32
    reach: npt.NDArray[np.float64]

    @classmethod
    def learn(cls, cut: FloatArray, given: FloatArray, generator: np.random.Generator) -> NullCode:
        """Find the centres and the distance. Run by: the curator of the pilot.

        Parameters
        ----------
        cut, given : ndarray of float64, shape (runs, width)
            The pilot's normalised runs, cut to its range and as they are: centres are found among the former, and
            distances are those of the latter.
        generator : numpy Generator
            Source of the centres and of the part that is kept aside.
        """
        order = generator.permutation(len(cut))
        aside = order[: max(len(cut) // _PART, 1)]
        used = order[len(aside) :][:_SAMPLE] if len(cut) >= 2 * _PART else order
        count = max(min(_MOST, len(used) // _FEWEST), 1)
        centres = find_centres(cut[used].astype(np.float32), count, generator)[0]
        away = _distances(given[aside], centres)
        return cls(centres, np.array(np.quantile(away, _BEYOND, method="higher")))

    def unlike(self, runs: FloatArray) -> BoolArray:
        """Whether each normalised run, not cut, is unlike the pilot, shape (runs,). Run by: the client."""
        # A distance that single precision cannot hold is NaN, and unlike too.
        return np.asarray(~(_distances(runs, self.centres) <= self.reach))

    def empty(self, runs: FloatArray, drawn: FloatArray) -> BoolArray:
        """Whether the report on each run is empty, shape (runs,). Run by: the client.

        Parameters
        ----------
        runs : ndarray of float64, shape (runs, width)
            Normalised, not cut.
        drawn : ndarray of float64, shape (runs,)
            Uniform in [0, 1).
        """
        return np.asarray(self.unlike(runs) ^ (drawn < NULL_ERROR))


def _distances(runs: FloatArray, centres: Rows32) -> FloatArray:
    """Distance of each run from its nearest centre."""
    with np.errstate(over="ignore", invalid="ignore"):
        parts = [
            row_distances(runs[at : at + _CHUNK].astype(np.float32), centres).min(axis=1)
            for at in range(0, len(runs), _CHUNK)
        ]
    return np.concatenate(parts).astype(np.float64) if parts else np.empty(0)
