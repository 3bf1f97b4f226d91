r"""The contribution of a user: the same on a device and on a table.

A user of many locations is one vector of integers: weights rounded to shares of a whole.

.. math:: e_i = \Gamma\, w_i \Big/ \textstyle\sum_j w_j

where: :math:`w_i` are the weights of one user's entries, :math:`\Gamma` is ``scale`` and :math:`e_i` the exact
shares, which are rounded to integers by one of two methods:

- ``largest-remainder``: round all down, then give one more to those of the largest remainders (of equal ones the
  first) until the shares sum to :math:`\Gamma` exactly. Deterministic; L1 sensitivity :math:`\Gamma`.
- ``stochastic``: round up with probability equal to the remainder, else down. Unbiased; L1 sensitivity
  :math:`\Gamma + d`, d the length of the vector (no user's shares sum to more).

Deviation: the paper rounds stochastically only. Its sensitivity costs noise on every coordinate; the bias of the
largest remainders is below one unit in :math:`\Gamma` per user and coordinate.

Source: Bagdasaryan et al., "Towards Sparse Federated Analytics: Location Heatmaps under Distributed Differential
Privacy with Secure Aggregation" (2022), section 5.7; Balinski, Young, "Fair Representation" (1982), for the
method of largest remainders.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any, Final, Literal, Protocol

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import IntArray
from mapveil_client.encodings import Encoding
from mapveil_client.errors import InputError, check
from mapveil_client.randomness.noise_shares import noise_shares
from mapveil_client.randomness.random import Randomness, uniform_below_each
from mapveil_client.secure_sum.vectors import SparseVectors

WEIGHT_UNITS: Final = 1_000_000
"""Units of a row's weight 1: weights count to a millionth, so that sums of them are exact."""


class Outside(StrEnum):
    """Treatment of a row whose location lies in no cell.

    ``DROP``: the row does not count, and a user without any other has no contribution: their client abstains.
    ``KEEP``: the row is read with cell -1 and adds to no cell, and a user without any other stays a client.
    ``NEAREST``: the row counts in the cell whose centre is nearest.
    ``REFUSE``: nothing is collected or released (on a device: the client abstains).
    """

    DROP = "drop"
    KEEP = "keep"
    NEAREST = "nearest"
    REFUSE = "refuse"


Rounding = Literal["largest-remainder", "stochastic"]
ROUNDINGS: Final[tuple[Rounding, ...]] = ("largest-remainder", "stochastic")

_LARGEST_SCALE = 1 << 31
_WEIGHT_BITS = 31


def round_shares(
    offsets: IntArray,
    weight: npt.NDArray[Any],
    scale: int,
    method: Rounding,
    rng: Randomness,
) -> IntArray:
    """Turn the weights of users' entries into integer shares of ``scale``. Run by: the client, or a simulation.

    Weights are taken to 31 bits below the user's largest: exactly where they are counts below 2^31. A user whose
    weights are all 0 gets no shares.

    Parameters
    ----------
    offsets : ndarray of int64, shape (users + 1,)
        User u has the entries from ``offsets[u]`` up to, not including, ``offsets[u + 1]``.
    weight : ndarray, shape (entries,)
        Integers or floats, finite, not negative.
    scale : int
        Units of a whole user, from 1 to 2^31.
    method : str
        One of :data:`ROUNDINGS`; only the stochastic one uses ``rng``.

    Raises
    ------
    ParameterError
        No such method, or a scale outside its range.
    InputError
        The offsets do not divide the entries, or a weight is negative or not finite.
    """
    check(method in ROUNDINGS, "rounding", f"one of {', '.join(ROUNDINGS)}", method)
    check(1 <= scale <= _LARGEST_SCALE, "scale", "1 to 2^31", scale)
    weight = np.asarray(weight)
    ends = offsets[[0, -1]].tolist() if offsets.ndim == 1 and offsets.size else []
    if ends != [0, weight.size] or (np.diff(offsets) < 0).any():
        raise InputError(
            f"offsets do not divide {weight.size} entries among users; expected ascending ones from 0 to it"
        )
    owner = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    whole = _integers(weight, offsets, owner)
    totals = np.zeros(offsets.size - 1, dtype=np.int64)
    np.add.at(totals, owner, whole)
    total = np.maximum(totals, 1)[owner]
    share, rest = np.divmod(whole * scale, total)
    if method == "stochastic":
        return share + (uniform_below_each(total, rng) < rest)
    left = np.where(totals > 0, scale, 0)
    np.subtract.at(left, owner, share)
    order = np.lexsort((-rest, owner))  # stable: of equal remainders the first
    rank = np.arange(order.size) - offsets[owner]  # owners ascend, so the order keeps them in place
    share[order[rank < left[owner]]] += 1
    return share


