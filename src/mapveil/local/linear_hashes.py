r"""A family of hash functions in which any two sites collide for exactly one in g, and its sums by Fourier transforms.

.. math:: h_a(x) = \langle a, x \rangle \bmod g, \qquad a \in \mathbb{Z}_g^k

where: g is a prime, and a site's number is written as k digits to the base g. For :math:`x \ne x'` the function of a
uniform a takes each value at :math:`x - x'` equally often, so :math:`h_a(x) = h_a(x')` for exactly :math:`g^{k-1}` of
the :math:`g^k` functions.

What a server needs are sums of a table T over all functions at once, for every site:

.. math:: R(x) = \sum_a T[a, h_a(x)] = \frac{1}{g} \sum_{j=0}^{g-1} G_j(j x), \qquad
    G_j(z) = \sum_a e^{2 \pi i \langle a, z \rangle / g} \sum_v T[a, v]\, e^{-2 \pi i j v / g}

one transform over :math:`\mathbb{Z}_g^k` for each j: :math:`O(g^{k+1} \log g^k)`, however many reports there were.
The adjoint is made likewise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mapveil.errors import ParameterError

__all__ = ["LinearHashes", "is_prime"]

FloatArray = npt.NDArray[np.float64]
ComplexArray = npt.NDArray[np.complex128]
IntArray = npt.NDArray[np.int64]


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
        How many sites are hashed; k is the least with :math:`g^k` at least as many.

    Examples
    --------
    >>> hashes = LinearHashes(3, 9)
    >>> every = np.arange(hashes.functions)
    >>> int((hashes.values(every, np.full(9, 4)) == hashes.values(every, np.full(9, 7))).sum())
    3
    """

    buckets: int
    sites: int

    def __post_init__(self) -> None:
        if not is_prime(self.buckets):
            raise ParameterError(f"buckets is {self.buckets}; a prime is accepted")

    @property
    def digits(self) -> int:
        """k."""
        count, reach = 1, self.buckets
        while reach < self.sites:
            count, reach = count + 1, reach * self.buckets
        return count

    @property
    def functions(self) -> int:
        """How many there are, :math:`g^k`."""
        return int(self.buckets**self.digits)

    def values(self, functions: IntArray, sites: IntArray) -> IntArray:
        """h of sites, each under a function of its own, shape (n,). Run by: the client."""
        g = self.buckets
        a, x = functions.copy(), sites.copy()
        made = np.zeros(a.shape, dtype=np.int64)
        for _ in range(self.digits):
            made += (a % g) * (x % g)
            a //= g
            x //= g
        return np.asarray(made % g)

    def sums(self, table: FloatArray) -> FloatArray:
        """R of every site, shape (sites,). Run by: the server.

        Parameters
        ----------
        table : ndarray of float64, shape (functions, buckets)
            T.
        """
        g = self.buckets
        bent = np.fft.rfft(table, axis=1)
        made = np.zeros(self.functions)
        for j in range(bent.shape[1]):
            # The inverse transform has the sign that G has, over the number of functions.
            spectrum = np.fft.ifftn(bent[:, j].reshape((g,) * self.digits)) * self.functions
            part = self._scaled(spectrum, j).real
            made += part if j == 0 or 2 * j == g else 2 * part
        return np.asarray(made[: self.sites] / g)

    def table(self, values: FloatArray) -> FloatArray:
        r"""The adjoint: :math:`A[a, v] = \sum_{x : h_a(x) = v} p(x)`, shape (functions, buckets). Run by: the server.

        Parameters
        ----------
        values : ndarray of float64, shape (sites,)
            p.
        """
        g = self.buckets
        whole = np.zeros(self.functions)
        whole[: self.sites] = values
        spectrum = np.fft.fftn(whole.reshape((g,) * self.digits))
        bent = np.empty((self.functions, g // 2 + 1), dtype=np.complex128)
        for j in range(bent.shape[1]):
            bent[:, j] = self._scaled(spectrum, j)
        return np.asarray(np.fft.irfft(bent, n=g, axis=1))

    def _scaled(self, spectrum: ComplexArray, factor: int) -> ComplexArray:
        """The spectrum at ``factor`` times each point, flat."""
        along = np.arange(self.buckets) * factor % self.buckets
        return np.asarray(spectrum[np.ix_(*[along] * self.digits)]).reshape(-1)
