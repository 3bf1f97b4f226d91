"""The other operator, as this one asks it: over HTTP, each request and each answer authenticated by the shared key."""

from __future__ import annotations

import hashlib
import json
import time
from typing import Final, Protocol
from urllib.parse import urlsplit

import httpx

from mapveil.collector.operators.operator_keys import ANSWERED, PeerKey, same
from mapveil.collector.refusals import Refusal
from mapveil_client.errors import InputError, PromiseError

PEER_ROUTES: Final = "/v1/peer"
"""Prefix of the routes between operators."""

_CONNECT_S: Final = 10.0
_ANSWER_S: Final = 300.0  # a job of vectors may take minutes on a slow machine
_REFUSALS: Final = (404, 409, 410, 413, 422)  # 404: a helper that lost its store
_MOST_BYTES: Final = 1 << 26  # as the largest message of a service by default
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


class PeerUnavailable(Refusal, status=503):
    """The other operator does not answer: the collection waits, and nothing of it is lost."""


class Peer(Protocol):
    """The helper, as the leader asks it. Every request may be repeated and is answered alike."""

    def config(self) -> bytes:
        """Its HPKE configuration, then its store's generation."""

    def begin(self, collection: str, terms: bytes) -> None:
        """Tell it the terms of a collection."""

    def job(self, collection: str, number: int, request: bytes) -> bytes:
        """Verify reports: its reply."""

    def close(self, collection: str, number: int, closing: bytes) -> None:
        """Add the reports of a job that both accept."""

    def answer(self, collection: str, number: int, query: bytes) -> bytes:
        """Its noisy share of an answer."""

    def end(self, collection: str, reason: bytes) -> None:
        """No more queries will come: empty where the plan is at its end, else why it was aborted, in UTF-8."""


class HttpPeer:
    """The helper at an address.

    Parameters
    ----------
    url : str
        Its address: HTTPS, or plain HTTP on this machine.
    key : PeerKey
        Shared with it.
    """

    def __init__(self, url: str, key: PeerKey) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"peer must be an address such as https://helper.example, got {url!r:.100}")
        if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            raise InputError("peer must be an https address: what the operators tell each other is secret")
        self._key, self._prefix, self._url = key, parts.path.rstrip("/"), url
        timeout = httpx.Timeout(_ANSWER_S, connect=_CONNECT_S)
        self._client = httpx.Client(base_url=f"{parts.scheme}://{parts.netloc}", timeout=timeout)

    def config(self) -> bytes:
        """See :class:`Peer`."""
        return self._ask("GET", "/config")

    def begin(self, collection: str, terms: bytes) -> None:
        """See :class:`Peer`."""
        self._ask("PUT", f"/{collection}", terms)

    def job(self, collection: str, number: int, request: bytes) -> bytes:
        """See :class:`Peer`."""
        return self._ask("PUT", f"/{collection}/jobs/{number}", request)

    def close(self, collection: str, number: int, closing: bytes) -> None:
        """See :class:`Peer`."""
        self._ask("PUT", f"/{collection}/jobs/{number}/closing", closing)

    def answer(self, collection: str, number: int, query: bytes) -> bytes:
        """See :class:`Peer`."""
        return self._ask("PUT", f"/{collection}/answers/{number}", query)

    def end(self, collection: str, reason: bytes) -> None:
        """See :class:`Peer`."""
        self._ask("PUT", f"/{collection}/end", reason)

    def _ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        target = f"{PEER_ROUTES}{path}"
        told = self._key.authorization(method, target, hashlib.sha256(body).digest())
        headers = {"authorization": told, "content-type": "application/octet-stream"}
        headers["accept-encoding"] = "identity"
        try:
            with self._client.stream(method, self._prefix + target, content=body, headers=headers) as answer:
                content = _read(answer)
        except httpx.HTTPError as error:
            raise PeerUnavailable(
                f"the helper at {self._url} (--peer) does not answer ({type(error).__name__})"
            ) from None
        status = answer.status_code
        expected = self._key.answered(told, status, content)
        if not same(answer.headers.get(ANSWERED, ""), expected):  # such as a proxy's: it ends no collection
            raise PeerUnavailable(
                f"{self._url} (--peer) answers with status {status}, not authenticated by the key of --peer-key: it is "
                "no helper, or was started with another key"
            )
        if status in _REFUSALS:
            raise PromiseError(f"the helper refuses: {_reason(content)}")
        if not answer.is_success:
            raise PeerUnavailable(f"the helper answers with status {status}: {_reason(content)}")
        return content


def _read(answer: httpx.Response) -> bytes:
    """An answer's bytes as sent, within a size and a time: neither is authenticated before all are here."""
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise PeerUnavailable("an answer of the helper is compressed; expected its bytes as they are")
    made, end = bytearray(), time.monotonic() + _ANSWER_S
    for part in answer.iter_raw():
        made += part
        if len(made) > _MOST_BYTES or time.monotonic() > end:
            raise PeerUnavailable(
                f"an answer of the helper exceeds {_MOST_BYTES} bytes or {_ANSWER_S:.0f} seconds"
            )
    return bytes(made)


def _reason(content: bytes) -> str:
    try:
        return str(json.loads(content)["error"]["message"])[:300]
    except (ValueError, KeyError, TypeError):
        return "no reason was given"
