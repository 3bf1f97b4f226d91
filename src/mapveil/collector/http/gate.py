"""ASGI middleware: rate limits, security headers, error responses, access log."""

import logging
import time
from typing import Any, Final

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mapveil.collector.http.exchange import JSON, ClientGone, Exchange
from mapveil.collector.http.limits import Buckets
from mapveil.collector.http.logs import access_line
from mapveil.collector.http.pace import Pace
from mapveil.collector.http.prometheus import Metrics
from mapveil.collector.http.settings import Settings
from mapveil.collector.refusals import Conflict, Invalid, Refusal
from mapveil.collector.rounds.validation import validation_text
from mapveil_client.errors import InputError, PromiseError

_LOG: Final = logging.getLogger("mapveil.collector")
PAGE_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"manifest-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
)
"""Policy of the console and the browser device: they load from this service only, and run no inline script."""

HEADERS: Final = (
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=(self)"),
    (b"cache-control", b"no-store"),
)
"""Headers of every response that does not set them itself."""

_BRIEF: Final = ((b"cache-control", b"no-store"),)  # of a response without a body
_STRICT_TRANSPORT: Final = (b"strict-transport-security", b"max-age=31536000")  # over TLS
_GONE: Final = 499  # in the log and the metrics only: the client had gone


class Gate:
    """The outermost application."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self._app = app
        self._metrics, self._pace = metrics, Pace(settings.device_requests)
        self._answering = 0  # requests
        secure = (_STRICT_TRANSPORT,) if settings.scheme == "https" else ()
        self._usual = (*HEADERS, *secure)
        self._brief = (*_BRIEF, *secure)
        self._addresses = Buckets(settings.address_rate, settings.address_burst, "this address")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; pass the beginning and the end of the service on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:  # there are no WebSockets here
            await send({"type": "websocket.close", "code": 1003})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange.begin(scope)
        self._answering += 1
        started = time.perf_counter()
        status, sent, complete = 0, 0, False
        refusal: Refusal | None = None

        async def sender(message: Message) -> None:
            nonlocal status, sent, complete
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = self._headers(status, message.get("headers", ()), exchange)
            else:
                sent += len(message.get("body", b""))
                complete = not message.get("more_body", False)
            await send(message)

        try:
            self._addresses.take(exchange.address)
            await self._app(scope, receive, sender)
        except ClientGone:
            status = status or _GONE
        except Exception as error:  # the outermost frame: only this may reach the client
            refusal = refusal_of(error, exchange)
            if refusal.status == 503:  # whoever is being answered is refused too, and is to come again apart
                refusal.retry_after = max(refusal.retry_after, self._pace.pause(self._answering))
            if refusal.status == 500:
                details = {"route": exchange.route, "id": exchange.id}
                _LOG.error("a request failed", exc_info=error, extra={"details": details})
            if not status:
                await send_refusal(sender, refusal)
            elif not complete:
                raise  # half an answer: the connection is cut
        finally:
            refusal = None  # its trace holds this frame, and this frame it: a circle that would keep the body
            self._answering -= 1
            seconds = time.perf_counter() - started
            self._metrics.request(exchange.route, _method(scope), status, seconds)
            access_line(exchange, _method(scope), status, seconds, sent)

    def _headers(self, status: int, given: Any, exchange: Exchange) -> list[tuple[bytes, bytes]]:
        named = {name for name, _ in given}
        # What has no body is nothing that a browser could misread.
        usual = self._brief if status == 204 else self._usual
        return [
            *given,
            *(pair for pair in usual if pair[0] not in named),
            (b"x-request-id", exchange.id.encode()),
        ]


_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"))


def _method(scope: Scope) -> str:
    """The method, of which there may be no end of labels."""
    method: str = scope["method"]
    return method if method in _METHODS else "other"


def refusal_of(error: Exception, exchange: Exchange) -> Refusal:
    """Refusal that an error stands for; of an internal fault the client is told only where the log names it."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, InputError):
        return Invalid(str(error))
    if isinstance(error, RequestValidationError):
        return Invalid(validation_text(error.errors()))
    if isinstance(error, PromiseError):
        return Conflict(str(error))
    if isinstance(error, HTTPException):
        refusal = Refusal(status=error.status_code)
        refusal.allow = (error.headers or {}).get("Allow", "")
        return refusal
    return Refusal(f"the collector failed; its log names request {exchange.id}")


async def send_refusal(send: Send, refusal: Refusal) -> None:
    """Answer with a refusal."""
    headers = tuple((name.encode(), value.encode()) for name, value in refusal.headers.items())
    await send_body(send, refusal.status, refusal.body(), JSON, headers)


async def send_body(
    send: Send,
    status: int,
    body: bytes = b"",
    media: bytes = b"",
    headers: tuple[tuple[bytes, bytes], ...] = (),
) -> None:
    """Answer with a whole body."""
    head = list(headers)
    if media:
        head.append((b"content-type", media))
    if status != 204:
        head.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
