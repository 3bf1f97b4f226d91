"""HPKE: the vectors of RFC 9180, another implementation, and messages that do not open."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives import hpke as other
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from mapveil_client.errors import InputError
from mapveil_client.two_operators.hpke import Cipher, Sealed, open_sealed, public_of, seal

INFO = bytes.fromhex("4f6465206f6e2061204772656369616e2055726e")
AAD = bytes.fromhex("436f756e742d30")
MESSAGE = bytes.fromhex("4265617574792069732074727574682c20747275746820626561757479")

# RFC 9180, appendices A.1.1 and A.2.1, sequence number 0: ephemeral and recipient's private keys, encapsulated key,
# ciphertext.
PUBLISHED = {
    Cipher.AES_128_GCM: (
        "52c4a758a802cd8b936eceea314432798d5baf2d7e9235dc084ab1b9cfa2f736",
        "4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8",
        "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431",
        "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a",
    ),
    Cipher.CHACHA20_POLY1305: (
        "f4ec9b33b792c372c1d2c2063507b684ef925b8c75a42dbcbf57d63ccd381600",
        "8057991eef8f1f1af18f4a9491d16a1ce333f695d4db8e38da75975c4478e0fb",
        "1afa08d3dec047a643885163f1180476fa7ddb54c6a8029ea33f95796bf2ac4a",
        "1c5250d8034ec2b784ba2cfd69dbdb8af406cfe3ff938e131f0def8c8b60b4db21993c62ce81883d2dd1b51a28",
    ),
}
SUITES = {Cipher.AES_128_GCM: other.AEAD.AES_128_GCM, Cipher.CHACHA20_POLY1305: other.AEAD.CHACHA20_POLY1305}
KEYS = st.binary(min_size=32, max_size=32)


@pytest.mark.parametrize("cipher", list(Cipher))
def test_the_vectors_of_the_rfc(cipher: Cipher) -> None:
    ephemeral, private, enc, payload = map(bytes.fromhex, PUBLISHED[cipher])
    sealed = seal(public_of(private), INFO, AAD, MESSAGE, ephemeral, cipher)
    assert sealed == Sealed(enc, payload)
    assert open_sealed(private, INFO, AAD, sealed, cipher) == MESSAGE


@given(st.sampled_from(Cipher), KEYS, KEYS, st.binary(max_size=40), st.binary(max_size=200))
def test_another_implementation_opens_what_is_sealed_and_seals_what_opens(
    cipher: Cipher, private: bytes, ephemeral: bytes, info: bytes, message: bytes
) -> None:
    suite = other.Suite(other.KEM.X25519, other.KDF.HKDF_SHA256, SUITES[cipher])
    sealed = seal(public_of(private), info, b"", message, ephemeral, cipher)
    theirs = X25519PrivateKey.from_private_bytes(private)
    assert suite.decrypt(sealed.enc + sealed.payload, theirs, info) == message
    made = suite.encrypt(message, X25519PublicKey.from_public_bytes(public_of(private)), info)
    assert open_sealed(private, info, b"", Sealed(made[:32], made[32:]), cipher) == message


@pytest.mark.parametrize("cipher", list(Cipher))
@pytest.mark.parametrize("part", ["enc", "payload", "info", "aad", "key", "cipher"])
def test_a_changed_part_does_not_open(cipher: Cipher, part: str) -> None:
    private, flip = bytes(range(32)), b"\x01"
    sealed = seal(public_of(private), INFO, AAD, MESSAGE, bytes(range(1, 33)), cipher)
    parts = {"enc": sealed.enc, "payload": sealed.payload, "info": INFO, "aad": AAD, "key": private}
    if part in parts:  # bits of the first byte that the clamping of a key keeps
        parts[part] = bytes([parts[part][0] ^ (flip[0] << 3)]) + parts[part][1:]
    used = next(each for each in Cipher if each is not cipher) if part == "cipher" else cipher
    with pytest.raises(InputError, match="does not open"):
        open_sealed(parts["key"], parts["info"], parts["aad"], Sealed(parts["enc"], parts["payload"]), used)


@pytest.mark.parametrize("public", [bytes(32), bytes(31), b""])
def test_a_key_that_is_none_is_refused(public: bytes) -> None:
    with pytest.raises(InputError, match="large order"):
        seal(public, INFO, AAD, MESSAGE, bytes(range(32)), Cipher.AES_128_GCM)
    with pytest.raises(InputError, match="large order"):
        open_sealed(bytes(range(32)), INFO, AAD, Sealed(public, b"anything"), Cipher.AES_128_GCM)
