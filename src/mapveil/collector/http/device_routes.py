"""The routes of devices: plain ASGI over bytes, for thousands of requests a second.

These routes are not FastAPI's: a request is matched, its limits and its signature are checked, and its bytes go to the
engine as they came. :data:`ENDPOINTS` is the only list of them; the OpenAPI document is made from it too.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

from starlette.types import Receive, Scope, Send

from mapveil.collector.http.error_responses import Failure
from mapveil.collector.http.exchange import CBOR, JSON, Exchange, read_body, require_media
from mapveil.collector.http.gate import send_body, send_failure
from mapveil.collector.http.service import Service
from mapveil.collector.recent import Recent
from mapveil.collector.refusals import NotFound

_PATTERNS: Final = {"id": "[0-9a-f]{32}", "n": "[1-9][0-9]{0,5}", "phase": "[a-z]{1,20}"}
_PROGRESS_SECONDS: Final = 0.1  # how long one answer about progress serves everybody
_KEPT: Final = 256  # documents that never change
_COLLECTION: Final = "/v1/collections/{id}"
_ROUND: Final = _COLLECTION + "/rounds/{n}"


class Endpoint(NamedTuple):
    """One route and method of devices."""

    method: str
    route: str
    handler: Callable[..., Awaitable[None]]
    summary: str
    about: str  # its answer
    schema: dict[str, Any] | None  # of its answer: JSON; None for CBOR or none
    refusals: tuple[int, ...]
    signed: bool = False
    body: str | None = None  # the setting with the largest body of CBOR that is accepted
    gives: bytes | None = None  # Content-Type of its answer
    headers: tuple[tuple[str, str], ...] = ()  # of its answer: name, and the path parameter that it is like


class DeviceRoutes:
    """The routes of devices."""

    def __init__(self, service: Service) -> None:
        self._engine = service.engine.devices
        self._access = service.access
        self._settings = service.settings
        self._metrics = service.metrics
        self._bodies = service.bodies
        self._run = service.run
        self._documents: Recent[tuple[str, int], bytes] = Recent(_KEPT)
        self._progress_of: dict[str, tuple[float, asyncio.Future[bytes]]] = {}
        self.find = lru_cache(maxsize=4096)(_find)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request to a route that :attr:`find` knows."""
        found = self.find(scope["path"])
        if found is None:
            raise NotFound("there is nothing at this address")
        route, values = found
        exchange = Exchange.of(scope)
        exchange.route, exchange.routine = route, True
        method = scope["method"]
        endpoint = _ROUTES[route].get("GET" if method == "HEAD" else method)
        if endpoint is None:
            allowed = ((b"allow", ", ".join(sorted(_ROUTES[route])).encode()),)
            failure = Failure(405, "not-allowed", "this address does not take this method", None, allowed)
            await send_failure(send, failure)
        elif not endpoint.signed:
            await endpoint.handler(self, send, **values)
        else:
            signer = await self._access.signer(scope)
            most = 0
            if endpoint.body is not None:
                require_media(scope, CBOR)
                most = getattr(self._settings, endpoint.body)
            body = await read_body(scope, receive, most, self._bodies)
            device = self._access.device(scope, signer, body)
            given = {} if endpoint.body is None else {"body": body}
            await endpoint.handler(self, send, device=device, **given, **values)

    async def open(self, send: Send) -> None:
        """Collections that devices may take part in."""
        await _send_json(send, await self._run(self._engine.open_collections))

    async def terms(self, send: Send, id: str) -> None:
        """The terms of a collection."""
        await send_body(send, 200, await self._document(id, 0), JSON)

    async def round(self, send: Send, id: str, n: str) -> None:
        """The announcement of a round."""
        await send_body(send, 200, await self._document(id, int(n)), JSON)

    async def _document(self, id: str, number: int) -> bytes:
        """The terms (0) or the announcement of a round: once there, they never change."""
        kept = self._documents.get((id, number))
        if kept is not None:
            return kept
        engine = self._engine
        read = self._run(engine.announcement, id, number) if number else self._run(engine.terms, id)
        return self._documents.put((id, number), await read)

    async def progress(self, send: Send, id: str) -> None:
        """Progress of a collection."""
        now = time.monotonic()
        reading = self._progress_of.get(id)
        if reading is None or now - reading[0] > _PROGRESS_SECONDS:
            if len(self._progress_of) > _KEPT:
                self._progress_of.clear()
            task = asyncio.ensure_future(self._run(lambda: _json(self._engine.progress(id)._asdict())))
            reading = self._progress_of[id] = (now, task)
        # Requests that come meanwhile wait for the same answer; one that is cut off takes nothing from the others.
        await send_body(send, 200, await asyncio.shield(reading[1]), JSON)

    async def join(self, send: Send, device: int, id: str) -> None:
        """Let a device join."""
        await self._engine.join(id, device)
        self._metrics.joined.inc()
        await send_body(send, 204)

    async def assignment(self, send: Send, device: int, id: str, n: str) -> None:
        """A device's shard and number in a round."""
        found = self._engine.assignment_at_hand(id, int(n), device)
        if found is None:
            found = await self._run(self._engine.assignment, id, int(n), device)
        await _send_json(send, found._asdict())

    async def server_message(self, send: Send, device: int, id: str, n: str) -> None:
        """The server's message to a device in the phase that is open."""
        message = self._engine.server_message_at_hand(id, int(n), device)
        if message is None:
            message = await self._run(self._engine.server_message, id, int(n), device)
        await send_body(send, 200, message.body, CBOR, ((b"mapveil-phase", message.phase.encode()),))

    async def message(self, send: Send, device: int, body: bytes, id: str, n: str, phase: str) -> None:
        """Take a device's message of a phase."""
        await self._engine.message(id, int(n), phase, device, body)
        self._metrics.messages.labels(phase).inc()
        await send_body(send, 204)

    async def report(self, send: Send, device: int, body: bytes, id: str) -> None:
        """Take a device's report."""
        await self._engine.report(id, device, body)
        self._metrics.reports.inc()
        await send_body(send, 204)


