"""The routes of devices: plain ASGI over bytes, for thousands of requests a second.

These routes are not FastAPI's: a request is matched, its limits and its signature are checked, and its bytes go to the
engine as they came. :data:`ENDPOINTS` is the only list of them; the OpenAPI document is made from it too.
"""

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pydantic import ValidationError
from starlette.types import Receive, Scope, Send

from mapveil.collector.http.exchange import CBOR, JSON, SEALED, Exchange, read_body, require_media
from mapveil.collector.http.gate import send_body
from mapveil.collector.http.pace import HEADER, Pace
from mapveil.collector.http.schemas import DeviceNumber, Enrolling
from mapveil.collector.http.service import Service
from mapveil.collector.refusals import Invalid, NotFound, Refusal, Unauthorized
from mapveil.collector.rounds.device_service import OpenCollection
from mapveil.collector.rounds.progress import Progress
from mapveil.collector.rounds.validation import validation_text
from mapveil_client.connection import Assignment

_PATTERNS: Final = {"id": "[0-9a-f]{32}", "n": "[1-9][0-9]{0,5}", "phase": "[a-z]{1,20}"}
_COLLECTION: Final = "/v1/collections/{id}"
_ROUND: Final = _COLLECTION + "/rounds/{n}"


class Endpoint(NamedTuple):
    """One route and method of devices."""

    method: str
    route: str
    handler: Callable[..., Awaitable[None]]
    summary: str
    about: str  # its answer
    answer: Any  # type of its answer: JSON; None for CBOR or none
    refusals: tuple[int, ...]
    signed: bool = False
    body: str | None = None  # the setting with the largest body that is accepted
    most: int = 1 << 62  # bytes of that body, whatever the setting
    media: tuple[bytes, ...] = (CBOR,)  # of that body
    takes: Any = None  # type of that body: JSON; None for bytes
    status: int = 200  # of an answer with a body
    gives: bytes | None = None  # Content-Type of its answer
    headers: tuple[tuple[str, str], ...] = ()  # of its answer: name, and the parameter that it is like
    others: tuple[str, ...] = ()  # methods that operators have at its address


