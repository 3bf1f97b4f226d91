r"""Arithmetic modulo the primes of two-operator sums, on words of 64 bits: one definition for arrays and for scalars.

.. math:: p_{64} = 2^{64} - 2^{32} + 1, \qquad p_{128} = 2^{128} - 28 \cdot 2^{64} + 1

A product is folded by :math:`2^{64} \equiv 2^{32} - 1` and :math:`2^{96} \equiv -1` modulo :math:`p_{64}`, and by
:math:`2^{128} \equiv 28 \cdot 2^{64} - 1` modulo :math:`p_{128}`. Every function takes reduced numbers and returns
reduced ones, without a branch on a value. NumPy evaluates the functions on arrays; the extra ``fast`` compiles the same
functions for scalars.

Source: draft-irtf-cfrg-vdaf, section 6.1.3, for the primes.
"""

import functools
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from mapveil_client.errors import MissingExtra, require

Kernel = Callable[..., Any]
Words = Any
"""Words of 64 bits: an array of uint64, or one np.uint64 where compiled."""

COMPILE_AFTER_S: Final = 1.0
"""Seconds of one function in NumPy after which it is compiled, where that is installed: about what compiling costs."""

_spent: defaultdict[str, float] = defaultdict(float)  # seconds in NumPy, by function
_PIECE: Final = 1 << 13  # words of an array whose intermediate results stay in the second cache
_U = np.uint64
_HALF = np.uint64(32)
_LOW = np.uint64((1 << 32) - 1)
_ONE = np.uint64(1)
_P64 = np.uint64((1 << 64) - (1 << 32) + 1)
_P128_HIGH = np.uint64((1 << 64) - 28)  # of p_128; its low word is 1
_FOLD = np.uint64(28)
_FOLD_TWICE = np.uint64(28 * 28)
_TWICE_HIGH = np.uint64((1 << 64) - 56)  # of 2 p_128 = 2^128 + (2^64 - 56) 2^64 + 2
_TWO = np.uint64(2)


def _define(jit: Callable[[Kernel], Kernel]) -> dict[str, Kernel]:
    """The functions, each passed through ``jit``."""

    def product(a: Words, b: Words) -> tuple[Words, Words]:
        """Low and high word of a product of two words."""
        low = (a & _LOW) * (b & _LOW)
        first = (a & _LOW) * (b >> _HALF)
        second = (a >> _HALF) * (b & _LOW)
        middle = (low >> _HALF) + (first & _LOW) + (second & _LOW)
        high = (a >> _HALF) * (b >> _HALF) + (first >> _HALF) + (second >> _HALF) + (middle >> _HALF)
        return (low & _LOW) | (middle << _HALF), high

    product = jit(product)

    def scaled(a: Words, few: Words) -> tuple[Words, Words]:
        """Low and high word of a product of a word and a number below 2^31."""
        upper = (a >> _HALF) * few + ((a & _LOW) * few >> _HALF)
        return a * few, upper >> _HALF

    scaled = jit(scaled)

    def plus(a: Words, b: Words) -> tuple[Words, Words]:
        """Sum of two words, and the carry."""
        total = a + b
        return total, _U(total < a)

    plus = jit(plus)

    def minus(a: Words, b: Words) -> tuple[Words, Words]:
        """Difference of two words, and the borrow."""
        return a - b, _U(a < b)

    minus = jit(minus)

    def add_64(a: Words, b: Words) -> Words:
        total = a + b
        over = _U(total < a) | _U(total >= _P64)
        return total - over * _P64

    def subtract_64(a: Words, b: Words) -> Words:
        return a - b + _U(a < b) * _P64

    def multiply_64(a: Words, b: Words) -> Words:
        low, high = product(a, b)
        upper = high >> _HALF
        less = low - upper - _U(low < upper) * _LOW
        more = (high & _LOW) * _LOW
        total = less + more
        total = total + _U(total < more) * _LOW
        return total - _U(total >= _P64) * _P64

    def reduced_128(low: Words, high: Words) -> tuple[Words, Words]:
        """A number below 2^128, less p_128 where it is not below."""
        over = _U(high > _P128_HIGH) | (_U(high == _P128_HIGH) & _U(low >= _ONE))
        less, borrow = minus(low, over)
        return less, high - over * _P128_HIGH - borrow

    reduced_128 = jit(reduced_128)

    def folded_128(low: Words, high: Words, top: Words) -> tuple[Words, Words]:
        """A number of two words and a few bits above them, reduced."""
        for _ in range(2):
            high, carry = plus(high, top * _FOLD)
            low, borrow = minus(low, top)
            high, second = minus(high, borrow)
            top = carry - second
        return reduced_128(low, high)

    folded_128 = jit(folded_128)

    def add_128(a: Words, b: Words, c: Words, d: Words) -> tuple[Words, Words]:
        low, carry = plus(a, c)
        high, over = plus(b, d)
        high, more = plus(high, carry)
        return folded_128(low, high, over + more)

    def subtract_128(a: Words, b: Words, c: Words, d: Words) -> tuple[Words, Words]:
        low, borrow = minus(a, c)
        high, under = minus(b, d)
        high, more = minus(high, borrow)
        under = under + more
        low, carry = plus(low, under)
        return low, high + under * _P128_HIGH + carry

    def multiply_128(a: Words, b: Words, c: Words, d: Words) -> tuple[Words, Words]:
        w0, w1 = product(a, c)
        x0, x1 = product(a, d)
        y0, y1 = product(b, c)
        h0, h1 = product(b, d)
        w1, carry = plus(w1, x0)
        w1, more = plus(w1, y0)
        h0, over = plus(h0, carry + more)
        h0, carry = plus(h0, x1)
        h0, more = plus(h0, y1)
        h1 = h1 + over + carry + more
        # h 2^128 = (28 h0 + 784 h1) 2^64 - h - 28 h1 modulo p, whose first term is q0 2^64 + q1 2^128.
        e0, e1 = scaled(h1, _FOLD)
        q0, q1 = scaled(h0, _FOLD)
        r0, r1 = scaled(h1, _FOLD_TWICE)
        q0, carry = plus(q0, r0)
        q1 = q1 + r1 + carry
        # 2 p is added, so that the difference is not negative.
        low, carry = plus(w0, _TWO)
        high, top = plus(w1, q0)
        for each in (q1 * _FOLD, _TWICE_HIGH, carry):
            high, more = plus(high, each)
            top = top + more
        top = top + _ONE
        for each in (h0, e0, q1):
            low, borrow = minus(low, each)
            high, under = minus(high, borrow)
            top = top - under
        for each in (h1, e1):
            high, under = minus(high, each)
            top = top - under
        return folded_128(low, high, top)

    singles = (add_64, subtract_64, multiply_64, add_128, subtract_128, multiply_128)
    return {each.__name__: jit(each) for each in singles}


