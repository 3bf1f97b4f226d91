"""A wire between devices and services on which things happen: requests are lost, late, repeated, out of order.

It carries HTTP/1.1 with bodies of a declared length, which is all that devices speak. What it loses, it loses by
closing the connection, as a network does.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

__all__ = ["Carry", "Request", "Send", "Wire"]

_LIMIT = 1 << 26


class Request(NamedTuple):
    """One request, as it came."""

    number: int  # from 1, over all connections
    head: bytes
    body: bytes

    @property
    def method(self) -> str:
        return self.head.split(b" ", 1)[0].decode()

    @property
    def path(self) -> str:
        return self.head.split(b" ", 2)[1].decode()

    @property
    def signed(self) -> bool:
        """Whether a device says something of its own."""
        return b"mapveil-device" in self.head.lower()


Send = Callable[[Request], Awaitable[bytes | None]]
"""Hands a request to a service; the whole answer, or None where there was none."""

Carry = Callable[[Request, Send], Awaitable[bytes | None]]
"""The fate of a request: the answer that is handed back, or None to cut the connection."""


async def plainly(request: Request, send: Send) -> bytes | None:
    """Nothing happens."""
    return await send(request)


class Wire:
    """A proxy in a thread.

    Parameters
    ----------
    ports : sequence of int
        Of the services: each request goes to the next one that can be reached.
    carry : callable
        What becomes of a request.
    """

    def __init__(self, ports: Sequence[int], carry: Carry = plainly) -> None:
        self.carry = carry
        self._ports = itertools.cycle(ports)
        self._services = len(ports)
        self._numbers = itertools.count(1)
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._stop = asyncio.Event()
        self.url = ""
        self.failures: list[BaseException] = []

    def __enter__(self) -> Wire:
        self._thread.start()
        assert self._ready.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)
        assert not self._thread.is_alive()
        self._loop.close()
        assert not self.failures, self.failures

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, limit=_LIMIT)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._stop.wait()
        server.close()
        ours = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in ours:
            task.cancel()
        await asyncio.gather(*ours, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(_length(head))
                request = Request(next(self._numbers), head, body)
                answer = await self.carry(request, self._send)
                if answer is None:
                    return
                writer.write(answer)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            return  # the device hung up
        except asyncio.CancelledError:
            return  # the end of the test; streams complain of a task that was cancelled
        except Exception as error:
            self.failures.append(error)
        finally:
            with contextlib.suppress(OSError):
                writer.close()

    async def _send(self, request: Request) -> bytes | None:
        for _ in range(self._services):
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", next(self._ports), limit=_LIMIT)
            except OSError:
                continue
            try:
                writer.write(request.head + request.body)
                await writer.drain()
                head = await reader.readuntil(b"\r\n\r\n")
                return head + await reader.readexactly(_length(head))
            except (OSError, asyncio.IncompleteReadError):
                return None  # whether it arrived is not known
            finally:
                writer.close()
        return None


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0
