"""The wire: signed as the collector reads it, tried again where that helps, and nothing believed that is no answer."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from typing import NoReturn

import pytest

from mapveil_client.connection import (
    Connection,
    Progress,
    ServerRefusal,
    Traffic,
    TransportFault,
    Unreachable,
)
from mapveil_client.errors import InputError
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.keys import Identity, read_authorization, request_statement, signed_by

IDENTITY = Identity.draw(Randomness(1))
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def answer(status: int, body: bytes = b"", *headers: bytes) -> bytes:
    lines = [b"HTTP/1.1 %d Said" % status, b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def against(answers: list[bytes | None], call: Callable, *, prefix: str = "", **given):
    """What a call makes of a server that gives these answers, one each (None: hangs up), and what it was asked."""
    seen: list[bytes] = []
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = [
                    int(line.split(b":")[1])
                    for line in head.lower().split(b"\r\n")
                    if b"content-length" in line
                ]
                body = await reader.readexactly(length[0]) if length else b""
                seen.append(head + body)
                said = left.pop(0)
                if said is None:
                    break
                writer.write(said)
                await writer.drain()
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    async def run() -> object:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            async with Connection(f"http://127.0.0.1:{port}{prefix}", **given) as connection:
                return await call(connection)
        finally:
            server.close()
            await server.wait_closed()

    try:
        return asyncio.run(run()), seen
    except (ServerRefusal, Unreachable) as error:
        return error, seen


def test_a_request_is_signed_as_it_is_sent() -> None:
    traffic = Traffic()
    made, seen = against(
        [OK],
        lambda c: c.request(
            "PUT", "/v1/x?y=1", b"body", media="application/cbor", signer=(IDENTITY, 7), traffic=traffic
        ),
        prefix="/here",
    )
    assert made.status == 200
    head, body = seen[0].split(b"\r\n\r\n")
    assert head.startswith(b"PUT /here/v1/x?y=1 HTTP/1.1")
    assert b"content-type: application/cbor" in head.lower()
    header = next(line for line in head.decode().split("\r\n") if line.startswith("Authorization: "))
    told = read_authorization(header.removeprefix("Authorization: "))
    assert told.device == 7
    assert signed_by(IDENTITY.public, told.signature, request_statement("PUT", "/here/v1/x?y=1", body))
    assert (traffic.up, traffic.down) == (4, 2)


@pytest.mark.parametrize("failing", [None, answer(503), answer(429), answer(502), answer(500)])
def test_what_may_pass_is_tried_again_with_the_same_bytes(failing: bytes | None) -> None:
    made, seen = against(
        [failing, failing, OK], lambda c: c.request("PUT", "/v1/x", b"body", signer=(IDENTITY, 7))
    )
    assert made.status == 200
    assert len(seen) == 3
    assert len(set(seen)) == 1


def test_retry_after_is_waited_for() -> None:
    start = time.monotonic()
    made, _ = against([answer(503, b"", b"Retry-After: 1"), OK], lambda c: c.document("/v1/open"))
    assert made == b"{}"
    assert 1 <= time.monotonic() - start < 30


def test_a_wait_that_the_server_asks_for_takes_no_patience() -> None:
    slow = answer(429, b'{"error":{"code":"too-many","message":"60 devices in 60 s"}}', b"Retry-After: 1")
    said: list[str] = []
    given = {"patience_s": 0.5, "waiting": said.append}
    made, _ = against([slow, slow, OK], lambda c: c.document("/v1/open"), **given)
    assert made == b"{}"
    assert said == ["the server refuses (429 too-many): 60 devices in 60 s"] * 2
    day = answer(429, b"", b"Retry-After: 40000")
    made, seen = against([day] * 5, lambda c: c.document("/v1/open"), **given)
    assert isinstance(made, Unreachable)
    assert len(seen) == 1


def test_patience_ends() -> None:
    made, seen = against([answer(503)] * 50, lambda c: c.document("/v1/open"), patience_s=0.5)
    assert isinstance(made, Unreachable)
    assert "status 503 for 0.5 s" in str(made)
    assert 2 <= len(seen) < 10  # the pauses grow


@pytest.mark.parametrize(
    ("server", "named"),
    [
        ("https://collector.example/here", "collector.example, port 443"),
        ("http://[::1]", "::1, port 80"),
        ("https://collector.example:8443", "collector.example, port 8443"),
    ],
)
def test_a_server_that_does_not_answer_is_named_with_its_port(server: str, named: str) -> None:
    class Nobody:
        async def exchange(self, *_request: object) -> NoReturn:
            raise TransportFault("ConnectError")

        async def aclose(self) -> None: ...

    async def ask() -> None:
        async with Connection(server, patience_s=0.0, transport=lambda _: Nobody()) as connection:
            await connection.document("/v1/open")

    with pytest.raises(
        Unreachable, match=re.escape(f"the server ({named}) gave no answer (ConnectError) for 0 s")
    ):
        asyncio.run(ask())


def test_a_refusal_is_not_tried_again_and_is_told_plainly() -> None:
    body = b'{"error":{"code":"too-late","message":"the phase\\u001b[31m\\nis over"}}'
    made, seen = against([answer(410, body)], lambda c: c.document("/v1/open"))
    assert isinstance(made, ServerRefusal)
    assert (made.status, made.code, len(seen)) == (410, "too-late", 1)
    assert str(made) == "the server refuses (410 too-late): the phase [31m is over"
    made, _ = against([answer(404, b"<html>")], lambda c: c.document("/v1/open"))
    assert str(made) == "the server refuses (404 refused): Said"


@pytest.mark.parametrize(
    ("call", "bodies"),
    [
        ("progress", [b"[]", b"{}", b"x", b"[" * 100_000, b'{"state":"open"}', b'{"state":1,"round":"x"}']),
        (
            "assignment",
            [
                b"{}",
                b"[]",
                b'{"shard":-1,"client":0}',
                b'{"shard":"0","client":0}',
                b'{"shard":1.5,"client":0}',
            ],
        ),
        ("enrol", [b"{}", b"[]", b'{"device":"1"}', b'{"device":true}', b'{"device":-1}', b""]),
    ],
)
def test_an_answer_that_is_none_is_said_to_be(call: str, bodies: list[bytes]) -> None:
    calls = {
        "progress": lambda c: c.progress("a" * 32),
        "assignment": lambda c: c.assignment("a" * 32, 1, signer=(IDENTITY, 1)),
        "enrol": lambda c: c.enrol("mve_x", IDENTITY),
    }
    for body in bodies:
        made, _ = against([answer(200, body)], calls[call])
        assert isinstance(made, Unreachable), body


def test_progress_and_server_messages_are_read() -> None:
    body = (
        b'{"state":"running","round":2,"phase":"keys","open":true,"closes_in_s":3.5,"wanted":9,"present":4}'
    )
    made, _ = against([answer(200, body)], lambda c: c.progress("a" * 32))
    assert made == Progress("running", 2, "keys", True, 3.5, 9, 4)
    none = b'{"state":"open","round":null,"phase":null,"open":true,"closes_in_s":null,"wanted":9,"present":4}'
    made, _ = against([answer(200, none)], lambda c: c.progress("a" * 32))
    assert made == Progress("open", 0, None, True, None, 9, 4)
    over = none.replace(b'"present":4', b'"present":4,"reason":"too few\\nsent shares"').replace(
        b'"open"', b'"aborted"', 1
    )
    made, _ = against([answer(200, over)], lambda c: c.progress("a" * 32))
    assert (made.state, made.reason) == ("aborted", "too few sent shares")
    made, seen = against(
        [answer(200, b"message", b"Mapveil-Phase: shares")],
        lambda c: c.server_message("a" * 32, 3, signer=(IDENTITY, 1)),
    )
    assert made == ("shares", b"message")
    assert b"/rounds/3/server-message" in seen[0]


@pytest.mark.parametrize(
    "server",
    ["", "collector.example", "ftp://x", "http://", "https://x:port", "https://x?y", "http://192.0.2.1:8321"],
)
def test_an_address_that_is_none_or_in_the_clear_is_refused(server: str) -> None:
    with pytest.raises(InputError, match=r"must be|expected"):
        Connection(server)
    if server.startswith("http://1"):
        Connection(server, plain=True)


def test_certificates_are_read(tmp_path) -> None:
    (tmp_path / "none.pem").write_text("no certificate")
    for path in (tmp_path / "none.pem", tmp_path / "missing.pem"):
        with pytest.raises(InputError, match="is no file of certificates"):
            Connection("https://collector.example", authority=path)


def test_the_pauses_that_a_server_names_are_followed() -> None:
    async def ask(connection: Connection) -> list[float]:
        found = []
        for _ in range(3):
            await connection.document("/v1/open")
            found.append(connection.pauses.next(1.0))
        return found

    said = [
        answer(200, b"[]", *headers) for headers in ([b"Mapveil-Pause: 12.5"], [], [b"Mapveil-Pause: 1e9"])
    ]
    assert against(said, ask)[0] == [12.5, 1.0, 1.0]


def test_a_long_wait_that_a_busy_server_names_is_the_next_pause() -> None:
    busy = answer(503, b"", b"Retry-After: 200")
    kept: list[Connection] = []

    async def ask(connection: Connection) -> None:
        kept.append(connection)
        await connection.document("/v1/open")

    refused, seen = against([busy], ask, patience_s=1.0)
    assert isinstance(refused, Unreachable)
    assert len(seen) == 1
    assert 200 <= kept[0].pauses.next(1.0) <= 250
