"""Dense networks of rectified units, run with matrix products alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil_client.randomness.random import Randomness

_CHUNK = 1 << 13  # rows whose hidden layers stay near the processor


class DenseNetwork(NamedTuple):
    r"""Layers of a feed-forward network, rectified between them.

    .. math:: h_0 = x, \quad h_{l+1} = \max(0, h_l W_l + b_l), \quad y = h_{n-1} W_{n-1} + b_{n-1}

    where: :math:`W_l` is ``weights[l]``, :math:`b_l` is ``biases[l]``, n is the number of layers.
    """

    weights: tuple[npt.NDArray[np.float32], ...]  # each (inputs, outputs)
    biases: tuple[npt.NDArray[np.float32], ...]  # each (outputs,)

    def apply(self, rows: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
        """Outputs of rows of shape (rows, inputs) in single precision, shape (rows, outputs)."""
        made = np.empty((len(rows), len(self.biases[-1])), dtype=np.float32)
        for start in range(0, len(rows), _CHUNK):
            level = np.asarray(rows[start : start + _CHUNK], dtype=np.float32)
            for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
                level = level @ weight
                level += bias
                np.maximum(level, 0, out=level)
            made[start : start + _CHUNK] = level @ self.weights[-1] + self.biases[-1]
        return made

    @property
    def size(self) -> int:
        """Numbers in all layers."""
        return sum(array.size for array in (*self.weights, *self.biases))

    def halved(self) -> DenseNetwork:
        """The same network with weights that half precision holds, so that it takes half the room on a phone."""
        rounded = tuple(weight.astype(np.float16).astype(np.float32) for weight in self.weights)
        return DenseNetwork(rounded, self.biases)

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """As named arrays: ``weight0``, ``bias0``, ``weight1`` and so on."""
        named: dict[str, npt.NDArray[Any]] = {}
        for at, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            named[f"weight{at}"], named[f"bias{at}"] = weight, bias
        return named

    @classmethod
    def of_state(cls, state: Mapping[str, npt.NDArray[Any]]) -> DenseNetwork:
        """Read back what :meth:`state` named."""
        count = sum(name.startswith("weight") for name in state)
        return cls(
            tuple(state[f"weight{at}"] for at in range(count)),
            tuple(state[f"bias{at}"] for at in range(count)),
        )


def network_normals(rows: int, width: int, rng: Randomness) -> npt.NDArray[np.float32]:
    """Standard normals in single precision for the inputs of a network, shape (rows, width).

    By the transform of Box and Muller (1958) from words of 32 bits, at most 6.7 deviations: not for noise that a proof
    rests on.
    """
    half = (rows * width + 1) // 2
    radius = rng.words(half, np.uint32).astype(np.float32)
    radius += 1
    radius *= np.float32(2.0**-32)
    np.log(radius, out=radius)
    radius *= -2
    np.sqrt(radius, out=radius)
    angle = rng.words(half, np.uint32).astype(np.float32)
    angle *= np.float32(2 * math.pi * 2.0**-32)
    made = np.empty((half, 2), dtype=np.float32)
    np.multiply(radius, np.cos(angle), out=made[:, 0])
    np.multiply(radius, np.sin(angle), out=made[:, 1])
    return made.ravel()[: rows * width].reshape(rows, width)
