"""Tokens: drawn from the operating system's randomness, shown once, and kept as their SHA-256 only."""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Final, NamedTuple

from mapveil.collector.faults import Invalid

OPERATOR: Final = "mvo_"
ENROLMENT: Final = "mve_"
_BYTES: Final = 32
_REST: Final = re.compile(r"[A-Za-z0-9_-]{43}")


class Issued(NamedTuple):
    """A new token: the only time it is shown."""

    id: int
    token: str

    def __repr__(self) -> str:
        return f"Issued(id={self.id})"


def draw_token(prefix: str) -> str:
    """Draw a token: its prefix and 43 characters."""
    return prefix + secrets.token_urlsafe(_BYTES)


def is_token(text: str, prefix: str) -> bool:
    """Whether a text looks like a token of a kind."""
    return text.startswith(prefix) and _REST.fullmatch(text, len(prefix)) is not None


def token_hash(token: str) -> bytes:
    """What the store keeps of a token, 32 bytes. It is 256 uniform bits, so a plain hash gives nothing away."""
    return hashlib.sha256(token.encode()).digest()


def token_name(name: str) -> str:
    """A name for people, as it is.

    Raises
    ------
    Invalid
        Empty, too long or unprintable.
    """
    if not 1 <= len(name) <= 100 or not name.isprintable():
        raise Invalid("the name of a token cannot be used", "1 to 100 printable characters")
    return name
