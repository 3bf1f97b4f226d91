"""Error responses: one JSON shape for every error."""

from __future__ import annotations

import json
import math
from http import HTTPStatus
from typing import Final, NamedTuple

from starlette.exceptions import HTTPException

from mapveil.collector.refusals import CODES, Refusal
from mapveil_client.errors import InputError, MapveilError, PromiseError

_LONGEST: Final = 2000  # characters of a message


class Failure(NamedTuple):
    """A response that says what was wrong."""

    status: int
    code: str
    message: str
    expected: str | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()

    def body(self) -> bytes:
        """The JSON of it."""
        error = {"code": self.code, "message": self.message}
        if self.expected is not None:
            error["expected"] = self.expected
        return json.dumps({"error": error}, ensure_ascii=False, separators=(",", ":")).encode(
            errors="replace"
        )


def failure_of(error: Exception) -> Failure | None:
    """Response to an error; None for an internal fault, of which the client is told nothing."""
    if isinstance(error, Refusal):
        return _told(error.status, error.code, error)
    if isinstance(error, InputError):
        return _told(422, CODES[422], error)
    if isinstance(error, PromiseError):
        return _told(409, CODES[409], error)
    if isinstance(error, HTTPException):
        status = HTTPStatus(error.status_code)
        headers = tuple((name.encode(), value.encode()) for name, value in (error.headers or {}).items())
        return Failure(
            status, CODES.get(status, "refused"), _MESSAGES.get(status, status.phrase), None, headers
        )
    return None


_MESSAGES: Final = {
    400: "the request cannot be read",
    404: "there is nothing at this address",
    405: "this address does not take this method",
}


def _told(status: int, code: str, error: MapveilError) -> Failure:
    headers: tuple[tuple[bytes, bytes], ...] = ()
    if status == 401:
        headers = ((b"www-authenticate", b'Bearer realm="mapveil"'),)
    wait = getattr(error, "retry_after", None)
    if status in (429, 503):
        headers = ((b"retry-after", str(1 if wait is None else max(1, math.ceil(wait))).encode()),)
    text = " ".join(str(error).split())[:_LONGEST]
    return Failure(status, code, text, getattr(error, "expected", None), headers)
