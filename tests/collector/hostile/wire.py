"""Bytes as they are: what no well-behaved client would send."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import NamedTuple
from urllib.parse import urlsplit

__all__ = ["Reply", "raw"]


class Reply(NamedTuple):
    """What came back; status 0 where the connection was closed without a word."""

    status: int
    head: str
    body: bytes

    @property
    def code(self) -> str:
        """Of a refusal."""
        return str(json.loads(self.body)["error"]["code"])


def raw(address: str, sent: bytes, *, timeout: float = 10.0) -> Reply:
    """Send bytes, and read until the other side closes."""
    parts = urlsplit(address)
    received = []
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=timeout) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(sent)
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(1 << 16):
                received.append(part)
    head, _, body = b"".join(received).partition(b"\r\n\r\n")
    text = head.decode("latin-1")
    return Reply(int(text.split(" ")[1]) if text else 0, text, body)