_PLAIN: Mapping[str, Kernel] = _define(lambda function: function)


@functools.cache
def _scalars() -> Mapping[str, Kernel]:
    """The functions for Numba, each compiled at its first use."""
    numba: Any = require("numba", "fast")
    return _define(numba.njit)


@functools.cache
def compiled_arithmetic(name: str) -> Kernel:
    """A function such as ``add_64`` as a NumPy ufunc over elements of one or two words; compiling takes half a second.

    Raises
    ------
    MissingExtra
        The extra ``fast`` is not installed.
    """
    numba: Any = require("numba", "fast")
    function, word = _scalars()[name], numba.uint64[:]

    def one(a: Words, b: Words, out: Words) -> None:
        out[0] = function(a[0], b[0])

    def two(a: Words, b: Words, out: Words) -> None:
        out[0], out[1] = function(a[0], a[1], b[0], b[1])

    made: Kernel = numba.guvectorize([(word, word, word)], "(k),(k)->(k)")(
        one if name.endswith("_64") else two
    )
    return made


def arithmetic(operation: str, bits: int, a: Words, b: Words) -> Words:
    """Add, subtract or multiply elements of a field of 64 or 128 bits, with broadcasting.

    Parameters
    ----------
    operation : str
        ``"add"``, ``"subtract"`` or ``"multiply"``.
    bits : int
        64 or 128.
    a, b : ndarray of uint64, shape (..., bits / 64)
        Reduced elements, least significant word first.
    """
    if max(a.ndim, b.ndim) == 1:  # words of scalars would warn where they wrap around
        return arithmetic(operation, bits, a[None], b[None])[0]
    name = f"{operation}_{bits}"
    if _spent[name] >= COMPILE_AFTER_S:
        try:
            return compiled_arithmetic(name)(a, b)
        except MissingExtra:
            _spent[name] = -math.inf
    begun = time.thread_time()
    a, b = np.broadcast_arrays(a, b)
    made = np.empty(a.shape, dtype=np.uint64)
    step = max(1, _PIECE * a.shape[0] // max(1, a.size))
    for first in range(0, a.shape[0], step):
        part = slice(first, first + step)
        words = [column[part, ..., word] for column in (a, b) for word in range(bits // 64)]
        found = _PLAIN[name](*words)
        for word, column in enumerate((found,) if bits == 64 else found):
            made[part, ..., word] = column
    _spent[name] += time.thread_time() - begun
    return made
