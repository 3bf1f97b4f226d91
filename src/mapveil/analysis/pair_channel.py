r"""The channel of a pair of reports: both ends of a trip randomized alike, each on its own.

.. math:: P = Q^T F Q, \qquad P_{y y'} = \sum_{x, x'} F_{x x'}\, q(y \mid x)\, q(y' \mid x')

where: F is the distribution of trips over pairs of sites, q the channel of one report, and P that of pairs of reports.
The matrix of this system is the Kronecker product of Q with itself; it has :math:`d^4` entries and is never written
out: a product with it is one with Q along either axis of a d x d matrix, :math:`O(d^2 m)` for the staircase's m groups
and :math:`O(d^2)` for generalized randomized response.
"""

from abc import ABC, abstractmethod
from typing import Final, NamedTuple

import numpy as np

from mapveil.local.randomizers.generalized_response import GeneralizedRandomizer
from mapveil.local.randomizers.hadamard_response import HadamardRandomizer
from mapveil.local.randomizers.randomizer import Randomizer, SymbolRandomizer
from mapveil.local.randomizers.staircase_response import StaircaseRandomizer
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import ParameterError
from mapveil_client.local.hadamard_response import walsh_hadamard
from mapveil_client.local.staircase_groups import blocks_at

_MOST_INVERTED: Final = 2048
_WORST_RESIDUAL: Final = 1e-4

MOST_SITES: Final = 4096
"""Sites of the largest domain whose pairs are estimated: a matrix of them is 128 MiB."""


class PairChannel(ABC):
    """Products with the channel of what a client sends about a pair of sites, in the channel's own order of sites.

    Parameters
    ----------
    sites : int
        d.
    symbols : int
        Values of one report.
    site_order, symbol_order : ndarray of int64, optional
        The sites and symbols in that order; the plain order by default.
    """

    def __init__(
        self,
        sites: int,
        symbols: int,
        site_order: IntArray | None = None,
        symbol_order: IntArray | None = None,
    ) -> None:
        self.sites, self.symbols = sites, symbols
        self.site_order = np.arange(sites) if site_order is None else site_order
        self.symbol_order = np.arange(symbols) if symbol_order is None else symbol_order
        self.symbol_rank = np.argsort(self.symbol_order)

    @abstractmethod
    def forward(self, joint: FloatArray) -> FloatArray:
        """The law of what is sent, of a distribution over pairs of sites."""

    @abstractmethod
    def backward(self, ratio: FloatArray) -> FloatArray:
        """The adjoint, shape (sites, sites)."""

    def in_site_order(self, joint: FloatArray) -> FloatArray:
        """A matrix over sites, put into the channel's order."""
        return joint[np.ix_(self.site_order, self.site_order)]

    def out_of_site_order(self, joint: FloatArray) -> FloatArray:
        """The inverse of :meth:`in_site_order`."""
        made = np.empty_like(joint)
        made[np.ix_(self.site_order, self.site_order)] = joint
        return made


class ProductChannel(PairChannel):
    """A report of each end: products with the channel of one report along both axes of a matrix."""

    def forward(self, joint: FloatArray) -> FloatArray:
        """P of F, shape (symbols, symbols)."""
        return self.push(self.push(joint, 0), 1)

    def backward(self, ratio: FloatArray) -> FloatArray:
        """The adjoint, :math:`Q R Q^T`, shape (sites, sites)."""
        return self.pull(self.pull(ratio, 0), 1)

    @abstractmethod
    def push(self, values: FloatArray, axis: int) -> FloatArray:
        """:math:`Q^T` along an axis: from sites to symbols."""

    @abstractmethod
    def pull(self, values: FloatArray, axis: int) -> FloatArray:
        """Q along an axis: from symbols to sites."""


class _Staircase(ProductChannel):
    """Sums over the blocks of the sorted codes."""

    def __init__(self, randomizer: StaircaseRandomizer) -> None:
        codes = randomizer.domain.codes
        super().__init__(randomizer.size, randomizer.size, codes.site, codes.site)
        blocks = [blocks_at(codes, threshold) for threshold in randomizer.thresholds[:-1]]
        self._blocks = [each for each in blocks if each.first.size < codes.site.size]
        more, less = (float(part) for part in randomizer.steps)
        self._own = more * (len(blocks) - len(self._blocks))
        self._more, self._even = more, less * len(blocks)
        self._total = randomizer.totals

    def push(self, values: FloatArray, axis: int) -> FloatArray:
        return self._mix(values / _along(self._total, axis), axis)

    def pull(self, values: FloatArray, axis: int) -> FloatArray:
        return np.asarray(self._mix(values, axis) / _along(self._total, axis))

    def _mix(self, values: FloatArray, axis: int) -> FloatArray:
        mixed = self._own * values
        mixed += self._even * values.sum(axis=axis, keepdims=True)
        for blocks in self._blocks:
            sums = np.add.reduceat(values, blocks.first, axis=axis)
            mixed += np.take(self._more * sums, blocks.of_rank, axis=axis)
        return np.asarray(mixed)


