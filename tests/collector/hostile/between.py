"""A malicious proxy between devices and their collector: passes everything on but for one alteration to each device."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import httpx

from mapveil.collector.http.serving import configuration
from mapveil.collector.http.settings import Settings

__all__ = ["Answer", "Between", "Heard", "Tampering", "in_json"]


@dataclass
class Answer:
    """Answer of the collector, which a tampering changes."""

    status: int
    phase: str  # of a server message
    body: bytes


class Heard(NamedTuple):
    """A request of a device."""

    method: str
    path: str
    body: bytes
    header: str  # its Authorization


@dataclass(frozen=True)
class Tampering:
    """One alteration of an answer.

    Parameters
    ----------
    where : str
        Of which addresses, a regular expression that is searched for.
    tell : callable
        Changes the answer.
    phase : str
        Only of server messages of this phase; of everything without.
    """

    where: str
    tell: Callable[[Answer], None]
    phase: str = ""


def in_json(change: Callable[[Any], Any]) -> Callable[[Answer], None]:
    """A tampering in a document: ``change`` alters its record, or returns another."""

    def tell(answer: Answer) -> None:
        if answer.status == 200:
            record = json.loads(answer.body)
            changed = change(record)
            record = record if changed is None else changed
            text = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            answer.body = text.encode()

    return tell


class Between:
    """A server before the collector, on a port of its own for every device.

    Parameters
    ----------
    upstream : str
        The collector.
    tamperings : sequence of sequences of Tampering
        What each device is told.
    """

    def __init__(self, upstream: str, tamperings: list[tuple[Tampering, ...]]) -> None:
        self.upstream, self.tamperings = upstream, tamperings
        self.told = [0] * len(tamperings)
        self.heard: list[list[Heard]] = [[] for _ in tamperings]
        self.addresses: list[str] = []
        self._ports: dict[int, int] = {}
        self._client: httpx.AsyncClient | None = None

    @contextlib.contextmanager
    def listening(self) -> Iterator[Between]:
        """Serve for as long as this lasts."""
        import uvicorn

        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in self.tamperings]
            for index, each in enumerate(sockets):
                each.bind(("127.0.0.1", 0))
                self._ports[each.getsockname()[1]] = index
            self.addresses = [f"http://127.0.0.1:{port}" for port in self._ports]
            server = uvicorn.Server(configuration(Settings(), self))
            thread = threading.Thread(target=server.run, args=(sockets,))
            thread.start()
            try:
                while not server.started:
                    assert thread.is_alive()
                    time.sleep(0.005)
                yield self
            finally:
                server.should_exit = True
                thread.join(20)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, and tamper with its answer."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        index = self._ports[scope["server"][1]]
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        heard = Heard(scope["method"], scope["path"], body, headers.get("authorization", ""))
        self.heard[index].append(heard)
        answer, headers = await self._ask(heard, headers)
        for tampering in self.tamperings[index]:
            of_phase = not tampering.phase or tampering.phase == answer.phase
            if of_phase and answer.status == 200 and re.search(tampering.where, heard.path):
                before = (answer.body, answer.phase)
                tampering.tell(answer)
                self.told[index] += (answer.body, answer.phase) != before
        head = [
            (b"mapveil-phase", answer.phase.encode()),
            (b"content-type", headers["content-type"].encode()),
        ]
        head.append((b"content-length", b"%d" % len(answer.body)))
        if answer.status == 204:
            head = []
        await send({"type": "http.response.start", "status": answer.status, "headers": head})
        await send({"type": "http.response.body", "body": b"" if answer.status == 204 else answer.body})

    async def _ask(self, heard: Heard, headers: dict[str, str]) -> tuple[Answer, dict[str, str]]:
        assert self._client is not None
        kept = {name: headers[name] for name in ("authorization", "content-type") if name in headers}
        made = await self._client.request(heard.method, heard.path, content=heard.body or None, headers=kept)
        answer = Answer(made.status_code, made.headers.get("mapveil-phase", ""), made.content)
        return answer, {"content-type": made.headers.get("content-type", "application/json")}

    async def _live(self, receive: Any, send: Any) -> None:
        await receive()
        self._client = httpx.AsyncClient(base_url=self.upstream, timeout=300)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._client.aclose()
        await send({"type": "lifespan.shutdown.complete"})
