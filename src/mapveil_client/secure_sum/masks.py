r"""Masks: a seed agreed by two clients becomes a long vector that cancels in the sum.

.. math:: y_i = x_i + \mathrm{PRG}(b_i) + \sum_{j \in N(i)} \pm\, \mathrm{PRG}(s_{ij}) \pmod{2^b}

where: :math:`x_i` is client i's vector, :math:`b_i` its own seed, :math:`s_{ij}` the seed it agreed
with neighbour j, :math:`N(i)` its neighbours, and PRG the keystream of AES-256 in counter mode (or
of ChaCha20), read as little-endian words of 8, 16, 32 or 64 bits, the fewest that hold b. Words
wrap around at their own width, which :math:`2^b` divides: the sum is reduced once, at the end.

A seed is the cipher's key and keys one stream only, so the counter starts at zero.

Source: Bell, Bonawitz, Gascon, Lepoint, Raykova, "Secure Single-Server Aggregation with
(Poly)Logarithmic Overhead" (2020), algorithm 2.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mapveil_client.errors import ParameterError
from mapveil_client.secure_sum.faults import PeerFault

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

SEED_BYTES = 32

_CHUNK = 1 << 17  # bytes: the vector's piece and the keystream both stay in the second cache
_ZEROS = bytes(_CHUNK)
_SLACK = 15  # the cipher wants room for all but one byte of a block more
_OPEN = 128  # streams held open at once


class Cipher(IntEnum):
    """The cipher whose keystream masks, and whose family seals."""

    AES_256_CTR = 1
    CHACHA20 = 2


def word_type(bits: int) -> np.dtype[np.unsignedinteger]:
    """The smallest little-endian unsigned word of at least ``bits`` bits.

    Raises
    ------
    ParameterError
        ``bits`` is not between 1 and 64.

    Examples
    --------
    >>> word_type(20)
    dtype('uint32')
    """
    for width in (8, 16, 32, 64):
        if 1 <= bits <= width:
            return np.dtype(f"<u{width // 8}")
    raise ParameterError(f"a modulus of 2^{bits}; 2^1 to 2^64 are accepted")


@functools.cache
def _key_agreement() -> tuple[Callable[[bytes], X25519PublicKey], type[HKDF], SHA256]:
    """What :func:`agree` works with, imported once: looking imports up costs a tenth of an agreement."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return X25519PublicKey.from_public_bytes, HKDF, SHA256()


def agree(private: X25519PrivateKey, public: bytes, info: bytes) -> bytes:
    r"""Agree on a key with the holder of another key pair.

    .. math:: \mathrm{HKDF\text{-}SHA256}(\mathrm{X25519}(a, B), \mathrm{info})

    where: :math:`a` is ``private`` and :math:`B` is ``public``. Run by: the client, and by the
    server for a client whose key it reconstructed.

    Parameters
    ----------
    private : X25519PrivateKey
        One side's key.
    public : bytes
        The other side's public key, 32 bytes.
    info : bytes
        Equal at both sides, from :func:`mapveil_client.secure_sum.domain.info`.

    Returns
    -------
    bytes
        32 bytes.

    Raises
    ------
    PeerFault
        The public key is no key, or one of those for which every result is zero.
    """
    read_key, extract_and_expand, hash_function = _key_agreement()
    try:
        shared = private.exchange(read_key(public))
    except ValueError:
        raise PeerFault(
            f"a public key of {len(public)} bytes gives no shared secret; "
            "an X25519 key of 32 bytes and large order is accepted"
        ) from None
    return extract_and_expand(hash_function, SEED_BYTES, None, info).derive(shared)


def add_masks(
    vector: npt.NDArray[np.unsignedinteger],
    seeds: Sequence[bytes],
    signs: Sequence[int] | npt.NDArray[np.integer],
    cipher: Cipher = Cipher.AES_256_CTR,
) -> None:
    r"""Add to a vector, in place, the keystream of each seed, or subtract it.

    .. math:: v \leftarrow v + \textstyle\sum_i s_i\, \mathrm{PRG}(k_i) \pmod{2^w}

    where: :math:`v` is ``vector``, :math:`w` its word's width in bits, :math:`k_i` is ``seeds[i]``
    and :math:`s_i` is ``signs[i]``. Run by: the client to mask, the server to unmask.

    Parameters
    ----------
    vector : ndarray of the words of :func:`word_type`, contiguous
        Changed in place.
    seeds : sequence of bytes
        32 bytes each.
    signs : sequence of int
        Above zero adds, below zero subtracts.
    cipher : Cipher
        The generator.

    Raises
    ------
    ParameterError
        The vector is not contiguous little-endian unsigned words, or seeds and signs differ in number.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher as Stream
    from cryptography.hazmat.primitives.ciphers import algorithms, modes

    if vector.dtype not in (np.dtype(f"<u{size}") for size in (1, 2, 4, 8)) or not vector.flags.c_contiguous:
        raise ParameterError(
            f"a vector of {vector.dtype}; contiguous little-endian unsigned words are accepted"
        )
    if len(seeds) != len(signs):
        raise ParameterError(f"{len(seeds)} seeds and {len(signs)} signs; one sign per seed is accepted")
    step = _CHUNK // vector.itemsize
    room = np.empty(min(vector.nbytes, _CHUNK) + _SLACK, dtype=np.uint8)
    start_of_stream = bytes(16)
    counter = modes.CTR(start_of_stream)
    for first in range(0, len(seeds), _OPEN):
        streams = [
            (
                Stream(algorithms.AES(seed), counter)
                if cipher is Cipher.AES_256_CTR
                else Stream(algorithms.ChaCha20(seed, start_of_stream), mode=None)
            ).encryptor()
            for seed in seeds[first : first + _OPEN]
        ]
        operations = [np.add if sign > 0 else np.subtract for sign in signs[first : first + _OPEN]]
        for start in range(0, vector.size, step):
            piece = vector[start : start + step]
            zeros = _ZEROS if piece.nbytes == _CHUNK else _ZEROS[: piece.nbytes]
            key = room[: piece.nbytes].view(vector.dtype)
            for stream, operation in zip(streams, operations, strict=True):
                stream.update_into(zeros, room.data)
                operation(piece, key, out=piece)
