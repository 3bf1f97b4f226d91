"""Sealing: only the text that was sealed, for whom and by whom it was sealed, comes out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil_client.secure_sum.masks import TAG_BYTES, Cipher, open_sealed, seal
from mapveil_client.secure_sum.states import PeerFault

KEY = bytes(range(32))


@given(st.binary(max_size=80), st.binary(max_size=40), st.sampled_from(Cipher))
def test_what_is_sealed_opens(plaintext, associated, cipher):
    sealed = seal(KEY, plaintext, associated, cipher)
    assert len(sealed) == len(plaintext) + TAG_BYTES
    assert open_sealed(KEY, sealed, associated, cipher) == plaintext


@pytest.mark.parametrize("cipher", Cipher)
def test_any_change_is_noticed(cipher):
    sealed, associated = seal(KEY, b"a share", b"for 7", cipher), b"for 7"
    for i in range(len(sealed)):
        wrong = bytearray(sealed)
        wrong[i] ^= 1
        with pytest.raises(PeerFault, match="do not open"):
            open_sealed(KEY, bytes(wrong), associated, cipher)
    for key, text, said in (
        (bytes(32), sealed, associated),
        (KEY, sealed, b"for 8"),
        (KEY, sealed[:-1], associated),
        (KEY, b"", associated),
    ):
        with pytest.raises(PeerFault, match="do not open") as caught:
            open_sealed(key, text, said, cipher)
        assert KEY.hex() not in str(caught.value)


def test_the_two_families_do_not_open_each_other():
    with pytest.raises(PeerFault):
        open_sealed(KEY, seal(KEY, b"x", b""), b"", Cipher.CHACHA20)


def test_known_answers():
    # AES-256-GCM, test case 14 of McGrew and Viega's specification.
    assert seal(bytes(32), bytes(16), b"").hex() == (
        "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"
    )
    # ChaCha20-Poly1305 with the zero key: the keystream from block 1 on is that of RFC 8439, A.1, vector 2.
    assert seal(bytes(32), bytes(16), b"", Cipher.CHACHA20).hex()[:32] == "9f07e7be5551387a98ba977c732d080d"
