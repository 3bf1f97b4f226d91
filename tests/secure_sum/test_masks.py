"""Masks: the stated keystreams, in the stated words, and key agreement that both sides repeat."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher as Library
from cryptography.hazmat.primitives.ciphers import algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.masks import (
    _CHUNK,
    _OPEN,
    Cipher,
    add_masks,
    agree,
    check_public,
    word_type,
)
from mapveil_client.secure_sum.states import PeerFault

WORDS = [8, 16, 32, 64]


def stream(seed: bytes, size: int, cipher: Cipher) -> bytes:
    """The keystream in one piece; AES through its block function, counting blocks."""
    if cipher is Cipher.CHACHA20:
        return Library(algorithms.ChaCha20(seed, bytes(16)), None).encryptor().update(bytes(size))
    counters = b"".join(i.to_bytes(16, "big") for i in range(-(-size // 16)))
    return Library(algorithms.AES(seed), modes.ECB()).encryptor().update(counters)[:size]


def slow(vector: list[int], bits: int, seeds, signs, cipher: Cipher) -> list[int]:
    """Each coordinate by itself, in whole numbers."""
    width, total = bits // 8, list(vector)
    for seed, sign in zip(seeds, signs, strict=True):
        key = stream(seed, width * len(vector), cipher)
        for i in range(len(vector)):
            word = int.from_bytes(key[i * width : (i + 1) * width], "little")
            total[i] = (total[i] + (word if sign > 0 else -word)) % 2**bits
    return total


def seeds_of(number: int, count: int) -> list[bytes]:
    return [row.tobytes() for row in Randomness(number).words(32 * count, np.uint8).reshape(count, 32)]


@settings(max_examples=50)
@given(
    st.sampled_from(WORDS),
    st.integers(0, 70),
    st.lists(st.sampled_from([-1, 1]), max_size=6),
    st.sampled_from(Cipher),
    st.integers(0, 9),
)
def test_masks_are_the_stated_keystreams(bits, length, signs, cipher, number):
    vector = Randomness(number).words(length, word_type(bits))
    seeds = seeds_of(number, len(signs))
    wanted = slow(vector.tolist(), bits, seeds, signs, cipher)
    add_masks(vector, seeds, signs, cipher)
    assert vector.tolist() == wanted


@pytest.mark.parametrize("cipher", Cipher)
@pytest.mark.parametrize("bits", WORDS)
def test_long_vectors_and_many_seeds_go_on_where_they_stopped(bits, cipher):
    word = word_type(bits)
    length, count = 2 * _CHUNK // word.itemsize + 77, _OPEN + 3
    seeds, signs = seeds_of(1, count), np.where(np.arange(count) % 3 == 0, -1, 1)
    vector = np.zeros(length, dtype=word)
    add_masks(vector, seeds, signs, cipher)
    wanted = np.zeros(length, dtype=word)
    for seed, sign in zip(seeds, signs, strict=True):
        key = np.frombuffer(stream(seed, vector.nbytes, cipher), dtype=word)
        wanted = wanted + key if sign > 0 else wanted - key
    assert np.array_equal(vector, wanted)


@pytest.mark.parametrize("cipher", Cipher)
def test_what_one_adds_the_other_takes_off(cipher):
    seeds = seeds_of(2, 5)
    vector = np.arange(1_000, dtype=word_type(20))
    add_masks(vector, seeds, [1, -1, 1, -1, 1], cipher)
    assert not np.array_equal(vector, np.arange(1_000))
    add_masks(vector, seeds[::-1], [-1, 1, -1, 1, -1], cipher)
    assert np.array_equal(vector, np.arange(1_000))


def test_a_known_answer_of_chacha20():
    # RFC 8439, A.1, vector 1: zero key, zero nonce, block 0.
    vector = np.zeros(16, dtype=np.uint8)
    add_masks(vector, [bytes(32)], [1], Cipher.CHACHA20)
    assert vector.tobytes().hex() == "76b8e0ada0f13d90405d6ae55386bd28"


@pytest.mark.parametrize(
    "vector", [np.zeros(4), np.zeros(4, dtype=np.int64), np.zeros(8, np.uint8)[::2], np.zeros(4, ">u4")]
)
def test_other_vectors_are_refused(vector):
    with pytest.raises(ParameterError, match="contiguous little-endian"):
        add_masks(vector, [], [])


def test_each_seed_has_a_sign():
    with pytest.raises(ParameterError, match="1 seeds and 2 signs"):
        add_masks(np.zeros(4, np.uint8), [bytes(32)], [1, 1])


@pytest.mark.parametrize(
    ("bits", "width"), [(1, 1), (8, 1), (9, 2), (16, 2), (17, 4), (32, 4), (33, 8), (64, 8)]
)
def test_the_word_is_the_smallest_that_holds_the_modulus(bits, width):
    assert word_type(bits) == np.dtype(f"<u{width}")


@pytest.mark.parametrize("bits", [0, 65, -1])
def test_a_modulus_outside_64_bits_is_refused(bits):
    with pytest.raises(ParameterError, match="bits must be 1 to 64"):
        word_type(bits)


def test_both_sides_agree_and_the_purpose_tells_keys_apart():
    one, other = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    public = [key.public_key().public_bytes_raw() for key in (one, other)]
    key = agree(one, public[1], b"purpose")
    assert key == agree(other, public[0], b"purpose")
    assert len(key) == 32
    assert key != agree(one, public[1], b"another")
    assert key != agree(one, public[0], b"purpose")


def test_agreement_is_x25519_and_hkdf():
    # RFC 7748, 5.2, first vector; then RFC 5869 by its definition, without a salt.
    scalar = bytes.fromhex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4")
    public = bytes.fromhex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")
    shared = bytes.fromhex("c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552")
    key = hmac.digest(hmac.digest(bytes(32), shared, "sha256"), b"purpose\x01", "sha256")
    assert agree(X25519PrivateKey.from_private_bytes(scalar), public, b"purpose") == key


SMALL_ORDER = [
    "00" * 32,
    "01" + "00" * 31,
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    "ec" + "ff" * 30 + "7f",
    "ed" + "ff" * 30 + "7f",
    "ee" + "ff" * 30 + "7f",
]


@pytest.mark.parametrize(
    "public", [bytes.fromhex(point) for point in SMALL_ORDER] + [b"", bytes(31), bytes(33)]
)
def test_keys_on_which_everybody_agrees_are_refused(public):
    with pytest.raises(PeerFault, match=f"a public key of {len(public)} bytes"):
        agree(X25519PrivateKey.generate(), public, b"purpose")


def test_keys_without_a_secret_are_those_with_which_the_library_agrees_on_nothing() -> None:
    private, field = X25519PrivateKey.from_private_bytes(bytes([9]) * 32), (1 << 255) - 19
    eighth = "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"
    other = "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"
    small = (0, 1, field - 1, *(int.from_bytes(bytes.fromhex(each), "little") for each in (eighth, other)))
    written = {(u + times * field + top) for u in small for times in (0, 1) for top in (0, 1 << 255)}
    near = {number + 2 for number in written}
    refused = []
    for number in sorted(each % (1 << 256) for each in written | near):
        key = number.to_bytes(32, "little")
        outcomes = [
            _refuses(asked) for asked in (partial(agree, private, key, b""), partial(check_public, key))
        ]
        assert outcomes[0] == outcomes[1], key.hex()
        refused += outcomes[:1]
    assert 10 <= sum(refused) < len(refused)


def _refuses(asked: Callable[[], object]) -> bool:
    try:
        asked()
    except PeerFault:
        return True
    return False