def _integers(weight: npt.NDArray[Any], offsets: IntArray, owner: IntArray) -> IntArray:
    """Weights as integers below 2^31, each user's by one power of two."""
    if weight.size == 0:
        return np.zeros(0, dtype=np.int64)
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise InputError("a weight is negative or not finite; expected finite numbers from 0")
    if np.issubdtype(weight.dtype, np.integer) and weight.max() < 1 << _WEIGHT_BITS:
        return weight.astype(np.int64)
    highest = np.zeros(offsets.size - 1)
    np.maximum.at(highest, owner, weight.astype(np.float64))
    exponent = np.frexp(highest)[1]
    scaled: npt.NDArray[np.float64] = np.ldexp(weight.astype(np.float64), (_WEIGHT_BITS - exponent)[owner])
    return scaled.astype(np.int64)


class SumQuery(Protocol):
    """The query of one round."""

    @property
    def encoding(self) -> Encoding:
        """The encoding of locations."""

    @property
    def epsilon(self) -> Fraction:
        """Cost of the answer, for each client."""


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
    r"""L1 sensitivity of the sums to one client, in units.

    .. math:: \Delta = \gamma m \quad \text{(largest remainder)}, \qquad \Delta = \gamma m + d \quad \text{(stochastic)}

    where: :math:`\gamma` is ``scale``, m is ``encoding.copies`` and d is ``encoding.length``. Source: Bagdasaryan
    et al. (2022), section 5.7, for the second; the first rounds without ever exceeding :math:`\gamma`.
    """
    exact = scale * encoding.copies
    return exact + encoding.length if rounding == "stochastic" else exact


def encode_places(
    devices: Devices, encoding: Encoding, scale: int, rounding: Rounding, rng: Randomness
) -> SparseVectors:
    """Each client's locations as a vector, without noise: never leaves a client like this. Run by: each client.

    A client's locations count ``scale`` units together, divided in proportion to their weights by :func:`round_shares`;
    a client none of whose locations is in the encoding sends zeros. With a scale of 1 the location with the largest
    weight counts.
    """
    position = encoding.positions(devices.sites, devices.labels)
    if devices.starts is None:
        client, flat = np.repeat(np.arange(devices.count), encoding.copies), position.reshape(-1)
        if bool((flat < 0).any()):
            kept = flat >= 0
            client, flat = client[kept], flat[kept]
        return SparseVectors(devices.count, encoding.length, client, flat, np.full(flat.size, scale))
    weight = np.ones(devices.sites.size, dtype=np.int64) if devices.weights is None else devices.weights
    device = devices.device()
    # A location counts at each copy with its whole weight: each copy of the vector is divided for itself.
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
    r"""Each client's noise share of a query, Algorithm 1. Run by: each client.

    .. math:: X - Y, \qquad X, Y \sim \text{Polya}(\alpha, e^{-\epsilon / \Delta})

    where: :math:`\alpha` is ``alpha``, :math:`\epsilon` is ``query.epsilon``, :math:`\Delta` is :func:`sensitivity`.
    """
    moves = sensitivity(query.encoding, scale, rounding)
    noise = noise_shares(clients, query.encoding.length, alpha, query.epsilon, moves, rng)
    return SparseVectors(clients, query.encoding.length, noise.client, noise.position, noise.value)


def client_report(
    devices: Devices, query: SumQuery, alpha: Fraction, scale: int, rounding: Rounding, rng: Randomness
) -> SparseVectors:
    """Each client's input to the secure sum, signed units: :func:`encode_places` and :func:`client_noise`.

    Run by: each client.
    """
    places = encode_places(devices, query.encoding, scale, rounding, rng)
    return places + client_noise(devices.count, query, alpha, scale, rounding, rng)
