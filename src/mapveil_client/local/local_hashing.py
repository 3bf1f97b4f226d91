r"""Local hashing: each client hashes the sites to few buckets by a function of its own, and randomizes the bucket.

.. math:: h_a(x) = \langle a, x \rangle \bmod g, \qquad a \in \mathbb{Z}_g^k \setminus \{0\}

where: g is a prime, and every site is a point of its own, of k digits to the base g. A public keystream scatters the
points, so that sites that lie together are not on lines together. Any two sites collide under exactly
:math:`g^{k-1} - 1` of the :math:`g^k - 1` functions, a little less than one in g.

The server sums a table T over all functions at once, for every site:

.. math:: R(x) = \sum_a T[a, h_a(x)] = \frac{1}{g} \sum_{j=0}^{g-1} G_j(j x), \qquad
    G_j(z) = \sum_a e^{2 \pi i \langle a, z \rangle / g} \sum_v T[a, v]\, e^{-2 \pi i j v / g}

one transform over :math:`\mathbb{Z}_g^k` for each j: :math:`O(g^{k+1} \log g^k)`, whatever the number of reports. The
adjoint is computed likewise.
"""

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final

import numpy as np

from mapveil_client.arrays import ComplexArray, FloatArray, IntArray
from mapveil_client.errors import ParameterError, check
from mapveil_client.local.domain import Domain
from mapveil_client.local.randomizer import LocalMethod, SymbolRandomizer, odds_for
from mapveil_client.randomness.random import Randomness, uniform_below

_LARGEST_TABLE: Final = 1 << 25  # counts
_SCATTER: Final = 1709  # seed of the public points; another would be another wire format
_SMALL: Final = 16  # points of a transform that is a matrix product: one core, where waking others costs more


def is_prime(number: int) -> bool:
    """Whether a number is a prime, by trial."""
    return number >= 2 and all(number % k for k in range(2, int(number**0.5) + 1))


