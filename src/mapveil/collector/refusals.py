"""Refusals of the collector: an HTTP status, a code for programs, and one line for a person.

Of its own faults it logs the place only, see :func:`where_raised`.
"""

import json
import math
import traceback
from typing import Final

from mapveil_client.errors import MapveilError

CODES: Final = {
    400: "malformed",
    401: "unauthorized",
    403: "forbidden",
    404: "not-found",
    405: "not-allowed",
    408: "too-slow",
    409: "conflict",
    410: "too-late",
    413: "too-large",
    415: "unsupported",
    422: "invalid",
    429: "too-many",
    431: "too-large",
    500: "internal",
    503: "unavailable",
}
"""The word for each HTTP status; a program reads it, a person the message."""

MEANINGS: Final = {
    400: "the request cannot be read",
    401: "no token or signature, or one that is unknown, expired or revoked",
    403: "the operator's role does not allow this",
    404: "there is nothing at this address",
    405: "this address does not take this method",
    408: "the request came too slowly",
    409: "the state of the collection forbids this, or an earlier request contradicts it",
    410: "the collection, round or phase is over",
    413: "the body is too large",
    415: "the body has another Content-Type",
    422: "the input cannot be used",
    429: "too many requests for now; see Retry-After",
    431: "the head of the request is too large",
    500: "a fault of the collector",
    503: "the service or its store is busy or cannot be reached; see Retry-After",
}
"""Meaning of each status where no message says more; the OpenAPI document shows them."""

_LONGEST: Final = 2000  # characters of a message


class Refusal(MapveilError):
    """The collector refuses; nothing was changed.

    Parameters
    ----------
    message : str, optional
        One line: what was wrong; the meaning of the status by default. Never holds a secret, a message's content or a
        location.
    expected : str, optional
        An input that would be accepted.
    status : int, optional
        HTTP status of a refusal without a class of its own.

    Attributes
    ----------
    retry_after : float
        Seconds after which a refusal of status 429 or 503 may be over.
    allow : str
        Methods that the address of a refusal of status 405 takes.
    """

    status: int = 500
    retry_after: float = 1.0
    allow: str = ""

    def __init_subclass__(cls, status: int | None = None) -> None:
        cls.status = cls.status if status is None else status

    def __init__(
        self, message: str | None = None, expected: str | None = None, *, status: int | None = None
    ) -> None:
        self.status = self.status if status is None else status
        text = MEANINGS.get(self.status, "refused") if message is None else message
        super().__init__(text if expected is None else f"{text}; expected {expected}")
        self.message, self.expected = text, expected

    @property
    def code(self) -> str:
        """The word for the status."""
        return CODES.get(self.status, "refused")

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the response."""
        if self.status == 401:
            return {"www-authenticate": 'Bearer realm="mapveil"'}
        if self.status in (429, 503):
            return {"retry-after": str(max(1, math.ceil(self.retry_after)))}
        return {"allow": self.allow} if self.allow else {}

    def body(self) -> bytes:
        """Body of the response, JSON."""
        error = {"code": self.code, "message": " ".join(str(self).split())[:_LONGEST]}
        if self.expected is not None:
            error["expected"] = self.expected
        text = json.dumps({"error": error}, ensure_ascii=False, separators=(",", ":"))
        return text.encode(errors="replace")


class Unauthorized(Refusal, status=401):
    """The request is not authenticated."""


class Forbidden(Refusal, status=403):
    """The role, or the device, may not do this."""


class NotFound(Refusal, status=404):
    """There is no such thing, or the client may not see it."""


class Conflict(Refusal, status=409):
    """An earlier request contradicts this one, or the state of the collection forbids it."""


class TooLate(Refusal, status=410):
    """The collection, round or phase is over, for good."""


class TooLarge(Refusal, status=413):
    """The body is too large."""


class Invalid(Refusal, status=422):
    """The input cannot be used."""


class TooMany(Refusal, status=429):
    """Too many requests for now.

    Parameters
    ----------
    message : str
        One line.
    retry_after : float
        Seconds after which one more will be accepted.
    """

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StoreUnavailable(Refusal, status=503):
    """The store cannot be read or written now: nothing was acknowledged; asking again later is safe.

    The work may have been done all the same, when the store was lost in the moment of committing: every operation of
    the collector is idempotent for this reason.
    """


def where_raised(error: BaseException) -> str:
    """The kind of an error and the places it passed, innermost first, without its text, which could quote a request.

    Examples
    --------
    >>> where_raised(ValueError("a secret"))
    'ValueError'
    """
    frames = traceback.extract_tb(error.__traceback__)[-8:]
    places = [f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno} {frame.name}" for frame in frames]
    return " < ".join([type(error).__name__, *reversed(places)])
