r"""The prime fields of two-operator sums, vectorised: elements, their bytes, powers, sums and polynomials.

An element is a row of 64-bit words, least significant first, shape (..., words): its bytes are those of the wire.

.. math:: v_i = P(\omega_n^i) = \sum_j c_j\, \omega_n^{ij}, \qquad \omega_n = g^{N / n}

where: :math:`P` is a polynomial with the coefficients c, :math:`g` is the generator of the subgroup of order N
(:attr:`Field.order`), and v are its values at the n-th roots of unity (the Lagrange basis).

Source: draft-irtf-cfrg-vdaf, section 6.1.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import BoolArray, IntArray
from mapveil_client.errors import ParameterError, check
from mapveil_client.two_operators.field_arithmetic import arithmetic

Elements = npt.NDArray[np.uint64]
"""Elements of a field, shape (..., words), reduced."""

Octets = npt.NDArray[np.uint8]
"""Strings of equal length, one for each report, shape (reports, bytes)."""

_HALF = np.uint64(32)
_LOW = np.uint64((1 << 32) - 1)
_WORD = 1 << 64


@dataclass(frozen=True)
class Field:
    """The integers modulo a prime.

    Parameters
    ----------
    modulus : int
        The prime.
    words : int
        Words of 64 bits of an element: 1, 2 or 4.
    order : int
        Order of the subgroup of roots of unity, a power of two; 1 where there is none.
    generator : int
        Its generator.
    """

    modulus: int
    words: int
    order: int = 1
    generator: int = 1

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return 8 * self.words

    def zeros(self, *shape: int) -> Elements:
        """Zeros, shape ``(*shape, words)``."""
        return np.zeros((*shape, self.words), dtype=np.uint64)

    def of(self, values: int | Iterable[Any]) -> Elements:
        """Elements of whole numbers of any size and sign, shape (values, words), or (words,) of one number."""
        if isinstance(values, int):
            return np.asarray(self.of([values])[0])
        written = b"".join((int(value) % self.modulus).to_bytes(self.size, "little") for value in values)
        return np.frombuffer(written, dtype="<u8").reshape(-1, self.words)

    def small(self, values: npt.NDArray[np.integer]) -> Elements:
        """Elements of an int64 array of numbers of either sign, shape ``(*shape, words)``."""
        magnitude = self.zeros(*values.shape)
        magnitude[..., 0] = np.abs(values)
        negated = self.subtract(self.zeros(1), magnitude)
        return np.asarray(np.where((values < 0)[..., None], negated, magnitude))

    def integers(self, elements: Elements) -> list[int]:
        """Whole numbers from 0 to the modulus, of a flat list of elements."""
        written = np.ascontiguousarray(elements, dtype="<u8").tobytes()
        return [
            int.from_bytes(written[at : at + self.size], "little") for at in range(0, len(written), self.size)
        ]

    def add(self, a: Elements, b: Elements) -> Elements:
        """Sum, with broadcasting."""
        return self._combined("add", a, b)

    def subtract(self, a: Elements, b: Elements) -> Elements:
        """Difference, with broadcasting."""
        return self._combined("subtract", a, b)

    def multiply(self, a: Elements, b: Elements) -> Elements:
        """Product, with broadcasting."""
        return self._combined("multiply", a, b)

    def _combined(self, operation: str, a: Elements, b: Elements) -> Elements:
        if self.words <= 2:
            made: Elements = arithmetic(operation, 64 * self.words, a, b)
            return made
        # Only the leaves of one VDAF are of this field: whole numbers of Python do.
        left, right = np.broadcast_arrays(a, b)
        pairs = zip(self.integers(left), self.integers(right), strict=True)
        if operation == "multiply":
            made = self.of(x * y for x, y in pairs)
        else:
            made = self.of(x + y if operation == "add" else x - y for x, y in pairs)
        return made.reshape(left.shape)

    def negative(self, a: Elements) -> Elements:
        """The additive inverse."""
        return self.subtract(self.zeros(1), a)

    def equal(self, a: Elements, b: Elements) -> BoolArray:
        """Whether elements are equal, shape (...,)."""
        return np.asarray((a == b).all(axis=-1))

    def reduced(self, words: Elements) -> BoolArray:
        """Whether words are those of an element, that is below the modulus, shape (...,)."""
        below = np.zeros(words.shape[:-1], dtype=np.bool_)
        equal = np.ones(words.shape[:-1], dtype=np.bool_)
        for word in reversed(range(self.words)):
            limit = np.uint64(self.modulus >> (64 * word) & (_WORD - 1))
            below |= equal & (words[..., word] < limit)
            equal &= words[..., word] == limit
        return below

    def encode(self, elements: Elements) -> Octets:
        """Bytes of each report's elements: (reports, n, words) to (reports, 8 n words)."""
        contiguous = np.ascontiguousarray(elements, dtype="<u8")
        return contiguous.view(np.uint8).reshape(elements.shape[0], -1)

    def decode(self, octets: Octets) -> tuple[Elements, BoolArray]:
        """Elements of each report's bytes, and which reports hold nothing but elements; others become zeros."""
        words = np.ascontiguousarray(octets).view("<u8").astype(np.uint64)
        elements = words.reshape(octets.shape[0], -1, self.words)
        good = np.asarray(self.reduced(elements).all(axis=1))
        return np.where(good[:, None, None], elements, np.uint64(0)), good

    def total(self, elements: Elements, axis: int) -> Elements:
        """Sum along an axis (not the last), of fewer than 2^32 elements."""
        axis = axis % elements.ndim
        return self._of_digits([part.sum(axis=axis, dtype=np.uint64) for part in self._digits(elements)])

    def weighted(self, elements: Elements, weights: Sequence[int]) -> Elements:
        """Sum along the axis before the last, each element times a whole number; these sum to less than 2^32."""
        times = np.array(weights, dtype=np.uint64)
        return self._of_digits([np.asarray(part @ times) for part in self._digits(elements)])

    def _digits(self, elements: Elements) -> Iterator[Elements]:
        """Digits of 32 bits, least significant first, each of shape (...,)."""
        for word in range(self.words):
            yield elements[..., word] & _LOW
            yield elements[..., word] >> _HALF

    def grouped(self, elements: Elements, group: IntArray, groups: int) -> Elements:
        """Sum the elements of each group, shape (groups, words); an element of group -1 is in none."""
        kept, inside = group >= 0, np.zeros(groups, dtype=np.uint64)
        digits = []
        for word in range(self.words):
            column = elements[kept, word]
            for part in (column & _LOW, column >> _HALF):
                digits.append(inside.copy())
                np.add.at(digits[-1], group[kept], part)
        return self._of_digits(digits)

    def _of_digits(self, digits: list[Elements]) -> Elements:
        """Reduce numbers of digits of 32 bits, each of which may have grown by 32 bits more."""
        carried, carry = [], np.zeros_like(digits[0])
        for digit in digits:
            low = (digit & _LOW) + (carry & _LOW)
            carried.append(low & _LOW)
            carry = (digit >> _HALF) + (carry >> _HALF) + (low >> _HALF)
        words = [carried[at] | (carried[at + 1] << _HALF) for at in range(0, len(carried), 2)]
        stacked = np.stack(words, axis=-1)
        if self.words > 2:
            stacked = self.of(self.integers(stacked)).reshape(stacked.shape)
        else:
            modulus = np.frombuffer(self.modulus.to_bytes(self.size, "little"), dtype="<u8")
            stacked = self.subtract(stacked, modulus)  # whose borrow adds the modulus where there is one
        above = self.zeros(*carry.shape)
        above[..., 0] = carry
        return self.add(stacked, self.multiply(above, self.of(1 << (64 * self.words))))

    def powers(self, base: Elements, count: int, times: Elements | None = None) -> Elements:
        """The powers from 1 to ``count`` of each element: (..., words) to (..., count, words).

        All powers of an element are multiplied by its number in ``times``, shape (..., words), where that is given.
        """
        made = (base if times is None else self.multiply(base, times))[..., None, :]
        step = base[..., None, :]
        while (there := made.shape[-2]) < count:
            made = np.concatenate([made, self.multiply(made[..., : count - there, :], step)], axis=-2)
            step = self.multiply(step, step)
        return made

    def root(self, n: int) -> int:
        """The principal n-th root of unity.

        Raises
        ------
        ParameterError
            n is no power of two, or above the subgroup's order.
        """
        check(n >= 1 and n & (n - 1) == 0 and n <= self.order, "n", f"a power of two up to {self.order}", n)
        return pow(self.generator, self.order // n, self.modulus)

    def values(self, coefficients: Elements, n: int) -> Elements:
        """Values of polynomials at the n-th roots of unity: (..., c, words) to (..., n, words), c at most n."""
        padded = self.zeros(*coefficients.shape[:-2], n)
        padded[..., : coefficients.shape[-2], :] = coefficients
        return self._transformed(padded, self.root(n))

    def coefficients(self, values: Elements) -> Elements:
        """Coefficients of the polynomials of least degree with these values at the roots of unity; same shape."""
        n = values.shape[-2]
        made = self._transformed(values, pow(self.root(n), -1, self.modulus))
        return self.multiply(made, self.of(pow(n, -1, self.modulus)))

    def _transformed(self, values: Elements, root: int) -> Elements:
        """Number-theoretic transform, radix two."""
        n = values.shape[-2]
        made = values[..., _bit_reversed(n), :]
        width = 1
        while width < n:
            twiddle = _root_powers(self, pow(root, n // (2 * width), self.modulus), width)
            pairs = made.reshape(*made.shape[:-2], n // (2 * width), 2, width, self.words)
            even, odd = pairs[..., 0, :, :], self.multiply(pairs[..., 1, :, :], twiddle)
            made = np.stack([self.add(even, odd), self.subtract(even, odd)], axis=-3).reshape(values.shape)
            width *= 2
        return made

    def weights(self, at: Elements, nodes: int, n: int) -> Elements:
        r"""Lagrange's weights of the first ``nodes`` of the n-th roots of unity, at points: (..., nodes, words).

        .. math:: \ell_i(t) = \prod_{j \ne i} (t - x_j) \Big/ \prod_{j \ne i} (x_i - x_j)

        where: t is ``at``, shape (..., words), and the x are the roots.
        """
        roots, scale = _nodes(self, nodes, n)
        apart = self.subtract(at[..., None, :], roots)
        before, after = np.empty_like(apart), np.empty_like(apart)
        before[..., 0, :] = after[..., -1, :] = self.of(1)
        for i in range(1, nodes):
            before[..., i, :] = self.multiply(before[..., i - 1, :], apart[..., i - 1, :])
            after[..., -1 - i, :] = self.multiply(after[..., -i, :], apart[..., -i, :])
        return self.multiply(self.multiply(before, after), scale)

    def power(self, base: Elements, exponent: int) -> Elements:
        """Raise elements to a power of at least 1."""
        made = base
        for bit in bin(exponent)[3:]:
            made = self.multiply(made, made)
            made = self.multiply(made, base) if bit == "1" else made
        return made


@functools.lru_cache(maxsize=64)
def _bit_reversed(n: int) -> IntArray:
    bits = n.bit_length() - 1
    order = np.zeros(n, dtype=np.int64)
    for bit in range(bits):
        order |= ((np.arange(n) >> bit) & 1) << (bits - 1 - bit)
    return order


@functools.lru_cache(maxsize=256)
def _root_powers(field: Field, root: int, count: int) -> Elements:
    return field.of(pow(root, i, field.modulus) for i in range(count))


@functools.lru_cache(maxsize=32)
def _nodes(field: Field, nodes: int, n: int) -> tuple[Elements, Elements]:
    """The first roots of unity, and the inverse of each product of differences."""
    if not 1 <= nodes <= n:
        raise ParameterError(f"nodes must be 1 to {n}, got {nodes}")
    p, root = field.modulus, field.root(n)
    x = [pow(root, i, p) for i in range(nodes)]
    # Over all n roots the product is n / x_i; divide by the roots that are left out.
    missing = [pow(root, i, p) for i in range(nodes, n)]
    inverse = []
    for each in x:
        left = functools.reduce(lambda made, gone: made * (each - gone) % p, missing, 1)
        inverse.append(left * each * pow(n, -1, p) % p)
    return field.of(x), field.of(inverse)


FIELD64: Final = Field((1 << 64) - (1 << 32) + 1, 1, 1 << 32, pow(7, 4294967295, (1 << 64) - (1 << 32) + 1))
FIELD128: Final = Field(
    (1 << 66) * 4611686018427387897 + 1,
    2,
    1 << 66,
    pow(7, 4611686018427387897, (1 << 66) * 4611686018427387897 + 1),
)
FIELD255: Final = Field((1 << 255) - 19, 4)
