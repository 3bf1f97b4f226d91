"""Checks of many signatures at once: in a process of their own, and here where that process is not there."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import NamedTuple

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from mapveil.collector.http import signature_checks
from mapveil.collector.http.signature_checks import SignatureChecks
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.keys import Identity


class Signed(NamedTuple):
    public: bytes
    signature: bytes
    statement: bytes
    good: bool


def signed(count: int) -> list[Signed]:
    """Statements of several lengths; every third signature is of another statement."""
    made = []
    for number in range(count):
        identity, statement = Identity.draw(Randomness(number)), b"s" * number
        good = number % 3 != 1
        made.append(
            Signed(identity.public, identity.sign(statement + (b"" if good else b"x")), statement, good)
        )
    return made


async def verdicts(checks: SignatureChecks, some: list[Signed]) -> list[bool]:
    return await asyncio.gather(*(checks.good(*each[:3]) for each in some))


async def ready(checks: SignatureChecks) -> int:
    """Have the process started; its id."""
    await verdicts(checks, signed(10))
    async with asyncio.timeout(300):
        while checks.process is None:
            await asyncio.sleep(0.01)
    return checks.process


@pytest.mark.parametrize("count", [1, 10, 100, 300])
def test_every_signature_gets_its_own_verdict(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    some, here = signed(count), []
    monkeypatch.setattr(signature_checks, "_MOST_SENT", 128)
    check_here = signature_checks._check_here
    monkeypatch.setattr(
        signature_checks, "_check_here", lambda batch: here.append(len(batch)) or check_here(batch)
    )

    async def play() -> None:
        checks = SignatureChecks()
        if count > 1:
            await ready(checks)
        here.clear()
        assert await verdicts(checks, some) == [each.good for each in some]
        # Few are not worth a message, and of too many the process takes none.
        assert here == ([] if count in (10, 100) else [count])
        await checks.close()

    asyncio.run(play())


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_what_a_killed_or_hung_process_left_is_checked_here(
    how: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though nobody asks again."""
    monkeypatch.setattr(signature_checks, "_HUNG_SECONDS", 0.05)
    some = signed(100)

    async def play() -> None:
        checks = SignatureChecks()
        os.kill(await ready(checks), how)
        async with asyncio.timeout(300):
            first = await verdicts(checks, some)
            assert first == [each.good for each in some]
            while checks.process is not None:
                await asyncio.sleep(0.01)
            assert await verdicts(checks, some) == first
        await checks.close()

    asyncio.run(play())


def test_the_interrupt_of_a_terminal_leaves_the_end_of_the_process_to_the_service() -> None:
    some = signed(100)

    async def play() -> None:
        checks = SignatureChecks()
        number = await ready(checks)
        os.kill(number, signal.SIGINT)
        for _ in range(3):
            assert await verdicts(checks, some) == [each.good for each in some]
        assert checks.process == number
        await checks.close()

    asyncio.run(play())


_FIELD = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_ORDER_8 = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826


def test_what_anybody_can_sign_and_other_forms_of_a_signature_are_refused() -> None:
    """Under the point 1 every statement has the signature (1, 0); s + L signs what s does, by the bare equation."""
    identity, statement = Identity.draw(Randomness(1)), b"statement"
    good = identity.sign(statement)
    other = good[:32] + (int.from_bytes(good[32:], "little") + _ORDER).to_bytes(32, "little")
    low = [
        (y + (sign << 255)).to_bytes(32, "little")
        for y in (0, 1, _FIELD - 1, _FIELD, _FIELD + 1, _ORDER_8, _FIELD - _ORDER_8)
        for sign in (0, 1)
    ]
    forged = [(key, point + bytes(32), statement) for key in low for point in low]
    assert len([each for each in forged if _by_openssl(*each)]) > 10  # the case is not empty
    shifted = [
        (identity.public[:31], good, statement),
        (identity.public + b"x", good, statement),
        (identity.public, good[:63], good[63:] + statement),
        (identity.public, good + statement[:1], statement[1:]),
    ]
    some = [
        *(Signed(*each, good=False) for each in (*forged, *shifted)),
        Signed(identity.public, other, statement, good=False),
        Signed(identity.public, good, statement, good=True),
    ]

    async def play() -> None:
        checks = SignatureChecks()
        assert await verdicts(checks, some) == [each.good for each in some]
        await ready(checks)
        assert await verdicts(checks, some[:-1]) == [False] * len(some[:-1])
        await checks.close()

    asyncio.run(play())


def _by_openssl(public: bytes, signature: bytes, statement: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True


def test_a_signature_that_was_good_is_known_again_and_no_other(checked: list[bytes]) -> None:
    identity, other = Identity.draw(Randomness(1)), Identity.draw(Randomness(2))
    a, b = identity.sign(b"a"), identity.sign(b"b")
    asked = [  # by which device, what is asked, whether it is good, and whether it has to be checked
        (7, (identity.public, a, b"a"), True, True),
        (7, (identity.public, a, b"a"), True, False),
        (7, (identity.public, a, b"b"), False, True),
        (7, (identity.public, a, b"b"), False, True),  # a bad one is never known
        (7, (identity.public, a[:-1] + bytes([a[-1] ^ 1]), b"a"), False, True),
        (7, (identity.public[:-1] + bytes([identity.public[-1] ^ 1]), a, b"a"), False, True),
        (7, (other.public, a, b"a"), False, True),
        (7, (identity.public, a[:63], a[63:] + b"a"), False, False),
        (7, (identity.public, a, b"a"), True, False),
        (7 + signature_checks._SLOTS, (other.public, other.sign(b"a"), b"a"), True, True),
        (7, (identity.public, a, b"a"), True, True),  # another device was known in its place
        (7, (identity.public, b, b"b"), True, True),
        (7, (identity.public, a, b"a"), True, True),  # of a device the last one is known
    ]

    async def play() -> None:
        checks = SignatureChecks()
        for device, each, right, new in asked:
            checked.clear()
            assert await checks.good(*each, device) is right
            assert bool(checked) is new
        assert await checks.good(identity.public, b, b"b")
        assert await checks.good(identity.public, b, b"b")
        assert checked[-2:] == [b"b", b"b"]  # of no device nothing is known
        assert await checks.good(identity.public, a, b"a", 7)
        assert checked[-1] == b"b"

    asyncio.run(play())
