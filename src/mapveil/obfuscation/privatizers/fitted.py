"""A privatizer that is ready to rewrite: its parameters, the pilot's normalisation, and what it learnt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mapveil.geo.measurements import Measurements
from mapveil.obfuscation.privatizers.normalisation import Normalisation
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.errors import InputError
from mapveil_client.randomness.random import Randomness, as_randomness

if TYPE_CHECKING:
    from mapveil.obfuscation.privatizers.privatizer import Privatizer

_CHUNK = 1 << 16


@dataclass(frozen=True, eq=False, repr=False)
class FittedPrivatizer:
    """A privatizer fitted on a pilot, ready to run on clients; rows in and out are in their own units.

    Parameters
    ----------
    privatizer : Privatizer
        The mechanism and its parameters.
    normalisation : Normalisation
        Learnt on the pilot.
    state : mapping of str to ndarray
        What the mechanism learnt.
    """

    privatizer: Privatizer
    normalisation: Normalisation
    state: Mapping[str, npt.NDArray[Any]]

    @property
    def names(self) -> tuple[str, ...]:
        """The features it rewrites, in order."""
        return self.normalisation.names

    def guarantee(self, *, seeded: bool = False) -> Guarantee:
        """The guarantee of one report."""
        return self.privatizer.promise(self.state, len(self.names), seeded=seeded)

    def rewrite(
        self, rows: npt.NDArray[np.float64], *, rng: Randomness | int | None = None
    ) -> npt.NDArray[np.float64]:
        """Rewrite one row, one run of ``sequence`` rows, or many. Run by: the client.

        Parameters
        ----------
        rows : ndarray of float64, shape (features,) or (rows, features)
            In the features' own units; with ``sequence`` L, consecutive L rows are one user's run.
        rng : Randomness or int, optional
            The source of bits; the operating system's where none is given.

        Returns
        -------
        ndarray of float64, the shape of ``rows``

        Raises
        ------
        InputError
            Another number of features, an incomplete run, or a value that is not finite.
        """
        length, width = self.privatizer.sequence, len(self.names)
        given = np.asarray(rows, dtype=np.float64)
        table = np.atleast_2d(given)
        if table.ndim != 2 or table.shape[1] != width or len(table) % length:
            raise InputError(
                f"rows of shape {given.shape}; whole runs of {length} with {width} features "
                f"({', '.join(self.names)}) are accepted"
            )
        if not np.isfinite(table).all():
            raise InputError("a value is missing or not finite; finite numbers are accepted")
        stream = as_randomness(rng)
        step = max(_CHUNK // length, 1) * length
        parts = [self._rewrite(table[at : at + step], stream) for at in range(0, len(table), step)]
        return (np.concatenate(parts) if parts else table.copy()).reshape(given.shape)

    def rewrite_measurements(
        self, measurements: Measurements, *, rng: Randomness | int | None = None
    ) -> Measurements:
        """Rewrite a whole table, each user's rows in order of time. Run by: a simulation of the clients.

        A user's last rows that do not fill a run are filled up with copies of the last one, which are dropped
        again; the run is one report all the same.

        Raises
        ------
        InputError
            The columns are not those of the pilot.
        """
        if measurements.names != self.names:
            raise InputError(
                f"{measurements.source}: features {', '.join(measurements.names)}; this privatizer rewrites "
                f"{', '.join(self.names)}"
            )
        length = self.privatizer.sequence
        order = measurements.sequences(1)[:, 0]
        users = measurements.users[order]
        _, counts = np.unique(users, return_counts=True)
        padded = -(-counts // length) * length
        ends = np.cumsum(counts)
        # Each user's slots in the padded table: its own rows, then its last one again and again.
        starts = np.repeat(ends - counts, padded)
        offset = np.arange(padded.sum()) - np.repeat(np.cumsum(padded) - padded, padded)
        source = starts + np.minimum(offset, np.repeat(counts, padded) - 1)
        real = offset < np.repeat(counts, padded)
        rewritten = self.rewrite(measurements.rows[order[source]], rng=rng)[real]
        rows = np.empty_like(measurements.rows)
        rows[order] = rewritten
        return measurements.with_rows(rows)

    def _rewrite(self, table: npt.NDArray[np.float64], rng: Randomness) -> npt.NDArray[np.float64]:
        runs = self.normalisation.apply(table).reshape(len(table) // self.privatizer.sequence, -1)
        changed = self.privatizer.rewrite(self.state, runs, rng)
        return self.normalisation.undo(changed.reshape(table.shape))

    def save(self, path: str | Path) -> None:
        """Write it whole into one file; see :mod:`mapveil.obfuscation.export.privatizer_file`."""
        from mapveil.obfuscation.export.privatizer_file import write_privatizer

        write_privatizer(self, path)

    def export(self, path: str | Path) -> None:
        """Write it for phones, ``.onnx`` or ``.json``; see :mod:`mapveil.obfuscation.export.phone_export`."""
        from mapveil.obfuscation.export.phone_export import export_privatizer

        export_privatizer(self, path)

    def __repr__(self) -> str:
        return f"FittedPrivatizer({self.privatizer!r}, features {', '.join(self.names)})"
