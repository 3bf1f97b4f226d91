"""Randomness: a keyed stream that repeats when it should, and never when it should not."""

from __future__ import annotations

import copy
import hashlib
import os
import pickle

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness, as_randomness

WORDS = 1 << 16
CERTAIN = 1e-9


def test_the_stream_is_aes_256_in_counter_mode():
    # NIST SP 800-38A, F.5.5, has its own counter block: the key's stream at that block is checked
    # through AES itself, and ours through the same cipher from counter zero.
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    counter = bytes.fromhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff")
    plain = bytes.fromhex("6bc1bee22e409f96e93d7e117393172a")
    cipher = Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor()
    assert cipher.update(plain).hex() == "601ec313775789a5b7a7f504bbf3d228"

    stream = Randomness()
    stream._start(key)
    blocks = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    wanted = blocks.update(b"".join(i.to_bytes(16, "big") for i in range(4)))
    assert stream.words(64, np.uint8).tobytes() == wanted


def test_a_known_answer_pins_the_stream_of_a_seed():
    key = hashlib.sha256(b"mapveil seed 7").digest()
    zeros = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(32))
    assert Randomness(7).words(4, np.uint64).tobytes() == zeros


@given(st.integers(-(2**70), 2**70), st.lists(st.integers(0, 300), max_size=6))
def test_a_seed_repeats_however_the_draws_are_cut(seed, sizes):
    whole = Randomness(seed).words(sum(sizes), np.uint8)
    cut = Randomness(seed)
    parts = [cut.words(size, np.uint8) for size in sizes]
    assert np.array_equal(np.concatenate([whole[:0], *parts]), whole)


def test_a_draw_longer_than_the_cipher_chunk_is_one_stream():
    size = (1 << 18) * 2 + 12_345
    once = Randomness(3).words(size, np.uint8)
    stream = Randomness(3)
    first = stream.words(1_001, np.uint8)
    assert np.array_equal(once, np.concatenate([first, stream.words(size - 1_001, np.uint8)]))


def test_streams_differ_by_seed_and_without_one():
    streams = [Randomness(0), Randomness(1), Randomness(-1), Randomness(), Randomness()]
    drawn = {stream.words(4, np.uint64).tobytes() for stream in streams}
    assert len(drawn) == 5


def test_children_repeat_by_seed_and_label_and_differ_otherwise():
    parent = Randomness(5)
    parent.words(10, np.uint8)  # a child does not depend on what its parent drew
    again = Randomness(5).child("a").words(4, np.uint64)
    assert np.array_equal(parent.child("a").words(4, np.uint64), again)
    different = {
        stream.words(4, np.uint64).tobytes()
        for stream in (
            Randomness(5),
            Randomness(5).child("a"),
            Randomness(5).child("b"),
            Randomness(6).child("a"),
        )
    }
    assert len(different) == 4
    assert parent.child("a").seeded
    system = Randomness()
    assert not system.child("a").seeded
    assert not np.array_equal(system.child("a").words(4, np.uint64), system.child("a").words(4, np.uint64))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_draws_its_own_noise():
    stream = Randomness()
    stream.words(1, np.uint64)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, stream.words(4, np.uint64).tobytes())
        os._exit(0)
    os.close(writer)
    theirs = os.read(reader, 32)
    os.close(reader)
    os.waitpid(child, 0)
    assert len(theirs) == 32
    assert theirs != stream.words(4, np.uint64).tobytes()


def test_the_key_never_shows_and_never_travels():
    for stream in (Randomness(1), Randomness()):
        assert stream._key.hex() not in repr(stream)
        assert str(stream._key) not in repr(stream)
        for carry in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot be pickled"):
                carry(stream)
    assert "not for release" in repr(Randomness(1))
    assert "not for release" not in repr(Randomness())


@pytest.mark.parametrize("seed", [1.5, "1", True, [1]])
def test_a_seed_is_an_integer(seed):
    with pytest.raises(ParameterError, match="an integer"):
        Randomness(seed)


def test_as_randomness_takes_a_stream_a_seed_or_nothing():
    stream = Randomness(1)
    assert as_randomness(stream) is stream
    assert as_randomness(4).seeded
    assert as_randomness(np.int64(4)).seeded
    assert not as_randomness(None).seeded


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_words_have_the_asked_shape_and_type(dtype, count):
    words = Randomness(1).words(count, dtype)
    assert words.shape == (count,)
    assert words.dtype == dtype


def test_bits_are_balanced():
    # Frequency test of NIST SP 800-22, section 2.1, for each of the 64 places of a word.
    words = Randomness(11).words(WORDS, np.uint64)
    for place in range(64):
        ones = int(((words >> np.uint64(place)) & np.uint64(1)).sum())
        assert stats.binomtest(ones, WORDS).pvalue > CERTAIN


def test_runs_of_equal_bits_are_as_many_as_chance_makes():
    # Runs test of NIST SP 800-22, section 2.3.
    bits = np.unpackbits(Randomness(12).words(WORDS, np.uint8))
    share = bits.mean()
    runs = 1 + int((bits[1:] != bits[:-1]).sum())
    expected = 2 * bits.size * share * (1 - share)
    score = abs(runs - expected) / (2 * np.sqrt(bits.size) * share * (1 - share))
    assert 2 * stats.norm.sf(score) > CERTAIN


def test_words_are_uniform_and_neighbours_independent():
    words = Randomness(13).words(1 << 20, np.uint8)
    assert stats.chisquare(np.bincount(words, minlength=256)).pvalue > CERTAIN
    pairs = (words[0::2] >> 4).astype(int) * 16 + (words[1::2] >> 4)
    assert stats.chisquare(np.bincount(pairs, minlength=256)).pvalue > CERTAIN


def test_a_generator_for_simulations_repeats_by_seed():
    assert Randomness(2).generator().random() == Randomness(2).generator().random()
    assert Randomness().generator().random() != Randomness().generator().random()
