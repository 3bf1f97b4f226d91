r"""The extendable-output functions of two-operator sums, over many reports at a time.

.. math:: \mathrm{XofTurboShake128}(s, d, b) = \mathrm{TurboSHAKE128}(|d|_2\, d \,\|\, |s|_1\, s \,\|\, b, 1)

.. math:: \mathrm{XofFixedKeyAes128}(s, d, b)_i = \pi_k(\sigma(s \oplus i)) \oplus \sigma(s \oplus i), \qquad
    k = \mathrm{TurboSHAKE128}(|d|_2\, d \,\|\, b, 2), \qquad \sigma(l \,\|\, h) = h \,\|\, (h \oplus l)

where: :math:`s` is a seed, :math:`d` the domain separation tag, :math:`b` the binder, :math:`|x|_n` a length in n
bytes, least significant first, :math:`\pi_k` is AES-128 under the key k, and i numbers blocks of 16 bytes.

Source: draft-irtf-cfrg-vdaf, section 6.2.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from mapveil_client.two_operators.finite_fields import Elements, Field, Octets
from mapveil_client.two_operators.turbo_shake import turbo_shake_128

VERSION: Final = 18
"""Version of the draft's algorithms, which separates their hashes."""

SEED_BYTES: Final = 32
NONCE_BYTES: Final = 16
KEY_BYTES: Final = 16
"""Bytes of a seed of :func:`fixed_key_stream`, and of its key."""


def separation(algorithm_class: int, algorithm: int, usage: int, context: bytes) -> bytes:
    """The domain separation tag of one use of one algorithm in one application.

    Parameters
    ----------
    algorithm_class : int
        0 of a VDAF, 1 of an IDPF.
    algorithm, usage : int
        The algorithm's number, and the number of the use within it.
    context : bytes
        The application.
    """
    numbers = VERSION.to_bytes(1, "big") + algorithm_class.to_bytes(1, "big") + algorithm.to_bytes(4, "big")
    return numbers + usage.to_bytes(2, "big") + context


def joined(count: int, parts: Sequence[bytes | Octets]) -> Octets:
    """Strings side by side for each of ``count`` reports; bytes are the same for all. Shape (count, bytes)."""
    columns = [
        np.broadcast_to(np.frombuffer(part, dtype=np.uint8), (count, len(part)))
        if isinstance(part, bytes)
        else part
        for part in parts
    ]
    return np.concatenate(columns, axis=1)


class TurboShakeXof:
    """XofTurboShake128 of one seed and binder for each report.

    Parameters
    ----------
    seeds : ndarray of uint8, shape (reports, bytes), or bytes
        The seeds.
    tag : bytes
        Domain separation tag, up to 65,535 bytes.
    binder : sequence of bytes or arrays of shape (reports, bytes)
        The binder, in parts.
    count : int
        Number of reports.
    """

    def __init__(
        self, seeds: Octets | bytes, tag: bytes, binder: Sequence[bytes | Octets], count: int
    ) -> None:
        size = len(seeds) if isinstance(seeds, bytes) else seeds.shape[1]
        head = len(tag).to_bytes(2, "little") + tag + size.to_bytes(1, "little")
        self._message = joined(count, [head, seeds, *binder])

    def octets(self, length: int) -> Octets:
        """The first bytes of each stream."""
        return turbo_shake_128(self._message, 1, length)

    def elements(self, field: Field, length: int) -> Elements:
        """The first field elements of each stream, shape (reports, length, words)."""
        return self.sequence([(field, length)])[0]

    def sequence(self, parts: Sequence[tuple[Field, int]], skip: int = 0) -> list[Elements]:
        """Elements of one field after another, after ``skip`` bytes of each stream."""
        wanted = skip + sum(field.size * length for field, length in parts)

        def longer(row: int, size: int) -> bytes:
            return turbo_shake_128(self._message[row : row + 1], 1, skip + size).tobytes()[skip:]

        return drawn_elements(parts, self.octets(wanted)[:, skip:], longer)


