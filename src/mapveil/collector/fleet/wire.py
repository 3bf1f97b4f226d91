"""HTTP/1.1 connections of a fleet, and nothing in them that it does not need: it sends a request every millisecond.

h11 decides what may be sent and received; this module adds sockets, clocks, and a limit on the size of an answer.
Redirections are not followed, and nothing is kept from one answer to the next.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any, Final, cast

import h11

from mapveil_client.connection import Answer, Endpoint, TransportFault

_CONNECT_S: Final = 10.0
_SILENCE_S: Final = 30.0
_EMPTY: Final[Mapping[str, str]] = {}


class WirePool:
    """The connections of a fleet to one endpoint, a :class:`~mapveil_client.connection.Transport`.

    Parameters
    ----------
    endpoint : Endpoint
        Address of the server, number of connections, and the largest answer.
    silence_s : float
        Time without a byte either way after which an exchange is given up, seconds.
    """

    def __init__(self, endpoint: Endpoint, *, silence_s: float = _SILENCE_S) -> None:
        self._endpoint, self._silence_s = endpoint, silence_s
        name = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        usual = endpoint.port == (80 if endpoint.secure is None else 443)
        self._host = name if usual else f"{name}:{endpoint.port}"
        self._wires: list[Wire | None] = [None] * endpoint.connections
        self._room = asyncio.Semaphore(endpoint.connections)

    async def exchange(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Send a request once, on the connection that was used last: few are ever opened by few devices.

        Raises
        ------
        TransportFault
            There is no answer. The request may have been received all the same.
        """
        head = [("Host", self._host), *headers.items()]
        if body or method in ("POST", "PUT"):
            head.append(("Content-Length", str(len(body))))
        async with self._room:
            wire = self._wires.pop()
            try:
                if wire is None or not wire.usable:
                    wire = await self._open()
                return await wire.exchange(h11.Request(method=method, target=target, headers=head), body)
            except h11.LocalProtocolError:
                raise TransportFault("the request is not HTTP/1.1") from None
            finally:
                if wire is not None and not wire.usable:
                    wire.hang_up()
                self._wires.append(wire)

    async def _open(self) -> Wire:
        loop, to = asyncio.get_running_loop(), self._endpoint
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, made = await loop.create_connection(
                    lambda: Wire(loop, to.most_bytes, self._silence_s),
                    to.host,
                    to.port,
                    ssl=to.secure,
                    server_hostname=None if to.secure is None else to.host,
                )
        except (OSError, ssl.SSLError, TimeoutError) as error:
            raise TransportFault(type(error).__name__) from None
        return made

    async def aclose(self) -> None:
        """Hang up, and let the event loop notice."""
        for wire in self._wires:
            if wire is not None:
                wire.hang_up()
        await asyncio.sleep(0)


class Wire(asyncio.Protocol):
    """An open connection: one request at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int, silence_s: float) -> None:
        self._loop, self._most, self._silence_s = loop, most, silence_s
        self._machine = h11.Connection(h11.CLIENT)
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Answer] | None = None
        self._clock: asyncio.TimerHandle | None = None
        self._moved, self._unsent = 0.0, 0
        self._begun: tuple[int, str, Mapping[str, str]] = (0, "", _EMPTY)
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def usable(self) -> bool:
        """Whether another request may be sent."""
        machine = self._machine
        return self._transport is not None and machine.our_state is machine.their_state is h11.IDLE

    async def exchange(self, request: h11.Request, body: bytes) -> Answer:
        """Send a request and read its answer."""
        transport = self._transport
        if transport is None:
            raise TransportFault("the connection is closed")
        events = [request, *([h11.Data(data=body)] if body else []), h11.EndOfMessage()]
        sent = [self._machine.send(event) for event in events]
        waiting: asyncio.Future[Answer] = self._loop.create_future()
        self._waiting = waiting
        self._parts, self._size = [], 0
        self._moved = self._loop.time()
        if self._clock is None:
            self._clock = self._loop.call_later(self._silence_s, self._look)
        transport.write(b"".join(filter(None, sent)))
        self._unsent = transport.get_write_buffer_size()
        try:
            return await waiting
        except asyncio.CancelledError:
            self.hang_up()  # the rest of the answer would be taken for that to the next request
            raise
        finally:
            self._waiting = None

    def hang_up(self, why: str | None = None) -> None:
        """Close the connection; an exchange under way fails for this reason."""
        waiting, self._waiting = self._waiting, None
        if why is not None and waiting is not None and not waiting.done():
            waiting.set_exception(TransportFault(why))
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    # The event loop calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Some bytes came; none at the end."""
        self._moved = self._loop.time()
        try:
            if data and self._waiting is None:
                raise TransportFault("an answer to nothing")
            self._machine.receive_data(data)
            while True:
                event: Any = self._machine.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    return
                self._take(event)
        except h11.RemoteProtocolError:
            self.hang_up("not HTTP/1.1" if data else "hung up")
        except TransportFault as error:
            self.hang_up(str(error))

    def eof_received(self) -> None:
        """No more will come."""
        self.data_received(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed."""
        self._transport = None
        self.hang_up(type(exc).__name__ if exc is not None else "hung up")

    def _take(self, event: Any) -> None:
        if isinstance(event, h11.ConnectionClosed):
            raise TransportFault("hung up")
        if isinstance(event, h11.Response):
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
            self._begun = (event.status_code, event.reason.decode("latin-1"), headers)
        elif isinstance(event, h11.Data):
            self._size += len(event.data)
            if self._size > self._most:
                raise TransportFault(f"an answer of more than {self._most} bytes")
            self._parts.append(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage):
            waiting, self._waiting = self._waiting, None
            if waiting is not None and not waiting.done():
                waiting.set_result(Answer(*self._begun, b"".join(self._parts)))
            if self._machine.our_state is self._machine.their_state is h11.DONE:
                self._machine.start_next_cycle()
            else:
                self.hang_up()

    def _look(self) -> None:
        """Give an exchange up in which nothing has moved for too long, either way."""
        self._clock = None
        if self._transport is None or self._waiting is None:
            return
        unsent = self._transport.get_write_buffer_size()
        if unsent < self._unsent:
            self._moved = self._loop.time()
        self._unsent = unsent
        left = self._moved + self._silence_s - self._loop.time()
        if left <= 0:
            self.hang_up(f"silence for {self._silence_s:g} s")
        else:
            self._clock = self._loop.call_later(left, self._look)