def _json(record: Any) -> bytes:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


async def _send_json(send: Send, record: Any) -> None:
    await send_body(send, 200, _json(record), JSON)


def _model(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


_GET: Final = (401, 404)
_PUT: Final = (401, 403, 404, 409, 410)
_PUT_BODY: Final = (*_PUT, 413, 415, 422)

ENDPOINTS: Final = (
    Endpoint("GET", "/v1/open", DeviceRoutes.open, "Collections that devices may join or report to",
             "Their identifiers, titles and the digests of their terms",
             {"type": "array", "items": _model("OpenCollection")}, (), gives=JSON),
    Endpoint("GET", _COLLECTION + "/terms", DeviceRoutes.terms, "The terms of a collection",
             "The exact bytes whose SHA-256 is the terms' digest", {"type": "object"}, (404,), gives=JSON),
    Endpoint("GET", _COLLECTION + "/progress", DeviceRoutes.progress, "Progress of a collection",
             "State, round, phase, seconds left, devices expected and present", _model("ProgressRecord"), (404,),
             gives=JSON),
    Endpoint("GET", _ROUND, DeviceRoutes.round, "The announcement of a round",
             "The exact bytes whose SHA-256 every message of the round is bound to", {"type": "object"}, (404,),
             gives=JSON),
    Endpoint("PUT", _COLLECTION + "/members/me", DeviceRoutes.join, "Join a distributed collection",
             "Joined, now or before", None, _PUT, signed=True),
    Endpoint("GET", _ROUND + "/assignment", DeviceRoutes.assignment, "The shard and number of this device in a round",
             "Its assignment", _model("AssignmentRecord"), _GET, signed=True, gives=JSON),
    Endpoint("GET", _ROUND + "/server-message", DeviceRoutes.server_message, "The server's message to this device",
             "The message of the phase that the header Mapveil-Phase names; empty where this device was left out",
             None, (401, 404, 409, 410), signed=True, gives=CBOR, headers=(("Mapveil-Phase", "phase"),)),
    Endpoint("PUT", _ROUND + "/messages/{phase}", DeviceRoutes.message, "Send this device's message of a phase",
             "Kept, now or before", None, _PUT_BODY, signed=True, body="message_bytes"),
    Endpoint("PUT", _COLLECTION + "/report", DeviceRoutes.report, "Send this device's report",
             "Kept, now or before", None, _PUT_BODY, signed=True, body="report_bytes"),
)  # fmt: skip
"""The routes of devices, but for their enrolment."""

_ROUTES: Final[dict[str, dict[str, Endpoint]]] = {}
for _endpoint in ENDPOINTS:
    _ROUTES.setdefault(_endpoint.route, {})[_endpoint.method] = _endpoint


def _pattern(route: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", route)
    named = (f"(?P<{part}>{_PATTERNS[part]})" if at % 2 else re.escape(part) for at, part in enumerate(parts))
    return re.compile("".join(named))


_SEARCHED: Final = [(_pattern(route), route) for route in _ROUTES]


def _find(path: str) -> tuple[str, dict[str, str]] | None:
    """The route of a path, and the values of its variable parts."""
    for pattern, route in _SEARCHED:
        found = pattern.fullmatch(path)
        if found is not None:
            return route, found.groupdict()
    return None
