"""The client half: the only code that meets a raw place.

One device calls it with its own places, a simulation with a million devices' at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import IntArray
from mapveil_client.encodings import Encoding
from mapveil_client.randomness.noise_shares import noise_shares
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.vectors import SparseVectors
from mapveil_client.user_shares import Rounding, round_shares


class SumQuery(Protocol):
    """What one round asks of each client."""

    @property
    def encoding(self) -> Encoding:
        """How locations become coordinates."""
        ...

    @property
    def epsilon(self) -> Fraction:
        """What the answer costs each client."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class Devices:
    """Locations of each client, as sites of the tiling's lattice: one client on a device, many in a simulation. Secret.

    Parameters
    ----------
    sites : ndarray of int32 or int64, shape (locations,)
        Morton code of each location on the lattice, -1 for outside the region.
    starts : ndarray of int64, shape (devices + 1,), optional
        Device d's locations are ``starts[d]:starts[d + 1]``; one location each by default.
    weights : ndarray of int64, shape (locations,), optional
        Weight of each location within its device, at least 1; 1 by default.
    labels : ndarray of int64, shape (locations,), optional
        Category of each location, such as a test's result, from 0.
    """

    sites: npt.NDArray[np.integer]
    starts: IntArray | None = None
    weights: IntArray | None = None
    labels: IntArray | None = None

    @property
    def count(self) -> int:
        """Number of devices."""
        return self.sites.size if self.starts is None else self.starts.size - 1

    def _at(self, rows: IntArray | slice, starts: IntArray | None) -> Devices:
        weights, labels = (None if column is None else column[rows] for column in (self.weights, self.labels))
        return Devices(self.sites[rows], starts, weights, labels)

    def take(self, chosen: IntArray) -> Devices:
        """The chosen devices, in that order."""
        if self.starts is None:
            return self._at(chosen, None)
        length = np.diff(self.starts)[chosen]
        starts = np.concatenate([[0], np.cumsum(length)])
        return self._at(np.repeat(self.starts[chosen] - starts[:-1], length) + np.arange(starts[-1]), starts)

    def shuffled(self, simulation: np.random.Generator) -> Devices:
        """All devices in random order; without an index array where each has one location alone."""
        if self.starts is None and self.weights is None and self.labels is None:
            return Devices(simulation.permutation(self.sites))
        return self.take(simulation.permutation(self.count))

    def between(self, first: int, last: int) -> Devices:
        """The devices from ``first`` up to, not including, ``last``: views, no copies."""
        if self.starts is None:
            return self._at(slice(first, last), None)
        rows = slice(int(self.starts[first]), int(self.starts[last]))
        return self._at(rows, self.starts[first : last + 1] - self.starts[first])

    def device(self) -> IntArray:
        """Index of the device of each location, shape (locations,)."""
        if self.starts is None:
            return np.arange(self.sites.size)
        return np.repeat(np.arange(self.count), np.diff(self.starts))

    def __repr__(self) -> str:
        return f"Devices({self.count})"  # the server knows how many it asked


def sensitivity(encoding: Encoding, scale: int, rounding: Rounding) -> int:
    r"""How far one device can move the sums, in units, L1.

    .. math:: \Delta = \gamma m \quad \text{(largest remainder)}, \qquad \Delta = \gamma m + d \quad \text{(stochastic)}

    where: :math:`\gamma` is ``scale``, m is ``encoding.copies`` and d is ``encoding.length``. Source: Bagdasaryan
    et al. (2022), section 5.7, for the second; the first rounds without ever exceeding :math:`\gamma`.
    """
    exact = scale * encoding.copies
    return exact + encoding.length if rounding == "stochastic" else exact


def encode_places(
    devices: Devices, encoding: Encoding, scale: int, rounding: Rounding, rng: Randomness
) -> SparseVectors:
    """Each device's places as a vector, without noise: never leaves a device like this. Run by: each client.

    A device's places count ``scale`` units together, divided in proportion to their weights; a device none of
    whose places is in the encoding sends zeros. With a scale of 1 that is the place with the largest weight.

    Parameters
    ----------
    devices : Devices
        One or many.
    encoding : Encoding
        What the query asks.
    scale : int
        Units per device, at least 1.
    rounding : str
        How parts of units become whole ones: ``"largest-remainder"`` or ``"stochastic"``.
    rng : Randomness
        Used by stochastic rounding only.
    """
    position = encoding.positions(devices.sites, devices.labels)
    if devices.starts is None:
        client = np.arange(devices.count)
        if encoding.copies > 1:
            client = np.repeat(client, encoding.copies)
        flat = position.reshape(-1)
        if bool((flat < 0).any()):
            kept = flat >= 0
            client, flat = client[kept], flat[kept]
        return SparseVectors(
            devices.count, encoding.length, client, flat, np.full(flat.shape, scale, dtype=np.int64)
        )
    weight = np.ones(devices.sites.size, dtype=np.int64) if devices.weights is None else devices.weights
    device = devices.device()
    # A place counts at each copy with its whole weight: each copy of the vector is divided for itself.
    block = -(-encoding.length // encoding.copies)
    parts = []
    for copy in range(encoding.copies):
        held = position[:, copy] >= 0
        key = device[held] * np.int64(block * encoding.copies) + position[held, copy]
        entry, inverse = np.unique(key, return_inverse=True)
        # Whole numbers below 2**53 add exactly.
        total = np.bincount(inverse, weight[held], entry.size).astype(np.int64)
        whose, where = np.divmod(entry, block * encoding.copies)
        starts = np.searchsorted(whose, np.arange(devices.count + 1))
        parts.append((whose, where, round_shares(starts, total, scale, rounding, rng)))
    whose, where, units = (np.concatenate(column) for column in zip(*parts, strict=True))
    return SparseVectors(devices.count, encoding.length, whose, where, units)


def client_noise(
    clients: int, query: SumQuery, alpha: Fraction, scale: int, rounding: Rounding, rng: Randomness
) -> SparseVectors:
    r"""Each device's share of the noise of a query, Algorithm 1. Run by: each client.

    .. math:: X - Y, \qquad X, Y \sim \text{Polya}(\alpha, e^{-\epsilon / \Delta})

    where: :math:`\alpha` is ``alpha``, :math:`\epsilon` is ``query.epsilon``, :math:`\Delta` is :func:`sensitivity`.
    """
    moves = sensitivity(query.encoding, scale, rounding)
    noise = noise_shares(clients, query.encoding.length, alpha, query.epsilon, moves, rng)
    return SparseVectors(clients, query.encoding.length, noise.client, noise.position, noise.value)


def client_report(
    devices: Devices, query: SumQuery, alpha: Fraction, scale: int, rounding: Rounding, rng: Randomness
) -> SparseVectors:
    """What each device hands to the secure sum: :func:`encode_places` and :func:`client_noise`. Run by: each client.

    Returns
    -------
    SparseVectors
        Signed units; the secure sum takes them modulo its own modulus.
    """
    places = encode_places(devices, query.encoding, scale, rounding, rng)
    return places + client_noise(devices.count, query, alpha, scale, rounding, rng)
