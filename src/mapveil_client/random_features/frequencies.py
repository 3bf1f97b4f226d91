r"""A device's frequencies and offsets: drawn once for one region and bandwidth, kept, and never drawn again.

A second, independent set for the same place would narrow it down as a second feature does. So a device draws once, for
the policy's largest number of features; later queries take the first of those. Another region or bandwidth scales the
same frequencies, and every scale narrows the place down further, so both are pinned with the draw, before any place is
looked at: a refusal says nothing of it.

Exact phases distinguish any two known addresses. With jitter :math:`\sigma` the device reports, for a place in the
square q of side :math:`\sigma` (of the region's lattice), the phase of

.. math:: m_q + \sigma\, n(\mathrm{HMAC}_k(q)), \qquad n(U, V) = \sqrt{-2 \ln U} (\cos 2 \pi V, \sin 2 \pi V)

where: :math:`m_q` is the square's middle and k a kept key. The same square is always the same point, so that reports do
not average the offset out; two squares have independent offsets, so that the difference of two reports has one too.
No place is written down for it.
"""

from __future__ import annotations

import hmac
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import PromiseError, Secret
from mapveil_client.random_features.feature_policy import Policy
from mapveil_client.random_features.kernels import Kernel, kernel_named, normals
from mapveil_client.random_features.query import Query
from mapveil_client.randomness.random import Randomness

_KEY_BYTES: Final = 32
_SAME: Final = 1e-6  # of a region's side


def unit_frequencies(
    devices: int, features: int, kernel: Kernel, dimension: int, rng: Randomness
) -> FloatArray:
    """Draw frequencies for bandwidth 1 from the kernel's spectral law. Run by: each client, or a simulation of them.

    Returns
    -------
    ndarray of float64, shape (dimension, devices, features)
        Radians per bandwidth.
    """
    drawn = kernel.frequencies(devices * features, dimension, rng)
    return drawn.reshape(dimension, devices, features)


def offsets(places: int, dimension: int, jitter_m: float, rng: Randomness) -> FloatArray:
    """Draw offsets of places: normal along x and y, none in time. Run by: a simulation of clients.

    Parameters
    ----------
    jitter_m : float
        Standard deviation along each axis, metres.

    Returns
    -------
    ndarray of float64, shape (dimension, places)
        Metres.
    """
    made = np.zeros((dimension, places))
    if jitter_m:
        made[:2] = jitter_m * normals(made[:2].size, rng).reshape(made[:2].shape)
    return made


def squares(places: FloatArray, low: tuple[float, ...], side_m: float) -> IntArray:
    """The squares that hold some places, counted from the region's corner along x and y, shape (2, places)."""
    corner = np.asarray(low[:2])[:, None]
    return np.asarray(np.floor((places[:2] - corner) / side_m), dtype=np.int64)


def middles(at: IntArray, low: tuple[float, ...], side_m: float) -> FloatArray:
    """The middles of those squares, shape (2, places), metres."""
    return np.asarray(np.asarray(low[:2])[:, None] + (at + 0.5) * side_m)


class Pin(NamedTuple):
    """The public quantities to which a device is pinned with its draw."""

    kernel: str
    bandwidth: tuple[float, ...]  # h_0
    crs: str
    low: tuple[float, ...]
    high: tuple[float, ...]
    jitter_m: float

    @classmethod
    def of(cls, policy: Policy, query: Query, jitter_m: float) -> Pin:
        """The quantities of a query under a policy."""
        return cls(policy.kernel, policy.bandwidth, query.crs, query.low, query.high, float(jitter_m))

    def refusal(self, other: Pin) -> str | None:
        """The first quantity that another has otherwise; None where both are the same."""
        if (other.kernel, other.bandwidth) != (self.kernel, self.bandwidth):
            return "this device's frequencies were drawn under another policy, and are not drawn again"
        sides = np.subtract(self.high, self.low)
        away = np.abs(np.subtract([other.low, other.high], [self.low, self.high])) / sides
        if other.crs != self.crs or not bool((away <= _SAME).all()):
            return "the region must be the one of this device's first query, got another"
        if other.jitter_m != self.jitter_m:
            return f"jitter_m must be {self.jitter_m:g} m as in this device's first query, got {other.jitter_m:g} m"
        return None


