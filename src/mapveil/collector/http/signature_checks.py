"""Signatures of requests, many at once, checked in a process beside the service where there is a core for it.

Those that come in one turn of the event loop go to the process in messages of sixteen, and the verdicts of each come
back together: while it checks the next, the store writes those before. A few are checked where they are, as are all
while the process has more than enough to do, or is not there.

Whoever asks the same again sends the same signature, for a statement has no time in it: of each device the last one
that was good is known. Whether the device is barred is no matter of signatures, and is asked before.

libsodium checks them, in half the time of OpenSSL. It refuses what :func:`~mapveil_client.secure_sum.keys.signed_by`
refuses, and besides keys and signatures in another encoding than the canonical one, which no device sends.
"""

import asyncio
import contextlib
import hashlib
import logging
import multiprocessing
import os
import secrets
import signal
import socket
import struct
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from nacl.bindings import crypto_sign_open
from nacl.exceptions import BadSignatureError

_LOG: Final = logging.getLogger(__name__)
_FEW: Final = 4  # signatures that take longer to send than to check
_MOST_SENT: Final = 1024  # signatures at the process: 60 ms of a core's work; the rest is checked here
_MESSAGE: Final = 16  # signatures
_HUNG_SECONDS: Final = 5.0  # after which a process without a verdict is killed
_AGAIN_SECONDS: Final = 10.0  # until a process that ended is started anew
_KEY: Final = 32
_SIGNATURE: Final = 64
_FIXED: Final = _KEY + _SIGNATURE  # bytes of both
_SLOTS: Final = 1 << 20  # good signatures that are known, one of a device; memory is taken as they come
_DIGEST: Final = 16  # bytes of each, under a key that this process drew: nobody finds two of the same digest
_LENGTH: Final = struct.Struct(">I")


class _Check(NamedTuple):
    public: bytes
    signature: bytes
    statement: bytes
    verdict: asyncio.Future[bool]

    def answer(self, good: bool) -> None:
        if not self.verdict.done():  # else its request was cancelled
            self.verdict.set_result(good)


class SignatureChecks:
    """The checks of one service, for one event loop; :meth:`close` ends the process.

    Attributes
    ----------
    process : int, optional
        Id of the process, once it checks.
    """

    def __init__(self) -> None:
        self._waiting: list[_Check] = []
        self._sent: deque[list[_Check]] = deque()  # the verdicts come in this order
        self._at_process = 0  # signatures
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self._secret = secrets.token_bytes(32)
        self._known = np.zeros((_SLOTS, _DIGEST), dtype=np.uint8)
        self.process: int | None = None
        self._not_before = 0.0 if (os.cpu_count() or 1) > 1 else float("inf")

    async def good(
        self, public: bytes, signature: bytes, statement: bytes, known_of: int | None = None
    ) -> bool:
        """Whether the signature is that of the holder of a public key (32 bytes) under a statement.

        Of the device ``known_of`` it is looked up, and known from now on if it is good.
        """
        if len(public) != _KEY or len(signature) != _SIGNATURE:  # which PyNaCl does not check
            return False
        if known_of is None:
            return await self._verdict(public, signature, statement)
        signed, slot = public + signature + statement, known_of % _SLOTS
        digest = hashlib.blake2b(signed, key=self._secret, digest_size=_DIGEST).digest()
        if self._known[slot].tobytes() == digest:
            return True
        good = await self._verdict(public, signature, statement)
        if good:
            self._known[slot] = np.frombuffer(digest, dtype=np.uint8)
        return good

    async def _verdict(self, public: bytes, signature: bytes, statement: bytes) -> bool:
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._check, loop)
        check = _Check(public, signature, statement, loop.create_future())
        self._waiting.append(check)
        return await check.verdict

    async def close(self) -> None:
        """End the process."""
        self._not_before = float("inf")
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        batch, self._waiting = self._waiting, []
        now = loop.time()
        if len(batch) > _FEW and self._task is None and now >= self._not_before:
            self._not_before = now + _AGAIN_SECONDS
            self._task = loop.create_task(self._keep_process())
        if self._writer is None or len(batch) <= _FEW or self._at_process + len(batch) > _MOST_SENT:
            _check_here(batch)
            return
        self._at_process += len(batch)
        for first in range(0, len(batch), _MESSAGE):
            some = batch[first : first + _MESSAGE]
            self._sent.append(some)
            parts: list[bytes] = []
            for each in some:
                parts += (_LENGTH.pack(len(each.statement)), each.public, each.signature, each.statement)
            message = b"".join(parts)
            self._writer.write(_LENGTH.pack(len(message)) + message)
        loop.call_later(_HUNG_SECONDS, self._end_hung, some)

    def _end_hung(self, some: list[_Check]) -> None:
        """End the process if it gave no verdict on what it was sent; what it leaves is checked here."""
        if self._task is not None and any(each is some for each in self._sent):
            self._task.cancel()

    async def _keep_process(self) -> None:
        """Start the process and pass its verdicts on, until it ends; what it leaves is checked here."""
        own, other = socket.socketpair()
        spawn = multiprocessing.get_context("spawn")
        process = spawn.Process(target=_serve, args=(other,), name="mapveil-signatures", daemon=True)
        writer: asyncio.StreamWriter | None = None
        try:
            with other:
                await asyncio.to_thread(process.start)
            reader, writer = await asyncio.open_connection(sock=own)
            await reader.readexactly(1)  # it is ready
            self._writer, self.process = writer, process.pid
            while True:
                first = await reader.readexactly(1)
                batch = self._sent[0]
                verdicts = first + await reader.readexactly(len(batch) - 1)
                self._sent.popleft()
                self._at_process -= len(batch)
                for each, verdict in zip(batch, verdicts, strict=True):
                    each.answer(verdict == 1)
        except (OSError, asyncio.IncompleteReadError) as error:
            _LOG.warning(
                "the process that checks signatures ended (%s); they are checked here", type(error).__name__
            )
        finally:
            (own if writer is None else writer).close()
            if process.pid is not None:
                process.kill()
                process.join()
            left, self._sent = self._sent, deque()
            self._task = self._writer = self.process = None
            self._at_process = 0
            for batch in left:
                _check_here(batch)


def _good(public: bytes, signature: bytes, statement: bytes) -> bool:
    try:
        crypto_sign_open(signature + statement, public)
    except BadSignatureError:
        return False
    return True


def _check_here(batch: list[_Check]) -> None:
    for each in batch:
        each.answer(_good(each.public, each.signature, each.statement))


def _serve(link: socket.socket) -> None:
    """Check what comes until the other end is closed, as the end of the service's process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the service ends this process
    with link, link.makefile("rb") as coming, contextlib.suppress(OSError):
        link.sendall(bytes([1]))
        while len(head := coming.read(_LENGTH.size)) == _LENGTH.size:
            message = coming.read(*_LENGTH.unpack(head))
            link.sendall(bytes(_verdicts(message)))


def _verdicts(message: bytes) -> Iterator[bool]:
    at = 0
    while at < len(message):
        key = at + _LENGTH.size
        statement = key + _FIXED
        end = statement + _LENGTH.unpack_from(message, at)[0]
        signature = message[key + _KEY : statement]
        yield _good(message[key : key + _KEY], signature, message[statement:end])
        at = end