def drawn_elements(
    parts: Sequence[tuple[Field, int]], octets: Octets, longer: Callable[[int, int], bytes]
) -> list[Elements]:
    """Read elements from streams; a number of the modulus or above is left out, and the next is read in its place.

    Parameters
    ----------
    parts : sequence of (Field, int)
        Fields, and the number of elements of each; at least one element.
    octets : ndarray of uint8, shape (reports, bytes of all elements)
        The start of each stream.
    longer : callable
        Called with a report's number and a number of bytes, where the start does not suffice; returns that many.
    """
    count, at = octets.shape[0], 0
    found, short = [], np.zeros(count, dtype=np.bool_)
    for field, length in parts:
        piece = np.ascontiguousarray(octets[:, at : at + length * field.size])
        words = piece.view("<u8").astype(np.uint64).reshape(count, length, field.words)
        words[..., -1] &= np.uint64(_mask(field) >> (64 * (field.words - 1)))
        short |= ~field.reduced(words).all(axis=1)
        found.append(words)
        at += length * field.size
    for row in np.flatnonzero(short).tolist():  # one of 2^32 numbers of the smallest field
        stream = functools.partial(longer, row)
        for words, read in zip(found, _read_slowly(parts, stream, at), strict=True):
            words[row] = read
    return found


def _mask(field: Field) -> int:
    return (1 << field.modulus.bit_length()) - 1


def _read_slowly(
    parts: Sequence[tuple[Field, int]], stream: Callable[[int], bytes], size: int
) -> Iterator[Elements]:
    """Read one report's elements, one number after another."""
    octets, at = stream(size), 0
    for field, length in parts:
        kept: list[int] = []
        while len(kept) < length:
            if at + field.size > len(octets):
                octets = stream(2 * len(octets) + field.size)
            number = int.from_bytes(octets[at : at + field.size], "little") & _mask(field)
            at += field.size
            if number < field.modulus:
                kept.append(number)
        yield field.of(kept)


def fixed_keys(tag: bytes, binder: Octets) -> list[CipherContext]:
    """AES under the key of each report's binder, for :func:`fixed_key_stream`: one key schedule for each report."""
    head = len(tag).to_bytes(2, "little") + tag
    keys = turbo_shake_128(joined(binder.shape[0], [head, binder]), 2, KEY_BYTES)
    return [Cipher(algorithms.AES(key.tobytes()), modes.ECB()).encryptor() for key in keys]


def fixed_key_stream(
    keys: Sequence[CipherContext], seeds: npt.NDArray[np.uint8], blocks: int
) -> npt.NDArray[np.uint8]:
    """XofFixedKeyAes128 of many seeds under each report's key.

    Parameters
    ----------
    keys : sequence of CipherContext
        From :func:`fixed_keys`, one of each report.
    seeds : ndarray of uint8, shape (reports, seeds, 16)
        The seeds.
    blocks : int
        Blocks of 16 bytes of each stream.

    Returns
    -------
    ndarray of uint8, shape (reports, seeds, 16 * blocks)
    """
    halves = np.ascontiguousarray(seeds).view("<u8")[:, :, None, :]  # (reports, seeds, 1, 2)
    mixed = np.empty((*halves.shape[:2], blocks, 2), dtype="<u8")
    mixed[..., 0] = halves[..., 1]
    np.bitwise_xor(halves[..., 0], np.arange(blocks, dtype=np.uint64), out=mixed[..., 1])
    mixed[..., 1] ^= mixed[..., 0]
    size = mixed[:1].nbytes
    found = np.empty(mixed.nbytes + KEY_BYTES, dtype=np.uint8)  # a cipher asks for room for one block more
    plain, room = mixed.reshape(-1).view(np.uint8).data, found.data
    for at, cipher in zip(range(0, mixed.nbytes, size), keys, strict=True):
        cipher.update_into(plain[at : at + size], room[at : at + size + KEY_BYTES])
    made = found[: mixed.nbytes]
    made ^= mixed.reshape(-1).view(np.uint8)
    return made.reshape(*seeds.shape[:2], KEY_BYTES * blocks)