class _Generalized(ProductChannel):
    """A multiple of the identity and an even part."""

    def __init__(self, randomizer: GeneralizedRandomizer) -> None:
        super().__init__(randomizer.size, randomizer.size)
        true, self._other = randomizer.probabilities
        self._surplus = true - self._other

    def push(self, values: FloatArray, axis: int) -> FloatArray:
        return np.asarray(self._surplus * values + self._other * values.sum(axis=axis, keepdims=True))

    def pull(self, values: FloatArray, axis: int) -> FloatArray:
        return self.push(values, axis)


class _Hadamard(ProductChannel):
    """A few blocks, each a Hadamard matrix without its first row."""

    def __init__(self, randomizer: HadamardRandomizer) -> None:
        super().__init__(randomizer.size, randomizer.symbols)
        self._blocks, self._length = randomizer.blocks, randomizer.length
        more, less = (float(part) for part in randomizer.weights)
        self._half = (more - less) / 2
        self._less = less
        self._total = self._half * self._length + less * self.symbols
        # The matrix of a power of two is the Kronecker product of those of its factors.
        bits = self._length.bit_length() - 1
        self._factors = tuple(walsh_hadamard(np.eye(1 << part)) for part in (bits // 2, bits - bits // 2))

    def push(self, values: FloatArray, axis: int) -> FloatArray:
        flat = np.ascontiguousarray(values if axis else values.T)
        padded = np.zeros((flat.shape[0], self._blocks * (self._length - 1)))
        padded[:, : self.sites] = flat
        rows = padded.reshape(-1, self._blocks, self._length - 1)
        grid: FloatArray = np.concatenate([np.zeros((*rows.shape[:2], 1)), rows], axis=2)
        made = self._bend(grid) + self._less * flat.sum(axis=1)[:, None, None]
        symbols = np.asarray(made.reshape(flat.shape[0], self.symbols) / self._total)
        return symbols if axis else symbols.T

    def pull(self, values: FloatArray, axis: int) -> FloatArray:
        flat = np.ascontiguousarray(values if axis else values.T)
        grid = flat.reshape(-1, self._blocks, self._length)
        made = self._bend(grid) + self._less * flat.sum(axis=1)[:, None, None]
        rows = np.ascontiguousarray(made[:, :, 1:]).reshape(flat.shape[0], -1)
        sites = np.asarray(rows[:, : self.sites] / self._total)
        return sites if axis else sites.T

    def _bend(self, grid: FloatArray) -> FloatArray:
        """Half the surplus times (H + 1) of every block's row."""
        first, last = self._factors
        parts = grid.reshape(-1, first.shape[0], last.shape[0])
        turned = np.matmul(first, parts @ last)
        return np.asarray(self._half * (turned.reshape(grid.shape) + grid.sum(axis=2, keepdims=True)))


class _Dense(ProductChannel):
    """The matrix itself."""

    def __init__(self, randomizer: SymbolRandomizer) -> None:
        super().__init__(randomizer.size, randomizer.symbols)
        self._matrix = randomizer.transition_matrix()

    def push(self, values: FloatArray, axis: int) -> FloatArray:
        return self._matrix.T @ values if axis == 0 else values @ self._matrix

    def pull(self, values: FloatArray, axis: int) -> FloatArray:
        return self._matrix @ values if axis == 0 else values @ self._matrix.T


def pair_channel(randomizer: Randomizer) -> ProductChannel:
    """The channel of pairs of reports of a randomizer. Run by: the server.

    Raises
    ------
    ParameterError
        A report is a set of sites, of which there are too many to count pairs; or the domain is too large.
    """
    symbols = check_pairs(randomizer)
    if isinstance(symbols, StaircaseRandomizer):
        return _Staircase(symbols)
    if isinstance(symbols, GeneralizedRandomizer):
        return _Generalized(symbols)
    if isinstance(symbols, HadamardRandomizer):
        return _Hadamard(symbols)
    return _Dense(symbols)


def check_pairs(randomizer: Randomizer) -> SymbolRandomizer:
    """The randomizer, if pairs of its reports can be counted; otherwise raise as :func:`pair_channel` does."""
    check_sites(randomizer)
    if not isinstance(randomizer, SymbolRandomizer):
        raise ParameterError(
            "the joint estimator needs reports of one symbol each, such as those of hr, srr and grr; the estimators "
            "'lasso' and 'independent' also take sets of sites"
        )
    return randomizer


def check_sites(randomizer: Randomizer) -> None:
    """Refuse a domain of too many sites for pairs of them."""
    if randomizer.size > MOST_SITES:
        raise ParameterError(
            f"sites must be at most {MOST_SITES} for flows between them, got {randomizer.size}: choose a coarser "
            "tiling, or fewer places"
        )


class UnbiasedFlows(NamedTuple):
    """Unbiased estimates of the trips of every pair of sites, which may be negative, and what randomization makes."""

    trips: FloatArray  # shape (sites, sites)
    deviation: FloatArray
    p_value: FloatArray  # probability of at least as many trips of a pair that has none


def unbiased_flows(
    randomizer: Randomizer, joint: FloatArray, origins: IntArray, destinations: IntArray
) -> UnbiasedFlows | None:
    r"""The unbiased estimate :math:`n \hat F` of each pair's trips, and its :func:`flow_deviation`.

    p-values are those of the normal law with that deviation, for estimates are sums over many reports. Run by: the
    server; costs no privacy.

    Parameters
    ----------
    randomizer : Randomizer
        Of each report.
    joint : ndarray of float64, shape (sites, sites)
        The estimated distribution over pairs, which the deviations depend on a little.
    origins, destinations : ndarray of int64, shape (trips,)
        Reported symbols of both ends; sets of sites have no such estimate.

    Returns
    -------
    UnbiasedFlows or None
        None as for :func:`flow_deviation`.
    """
    from scipy.sparse import coo_array
    from scipy.special import ndtr

    found = _inverted(randomizer)
    if found is None:
        return None
    channel, inverse = found
    ends = channel.symbol_rank[origins], channel.symbol_rank[destinations]
    counts = coo_array((np.ones(origins.size), ends), shape=(channel.symbols, channel.symbols)).tocsr()
    trips = channel.out_of_site_order(np.asarray((counts.T @ inverse.T).T @ inverse.T))
    deviation = _flow_deviation(channel, inverse, joint, origins.size)
    certain = np.where(trips > 0, np.inf, -np.inf)
    ratio = np.divide(trips, deviation, out=certain, where=deviation > 0)
    return UnbiasedFlows(trips, deviation, ndtr(-ratio))


def flow_deviation(randomizer: Randomizer, joint: FloatArray, reports: int) -> FloatArray | None:
    r"""Standard deviation, by the randomization alone, of an unbiased estimate of each pair's trips.

    .. math:: \hat F = A \frac{N}{n} A^T, \qquad A = (Q Q^T)^{-1} Q, \qquad
        \mathrm{Var}\big(n \hat F_{x x'}\big) = n \big( (A \circ A)\, P\, (A \circ A)^T - F \big)_{x x'}

    where: N holds how often each pair of reports came, n is ``reports``, and F ``joint``; the trips are taken as they
    are, not as drawn. Run by: the server; costs no privacy.

    Parameters
    ----------
    randomizer : Randomizer
        Of each report.
    joint : ndarray of float64, shape (sites, sites)
        The estimated distribution over pairs.
    reports : int
        Number of pairs of reports.

    Returns
    -------
    ndarray of float64, shape (sites, sites), or None
        Trips; None where there is no such estimate: reports that are sets of sites, a channel that cannot be
        inverted, or more than 2,048 sites.
    """
    found = _inverted(randomizer)
    return None if found is None else _flow_deviation(*found, joint, reports)


def _inverted(randomizer: Randomizer) -> tuple[ProductChannel, FloatArray] | None:
    """The channel of a randomizer, and A; None where there is none."""
    if randomizer.size > _MOST_INVERTED or not isinstance(randomizer, SymbolRandomizer):
        return None
    channel = pair_channel(randomizer)
    matrix = channel.push(np.eye(channel.sites), 0).T  # Q
    try:
        inverse: FloatArray = np.asarray(np.linalg.solve(matrix @ matrix.T, matrix), dtype=np.float64)
    except np.linalg.LinAlgError:
        return None
    if not np.abs(inverse @ matrix.T - np.eye(channel.sites)).max() < _WORST_RESIDUAL:
        return None
    return channel, inverse


def _flow_deviation(
    channel: ProductChannel, inverse: FloatArray, joint: FloatArray, reports: int
) -> FloatArray:
    flows = channel.in_site_order(joint)
    squared = inverse * inverse
    variance = squared @ channel.forward(flows) @ squared.T - flows
    made: FloatArray = channel.out_of_site_order(np.sqrt(reports * np.maximum(variance, 0.0)))
    return made


def _along(values: FloatArray, axis: int) -> FloatArray:
    return values[:, None] if axis == 0 else values[None, :]
