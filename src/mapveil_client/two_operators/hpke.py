r"""Hybrid public key encryption, single messages in base mode: X25519, HKDF-SHA256, and one of two ciphers.

.. math:: s = \mathrm{DH}(sk_E, pk_R), \qquad (k, n) = \mathrm{KeySchedule}(s, pk_E, pk_R, \mathrm{info}), \qquad
    c = \mathrm{Seal}_k(n, \mathrm{aad}, m)

where: :math:`(sk_E, pk_E)` is a key pair of this one message, :math:`pk_R` the recipient's public key, :math:`k, n` the
key and the nonce of the cipher, m the message and c its ciphertext.

``cryptography`` ships this mode only without associated data and draws the key pair itself; here both are arguments.

Source: RFC 9180, sections 4.1, 5.1.1, 5.2 and 6.1.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
from enum import IntEnum
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from mapveil_client.errors import InputError

KEM: Final = 0x0020
"""DHKEM(X25519, HKDF-SHA256)."""

KDF: Final = 0x0001
"""HKDF-SHA256."""

KEY_BYTES: Final = 32
"""Size of a private key, of a public key and of an encapsulated key."""

_VERSION: Final = b"HPKE-v1"
_KEM_SUITE: Final = b"KEM" + KEM.to_bytes(2, "big")
_BASE_MODE: Final = b"\x00"
_NONCE_BYTES: Final = 12


class Cipher(IntEnum):
    """Ciphers, by number."""

    AES_128_GCM = 1
    CHACHA20_POLY1305 = 3

    @property
    def key_bytes(self) -> int:
        """Size of a key."""
        return 16 if self is Cipher.AES_128_GCM else 32


class Sealed(NamedTuple):
    """A ciphertext, with the key that its recipient needs."""

    enc: bytes  # the public key of this message, 32 bytes
    payload: bytes


def seal(
    public_key: bytes, info: bytes, aad: bytes, message: bytes, ephemeral: bytes, cipher: Cipher
) -> Sealed:
    """Encrypt one message. Run by: the client.

    Parameters
    ----------
    public_key : bytes
        The recipient's, 32 bytes.
    info : bytes
        Purpose of the message, which both sides know.
    aad : bytes
        Data that is authenticated beside the message.
    message : bytes
        The plaintext.
    ephemeral : bytes
        32 random bytes, secret, of this message alone: its private key.
    cipher : Cipher
        The recipient's cipher.

    Raises
    ------
    InputError
        The public key is none, or one of small order.
    """
    private = X25519PrivateKey.from_private_bytes(ephemeral)
    enc = private.public_key().public_bytes_raw()
    key, nonce = _schedule(_agreed(private, public_key), enc + public_key, info, cipher)
    return Sealed(enc, _aead(cipher, key).encrypt(nonce, message, aad))


def open_sealed(private_key: bytes, info: bytes, aad: bytes, sealed: Sealed, cipher: Cipher) -> bytes:
    """Decrypt one message. Run by: an operator; the arguments are those of :func:`seal`.

    Raises
    ------
    InputError
        It was sealed for another key, purpose or associated data, or changed on the way.
    """
    private, public = _key_pair(private_key)
    key, nonce = _schedule(_agreed(private, sealed.enc), sealed.enc + public, info, cipher)
    try:
        return _aead(cipher, key).decrypt(nonce, sealed.payload, aad)
    except InvalidTag:
        raise InputError("a sealed message does not open with this key") from None


def public_of(private_key: bytes) -> bytes:
    """The public key of a private key, 32 bytes each."""
    return _key_pair(private_key)[1]


@functools.lru_cache(maxsize=4)  # an operator opens every message with one key
def _key_pair(private_key: bytes) -> tuple[X25519PrivateKey, bytes]:
    private = X25519PrivateKey.from_private_bytes(private_key)
    return private, private.public_key().public_bytes_raw()


def _agreed(private: X25519PrivateKey, public: bytes) -> bytes:
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:  # of another size, or all zero: of small order
        raise InputError("a public key must be 32 bytes of an X25519 key of large order") from None


def _aead(cipher: Cipher, key: bytes) -> AESGCM | ChaCha20Poly1305:
    return AESGCM(key) if cipher is Cipher.AES_128_GCM else ChaCha20Poly1305(key)


def _schedule(agreed: bytes, keys: bytes, info: bytes, cipher: Cipher) -> tuple[bytes, bytes]:
    """Key and nonce of the cipher; ``keys`` is the encapsulated key before the recipient's public key."""
    prk = _extract(_KEM_SUITE, b"", b"eae_prk", agreed)
    shared = _expand(_KEM_SUITE, prk, b"shared_secret", keys, 32)
    suite, context = _context(info, cipher)
    secret = _extract(suite, shared, b"secret", b"")
    key = _expand(suite, secret, b"key", context, cipher.key_bytes)
    return key, _expand(suite, secret, b"base_nonce", context, _NONCE_BYTES)


@functools.lru_cache(maxsize=16)
def _context(info: bytes, cipher: Cipher) -> tuple[bytes, bytes]:
    """The algorithms, and the context of the key schedule."""
    suite = b"HPKE" + b"".join(each.to_bytes(2, "big") for each in (KEM, KDF, cipher))
    hashes = (_extract(suite, b"", *each) for each in ((b"psk_id_hash", b""), (b"info_hash", info)))
    return suite, _BASE_MODE + b"".join(hashes)


def _extract(suite: bytes, salt: bytes, label: bytes, key: bytes) -> bytes:
    """LabeledExtract."""
    return hmac.digest(salt or bytes(32), _VERSION + suite + label + key, hashlib.sha256)


def _expand(suite: bytes, key: bytes, label: bytes, info: bytes, length: int) -> bytes:
    """LabeledExpand of at most 32 bytes: one block."""
    labelled = length.to_bytes(2, "big") + _VERSION + suite + label + info
    return hmac.digest(key, labelled + b"\x01", hashlib.sha256)[:length]
