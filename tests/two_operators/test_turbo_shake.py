"""TurboSHAKE128: published digests, and both kernels against the permutation written lane by lane."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mapveil_client.errors import ParameterError
from mapveil_client.two_operators import turbo_shake
from mapveil_client.two_operators.turbo_shake import RATE, turbo_shake_128

MASK = (1 << 64) - 1


def slow(message: bytes, domain: int, length: int) -> bytes:
    """RFC 9861 as it is written, one lane at a time; the constants by their shift register."""

    def turn(lane: int, by: int) -> int:
        return ((lane << by) | (lane >> (64 - by))) & MASK if by else lane

    register, constants = 1, []
    for _ in range(24):
        constant = 0
        for j in range(7):
            constant |= (register & 1) << ((1 << j) - 1)
            register = (register << 1) ^ (0x171 if register >> 7 else 0)
        constants.append(constant)
    padded = bytearray(message + bytes([domain]))
    padded += bytes(-len(padded) % RATE)
    padded[-1] ^= 0x80
    state = [[0] * 5 for _ in range(5)]

    def permute() -> None:
        nonlocal state
        for constant in constants[12:]:
            column = [state[x][0] ^ state[x][1] ^ state[x][2] ^ state[x][3] ^ state[x][4] for x in range(5)]
            state = [
                [lane ^ column[x - 1] ^ turn(column[(x + 1) % 5], 1) for lane in state[x]] for x in range(5)
            ]
            x, y, lane = 1, 0, state[1][0]
            for step in range(24):
                x, y = y, (2 * x + 3 * y) % 5
                lane, state[x][y] = state[x][y], turn(lane, (step + 1) * (step + 2) // 2 % 64)
            state = [
                [state[x][y] ^ (~state[(x + 1) % 5][y] & state[(x + 2) % 5][y]) for y in range(5)]
                for x in range(5)
            ]
            state[0][0] ^= constant

    for start in range(0, len(padded), RATE):
        for lane in range(RATE // 8):
            at = start + 8 * lane
            state[lane % 5][lane // 5] ^= int.from_bytes(padded[at : at + 8], "little")
        permute()
    found = b""
    while len(found) < length:
        found += b"".join(
            (state[lane % 5][lane // 5] & MASK).to_bytes(8, "little") for lane in range(RATE // 8)
        )
        permute()
    return found[:length]


@pytest.fixture(params=[False, True], ids=["NumPy", "compiled"], autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        pytest.importorskip("numba")
    monkeypatch.setattr(turbo_shake, "COMPILE_AFTER_S", 0.0 if request.param else math.inf)


def rows(*messages: bytes) -> np.ndarray:
    return np.frombuffer(b"".join(messages), dtype=np.uint8).reshape(len(messages), -1)


def test_published_digests() -> None:
    """RFC 9861, section 5."""
    assert turbo_shake_128(np.zeros((1, 0), dtype=np.uint8), 0x1F, 32).tobytes().hex() == (
        "1e415f1c5983aff2169217277d17bb538cd945a397ddec541f1ce41af2c1b74c"
    )
    assert turbo_shake_128(rows(bytes([0xFF] * 3)), 0x01, 32).tobytes().hex() == (
        "bf323f940494e88ee1c540fe660be8a0c93f43d15ec006998462fa994eed5dab"
    )


@pytest.mark.parametrize("size", [0, 1, 7, 8, RATE - 1, RATE, RATE + 1, 3 * RATE + 5])
def test_every_length_around_a_block(size: int) -> None:
    generator = np.random.default_rng(size)
    messages = [generator.bytes(size) for _ in range(3)]
    for domain, length in ((1, 32), (2, 16), (0x1F, RATE), (1, 2 * RATE + 1)):
        found = turbo_shake_128(rows(*messages), domain, length)
        assert [each.tobytes() for each in found] == [slow(each, domain, length) for each in messages]


def test_more_messages_than_are_hashed_together() -> None:
    messages = np.random.default_rng(1).integers(0, 256, (600, 40), dtype=np.uint8)
    found = turbo_shake_128(messages, 1, 32)
    for number in (0, 255, 256, 599):
        assert found[number].tobytes() == slow(messages[number].tobytes(), 1, 32)


@pytest.mark.parametrize("domain", [0, 128])
def test_a_domain_outside_its_range_is_refused(domain: int) -> None:
    with pytest.raises(ParameterError, match="domain"):
        turbo_shake_128(rows(b"x"), domain, 32)
