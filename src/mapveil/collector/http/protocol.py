"""HTTP/1.1 with time limits: a client that sends or reads too slowly, or sends too long a head, is disconnected.

uvicorn waits for ever for the rest of a head or a body. Here a head has ``header_seconds``, a body ``body_seconds``
beside what its bytes may take at ``body_rate``, and an answer must leave at that rate too. What a connection is told
before it is closed has the same shape as every other error.
"""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from mapveil.collector.http.access import TARGET
from mapveil.collector.http.gate import HEADERS
from mapveil.collector.http.pace import Pace
from mapveil.collector.http.settings import Settings
from mapveil.collector.refusals import Refusal

_CHUNK: Final = 1 << 18  # the most that a transport reads at once
_MOST_UNREAD: Final = (
    1 << 23
)  # bytes of a body that are thrown away, so that a client still writing sees the answer


class _HeadTooLarge(Exception):  # travels through the parser only
    pass


class TimedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        settings: Settings,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.limits = settings
        self._pace = Pace(settings.device_requests)
        self._clocks: dict[str, asyncio.TimerHandle] = {}  # of "head", "body" and "write"
        self._in_head = True
        self._in_body = False
        self._head_bytes = 0
        self._body_bytes = 0
        self._body_from = self._window_from = 0.0
        self._window_bytes = 0
        self._unread = 0  # of a body that was answered already
        self._buffered = 0

    def connection_made(
        self,
        transport: asyncio.Transport,  # type: ignore[override]  # uvicorn narrows asyncio's, and so do we
    ) -> None:
        """Admit a connection, or say that there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._refuse(503)
        else:
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop every clock."""
        self._stop(*self._clocks)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take in some bytes."""
        if self._in_head and "head" not in self._clocks and not self._busy:
            self._expect_head()
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > self.limits.header_bytes + _CHUNK:
                self._refuse(431)
        elif self._in_body and "body" not in self._clocks:
            self._body_from = self._window_from = self.loop.time()
            self._window_bytes = 0
            self._start("body", self.limits.body_seconds, self._check_body)

    # The parser calls these.

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        """A head is there."""
        if self._long_head:
            raise _HeadTooLarge
        self._in_head, self._in_body, self._body_bytes, self._unread = False, True, 0, 0
        self._stop("head")
        cast("dict[str, Any]", self.scope)[TARGET] = self.url
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of a body is there."""
        self._body_bytes += len(body)
        super().on_body(body)
        if not self._busy:
            self._unread += len(body)
            if self._unread > _MOST_UNREAD and not self.transport.is_closing():
                self._close()

    def on_message_complete(self) -> None:
        """A body is there; the next head may begin."""
        self._in_body, self._in_head, self._head_bytes = False, True, 0
        self._stop("body")
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer was handed over; it must also leave."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._flush_or_abort()

    def send_400_response(self, msg: str) -> None:
        """Answer what the parser refuses."""
        # A callback's exception comes out of the parser as one of its own.
        self._refuse(431 if self._long_head else 400)

    def _unsupported_upgrade_warning(self) -> None:
        pass  # answered as any other request

    @property
    def _long_head(self) -> bool:
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        return size > self.limits.header_bytes

    @property
    def _busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    # The clocks.

    def _start(self, clock: str, seconds: float, act: Callable[..., None], *given: int) -> None:
        self._clocks[clock] = self.loop.call_later(seconds, act, *given)

    def _stop(self, *clocks: str) -> None:
        for clock in clocks:
            if clock in self._clocks:
                self._clocks.pop(clock).cancel()

    def _expect_head(self) -> None:
        self._start("head", self.limits.header_seconds, self._refuse, 408)

    def _check_body(self) -> None:
        """A body must keep up with ``body_rate``; time in which we read nothing of it does not count.

        From one look to the next half as much must come: one that came quickly but for its end is not kept for hours.
        """
        now = self.loop.time()
        window, self._window_bytes = self._body_bytes - self._window_bytes, self._body_bytes
        if self.flow.read_paused:
            self._body_from += self.limits.body_seconds
            self._window_from = now
        if not self._busy:  # answered already: the rest is thrown away, not waited for
            self._close()
            return
        allowed = self.limits.body_seconds + self._body_bytes / self.limits.body_rate
        left = self._body_from + allowed - now
        least, self._window_from = self.limits.body_rate * (now - self._window_from) / 2, now
        if left <= 0 or window < least:
            self._refuse(408)
        else:
            self._start("body", min(left, self.limits.body_seconds), self._check_body)

    def pause_writing(self) -> None:
        """The answer waits for its reader."""
        super().pause_writing()
        self._flush_or_abort()

    def resume_writing(self) -> None:
        """The reader took it."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._stop("write")

    def timeout_keep_alive_handler(self) -> None:
        """Nothing more was asked."""
        if not self.transport.is_closing():
            self._close()

    def _flush_or_abort(self) -> None:
        if "write" not in self._clocks:
            self._buffered = self.transport.get_write_buffer_size()
            self._start("write", self.limits.write_seconds, self._check_write)

    def _check_write(self) -> None:
        waiting = self.transport.get_write_buffer_size()
        least = self.limits.body_rate * self.limits.write_seconds
        self._stop("write")
        if waiting and self._buffered - waiting < min(self._buffered, least):
            self.transport.abort()
        elif waiting:
            self._flush_or_abort()

    def _refuse(self, status: int) -> None:
        """Say why, and close."""
        if self.transport.is_closing():
            return
        cycle = self.cycle
        if cycle is None or not self._busy or not cycle.response_started:
            refusal = Refusal(status=status)
            refusal.retry_after = self._pace.pause(len(self.connections))
            body = refusal.body()
            head = [b"HTTP/1.1 %d %s\r\n" % (status, HTTPStatus(status).phrase.encode())]
            given = (*HEADERS, (b"content-type", b"application/json"), (b"connection", b"close"))
            head += [b"%s: %s\r\n" % pair for pair in given]
            head += [f"{name}: {value}\r\n".encode() for name, value in refusal.headers.items()]
            self.transport.write(b"".join([*head, b"content-length: %d\r\n\r\n" % len(body), body]))
        if cycle is not None and self._busy:
            # The application that waits for the rest of this request learns that it will not come.
            cycle.disconnected = True
            cycle.message_event.set()
        self._close()

    def _close(self) -> None:
        self.transport.close()
        self._flush_or_abort()
