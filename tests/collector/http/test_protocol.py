"""Raw sockets against a live service: whoever is slow, long or wrong loses the connection, and nobody else notices."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mapveil.collector.http.protocol import TimedProtocol
from mapveil.collector.http.settings import Settings

from ..faults.scene import until

Live = Callable[[Any, Settings], contextlib.AbstractContextManager[str]]
HASTY = {"header_seconds": 1, "body_seconds": 1, "idle_seconds": 1, "write_seconds": 1, "header_bytes": 2000}
LARGE = 1 << 25
OVERRIDDEN = (
    *("connection_made", "connection_lost", "data_received", "on_message_begin", "on_headers_complete"),
    *("on_body", "on_message_complete", "on_response_complete", "send_400_response"),
    *("_unsupported_upgrade_warning", "pause_writing", "resume_writing", "timeout_keep_alive_handler"),
)


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with how many bytes came; ``/large`` with 32 MiB; ``/early`` before the body is there."""
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    size, more = 0, scope["path"] != "/early"
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message["body"])
        more = message["more_body"]
    body = bytes(LARGE) if scope["path"] == "/large" else b"%d" % size
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Wire(NamedTuple):
    address: tuple[str, int]
    url: str

    def connect(self, sent: bytes = b"") -> socket.socket:
        made = socket.create_connection(self.address, timeout=300)
        made.sendall(sent)
        return made


@contextlib.contextmanager
def wired(live: Live, **changed: int) -> Iterator[Wire]:
    """A live echo with limits of its own."""
    with live(echo, Settings(**{**HASTY, **changed})) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        yield Wire((host, int(port)), url)


@pytest.fixture(scope="module")
def wire(live: Live) -> Iterator[Wire]:
    """A live echo that soon loses its patience."""
    with wired(live) as made:
        yield made


def all_of(connection: socket.socket) -> bytes:
    """Everything until the other side closes."""
    parts = []
    with connection, contextlib.suppress(ConnectionError):
        while part := connection.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def refused(answer: bytes) -> tuple[int, str]:
    """The status and the code of a refusal, which has headers as every response."""
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode().lower().split("\r\n")
    assert "content-type: application/json" in lines
    assert "connection: close" in lines
    assert "x-content-type-options: nosniff" in lines
    assert f"content-length: {len(body)}" in lines
    return int(lines[0].split(" ")[1]), json.loads(body)["error"]["code"]


def lasted(connection: socket.socket) -> tuple[bytes, float]:
    started = time.monotonic()
    return all_of(connection), time.monotonic() - started


def trickle_is_cut_off(connection: socket.socket, part: bytes) -> bool:
    """Send a part 20 times a second until the other side closes; False where the head or body ends first."""
    for _ in range(9_000):
        try:
            connection.sendall(part)
        except OSError:
            return True
        time.sleep(0.05)
    return False


def established(address: tuple[str, int], client: tuple[str, int]) -> bool:
    """Whether the system still holds the server's side of a connection open."""
    ends = [f"0100007F:{port:04X}" for _, port in (address, client)]
    with open("/proc/net/tcp") as table:
        return any(line.split()[1:4] == [*ends, "01"] for line in table)


