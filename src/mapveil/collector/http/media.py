"""Kinds of content, and what a request says of its own."""

from __future__ import annotations

from typing import Final

from starlette.types import Scope

from mapveil.collector.faults import Refusal

CBOR: Final = b"application/cbor"
JSON: Final = b"application/json"


class Unsupported(Refusal):
    """A body of another kind than is read here."""

    status = 415
    code = "unsupported"


def header(scope: Scope, name: bytes) -> bytes | None:
    """A header's first value; names are lower case."""
    for found, value in scope["headers"]:
        if found == name:
            return bytes(value)
    return None


def require_media(scope: Scope, media: bytes) -> None:
    """Refuse a body of another kind.

    Raises
    ------
    Unsupported
        The request says that its body is something else, or nothing of it.
    """
    given = header(scope, b"content-type") or b""
    if given.split(b";")[0].strip().lower() != media:
        raise Unsupported("the body is of another Content-Type", media.decode())
