"""What devices ask and send: plain routes over bytes, for thousands of them a second.

These addresses are not FastAPI's: a request is matched, its limits and its signature are checked, and its bytes go to
the engine as they came. :data:`ENDPOINTS` is the only list of them; the OpenAPI document is made from it too.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

from starlette.types import Receive, Scope, Send

from mapveil.collector.faults import NotFound
from mapveil.collector.http.errors import Failure
from mapveil.collector.http.exchange import Exchange, read_body
from mapveil.collector.http.gate import send_body, send_failure
from mapveil.collector.http.media import CBOR, JSON, require_media
from mapveil.collector.http.service import Service

_PARTS: Final = {"id": "[0-9a-f]{32}", "n": "[1-9][0-9]{0,5}", "phase": "[a-z]{1,20}"}
_PROGRESS_SECONDS: Final = 0.1
_KEPT: Final = 256  # documents that never change


class Endpoint(NamedTuple):
    """One address and what may be done there."""

    method: str
    route: str
    handler: str
    summary: str
    signed: bool
    takes: bytes | None  # the Content-Type of its body
    gives: bytes | None  # that of its answer; None where there is none
    about: str  # of the answer
    refusals: tuple[int, ...]


_COLLECTION: Final = "/v1/collections/{id}"
_ROUND: Final = _COLLECTION + "/rounds/{n}"

ENDPOINTS: Final = (
    Endpoint("GET", "/v1/open", "_open", "Collections that devices may join or report to", False, None, JSON,
             "Their identifiers, titles and the digests of their terms", ()),
    Endpoint("GET", _COLLECTION + "/terms", "_terms", "The terms of a collection", False, None, JSON,
             "The exact bytes whose SHA-256 is the terms' digest", (404,)),
    Endpoint("GET", _COLLECTION + "/progress", "_progress", "Where a collection stands", False, None, JSON,
             "State, round, phase, seconds left, devices wanted and present", (404,)),
    Endpoint("GET", _ROUND, "_round", "The announcement of a round", False, None, JSON,
             "The exact bytes whose SHA-256 every message of the round is bound to", (404,)),
    Endpoint("PUT", _COLLECTION + "/members/me", "_join", "Join a distributed collection", True, None, None,
             "Joined, now or before", (401, 403, 404, 409, 410)),
    Endpoint("GET", _ROUND + "/seat", "_seat", "The shard and number of this device in a round", True, None, JSON,
             "Its seat", (401, 404)),
    Endpoint("GET", _ROUND + "/mail", "_mail", "What the others of the shard sent to this device", True, None, CBOR,
             "The message of the phase that the header Mapveil-Phase names; empty where this device was left out",
             (401, 404, 409, 410)),
    Endpoint("PUT", _ROUND + "/messages/{phase}", "_message", "Send this device's message of a phase", True, CBOR,
             None, "Kept, now or before", (401, 403, 404, 409, 410, 413, 415, 422)),
    Endpoint("PUT", _COLLECTION + "/report", "_report", "Send this device's report", True, CBOR, None,
             "Kept, now or before", (401, 403, 404, 409, 410, 413, 415, 422)),
)  # fmt: skip
"""The addresses of devices, but for their enrolment."""


def _pattern(route: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", route)
    named = (f"(?P<{part}>{_PARTS[part]})" if at % 2 else re.escape(part) for at, part in enumerate(parts))
    return re.compile("".join(named))


class _Found(NamedTuple):
    route: str
    methods: dict[str, tuple[Endpoint, Callable[..., Awaitable[None]]]]
    values: dict[str, str]


class DeviceRoutes:
    """The device addresses.

    Parameters
    ----------
    service : Service
        The engine, and who may ask it.
    """

    def __init__(self, service: Service) -> None:
        self._engine = service.engine
        self._access = service.access
        self._settings = service.settings
        self._metrics = service.metrics
        self._bodies = service.bodies
        self._run = service.run
        self._kept: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._progress_of: dict[str, tuple[float, asyncio.Future[bytes]]] = {}
        routes: dict[str, dict[str, tuple[Endpoint, Callable[..., Awaitable[None]]]]] = {}
        for endpoint in ENDPOINTS:
            routes.setdefault(endpoint.route, {})[endpoint.method] = (
                endpoint,
                getattr(self, endpoint.handler),
            )
        self._routes = [(_pattern(route), route, methods) for route, methods in routes.items()]
        self._find = lru_cache(maxsize=4096)(self._search)

    def owns(self, path: str) -> bool:
        """Whether the address is one of these."""
        return self._find(path) is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request to an address of these."""
        found = self._find(scope["path"])
        if found is None:
            raise NotFound("there is nothing at this address")
        exchange = Exchange.of(scope)
        exchange.route, exchange.routine = found.route, True
        method = scope["method"]
        row = found.methods.get("GET" if method == "HEAD" else method)
        if row is None:
            allowed = ", ".join(sorted(found.methods)).encode()
            await send_failure(send, Failure(405, "not-allowed", "this address does not take this method", None,
                                             ((b"allow", allowed),)))  # fmt: skip
            return
        endpoint, handler = row
        if not endpoint.signed:
            await handler(send, **found.values)
            return
        signer = await self._access.signer(scope)
        most = 0
        if endpoint.takes is not None:
            require_media(scope, endpoint.takes)
            most = (
                self._settings.report_bytes if endpoint.handler == "_report" else self._settings.message_bytes
            )
        body = await read_body(scope, receive, most, self._bodies)
        device = self._access.device(scope, signer, body)
        await handler(send, device=device, **({"body": body} if endpoint.takes else {}), **found.values)

    def _search(self, path: str) -> _Found | None:
        for pattern, route, methods in self._routes:
            found = pattern.fullmatch(path)
            if found is not None:
                return _Found(route, methods, found.groupdict())
        return None

    async def _open(self, send: Send) -> None:
        await send_body(send, 200, _json(await self._run(self._engine.open_collections)), JSON)

    async def _terms(self, send: Send, id: str) -> None:
        await send_body(send, 200, await self._document(id, 0), JSON)

    async def _round(self, send: Send, id: str, n: str) -> None:
        await send_body(send, 200, await self._document(id, int(n)), JSON)

    async def _document(self, id: str, number: int) -> bytes:
        """The terms (0) or the announcement of a round: once there, they never change."""
        key = (id, number)
        if key not in self._kept:
            engine = self._engine
            made = self._run(engine.announcement, id, number) if number else self._run(engine.terms, id)
            self._kept[key] = await made
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return self._kept[key]

    async def _progress(self, send: Send, id: str) -> None:
        now = time.monotonic()
        asked = self._progress_of.get(id)
        if asked is None or now - asked[0] > _PROGRESS_SECONDS:
            if len(self._progress_of) > _KEPT:
                self._progress_of.clear()
            asked = self._progress_of[id] = (now, asyncio.ensure_future(self._run(self._read_progress, id)))
        # Whoever asks in the meantime waits for the same answer; one who leaves takes nothing from the others.
        await send_body(send, 200, await asyncio.shield(asked[1]), JSON)

    def _read_progress(self, id: str) -> bytes:
        return _json(self._engine.progress(id)._asdict())

    async def _join(self, send: Send, device: int, id: str) -> None:
        await self._engine.join(id, device)
        self._metrics.joined.inc()
        await send_body(send, 204)

    async def _seat(self, send: Send, device: int, id: str, n: str) -> None:
        seat = self._engine.seat_at_hand(id, int(n), device)
        if seat is None:
            seat = await self._run(self._engine.seat, id, int(n), device)
        await send_body(send, 200, _json({"shard": seat.shard, "client": seat.client}), JSON)

    async def _mail(self, send: Send, device: int, id: str, n: str) -> None:
        mail = self._engine.mail_at_hand(id, int(n), device)
        if mail is None:
            mail = await self._run(self._engine.mail, id, int(n), device)
        await send_body(send, 200, mail.body, CBOR, ((b"mapveil-phase", mail.phase.encode()),))

    async def _message(self, send: Send, device: int, body: bytes, id: str, n: str, phase: str) -> None:
        await self._engine.message(id, int(n), phase, device, body)
        self._metrics.messages.labels(phase).inc()
        await send_body(send, 204)

    async def _report(self, send: Send, device: int, body: bytes, id: str) -> None:
        await self._engine.report(id, device, body)
        self._metrics.reports.inc()
        await send_body(send, 204)


def _json(record: Any) -> bytes:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
