"""HTTP/1.1 connections of a fleet, and nothing in them that it does not need: it sends a request every millisecond.

What may be sent and received is h11's judgement; here are the socket, the clocks, and a limit on what an answer may
weigh. Redirections are not followed, and nothing is kept from one answer to the next.
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


class Wire:
    """A connection to one server: opened when it is needed, kept as long as the server keeps it.

    One request at a time.

    Parameters
    ----------
    host, port : str and int
        Of the server.
    secure : ssl.SSLContext, optional
        Whom to trust; plain HTTP without.
    most_bytes : int
        An answer of more is a fault.
    silence_s : float
        How long nothing may move before an exchange is given up, seconds.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        secure: ssl.SSLContext | None = None,
        most_bytes: int = 1 << 26,
        silence_s: float = _SILENCE_S,
    ) -> None:
        self._host, self._port, self._secure = host, port, secure
        self._most, self._silence_s = most_bytes, silence_s
        usual = port == (80 if secure is None else 443)
        named = f"[{host}]" if ":" in host else host
        self._named = named if usual else f"{named}:{port}"
        self._line: _Line | None = None

    async def exchange(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Send a request and read its answer.

        Raises
        ------
        TransportFault
            There is none. The request may have been received all the same.
        """
        line = self._line
        if line is None or not line.usable:
            line = self._line = await self._open()
        head = [("Host", self._named), *headers.items()]
        if body or method in ("POST", "PUT"):
            head.append(("Content-Length", str(len(body))))
        try:
            return await line.exchange(h11.Request(method=method, target=target, headers=head), body)
        except h11.LocalProtocolError:
            raise TransportFault("a request that is none") from None
        finally:
            if not line.usable:
                self.close()

    async def _open(self) -> _Line:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, made = await loop.create_connection(
                    lambda: _Line(loop, self._most, self._silence_s),
                    self._host,
                    self._port,
                    ssl=self._secure,
                    server_hostname=None if self._secure is None else self._host,
                )
        except (OSError, ssl.SSLError, TimeoutError) as error:
            raise TransportFault(type(error).__name__) from None
        return made

    def close(self) -> None:
        """Hang up; the next request connects again."""
        if self._line is not None:
            self._line.hang_up()
            self._line = None

    async def aclose(self) -> None:
        """Hang up, and let the event loop notice."""
        self.close()
        await asyncio.sleep(0)

    def __repr__(self) -> str:
        return f"Wire({self._named})"


class _Line(asyncio.Protocol):
    """An open connection."""

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
        return (
            self._transport is not None and machine.our_state is h11.IDLE and machine.their_state is h11.IDLE
        )

    async def exchange(self, request: h11.Request, body: bytes) -> Answer:
        """Send a request and read its answer."""
        transport = self._transport
        if transport is None:
            raise TransportFault("a connection that is closed")
        sent = [self._machine.send(request)]
        if body:
            sent.append(self._machine.send(h11.Data(data=body)))
        sent.append(self._machine.send(h11.EndOfMessage()))
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

    def hang_up(self) -> None:
        """Close it, whatever is under way."""
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
        """Some bytes came."""
        self._moved = self._loop.time()
        self._receive(data)

    def eof_received(self) -> None:
        """No more will come."""
        self._receive(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed."""
        self._transport = None
        self._fail(type(exc).__name__ if exc is not None else "hung up")
        self.hang_up()

    def _receive(self, data: bytes) -> None:
        machine = self._machine
        try:
            if data and self._waiting is None:
                raise TransportFault("an answer to nothing")
            machine.receive_data(data)
            while True:
                event: Any = machine.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    return
                if isinstance(event, h11.ConnectionClosed):
                    raise TransportFault("hung up")
                self._take(event)
        except h11.RemoteProtocolError:
            self._fail("not HTTP/1.1" if data else "hung up")
            self.hang_up()
        except TransportFault as error:
            self._fail(str(error))
            self.hang_up()

    def _take(self, event: Any) -> None:
        if isinstance(event, h11.Response):
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
            self._begun = (event.status_code, event.reason.decode("latin-1"), headers)
        elif isinstance(event, h11.Data):
            self._size += len(event.data)
            if self._size > self._most:
                raise TransportFault(f"an answer of more than {self._most} bytes")
            self._parts.append(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage):
            waiting, parts = self._waiting, self._parts
            self._parts, self._waiting = [], None
            if waiting is not None and not waiting.done():
                waiting.set_result(Answer(*self._begun, parts[0] if len(parts) == 1 else b"".join(parts)))
            machine = self._machine
            if machine.our_state is h11.DONE and machine.their_state is h11.DONE:
                machine.start_next_cycle()
            else:
                self.hang_up()

    def _fail(self, why: str) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_exception(TransportFault(why))

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
            self._fail(f"silence for {self._silence_s:g} s")
            self.hang_up()
        else:
            self._clock = self._loop.call_later(left, self._look)


class WirePool:
    """The connections of a fleet to one endpoint, a :class:`~mapveil_client.connection.Transport`.

    Parameters
    ----------
    endpoint : Endpoint
        Where to, and over how many connections.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._wires = [
            Wire(endpoint.host, endpoint.port, secure=endpoint.secure, most_bytes=endpoint.most_bytes)
            for _ in range(endpoint.connections)
        ]
        self._free = list(reversed(self._wires))
        self._room = asyncio.Semaphore(endpoint.connections)

    async def exchange(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Send a request once, on the connection that was used last: few are ever opened by few devices."""
        async with self._room:
            wire = self._free.pop()
            try:
                return await wire.exchange(method, target, body, headers)
            finally:
                self._free.append(wire)

    async def aclose(self) -> None:
        """Hang up."""
        await asyncio.gather(*(each.aclose() for each in self._wires))
