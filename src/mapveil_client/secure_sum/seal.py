"""Sealing: a client's shares travel to a neighbour through the server, which cannot read them."""

from __future__ import annotations

from mapveil_client.secure_sum.faults import PeerFault
from mapveil_client.secure_sum.masks import Cipher

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
            "sealed shares do not open; shares sealed by the named sender for this client and round are accepted"
        ) from None
