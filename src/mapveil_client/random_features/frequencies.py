"""A device's frequencies, and its offset: drawn once, kept, and never drawn again.

A second, independent set for the same place would narrow it down as a second feature does. So a device draws once, for
the policy's largest number of features; later queries take the first of those.

The offset moves all places of the device by the same few metres before they become phases. Exact phases distinguish any
two known addresses; after an unknown offset they do not distinguish neighbours, and because the offset is kept, further
queries do not average it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mapveil_client.arrays import FloatArray
from mapveil_client.errors import PromiseError, Secret
from mapveil_client.random_features.feature_policy import Policy
from mapveil_client.random_features.kernels import Kernel, kernel_named, normals
from mapveil_client.randomness.random import Randomness


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


def offsets(devices: int, dimension: int, jitter_m: float, rng: Randomness) -> FloatArray:
    """Draw each device's offset: normal along x and y, none in time. Run by: each client, or a simulation of them.

    Parameters
    ----------
    jitter_m : float
        Standard deviation along each axis, metres.

    Returns
    -------
    ndarray of float64, shape (dimension, devices)
        Metres.
    """
    made = np.zeros((dimension, devices))
    if jitter_m:
        made[:2] = jitter_m * normals(made[:2].size, rng).reshape(made[:2].shape)
    return made


class Kept(NamedTuple):
    """The frequencies and the offset of a device. Secret."""

    units: FloatArray  # frequencies for bandwidth 1, (dimension, 1, features)
    offset: FloatArray  # (dimension, 1), metres


@dataclass(frozen=True, eq=False, repr=False)
class KeptFrequencies(Secret):
    """The frequencies and the offset that a device draws once for all projections, and their laws. Secret."""

    kernel: str
    kept: Kept
    jitter_m: float  # standard deviation of the offset, metres

    @classmethod
    def draw(cls, policy: Policy, jitter_m: float, rng: Randomness) -> KeptFrequencies:
        """Draw them, for the policy's largest number of features. Run by: the device, once in its life."""
        units = unit_frequencies(1, policy.features, kernel_named(policy.kernel), policy.dimension, rng)
        return cls(policy.kernel, Kept(units, offsets(1, policy.dimension, jitter_m, rng)), jitter_m)

    def refusal(self, policy: Policy, jitter_m: float) -> str | None:
        """The reason not to answer under this policy and offset, or none: nothing is drawn a second time."""
        dimension, _, features = self.kept.units.shape
        if (self.kernel, dimension, features) != (policy.kernel, policy.dimension, policy.features):
            return "this device's frequencies were drawn under another policy, and are not drawn again"
        if self.jitter_m != jitter_m:
            return (
                f"the offset must be the {self.jitter_m:g} m of this device, drawn once, got {jitter_m:g} m"
            )
        return None

    def take(self, features: int) -> Kept:
        """The first ``features`` frequencies, and the offset.

        Raises
        ------
        PromiseError
            It has fewer.
        """
        if not 1 <= features <= self.kept.units.shape[2]:
            raise PromiseError(
                f"features must be 1 to {self.kept.units.shape[2]} on this device, got {features}"
            )
        return Kept(self.kept.units[:, :, :features].copy(), self.kept.offset.copy())

    def to_record(self) -> dict[str, Any]:
        """A JSON-ready record; floats keep every digit."""
        return {
            "kernel": self.kernel,
            "units": self.kept.units[:, 0].tolist(),
            "offset": self.kept.offset[:, 0].tolist(),
            "jitter_m": self.jitter_m,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> KeptFrequencies:
        """Read back what :meth:`to_record` wrote."""
        units = np.array(record["units"], dtype=np.float64)[:, None, :]
        offset = np.array(record["offset"], dtype=np.float64)[:, None]
        if offset.shape != (units.shape[0], 1) or not bool(np.isfinite(units).all()):
            raise ValueError("frequencies of another shape")
        return cls(str(record["kernel"]), Kept(units, offset), float(record["jitter_m"]))
