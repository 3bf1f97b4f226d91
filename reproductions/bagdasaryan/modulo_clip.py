"""Sums that may overflow: what a modulus that is too small would have done to them.

The wing refuses such a modulus; the paper measures what it costs (appendix A.3, Table 2). Reducing a sum modulo
2**b gives what adding reduced vectors modulo 2**b gives, so the sums of a wide modulus are reduced afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from mapveil.secure_sum.drivers import IdealSum, ShardSum
from mapveil_client.arrays import IntArray
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.round_parameters import SumSettings
from mapveil_client.secure_sum.vectors import SparseVectors


def wrapped(total: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.uint64]:
    r"""Residues modulo a wide power of two, wrapped around at ``bits`` as signed words, and made residues again.

    .. math:: s' = ((s + 2^{b-1}) \bmod 2^b) - 2^{b-1}

    where: s is the sum that ``total`` stands for and b is ``bits``. Source: ``ModuloClip`` of Algorithm 1.

    Examples
    --------
    >>> wrapped(np.array([127, 128, 256], dtype=np.uint64), 8).view(np.int64).tolist()
    [127, -128, 0]
    """
    half = np.uint64(1 << (bits - 1))
    mask = np.uint64((1 << bits) - 1)
    # Unsigned words wrap around, which is the arithmetic wanted.
    return ((total + half) & mask) - half


@dataclass(frozen=True)
class ClippedSum:
    """An ideal sum whose results wrap around at ``bits`` (1 to 61; the modulus must be wider)."""

    active: ClassVar[bool] = False
    bits: int

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 61:
            raise ParameterError(f"clip is {self.bits!r} bits; expected 1 to 61")

    def sums(
        self,
        vectors: SparseVectors,
        shards: IntArray,
        leaves: npt.NDArray[np.int8],
        settings: SumSettings,
        rng: Randomness,
        *,
        before_reveal: Callable[[IntArray], None],
    ) -> list[ShardSum]:
        """As of :class:`mapveil.secure_sum.drivers.IdealSum`, then wrapped around."""
        if settings.bits <= self.bits:
            raise ParameterError(f"a modulus of {settings.bits} bits; expected more than {self.bits}")
        mask = np.uint64((1 << settings.bits) - 1) if settings.bits < 64 else ~np.uint64(0)
        found = IdealSum().sums(vectors, shards, leaves, settings, rng, before_reveal=before_reveal)
        return [each._replace(total=wrapped(each.total, self.bits) & mask) for each in found]
