"""Terms of a round, fixed before its clients answer, and the unit of its sums; for a simulation and a service."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.privacy.discrete_laplace import laplace_variance
from mapveil.privacy.laplace_sum import laplace_sum_quantile
from mapveil.secure_sum.modulus import FAILURE, centre, highest_sum, smallest_modulus
from mapveil.trust.queries import NoisySums, Query
from mapveil_client.arrays import IntArray
from mapveil_client.contribution import Rounding, sensitivity
from mapveil_client.errors import check
from mapveil_client.method_parameters import Overflow


class RoundTerms(NamedTuple):
    """The terms of one round; see :meth:`of`."""

    query: Query
    sizes: IntArray  # devices of each shard
    alpha: Fraction  # each device's part of a discrete Laplace variable
    scale: int  # units per device
    sensitivity: int  # units one device moves the sums by, L1
    most: int  # units of one device at one coordinate
    bits: int  # sums are modulo 2**bits

    @classmethod
    def of(
        cls,
        query: Query,
        sizes: IntArray,
        alpha: Fraction,
        scale: int,
        rounding: Rounding,
        *,
        bits: int | None = None,
        overflow: Overflow = "refuse",
    ) -> RoundTerms:
        """Fix a round. Run by: the server, which publishes it; a device computes the sensitivity for itself.

        Parameters
        ----------
        query : Query
            What is asked.
        sizes : ndarray of int64, shape (shards,)
            Devices of each shard.
        alpha : Fraction
            See :func:`mapveil_client.randomness.noise_shares.share_shape`.
        scale : int
            Units per device.
        rounding : str
            See :func:`mapveil_client.contribution.encode_places`.
        bits : int, optional
            The smallest safe modulus by default.
        overflow : str
            ``"refuse"`` a modulus in which a sum may overflow, or ``"wrap"``, to see what that does.

        Raises
        ------
        ParameterError
            The modulus given is too small.
        """
        moves = sensitivity(query.encoding, scale, rounding)
        most = scale + (rounding == "stochastic")
        largest = int(sizes.max())
        noise = alpha * largest
        if bits is None or overflow == "refuse":
            least = smallest_modulus(largest, most, query.encoding.length, noise, query.epsilon, moves)
            bits = least if bits is None else bits
            check(least <= bits <= 64, "bits", f"from {least} to 64 for these sums", bits)
        return cls(query, sizes, alpha, scale, moves, most, bits)

    def units(self, totals: Iterable[npt.NDArray[np.uint64]]) -> IntArray:
        """The shards' sums modulo 2**bits as one sum of signed units. Run by: the server."""
        highest = highest_sum(int(self.sizes.max()), self.most)
        return np.asarray(sum(centre(total, self.bits, highest) for total in totals), dtype=np.int64)

    def plausible(self, total: npt.NDArray[np.uint64], included: int) -> bool:
        """Whether one shard's sum modulo 2**bits could come from ``included`` clients and their noise.

        The noise of honest clients leaves this range with probability :data:`~mapveil.secure_sum.modulus.FAILURE`.
        """
        largest = int(self.sizes.max())
        units = centre(total, self.bits, highest_sum(largest, self.most))
        chance = FAILURE / units.size
        reach = laplace_sum_quantile(chance, self.alpha * largest, self.query.epsilon, self.sensitivity)
        return -reach <= int(units.min()) and int(units.max()) <= included * self.most + reach

    def noisy_sums(self, units: IntArray, included: int) -> NoisySums:
        """The reply to the plan, from the units of all shards and the number of clients in them."""
        terms = float(self.alpha * included)
        return NoisySums(
            units / self.scale,
            terms * laplace_variance(self.query.epsilon, self.sensitivity) / self.scale**2,
            terms,
            self.query.epsilon,
            self.sensitivity,
            self.scale,
            included,
        )
