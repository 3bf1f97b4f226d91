"""What the collector says no with: a code for programs, an HTTP status, and one line for a person.

===============  ======  ==============================================================
code             status  when
===============  ======  ==============================================================
unauthorized     401     no token or signature, or one that is unknown, expired, revoked
forbidden        403     a role, or a device, that may not do this
not-found        404     there is no such thing, or not for whoever asks
conflict         409     something else was said before, or the state forbids it
too-late         410     what was asked for is over
too-large        413     more bytes than are accepted
invalid          422     what was sent cannot be used
too-many         429     more requests than are accepted for now
unavailable      503     the store cannot be read or written now
===============  ======  ==============================================================
"""

from __future__ import annotations

from typing import ClassVar

from mapveil_client.errors import InputError, MapveilError


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
    code: ClassVar[str] = "refused"

    def __init__(self, message: str, expected: str | None = None) -> None:
        super().__init__(message if expected is None else f"{message}; expected {expected}")
        self.message = message
        self.expected = expected


class Unauthorized(Refusal):
    """Nobody knows who asks."""

    status = 401
    code = "unauthorized"


class Forbidden(Refusal):
    """Whoever asks may not do this."""

    status = 403
    code = "forbidden"


class NotFound(Refusal):
    """There is no such thing, or not for whoever asks."""

    status = 404
    code = "not-found"


class Conflict(Refusal):
    """Something else was said before, or the state of the collection forbids it."""

    status = 409
    code = "conflict"


class TooLate(Refusal):
    """What was asked for is over, for good."""

    status = 410
    code = "too-late"


class TooLarge(Refusal):
    """More bytes than are accepted."""

    status = 413
    code = "too-large"


class Invalid(Refusal):
    """What was sent cannot be used."""

    status = 422
    code = "invalid"


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
    code = "too-many"

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StoreUnavailable(Refusal):
    """The store cannot be read or written now: nothing was acknowledged; asking again later is safe.

    What was asked may have been done all the same, when the store was lost in the moment of committing: whatever
    the collector does is idempotent for this reason.
    """

    status = 503
    code = "unavailable"
    retry_after = 1.0


def refusal_of(error: MapveilError) -> Refusal:
    """Any failure as a refusal: bad input is ``invalid``, a promise that cannot be kept a ``conflict``."""
    if isinstance(error, Refusal):
        return error
    return (Invalid if isinstance(error, InputError) else Conflict)(str(error))
