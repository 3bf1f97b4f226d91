"""Sends requests that were written before, as fast as they are answered: ADDRESS FILE CONNECTIONS.

In the file each request follows its length, four bytes. Prints how many were answered with 200 or 204, the seconds from
the first to the last, and the time that a request took: median and 99th percentile, milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final, cast
from urllib.parse import urlsplit

import uvloop

_LENGTH: Final = re.compile(rb"\ncontent-length: (\d+)")


class Sender(asyncio.Protocol):
    """One connection: the next request as soon as the last is answered."""

    def __init__(self, left: Iterator[bytes], took: list[float], ended: asyncio.Future[None]) -> None:
        self.left, self.took, self.ended = left, took, ended
        self.answer = b""
        self.since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self.transport = cast("asyncio.Transport", transport)
        self.send()

    def send(self) -> None:
        """Send the next one, or end."""
        request = next(self.left, None)
        if request is None:
            self.transport.close()
            return
        self.since = time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        """An answer, or a part of one that has a body."""
        self.answer += data
        head, _, body = self.answer.partition(b"\r\n\r\n")
        if not head.startswith((b"HTTP/1.1 204", b"HTTP/1.1 200")):
            raise SystemExit(f"answered {self.answer[:300]!r}")
        length = _LENGTH.search(head)
        if length is not None and len(body) < int(length[1]):
            return
        self.answer = b""
        self.took.append(time.perf_counter() - self.since)
        self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        if not self.ended.done():
            self.ended.set_result(None)


async def send_all(address: str, requests: list[bytes], connections: int) -> dict[str, float]:
    """Send all of them."""
    loop = asyncio.get_running_loop()
    server = urlsplit(address)
    left, took = iter(requests), list[float]()
    ended: list[asyncio.Future[None]] = [loop.create_future() for _ in range(connections)]
    started = time.perf_counter()
    for each in ended:
        make = partial(Sender, left, took, each)
        await loop.create_connection(make, str(server.hostname), int(server.port or 80))
    await asyncio.gather(*ended)
    seconds = time.perf_counter() - started
    took.sort()
    at = [1e3 * took[int(part * (len(took) - 1))] for part in (0.5, 0.99)]
    return {"answered": len(took), "seconds": seconds, "p50_ms": at[0], "p99_ms": at[1]}


def read(written: bytes) -> Iterator[bytes]:
    """The requests of a file."""
    at = 0
    while at < len(written):
        first, at = at + 4, at + 4 + int.from_bytes(written[at : at + 4], "big")
        yield written[first:at]


requests = list(read(Path(sys.argv[2]).read_bytes()))
print(json.dumps(uvloop.run(send_all(sys.argv[1], requests, int(sys.argv[3])))))
