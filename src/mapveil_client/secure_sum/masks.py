r"""Masks: a seed agreed by two clients becomes a long vector that cancels in the sum.

.. math:: y_i = x_i + \mathrm{PRG}(b_i) + \sum_{j \in N(i)} \pm\, \mathrm{PRG}(s_{ij}) \pmod{2^b}

where: :math:`x_i` is client i's vector, :math:`b_i` its own seed, :math:`s_{ij}` the seed it agreed
with neighbour j, :math:`N(i)` its neighbours, and PRG the keystream of AES-256 in counter mode (or
of ChaCha20), read as little-endian words of 8, 16, 32 or 64 bits, the fewest that hold b. Words
wrap around at their own width, which :math:`2^b` divides: the sum is reduced once, at the end.

A seed is the cipher's key and keys one stream only, so the counter starts at zero.

Source: Bell, Bonawitz, Gascon, Lepoint, Raykova, "Secure Single-Server Aggregation with
(Poly)Logarithmic Overhead" (2020), algorithm 2.

Domain separation: the input of every hash, key and signature starts with the protocol's name and version and the
number of its purpose, and every part after it is preceded by its length, so that two uses never share an input.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher as Stream
from cryptography.hazmat.primitives.ciphers import algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from mapveil_client.errors import ParameterError
from mapveil_client.secure_sum.states import PeerFault

PROTOCOL = b"mapveil secure sum"
VERSION = 1
SEED_BYTES = 32
TAG_BYTES = 16
"""Bytes by which a sealed text is longer than its plain text."""

_LENGTH_BYTES = 4
_CHUNK = 1 << 17  # bytes: the vector's piece and the keystream both stay in the second cache
_ZEROS = bytes(_CHUNK)
_SLACK = 15  # the cipher wants room for all but one byte of a block more
_OPEN = 128  # streams held open at once
# A key is derived for one ordered pair of clients in one round, and seals exactly one text: a nonce cannot repeat.
_NONCE = bytes(12)


class Purpose(IntEnum):
    """Purpose of a derived key, a hash or a signature; numbers are never given anew."""

    PAIR_MASK = 1  # seed of the mask that one of a pair adds and the other subtracts
    SELF_MASK = 2  # seed of the mask that a client adds alone
    SEALING = 3  # key that seals the shares on their way from one client to another
    KEY_SIGNATURE = 4  # a device's signature of the keys it advertises
    SURVIVOR_SIGNATURE = 5  # a client's signature of the clients it was told are in the sum
    SEED_COMMITMENT = 6  # hash that binds a client to its self-mask seed
    GRAPH = 7  # stream that orders the clients around the ring
    SURVIVOR_SET = 8  # hash of the clients that are in the sum
    ROSTER = 9  # hash of the list of all clients: the seed of an active round's graph
    LISTED = 10  # hash of what one client advertised
    RECEIPT = 11  # a client's signature of the neighbours whose boxes it opened
    PAIR_DIGEST = 12  # hash by which both clients of a pair show that they agree on the keys of its boxes
    SHARE_DIGEST = 13  # hash that binds a client to one share that it deals
    BOX_TAG = 14  # key of the tag of a box


def info(purpose: Purpose, round_id: bytes, context: bytes, *parts: bytes) -> bytes:
    r"""Write a purpose and its particulars as one byte string; distinct particulars differ.

    .. math:: \mathrm{name} \,\|\, \mathrm{version}_2 \,\|\, \mathrm{purpose}_2 \,\|\, |r|_4\, r \,\|\,
        |c|_4\, c \,\|\, |p_1|_4\, p_1 \,\|\, \dots

    where: :math:`r` is ``round_id``, :math:`c` is ``context``, :math:`p_i` are ``parts``, and
    :math:`x_n` is a number in n bytes, most significant first. Run by: both sides.

    Examples
    --------
    >>> info(Purpose.GRAPH, b"r", b"").hex(" ")[-29:]
    '07 00 00 00 01 72 00 00 00 00'
    """
    named = PROTOCOL + VERSION.to_bytes(2, "big") + int(purpose).to_bytes(2, "big")
    return named + in_order(round_id, context, *parts)


def in_order(*parts: bytes) -> bytes:
    """Parts of :func:`info`, each behind its length."""
    return b"".join([each for part in parts for each in (len(part).to_bytes(_LENGTH_BYTES, "big"), part)])


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
    raise ParameterError(f"bits must be 1 to 64, got {bits}")


_FIELD: Final = (1 << 255) - 19
_ORDER_8: Final = (
    0x00B8495F16056286FDB1329CEB8D09DA6AC49FF1FAE35616AEB8413B7C7AEBE0,
    0x57119FD0DD4E22D8868E1C58C45C44045BEF839C55B1D0B1248C50A3BC959C5F,
)
_SMALL: Final = frozenset((0, 1, _FIELD - 1, *_ORDER_8))
"""The u of the points of Curve25519 and its twist whose order divides 8."""


def check_public(public: bytes) -> None:
    """Refuse an X25519 key of another length than 32 bytes, or of an order of at most 8: all its secrets are zero."""
    if len(public) != SEED_BYTES or (int.from_bytes(public, "little") & ((1 << 255) - 1)) % _FIELD in _SMALL:
        raise _no_secret(public)


def _no_secret(public: bytes) -> PeerFault:
    return PeerFault(
        f"a public key of {len(public)} bytes gives no shared secret; expected an X25519 key of 32 "
        "bytes and large order"
    )


def agree(private: X25519PrivateKey, public: bytes, info: bytes) -> bytes:
    r"""Agree on a key with the holder of another key pair.

    .. math:: \mathrm{HKDF\text{-}SHA256}(\mathrm{X25519}(a, B), \mathrm{info})

    where: :math:`a` is ``private``, one side's key, :math:`B` is ``public``, the other side's (32 bytes), and ``info``,
    from :func:`mapveil_client.secure_sum.masks.info`, is equal at both sides. The key has 32 bytes. Run by: the client,
    and by the server for a client whose key it reconstructed.

    Raises
    ------
    PeerFault
        The public key is no key, or one of those for which every result is zero.
    """
    try:
        shared = private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise _no_secret(public) from None
    return HKDF(SHA256(), SEED_BYTES, None, info).derive(shared)


def add_masks(
    vector: npt.NDArray[np.unsignedinteger],
    seeds: Sequence[bytes],
    signs: Sequence[int] | npt.NDArray[np.integer],
    cipher: Cipher = Cipher.AES_256_CTR,
) -> None:
    r"""Add to a vector, in place, the keystream of each seed, or subtract it.

    .. math:: v \leftarrow v + \textstyle\sum_i s_i\, \mathrm{PRG}(k_i) \pmod{2^w}

    where: :math:`v` is ``vector``, contiguous words of :func:`word_type`, :math:`w` their width in bits, :math:`k_i` is
    ``seeds[i]``, 32 bytes, and :math:`s_i` the sign of ``signs[i]``. Run by: the client to mask, the server to unmask.

    Raises
    ------
    ParameterError
        The vector is not contiguous little-endian unsigned words, or seeds and signs differ in number.
    """
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


def _aead(key: bytes, cipher: Cipher) -> AESGCM | ChaCha20Poly1305:
    return AESGCM(key) if cipher is Cipher.AES_256_CTR else ChaCha20Poly1305(key)


def seal(key: bytes, plaintext: bytes, associated: bytes, cipher: Cipher = Cipher.AES_256_CTR) -> bytes:
    """Encrypt and authenticate one text: AES-256-GCM, or ChaCha20-Poly1305 beside ChaCha20.

    ``key``, 32 bytes, is used for this text only; ``associated`` must be the same at the receiver. The sealed text is
    ``TAG_BYTES`` longer. Run by: the client that sends shares.
    """
    return _aead(key, cipher).encrypt(_NONCE, plaintext, associated)


def open_sealed(key: bytes, sealed: bytes, associated: bytes, cipher: Cipher = Cipher.AES_256_CTR) -> bytes:
    """Check and decrypt a text of :func:`seal`. Run by: the client that receives shares.

    Raises
    ------
    PeerFault
        The text was not sealed under this key, for this round, sender and receiver.
    """
    try:
        return _aead(key, cipher).decrypt(_NONCE, sealed, associated)
    except InvalidTag:
        raise PeerFault(
            "sealed shares do not open; expected shares sealed by the named sender for this client and round"
        ) from None
