"""A connection: kept while the server keeps it, opened again when it does not, given up when nothing moves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from mapveil.collector.fleet.wire import WirePool
from mapveil_client.connection import Answer, Connection, Endpoint, TransportFault

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nMapveil-Phase: keys\r\n\r\nOK"
GET = ("GET", "/v1/open", b"", {})


class Said:
    """A server that says these things, one for each request; what is None hangs up, a number waits as many seconds."""

    def __init__(self, *said: bytes | float | None) -> None:
        self.left, self.heard, self.opened, self.open = list(said), [], 0, 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        self.open += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while self.left:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
                self.heard.append(head + await reader.readexactly(int(lines.get(b"content-length", 0))))
                said = self.left.pop(0)
                while isinstance(said, float):
                    await asyncio.sleep(said)
                    said = self.left.pop(0)
                if said is None:
                    break
                writer.write(said)
                await writer.drain()
                if b"connection: close" in said.lower():
                    break
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        self.open -= 1


def run(
    server: Said, use: Callable[[WirePool], Awaitable[object]], most_bytes: int = 1 << 20, **given: float
) -> object:
    async def whole() -> object:
        listening = await asyncio.start_server(server, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        wire = WirePool(Endpoint("http", "127.0.0.1", port, None, 1, most_bytes), **given)
        try:
            return await asyncio.wait_for(use(wire), 20)
        finally:
            await wire.aclose()
            while getattr(server, "open", 0):
                await asyncio.sleep(0.01)
            listening.close()
            await listening.wait_closed()

    return asyncio.run(whole())


async def thrice(wire: WirePool) -> list[Answer]:
    return [await wire.exchange(*GET) for _ in range(3)]


def test_one_connection_serves_many_requests() -> None:
    server = Said(OK, OK, OK)
    made = run(server, thrice)
    assert made == [Answer(200, "OK", {"content-length": "2", "mapveil-phase": "keys"}, b"OK")] * 3
    assert server.opened == 1
    assert server.heard[0].startswith(b"GET /v1/open HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"ontent-" not in server.heard[0]


def test_a_body_is_sent_with_its_length() -> None:
    server = Said(OK, OK)

    async def use(wire: WirePool) -> None:
        await wire.exchange("PUT", "/x", b"body", {"Content-Type": "application/cbor"})
        await wire.exchange("PUT", "/x", b"", {})

    run(server, use)
    assert b"\r\nContent-Type: application/cbor\r\nContent-Length: 4\r\n\r\nbody" in server.heard[0]
    assert server.heard[1].endswith(b"\r\nContent-Length: 0\r\n\r\n")


def test_a_server_that_closes_is_connected_to_again() -> None:
    closing = OK.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
    server = Said(closing, OK, OK)
    assert [answer.content for answer in run(server, thrice)] == [b"OK"] * 3
    assert server.opened == 2


def test_chunks_and_what_goes_before_an_answer_are_read() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    server = Said(early + b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n", b"HTTP/1.1 204 No Content\r\n\r\n", OK)
    assert [answer.content for answer in run(server, thrice)] == [b"abc", b"", b"OK"]
    assert server.opened == 1


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (None, "hung up"),
        (b"220 smtp.example ESMTP\r\n\r\n", "not HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "not HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000, "not HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2000, "more than 1000 bytes"),
    ],
)
def test_what_is_no_answer_is_a_fault_and_the_next_request_is_sent_anew(said: bytes | None, why: str) -> None:
    async def use(wire: WirePool) -> Answer:
        with pytest.raises(TransportFault, match=why):
            await wire.exchange(*GET)
        return await wire.exchange(*GET)

    server = Said(said, OK)
    assert run(server, use, most_bytes=1000).content == b"OK"
    assert server.opened == 2


def test_half_an_answer_is_none() -> None:
    async def use(wire: WirePool) -> None:
        with pytest.raises(TransportFault, match="hung up"):
            await wire.exchange(*GET)

    run(Said(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nab"), use)


def test_what_was_not_asked_for_is_never_taken_for_an_answer() -> None:
    other = OK.replace(b"OK", b"no")

    async def use(wire: WirePool) -> list[bytes]:
        first = await wire.exchange(*GET)
        await asyncio.sleep(0.05)
        return [first.content, (await wire.exchange(*GET)).content]

    server = Said(OK + other, OK)
    assert run(server, use) == [b"OK", b"OK"]
    assert server.opened == 2


def test_silence_ends_an_exchange() -> None:
    async def use(wire: WirePool) -> None:
        with pytest.raises(TransportFault, match=r"silence for 0.2 s"):
            await wire.exchange(*GET)
        assert (await wire.exchange(*GET)).content == b"OK"

    run(Said(1.0, OK, OK), use, silence_s=0.2)


def test_a_slow_answer_that_moves_is_waited_for() -> None:
    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for byte in OK:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.01)
        writer.close()
        await writer.wait_closed()
        ended.set()

    async def use(wire: WirePool) -> bytes:
        answer = await wire.exchange(*GET)
        await ended.wait()
        return answer.content

    ended = asyncio.Event()
    assert run(trickle, use, silence_s=0.3) == b"OK"  # type: ignore[arg-type]


def test_an_exchange_that_is_cancelled_leaves_nothing_for_the_next() -> None:
    async def use(wire: WirePool) -> bytes:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wire.exchange(*GET), 0.5)
        return (await wire.exchange(*GET)).content

    server = Said(OK[:-1], OK)
    assert run(server, use) == b"OK"
    assert server.opened == 2


def test_nobody_there_is_a_fault() -> None:
    async def use(wire: WirePool) -> None:
        with pytest.raises(TransportFault, match="ConnectionRefusedError"):
            await WirePool(Endpoint("http", "127.0.0.1", 9, None, 1, 1)).exchange(*GET)

    run(Said(), use)


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def whole() -> tuple[bytes, Said]:
        proxy = Said(OK)
        listening = await asyncio.start_server(proxy, "127.0.0.1", 0)
        address = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        monkeypatch.setenv("http_proxy", address)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        try:
            async with Connection("http://collector.test", plain=True, connections=1) as connection:
                content = await connection.document("/v1/open")
            while proxy.open:
                await asyncio.sleep(0.01)
            return content, proxy
        finally:
            listening.close()
            await listening.wait_closed()

    content, proxy = asyncio.run(whole())
    assert content == b"OK"
    assert proxy.heard[0].startswith(b"GET http://collector.test/v1/open HTTP/1.1\r\n")