class DeviceRoutes:
    """The routes of devices: those of ``endpoints``."""

    def __init__(self, service: Service, endpoints: Sequence[Endpoint]) -> None:
        self._engine = service.engine.devices
        self._accounts = service.accounts
        self._certification = service.certification
        self._access = service.access
        self._settings = service.settings
        self._metrics = service.metrics
        self._bodies = service.bodies
        self._pace = Pace(service.settings.device_requests)
        self._count = service.accounts.device_count
        self._run = service.run
        self._routes: dict[str, dict[str, Endpoint]] = {}
        for each in endpoints:
            self._routes.setdefault(each.route, {})[each.method] = each
        self._searched = [(_pattern(route), route) for route in self._routes]
        self.find = lru_cache(maxsize=4096)(self._find)

    def _find(self, path: str) -> tuple[str, dict[str, str]] | None:
        """The route of a path, and the values of its variable parts."""
        for pattern, route in self._searched:
            found = pattern.fullmatch(path)
            if found is not None:
                return route, found.groupdict()
        return None

    def takes(self, method: str, path: str) -> bool:
        """Whether a request is for these routes: those of an address are, but for the methods of operators there."""
        found = self.find(path)
        return found is not None and all(
            method not in endpoint.others for endpoint in self._routes[found[0]].values()
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that :meth:`takes` names."""
        found = self.find(scope["path"])
        if found is None:
            raise NotFound
        route, values = found
        exchange = Exchange.of(scope)
        exchange.route, exchange.routine = route, True
        method = scope["method"]
        endpoint = self._routes[route].get("GET" if method == "HEAD" else method)
        if endpoint is None:
            here = self._routes[route]
            refusal = Refusal(status=405)
            refusal.allow = ", ".join(
                sorted({*here, *(each for known in here.values() for each in known.others)})
            )
            raise refusal
        signer = await self._access.signer(scope) if endpoint.signed else None
        given: dict[str, Any] = dict(values)
        if endpoint.body is not None:
            require_media(scope, *endpoint.media)
            most = min(getattr(self._settings, endpoint.body), endpoint.most)
            given["body"] = await read_body(scope, receive, most, self._bodies)
        elif signer is not None:
            await read_body(scope, receive, 0, self._bodies)
        if signer is not None:
            given["device"] = await self._access.device(scope, signer, given.get("body", b""))
        try:
            await endpoint.handler(self, send, **given)
        except Unauthorized:
            self._access.count_failure(scope)
            raise

    async def enrol(self, send: Send, body: bytes) -> None:
        """Enrol a device."""
        try:
            device = Enrolling.model_validate_json(body)
        except ValidationError as error:
            raise Invalid(validation_text(error.errors(include_url=False))) from None
        key, signature = bytes.fromhex(device.public_key), bytes.fromhex(device.signature)
        number = await self._accounts.enrol(device.token, key, signature, simulated=device.simulated)
        await _send_json(send, DeviceNumber(device=number).model_dump(), status=201)

    async def open(self, send: Send) -> None:
        """Collections that devices may take part in."""
        found = self._engine.open_at_hand()
        if found is None:
            found = await self._run(self._engine.open_collections)
        devices = self._pace.counted()
        if devices is None:
            devices = await self._run(self._pace.devices, self._count)
        await _send_json(send, [vars(each) for each in found], self._pace.header(devices))

    async def terms(self, send: Send, id: str) -> None:
        """The terms of a collection."""
        await send_body(send, 200, await self._engine.document(id), JSON)

    async def round(self, send: Send, id: str, n: str) -> None:
        """The announcement of a round."""
        await send_body(send, 200, await self._engine.document(id, int(n)), JSON)

    async def progress(self, send: Send, id: str) -> None:
        """Progress of a collection."""
        found = self._engine.progress_at_hand(id)
        if found is None:
            found = await self._run(self._engine.progress, id)
        await _send_json(send, vars(found), self._pace.header(found.wanted, found.closes_in_s))

    async def certificate(self, send: Send, device: int) -> None:
        """A certificate of a device's key, by the service's own authority."""
        made = await self._certification.certify(device)
        await send_body(send, 200, made.encode(), CBOR)

    async def revocation_list(self, send: Send) -> None:
        """The newest list of revoked devices."""
        await send_body(send, 200, await self._run(self._certification.revocation_list), CBOR)

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
        await _send_json(send, vars(found))

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


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


async def _send_json(send: Send, record: Any, *headers: tuple[bytes, bytes], status: int = 200) -> None:
    await send_body(send, status, _ENCODER.encode(record).encode(), JSON, headers)


_PAUSE: Final = ((HEADER.decode().title(), "seconds"),)
_ENROLMENT_BYTES: Final = 4096
"""Largest body of an enrolment, several times what its fields take: it is read before any token was seen."""

_GET: Final = (401, 404)
_PUT: Final = (401, 403, 404, 409, 410)
_PUT_BODY: Final = (*_PUT, 413, 415, 422)

AUTHORITY_ENDPOINTS: Final = (
    Endpoint("POST", "/v1/devices", DeviceRoutes.enrol, "Enrol a device; the same key again is the same device",
             "The device, enrolled now or before", DeviceNumber, (401, 403, 413, 415, 422), body="json_bytes",
             most=_ENROLMENT_BYTES, media=(JSON,), takes=Enrolling, status=201, gives=JSON, others=("GET",)),
    Endpoint("GET", "/v1/devices/me/certificate", DeviceRoutes.certificate, "A certificate of this device's key",
             "The certificate, where this service hosts the enrolment authority", None, (401, 403, 404), signed=True,
             gives=CBOR),
    Endpoint("GET", "/v1/revocation-list", DeviceRoutes.revocation_list, "The list of revoked devices of the authority",
             "The newest list, signed", None, (404,), gives=CBOR),
)  # fmt: skip
"""The routes of devices at an enrolment authority."""

ENDPOINTS: Final = (
    *AUTHORITY_ENDPOINTS,
    Endpoint("GET", "/v1/open", DeviceRoutes.open, "Collections that devices may join or report to",
             "The collections", list[OpenCollection], (), gives=JSON, headers=_PAUSE),
    Endpoint("GET", _COLLECTION + "/terms", DeviceRoutes.terms, "The terms of a collection",
             "The exact bytes whose SHA-256 is the terms' digest", dict[str, Any], (404,), gives=JSON),
    Endpoint("GET", _COLLECTION + "/progress", DeviceRoutes.progress, "Progress of a collection",
             "The progress", Progress, (404,), gives=JSON, headers=_PAUSE),
    Endpoint("GET", _ROUND, DeviceRoutes.round, "The announcement of a round",
             "The exact bytes whose SHA-256 every message of the round is bound to", dict[str, Any], (404,),
             gives=JSON),
    Endpoint("PUT", _COLLECTION + "/members/me", DeviceRoutes.join, "Join a distributed collection",
             "Joined, now or before", None, _PUT, signed=True),
    Endpoint("GET", _ROUND + "/assignment", DeviceRoutes.assignment, "The shard and number of this device in a round",
             "The assignment", Assignment, _GET, signed=True, gives=JSON),
    Endpoint("GET", _ROUND + "/server-message", DeviceRoutes.server_message, "The server's message to this device",
             "The message of the phase that the header Mapveil-Phase names; empty where this device was left out",
             None, (401, 404, 409, 410), signed=True, gives=CBOR, headers=(("Mapveil-Phase", "phase"),)),
    Endpoint("PUT", _ROUND + "/messages/{phase}", DeviceRoutes.message, "Send this device's message of a phase",
             "Kept, now or before", None, _PUT_BODY, signed=True, body="message_bytes"),
    Endpoint("PUT", _COLLECTION + "/report", DeviceRoutes.report, "Send this device's report",
             "Kept, now or before", None, _PUT_BODY, signed=True, body="report_bytes",
             media=(CBOR, SEALED)),
)  # fmt: skip
"""The routes of devices."""


def _pattern(route: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", route)
    named = (f"(?P<{part}>{_PATTERNS[part]})" if at % 2 else re.escape(part) for at, part in enumerate(parts))
    return re.compile("".join(named))
