r"""Masks: a seed agreed by two clients becomes a long vector that cancels in the sum.

.. math:: y_i = x_i + \mathrm{PRG}(b_i) + \sum_{j \in N(i)} \pm\, \mathrm{PRG}(s_{ij}) \pmod{2^b}

where: :math:`x_i` is client i's vector, :math:`b_i` its own seed, :math:`s_{ij}` the seed it agreed
with neighbour j, :math:`N(i)` its neighbours, and PRG the keystream of AES-256 in counter mode (or
of ChaCha20), read as little-endian words of 8, 16, 32 or 64 bits, the fewest that hold b. Words
wrap around at their own width, which :math:`2^b` divides: the sum is reduced once, at the end.

A seed is the cipher's key and keys one stream only, so the counter starts at zero.

Source: Bell, Bonawitz, Gascon, Lepoint, Raykova, "Secure Single-Server Aggregation with
(Poly)Logarithmic Overhead" (2020), algorithm 2.

Domain separation: every hash, key and signature of a secure sum names what it is for.

Two uses can never share an input, because each input starts with the protocol's name and version
and the number of its purpose, and every part after it is preceded by its length.

Sealing: a client's shares travel to a neighbour through the server, which cannot read them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mapveil_client.errors import ParameterError
from mapveil_client.secure_sum.states import PeerFault

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF


PROTOCOL = b"mapveil secure sum"
VERSION = 1

_LENGTH_BYTES = 4


class Purpose(IntEnum):
    """What a derived key, a hash or a signature is for; numbers are never given anew."""

    PAIR_MASK = 1  # seed of the mask that one of a pair adds and the other subtracts
    SELF_MASK = 2  # seed of the mask that a client adds alone
    SEALING = 3  # key that seals the shares on their way from one client to another
    KEY_SIGNATURE = 4  # a device's signature of the keys it advertises
    SURVIVOR_SIGNATURE = 5  # a client's signature of the clients it was told are in the sum
    SEED_COMMITMENT = 6  # hash that binds a client to its self-mask seed
    GRAPH = 7  # stream that orders the clients around the ring
    SURVIVOR_SET = 8  # hash of the clients that are in the sum


def info(purpose: Purpose, round_id: bytes, context: bytes, *parts: bytes) -> bytes:
    r"""Write a purpose and its particulars as one string of bytes; distinct particulars differ.

    .. math:: \mathrm{name} \,\|\, \mathrm{version}_2 \,\|\, \mathrm{purpose}_2 \,\|\, |r|_4\, r \,\|\,
        |c|_4\, c \,\|\, |p_1|_4\, p_1 \,\|\, \dots

    where: :math:`r` is ``round_id``, :math:`c` is ``context``, :math:`p_i` are ``parts``, and
    :math:`x_n` is a number in n bytes, most significant first. Run by: both sides.

    Parameters
    ----------
    purpose : Purpose
        What the result will be hashed, expanded or signed for.
    round_id : bytes
        Names the one execution of the protocol.
    context : bytes
        Names the application and its query.
    parts : bytes
        Whatever else the purpose depends on, such as the two clients' keys.

    Examples
    --------
    >>> info(Purpose.GRAPH, b"r", b"").hex(" ")[-29:]
    '07 00 00 00 01 72 00 00 00 00'
    """
    written = [PROTOCOL, VERSION.to_bytes(2, "big"), int(purpose).to_bytes(2, "big")]
    for part in (round_id, context, *parts):
        written += (len(part).to_bytes(_LENGTH_BYTES, "big"), part)
    return b"".join(written)


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
    raise ParameterError(f"a modulus of 2^{bits}; expected 2^1 to 2^64")


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
        Equal at both sides, from :func:`mapveil_client.secure_sum.masks.info`.

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
            f"a public key of {len(public)} bytes gives no shared secret; expected an X25519 key of 32 "
            "bytes and large order"
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
        raise ParameterError(f"a vector of {vector.dtype}; expected contiguous little-endian unsigned words")
    if len(seeds) != len(signs):
        raise ParameterError(f"{len(seeds)} seeds and {len(signs)} signs; expected one sign per seed")
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


TAG_BYTES = 16
"""How much longer a sealed text is than its plain text."""

# A key is derived for one ordered pair of clients in one round (both names and the round are in
# its derivation), and seals exactly one text: the nonce cannot repeat under a key, so it is fixed.
_NONCE = bytes(12)


def seal(key: bytes, plaintext: bytes, associated: bytes, cipher: Cipher = Cipher.AES_256_CTR) -> bytes:
    """Encrypt and authenticate one text: AES-256-GCM, or ChaCha20-Poly1305 beside ChaCha20.

    Run by: the client that sends shares.

    Parameters
    ----------
    key : bytes
        32 bytes, from :func:`mapveil_client.secure_sum.masks.agree`, used for this text only.
    plaintext : bytes
        What nobody else shall read.
    associated : bytes
        What the receiver must hold the same (round, sender, receiver).
    cipher : Cipher
        The family of the round.

    Returns
    -------
    bytes
        ``len(plaintext) + TAG_BYTES``.
    """
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

    if cipher is Cipher.AES_256_CTR:
        return AESGCM(key).encrypt(_NONCE, plaintext, associated)
    return ChaCha20Poly1305(key).encrypt(_NONCE, plaintext, associated)


def open_sealed(key: bytes, sealed: bytes, associated: bytes, cipher: Cipher = Cipher.AES_256_CTR) -> bytes:
    """Check and decrypt what :func:`seal` made. Run by: the client that receives shares.

    Raises
    ------
    PeerFault
        The text was not sealed under this key, for this round, sender and receiver.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

    try:
        if cipher is Cipher.AES_256_CTR:
            return AESGCM(key).decrypt(_NONCE, sealed, associated)
        return ChaCha20Poly1305(key).decrypt(_NONCE, sealed, associated)
    except InvalidTag:
        raise PeerFault(
            "sealed shares do not open; expected shares sealed by the named sender for this client and round"
        ) from None
