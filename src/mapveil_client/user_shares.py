r"""A user of many places as one vector of integers: weights rounded to shares of a whole.

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

from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import IntArray
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness
from mapveil_client.randomness.uniform import uniform_below_each

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
        Lattice units of a whole user, from 1 to 2^31.
    method : str
        One of :data:`ROUNDINGS`.
    rng : Randomness
        The source of bits; not used by ``largest-remainder``.

    Returns
    -------
    ndarray of int64, shape (entries,)
        Shares, not negative.

    Raises
    ------
    ParameterError
        No such method, or a scale outside its range.
    InputError
        The offsets do not divide the entries, or a weight is negative or not finite.
    """
    _check(scale, method)
    exact = _exact_shares(offsets, weight, scale)
    share = exact.down
    if method == "stochastic":
        share += uniform_below_each(exact.total, rng) < exact.rest
    else:
        _give_rest(exact, offsets)
    return share


class _ExactShares(NamedTuple):
    """Exact shares of the entries: down + rest / total."""

    down: IntArray
    rest: IntArray
    total: IntArray  # of the entry's user, at least 1
    owner: IntArray
    whole: IntArray  # of each user: what the shares shall sum to


def _exact_shares(offsets: IntArray, weight: npt.NDArray[Any], scale: int) -> _ExactShares:
    weight = np.asarray(weight)
    if (
        offsets.ndim != 1
        or offsets.size < 1
        or offsets[0] != 0
        or offsets[-1] != weight.size
        or (np.diff(offsets) < 0).any()
    ):
        raise InputError(
            f"offsets do not divide {weight.size} entries among users; ascending ones from 0 to it are accepted"
        )
    owner = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    whole = _integers(weight, offsets, owner)
    totals = np.zeros(offsets.size - 1, dtype=np.int64)
    np.add.at(totals, owner, whole)
    total = np.maximum(totals, 1)[owner]
    down, rest = np.divmod(whole * scale, total)
    return _ExactShares(down, rest, total, owner, np.where(totals > 0, scale, 0))


def _check(scale: int, method: str) -> None:
    if method not in ROUNDINGS:
        raise ParameterError(f"rounding is {method!r}; one of {', '.join(ROUNDINGS)} is accepted")
    if not 1 <= scale <= _LARGEST_SCALE:
        raise ParameterError(f"scale is {scale}; 1 to 2^31 is accepted")


def _integers(weight: npt.NDArray[Any], offsets: IntArray, owner: IntArray) -> IntArray:
    """Weights as integers below 2^31, each user's by one power of two."""
    if weight.size == 0:
        return np.zeros(0, dtype=np.int64)
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise InputError("a weight is negative or not finite; finite numbers from 0 are accepted")
    if np.issubdtype(weight.dtype, np.integer) and weight.max() < 1 << _WEIGHT_BITS:
        return weight.astype(np.int64)
    highest = np.zeros(offsets.size - 1)
    np.maximum.at(highest, owner, weight.astype(np.float64))
    exponent = np.frexp(highest)[1]
    scaled: npt.NDArray[np.float64] = np.ldexp(weight.astype(np.float64), (_WEIGHT_BITS - exponent)[owner])
    return scaled.astype(np.int64)


def _give_rest(exact: _ExactShares, offsets: IntArray) -> None:
    """Give what rounding down left over to the largest remainders, in place."""
    left = exact.whole.copy()
    np.subtract.at(left, exact.owner, exact.down)
    order = np.lexsort((-exact.rest, exact.owner))  # stable: of equal remainders the first
    rank = np.arange(order.size) - offsets[exact.owner]  # owners ascend, so the order keeps them in place
    exact.down[order[rank < left[exact.owner]]] += 1