def test_a_request_is_answered_and_the_connection_kept(wire: Wire) -> None:
    with wire.connect() as connection:
        for length in (0, 5, 100_000):
            connection.sendall(b"PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % length)
            connection.sendall(bytes(length))
            answer = b""
            while not answer.partition(b"\r\n\r\n")[2]:  # head and body may come apart
                answer += connection.recv(1000)
            assert answer.endswith(b"\r\n\r\n%d" % length)


def test_requests_may_follow_one_another_without_waiting(wire: Wire) -> None:
    one = b"PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
    last = one.replace(b"Host", b"Connection: close\r\nHost")
    assert all_of(wire.connect(one * 9 + last)).count(b"200 OK") == 10


@pytest.mark.parametrize("sent", [b"", b"GET", b"GET / HTTP/1.1\r\nHost: x\r\nX-A: b", b"\r\n"])
def test_a_head_that_does_not_end_is_cut_off(wire: Wire, sent: bytes) -> None:
    answer, seconds = lasted(wire.connect(sent))
    assert refused(answer) == (408, "too-slow")
    assert seconds > 0.8


def test_a_head_that_trickles_is_cut_off(wire: Wire) -> None:
    with wire.connect(b"GET / HTTP/1.1\r\nHost: x\r\n") as connection:
        assert trickle_is_cut_off(connection, b"X-A: b\r\n")


def test_a_second_head_must_be_quick_too(wire: Wire) -> None:
    connection = wire.connect(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"200 OK" in connection.recv(1000)
    connection.sendall(b"GET /")
    assert refused(all_of(connection)) == (408, "too-slow")


def test_an_idle_connection_is_closed_without_a_word(wire: Wire) -> None:
    connection = wire.connect(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"200 OK" in connection.recv(1000)
    answer, seconds = lasted(connection)
    assert answer == b""
    assert seconds > 0.8


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_does_not_come_is_cut_off(wire: Wire, chunked: bool) -> None:
    kind = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: 100"
    answer, seconds = lasted(wire.connect(b"PUT /x HTTP/1.1\r\nHost: x\r\n" + kind + b"\r\n\r\n"))
    assert refused(answer) == (408, "too-slow")
    assert seconds > 0.8


def test_a_body_below_the_least_rate_is_cut_off(live: Live) -> None:
    with wired(live, body_rate=1000) as wire:
        head = b"PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
        with wire.connect(head) as connection:
            assert trickle_is_cut_off(connection, bytes(10))  # 200 bytes a second


def test_a_body_that_comes_quickly_but_for_its_end_is_cut_off(live: Live) -> None:
    head = b"PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: 100001\r\n\r\n"
    with wired(live, body_rate=100) as wire:  # by which 100,000 bytes may take 1,000 seconds
        answer, _ = lasted(wire.connect(head + bytes(100_000)))
        assert refused(answer) == (408, "too-slow")


def test_a_slow_body_at_the_least_rate_is_waited_for(live: Live) -> None:
    head = b"PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\n"
    with wired(live, body_rate=100) as wire, wire.connect(head) as connection:
        for _ in range(20):
            connection.sendall(bytes(500))  # 5,000 bytes a second, for longer than body_seconds
            time.sleep(0.1)
        assert connection.recv(1000).endswith(b"\r\n\r\n10000")


def test_the_rest_of_a_body_that_was_answered_already_is_not_waited_for(wire: Wire) -> None:
    connection = wire.connect(b"PUT /early HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nabc")
    assert all_of(connection).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"a" * 3000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX-A: " + b"b" * 3000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 500 + b"\r\n",
    ],
)
def test_a_head_that_is_too_large_is_refused(wire: Wire, head: bytes) -> None:
    assert refused(all_of(wire.connect(head))) == (431, "too-large")


def test_a_head_without_end_is_refused_before_it_fills_memory(wire: Wire) -> None:
    connection = wire.connect(b"GET / HTTP/1.1\r\nHost: x\r\nX-A: ")
    sent = 0
    with contextlib.suppress(OSError):
        for _ in range(1000):
            connection.sendall(b"b" * (1 << 14))
            sent += 1 << 14
    connection.close()
    assert sent < 8 << 20


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a TLS greeting
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost x\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
        b"PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"PUT /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_no_http_is_told_so_in_the_shape_of_every_error(wire: Wire, sent: bytes) -> None:
    assert refused(all_of(wire.connect(sent))) == (400, "malformed")


def test_an_upgrade_is_answered_as_a_plain_request(wire: Wire) -> None:
    asked = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade, close\r\nUpgrade: websocket\r\n\r\n"
    assert all_of(wire.connect(asked)).startswith(b"HTTP/1.1 200")


def test_a_reader_that_takes_nothing_is_cut_off(wire: Wire) -> None:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(300)
    connection.connect(wire.address)
    connection.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
    client = connection.getsockname()
    until(lambda: not established(wire.address, client), "the connection is cut off")
    assert len(all_of(connection)) < LARGE


def test_a_reader_at_the_least_rate_gets_everything(live: Live) -> None:
    with wired(live, body_rate=1 << 18) as wire:
        with wire.connect(b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") as connection:
            taken = 0
            started = time.monotonic()
            while part := connection.recv(1 << 18):
                taken += len(part)
                if time.monotonic() - started < 2:
                    time.sleep(0.02)
        assert taken > LARGE


def test_more_connections_than_there_are_places_for_are_told_so(live: Live) -> None:
    with wired(live, connections=5) as wire:
        held = [wire.connect() for _ in range(5)]  # taken in this order, and the next one after them
        assert refused(all_of(wire.connect())) == (503, "unavailable")
        for connection in held:
            connection.close()
        until(lambda: httpx.get(wire.url).status_code == 200, "the places are free again")


def test_hundreds_of_slow_connections_keep_nobody_waiting(live: Live) -> None:
    with wired(live, header_seconds=3600) as wire:
        crowd = [wire.connect(b"PUT /x HTTP/1.1\r\nHost: x\r\nContent-Le") for _ in range(300)]
        with httpx.Client(base_url=wire.url, timeout=300) as client:
            assert all(client.put("/x", content=bytes(1000)).text == "1000" for _ in range(50))
        for connection in crowd:
            connection.close()


def test_a_later_uvicorn_is_not_installed_unseen() -> None:
    """TimedProtocol overrides methods of uvicorn that no documentation promises: each new minor version is tried
    with the tests of this file, then the bound in pyproject.toml is raised.
    """
    pyproject = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    (bound,) = (
        each for each in pyproject["project"]["optional-dependencies"]["service"] if "uvicorn" in each
    )
    assert re.fullmatch(r"uvicorn>=0\.\d+,<0\.\d+", bound)
    overridden = {name for name in vars(TimedProtocol) if not name.startswith("__")} & set(OVERRIDDEN)
    assert overridden == set(OVERRIDDEN) <= set(dir(HttpToolsProtocol))