@dataclass(frozen=True)
class LinearHashes:
    """The family of the module's header.

    Parameters
    ----------
    buckets : int
        g, a prime.
    sites : int
        Number of sites; k is the least with :math:`g^k` at least as many.

    Examples
    --------
    >>> hashes = LinearHashes(3, 9)
    >>> every = np.arange(hashes.functions)
    >>> int((hashes.values(every, np.full(8, 4)) == hashes.values(every, np.full(8, 7))).sum())
    2
    """

    buckets: int
    sites: int

    def __post_init__(self) -> None:
        check(is_prime(self.buckets), "buckets", "a prime", self.buckets)

    @property
    def digits(self) -> int:
        """k."""
        count, reach = 1, self.buckets
        while reach < self.sites:
            count, reach = count + 1, reach * self.buckets
        return count

    @property
    def functions(self) -> int:
        """Number of functions, :math:`g^k - 1`."""
        return self._points - 1

    @property
    def _points(self) -> int:
        return int(self.buckets**self.digits)

    @property
    def _point(self) -> IntArray:
        return _scattered(self._points, self.sites)

    @property
    def collision(self) -> float:
        """The fraction of the functions under which any two sites collide."""
        return float((self.buckets ** (self.digits - 1) - 1) / self.functions)

    def values(self, functions: IntArray, sites: IntArray) -> IntArray:
        """h of sites, each under a function of its own, shape (n,). Run by: the client."""
        g = self.buckets
        a, x = functions + 1, self._point[sites]
        made = np.zeros(a.shape, dtype=np.int64)
        for _ in range(self.digits):
            made += (a % g) * (x % g)
            a //= g
            x //= g
        return np.asarray(made % g)

    def sums(self, table: FloatArray) -> FloatArray:
        """R of every site, shape (sites,), for a table T, shape (functions, buckets). Run by: the server."""
        g = self.buckets
        whole = np.concatenate([np.zeros((1, g)), table])
        bent = np.fft.rfft(whole, axis=1)
        made = np.zeros(self._points)
        for j in range(bent.shape[1]):
            part = self._scaled(self._transform(np.ascontiguousarray(bent[:, j]), 1), j).real
            made += part if j == 0 or 2 * j == g else 2 * part
        return np.asarray(made[self._point] / g)

    def table(self, values: FloatArray) -> FloatArray:
        r"""The adjoint: :math:`A[a, v] = \sum_{h_a(x) = v} p(x)`, shape (functions, buckets). Run by: the server."""
        g = self.buckets
        whole = np.zeros(self._points, dtype=np.complex128)
        whole[self._point] = values
        spectrum = self._transform(whole, -1)
        bent = np.empty((self._points, g // 2 + 1), dtype=np.complex128)
        for j in range(bent.shape[1]):
            bent[:, j] = self._scaled(spectrum, j)
        return np.asarray(np.fft.irfft(bent, n=g, axis=1)[1:])

    def _scaled(self, spectrum: ComplexArray, factor: int) -> ComplexArray:
        """The spectrum at ``factor`` times each point, flat."""
        along = np.arange(self.buckets) * factor % self.buckets
        index = np.zeros(1, dtype=np.int64)
        for _ in range(self.digits):
            index = (index[:, None] * self.buckets + along).reshape(-1)
        return np.asarray(spectrum[index])

    def _transform(self, values: ComplexArray, sign: int) -> ComplexArray:
        r""":math:`\sum_a e^{\pm 2 \pi i \langle a, z \rangle / g} v(a)` at every z, flat.

        Several short axes at once are one product with a small matrix, which is quicker than a transform of each.
        """
        made = values
        most = max(1, int(math.log(_SMALL) / math.log(self.buckets)))
        left = self.digits
        while left:
            together = min(left, most)
            first = _transform_axis(made.reshape(self.buckets**together, -1), self.buckets, sign, together)
            # The first axes go last: after all of them they are in order again.
            made = first.T.reshape(-1)
            left -= together
        return made


def _transform_axis(values: ComplexArray, points: int, sign: int, together: int) -> ComplexArray:
    """The Fourier transform along the first axis, which is ``together`` axes of some points each."""
    if points > _SMALL:
        return np.asarray(np.fft.fft(values, axis=0) if sign < 0 else np.fft.ifft(values, axis=0) * points)
    return np.asarray(_kernel(points, sign, together) @ values)


@functools.lru_cache(maxsize=32)
def _scattered(points: int, sites: int) -> IntArray:
    """The point of each site, the same for every client and server."""
    words = Randomness(_SCATTER).words(points, np.uint64)
    return np.argsort(words, kind="stable")[:sites].astype(np.int64)


@functools.lru_cache(maxsize=32)
def _kernel(points: int, sign: int, together: int) -> ComplexArray:
    one = np.exp(sign * 2j * np.pi * (np.outer(np.arange(points), np.arange(points)) % points) / points)
    made = np.ones((1, 1), dtype=np.complex128)
    for _ in range(together):
        made = np.kron(made, one)
    return made


def best_buckets(epsilon: Fraction, sites: int, largest_table: int = _LARGEST_TABLE) -> int:
    r"""The prime g of least variance, near :math:`e^\epsilon + 1`, whose table of counts the server can hold.

    Parameters
    ----------
    epsilon : Fraction
        Privacy parameter of a report.
    sites : int
        d; more buckets than it takes to have one for each site are of no use.
    largest_table : int
        Largest number of counts, about :math:`g^{k+1}`.

    Raises
    ------
    ParameterError
        No prime has so small a table.
    """
    e = math.exp(min(float(epsilon), 60.0))

    def variance(g: int) -> float:
        held, less = e / (e + g - 1), 1 / (e + g - 1)
        other = (held - less) * LinearHashes(g, sites).collision + less
        return other * (1 - other) / (held - other) ** 2

    most = min(2 * sites, math.isqrt(largest_table) + 1, int(min(4 * e + 8, 1e9)))
    primes = [g for g in range(2, most + 1) if is_prime(g)]
    fitting = [g for g in primes if g ** (LinearHashes(g, sites).digits + 1) <= largest_table]
    if not fitting:
        raise ParameterError(f"{sites} sites are too many for hashing; use srr, grr or hr")
    return min(fitting, key=variance)


class HashedReports:
    """The law of a function and a randomized bucket: of one level of a hierarchy, or of all sites.

    Parameters
    ----------
    sites : int
        Number of sites (nodes) that are hashed.
    epsilon : Fraction
        Privacy parameter of a report.
    buckets : int
        g.
    """

    def __init__(self, sites: int, epsilon: Fraction, buckets: int) -> None:
        self.hashes = LinearHashes(buckets, sites)
        self.weights = odds_for(epsilon, buckets)
        self.surplus = self.weights.more - self.weights.less
        self.total = self.surplus + buckets * self.weights.less

    @property
    def symbols(self) -> int:
        """Number of pairs of a function and a bucket."""
        return self.hashes.functions * self.hashes.buckets

    @property
    def held(self) -> float:
        """Probability that the bucket is the place's."""
        return self.weights.more / self.total

    @property
    def other(self) -> float:
        """Probability that the bucket is any one other site's."""
        return (self.surplus * self.hashes.collision + self.weights.less) / self.total

    def draw(self, sites: IntArray, rng: Randomness) -> IntArray:
        """A function and a bucket for each site, as one number. Run by: the client."""
        function = uniform_below(sites.size, self.hashes.functions, rng)
        left = uniform_below(sites.size, self.total, rng) - self.surplus
        bucket = np.where(left < 0, self.hashes.values(function, sites), left // self.weights.less)
        return function * self.hashes.buckets + bucket

    def forward(self, distribution: FloatArray) -> FloatArray:
        """The probability of each symbol, shape (symbols,)."""
        table = np.maximum(self.hashes.table(distribution), 0.0)
        table *= self.surplus
        table += self.weights.less * distribution.sum()
        return np.asarray(table.reshape(-1) / (self.total * float(self.hashes.functions)))

    def backward(self, values: FloatArray) -> FloatArray:
        """The adjoint, shape (sites,)."""
        sums = self.sums(values)
        made = self.surplus * sums + self.weights.less * values.sum()
        return np.asarray(made / (self.total * float(self.hashes.functions)))

    def sums(self, values: FloatArray) -> FloatArray:
        """The sum of each site's entries of a table, one for each function, shape (sites,). Run by: the server."""
        return self.hashes.sums(values.reshape(self.hashes.functions, self.hashes.buckets))


class HashingRandomizer(HashedReports, SymbolRandomizer):
    """The randomizer of :class:`LocalHashing` on one domain."""

    kind: ClassVar[int] = 6

    def __init__(self, domain: Domain, epsilon: Fraction, buckets: int | None) -> None:
        SymbolRandomizer.__init__(self, domain, epsilon)
        g = best_buckets(epsilon, domain.size) if buckets is None else buckets
        HashedReports.__init__(self, domain.size, epsilon, g)
        if self.symbols > _LARGEST_TABLE:
            raise ParameterError(
                f"the table must have 2**25 counts at most, got {self.symbols}: {g} buckets for {domain.size} sites"
            )

    def _draw(self, sites: IntArray, rng: Randomness) -> IntArray:
        return self.draw(sites, rng)

    def identity(self) -> str:
        """See :meth:`Randomizer.identity`."""
        return f"hashing {self.hashes.buckets} {self.weights.more}:{self.weights.less}"


@dataclass(frozen=True, kw_only=True)
class LocalHashing(LocalMethod):
    r"""Report a random hash function and a bucket, the place's bucket likelier than each other one.

    .. math:: q(a, v \mid x) = \frac{1}{g^k - 1} \cdot \frac{e^\epsilon}{e^\epsilon + g - 1} \text{ if } v = h_a(x),
        \quad \frac{1}{g^k - 1} \cdot \frac{1}{e^\epsilon + g - 1} \text{ otherwise}

    where: :math:`h_a` are the :math:`g^k - 1` functions of the module's header and g is the prime of least variance,
    about :math:`e^\epsilon + 1`.

    Deviation: the published protocol takes any universal family, and the server evaluates every report's function at
    every site. With this family the work does not depend on the number of reports, and all pairs collide equally
    often. A prime instead of the nearest whole number costs a few percent of variance at most.

    Source: Wang, Blocki, Li, Jha, "Locally Differentially Private Protocols for Frequency Estimation" (2017), OLH.

    Parameters
    ----------
    buckets : int, optional
        g, a prime; the best by default.
    """

    name: ClassVar[str] = "olh"
    summary: ClassVar[str] = "each client hashes the sites to few buckets and reports a randomized one"
    source: ClassVar[str] = "Wang et al. 2017"
    randomizer = HashingRandomizer

    buckets: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(self.buckets is None or is_prime(self.buckets), "buckets", "a prime, or none")
