"""Connections that send a byte a second, or read none: the others are served, and these are closed."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from .outcome import outcome_of
from .scene import Scene, Service

HEAD = b"GET /v1/open HTTP/1.1\r\nHost: a\r\nX-Slow: "
BODY = (
    b"POST /v1/devices HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
)
PATIENCE = ("--header-seconds", "3", "--body-seconds", "3", "--idle-seconds", "3", "--write-seconds", "3")


class Lorises:
    """Slow connections, kept up from a thread."""

    def __init__(self, service: Service, count: int, first: bytes, rest: bytes) -> None:
        self._place = ("127.0.0.1", service.port)
        self._first, self._rest = first, rest
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sockets = [self._connect() for _ in range(count)]
        self.opened = time.monotonic()
        self.closed: dict[int, float] = {}  # seconds that each lived
        self.told: list[bytes] = []

    def _connect(self) -> socket.socket:
        made = socket.create_connection(self._place, timeout=10)
        made.sendall(self._first)
        made.setblocking(False)
        return made

    def _run(self) -> None:
        sent = 0
        while not self._stop.wait(0.2) and len(self.closed) < len(self.sockets):
            send = int(time.monotonic() - self.opened) > sent
            sent += send
            for number, each in enumerate(self.sockets):
                if number not in self.closed:
                    self._tend(number, each, self._rest[sent : sent + 1] if send else b"")

    def _tend(self, number: int, each: socket.socket, byte: bytes) -> None:
        try:
            if byte:
                each.send(byte)
            told = each.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            told = b""
        if told:
            self.told.append(told)
        else:
            self.closed[number] = time.monotonic() - self.opened

    def __enter__(self) -> Lorises:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(20)
        for each in self.sockets:
            each.close()


@contextlib.contextmanager
def both(service: Service, count: int) -> Iterator[tuple[Lorises, Lorises]]:
    with (
        Lorises(service, count, HEAD, b"x" * 1000) as heads,
        Lorises(service, count, BODY, b" " * 1000) as bodies,
    ):
        yield heads, bodies


def wait_closed(*lorises: Lorises) -> None:
    end = time.monotonic() + 600
    while any(len(each.closed) < len(each.sockets) for each in lorises):
        assert time.monotonic() < end, "slow connections are still open"
        time.sleep(0.1)


def test_a_collection_goes_on_among_slow_connections_and_they_are_closed(scene: Scene) -> None:
    service = scene.service(*PATIENCE)
    collection = scene.open(service, devices=12, minimum=6)
    with both(service, 150) as (heads, bodies):
        scene.fleet(service.url, collection, range(12)).wait()
        wait_closed(heads, bodies)
    for lorises in (heads, bodies):
        assert min(lorises.closed.values()) > 2
        assert {told[:12] for told in lorises.told} == {b"HTTP/1.1 408"}
        assert len(lorises.told) == 150
    found = outcome_of(scene, service, collection)
    assert (found.state, found.included) == ("done", (12,))


def test_slow_connections_that_take_every_place_are_gone_in_time(scene: Scene) -> None:
    service = scene.service(*PATIENCE, "--connections", "40")
    with both(service, 20) as lorises:
        refused = httpx.get(f"{service.url}/v1/open", timeout=300)
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "unavailable"
        wait_closed(*lorises)
        assert httpx.get(f"{service.url}/v1/open", timeout=300).json() == []


def test_who_reads_no_answer_is_cut_off(scene: Scene) -> None:
    service = scene.service(*PATIENCE)
    ask = b"GET /v1/openapi.json HTTP/1.1\r\nHost: a\r\n\r\n"
    with contextlib.ExitStack() as stack:
        deaf = []
        for _ in range(20):
            each = stack.enter_context(socket.socket())
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.connect(("127.0.0.1", service.port))
            each.setblocking(False)
            deaf.append(each)
        end, cut = time.monotonic() + 600, 0
        while cut < len(deaf):
            assert time.monotonic() < end, f"{cut} of {len(deaf)} are cut off"
            for each in list(deaf):
                try:
                    each.send(ask * 20)
                except BlockingIOError:
                    continue
                except OSError:
                    deaf.remove(each)
            time.sleep(0.05)
        answer = httpx.get(f"{service.url}/v1/open", timeout=300)
        assert answer.status_code == 200


@pytest.mark.parametrize("path", ["/healthz", "/v1/open"])
def test_others_are_answered_meanwhile(scene: Scene, path: str) -> None:
    service = scene.service("--header-seconds", "600", "--body-seconds", "600")
    with both(service, 200) as lorises:
        assert httpx.get(service.url + path, timeout=3000).status_code == 200
        assert not any(each.closed for each in lorises)  # the answer did not wait for their end
