"""Refusals of the collector: an HTTP status, a code for programs, and one line for a person."""

from __future__ import annotations

from typing import ClassVar, Final

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


class Refusal(MapveilError):
    """The collector refuses; nothing was changed.

    Parameters
    ----------
    message : str
        One line: what was wrong. Never holds a secret, a message's content or a place.
    expected : str, optional
        An input that would be accepted.
    """

    status: ClassVar[int] = 500
    code: ClassVar[str] = CODES[500]

    def __init_subclass__(cls) -> None:
        cls.code = CODES[cls.status]

    def __init__(self, message: str, expected: str | None = None) -> None:
        super().__init__(message if expected is None else f"{message}; expected {expected}")
        self.message = message
        self.expected = expected


class Unauthorized(Refusal):
    """The request is not authenticated."""

    status = 401


class Forbidden(Refusal):
    """The role, or the device, may not do this."""

    status = 403


class NotFound(Refusal):
    """There is no such thing, or the client may not see it."""

    status = 404


class Conflict(Refusal):
    """Something else was said before, or the state of the collection forbids it."""

    status = 409


class TooLate(Refusal):
    """The collection, round or phase is over, for good."""

    status = 410


class TooLarge(Refusal):
    """More bytes than are accepted."""

    status = 413


class Invalid(Refusal):
    """The input cannot be used."""

    status = 422


class TooMany(Refusal):
    """More requests than are accepted for now.

    Parameters
    ----------
    message : str
        One line.
    retry_after : float
        Seconds after which one more will be accepted.
    """

    status = 429

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StoreUnavailable(Refusal):
    """The store cannot be read or written now: nothing was acknowledged; asking again later is safe.

    What was asked may have been done all the same, when the store was lost in the moment of committing: whatever
    the collector does is idempotent for this reason.
    """

    status = 503
    retry_after = 1.0