@dataclass(frozen=True, eq=False, repr=False)
class KeptFrequencies(Secret):
    """The frequencies and the key of the offsets of a device, for one pin, and a count of its answers. Secret."""

    units: FloatArray  # frequencies for bandwidth 1, (dimension, 1, features)
    key: bytes  # of the offsets
    pin: Pin
    answers: int = 0
    multiples: tuple[int, ...] = ()  # of the pinned bandwidth, answered so far

    @classmethod
    def draw(cls, policy: Policy, query: Query, jitter_m: float, rng: Randomness) -> KeptFrequencies:
        """Draw them for the policy's largest number of features. Run by: the device, once in its life."""
        units = unit_frequencies(1, policy.features, kernel_named(policy.kernel), policy.dimension, rng)
        key = rng.words(_KEY_BYTES, np.uint8).tobytes()
        return cls(units, key, Pin.of(policy, query, jitter_m))

    def refusal(self, policy: Policy, query: Query, jitter_m: float) -> str | None:
        """The reason not to answer a query that the policy allows; None where there is none."""
        if self.units.shape != (policy.dimension, 1, policy.features) or query.dimension != policy.dimension:
            return "this device's frequencies were drawn under another policy, and are not drawn again"
        if self.answers >= policy.answers:
            return f"answers must be at most {policy.answers} in this device's life, and it gave as many"
        return self.pin.refusal(Pin.of(policy, query, jitter_m)) or policy.refusal(
            query, answered=self.multiples
        )

    def counted(self, policy: Policy, query: Query) -> KeptFrequencies:
        """The same after one more answer, of the pinned jitter. Run by: the device, before it looks where it is.

        Raises
        ------
        PromiseError
            The query is outside the policy, or of another region or bandwidth than the device is pinned to.
        """
        policy.check(query)
        refusal = self.refusal(policy, query, self.pin.jitter_m)
        if refusal is not None:
            raise PromiseError(f"the device refuses the query: {refusal}")
        multiples = {*self.multiples, policy.multiple(query) or 1}
        return replace(self, answers=self.answers + 1, multiples=tuple(sorted(multiples)))

    def take(self, features: int) -> FloatArray:
        """The first ``features`` frequencies for bandwidth 1, shape (dimension, 1, features).

        Raises
        ------
        PromiseError
            It has fewer.
        """
        if not 1 <= features <= self.units.shape[2]:
            raise PromiseError(f"features must be 1 to {self.units.shape[2]} on this device, got {features}")
        return self.units[:, :, :features].copy()

    def moved(self, places: FloatArray) -> FloatArray:
        """Places as the device reports them: each the kept point of its square, shape (dimension, places), metres."""
        side_m = self.pin.jitter_m
        if not side_m:
            return places
        at = squares(places, self.pin.low, side_m)
        made = places.copy()
        made[:2] = middles(at, self.pin.low, side_m) + side_m * np.array([self._normal(q) for q in at.T]).T
        return made

    def _normal(self, square: IntArray) -> tuple[float, float]:
        drawn = hmac.digest(self.key, b"mapveil offset" + struct.pack("<2q", *square.tolist()), "sha256")
        u, v = ((word + 1) * 2.0**-64 for word in struct.unpack_from("<2Q", drawn))
        radius = math.sqrt(-2.0 * math.log(u))
        return radius * math.cos(2 * math.pi * v), radius * math.sin(2 * math.pi * v)

    def to_record(self) -> dict[str, Any]:
        """A JSON-ready record; floats keep every digit."""
        return {
            "units": self.units[:, 0].tolist(),
            "key": self.key.hex(),
            "pin": self.pin._asdict(),
            "answers": self.answers,
            "multiples": list(self.multiples),
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> KeptFrequencies:
        """Read back what :meth:`to_record` wrote."""
        units = np.array(record["units"], dtype=np.float64)[:, None, :]
        key, pin = bytes.fromhex(record["key"]), dict(record["pin"])
        pin |= {name: tuple(map(float, pin[name])) for name in ("bandwidth", "low", "high")}
        made = cls(units, key, Pin(**pin), int(record["answers"]), tuple(map(int, record["multiples"])))
        dimensions = {
            units.shape[0],
            *(len(ends) for ends in (made.pin.bandwidth, made.pin.low, made.pin.high)),
        }
        if len(dimensions) > 1 or len(key) != _KEY_BYTES or not bool(np.isfinite(units).all()):
            raise ValueError("frequencies of another shape")
        return made
