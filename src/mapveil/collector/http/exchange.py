"""One request: its record for the log and the limits, its headers, its body."""

from __future__ import annotations

import contextlib
import itertools
import json
import secrets
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.types import Receive, Scope

from mapveil.collector.http.limits import Bodies, declared_length
from mapveil.collector.refusals import Invalid, Refusal, TooLarge

_PROCESS: Final = secrets.token_hex(5)
_NUMBERS: Final = itertools.count(1)
_KEY: Final = "mapveil.exchange"


CBOR: Final = b"application/cbor"
SEALED: Final = b"application/dap-upload-req"
JSON: Final = b"application/json"


def header(scope: Scope, name: bytes) -> bytes | None:
    """A header's first value; names are lower case."""
    for found, value in scope["headers"]:
        if found == name:
            return bytes(value)
    return None


def require_media(scope: Scope, *media: bytes) -> None:
    """Refuse a body of another kind."""
    given = header(scope, b"content-type") or b""
    if given.split(b";")[0].strip().lower() not in media:
        raise Refusal(expected=" or ".join(each.decode() for each in media), status=415)


def require_json(body: bytes) -> None:
    """Refuse a body that is not JSON, and keep nothing of it."""
    with contextlib.suppress(ValueError, RecursionError):
        json.loads(body)
        return
    raise Invalid("the body is not JSON")


class ClientGone(Exception):
    """The client disconnected before the request was complete."""


@dataclass(slots=True)
class Exchange:
    """Record of one request; none of it secret."""

    address: str  # of the client, for the limits; never logged
    # In its response and log lines:
    id: str = field(default_factory=lambda: f"{_PROCESS}{next(_NUMBERS):08x}")
    route: str = "other"  # the address with its variable parts named, such as /v1/collections/{id}
    who: str = ""  # such as "operator 3" or "device 12"; empty for anybody
    received: int = 0  # bytes of the body
    routine: bool = False  # whether it is one of the many that devices ask

    @staticmethod
    def begin(scope: Scope) -> Exchange:
        """Begin the record of a new request."""
        client = scope.get("client")
        made = scope[_KEY] = Exchange(str(client[0]) if client else "")
        return made

    @staticmethod
    def of(scope: Scope) -> Exchange:
        """The record of a request that :meth:`begin` saw."""
        found: Exchange = scope[_KEY]
        return found


async def read_body(scope: Scope, receive: Receive, most: int, bodies: Bodies) -> bytes:
    """The whole body, at most ``most`` bytes."""
    declared_length(scope["headers"], most)
    exchange = Exchange.of(scope)
    parts: list[bytes] = []
    size = 0
    try:
        while True:
            message: Any = await receive()
            if message["type"] != "http.request":
                raise ClientGone
            part = message.get("body", b"")
            if part:
                if size + len(part) > most:
                    raise TooLarge(f"a body of more than {most} bytes", f"up to {most} bytes")
                bodies.hold(len(part), exchange.address)
                size += len(part)
                parts.append(part)
            if not message.get("more_body", False):
                return parts[0] if len(parts) == 1 else b"".join(parts)
    finally:
        exchange.received = size
        # What was read is the caller's now; only what waits for its end is counted.
        bodies.release(size, exchange.address)
