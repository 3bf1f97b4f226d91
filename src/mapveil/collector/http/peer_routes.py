"""The routes between two operators: plain ASGI over bytes, each request authenticated by the key that they share."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import partial
from typing import Final

from starlette.types import Receive, Scope, Send

from mapveil.collector.http.access import Access, address_of
from mapveil.collector.http.exchange import JSON, Exchange, header, read_body
from mapveil.collector.http.gate import refusal_of, send_body
from mapveil.collector.http.service import Service
from mapveil.collector.operators.helper import Helper
from mapveil.collector.operators.operator_keys import ANSWERED, SCHEME, PeerKey
from mapveil.collector.operators.peer import PEER_ROUTES
from mapveil.collector.refusals import NotFound, Refusal, Unauthorized
from mapveil_client.errors import MapveilError

_ROUTES: Final = (
    ("GET", "/config", lambda helper, body: helper.config()),
    ("PUT", "/{id}", lambda helper, body, id: helper.begin(id, body)),
    ("PUT", "/{id}/jobs/{n}", lambda helper, body, id, n: helper.job(id, int(n), body)),
    ("PUT", "/{id}/jobs/{n}/closing", lambda helper, body, id, n: helper.close(id, int(n), body)),
    ("PUT", "/{id}/answers/{n}", lambda helper, body, id, n: helper.answer(id, int(n), body)),
    ("PUT", "/{id}/end", lambda helper, body, id: helper.end(id, body)),
)
_PATTERNS: Final = {"id": "(?P<id>[0-9a-f]{32})", "n": "(?P<n>[1-9][0-9]{0,5})"}
_BYTES: Final = b"application/octet-stream"


class PeerRoutes:
    """The routes of a helper; there are none where this service helps nobody.

    Parameters
    ----------
    service : Service
        The service in this process.
    helper : Helper, optional
        Answers.
    key : PeerKey, optional
        Shared with the leader.
    """

    def __init__(self, service: Service, helper: Helper | None, key: PeerKey | None) -> None:
        self._access: Access = service.access
        self._run, self._bodies, self._most = service.run, service.bodies, service.settings.message_bytes
        self._helper, self._key = helper, key
        self._table = [(method, re.compile(_pattern(route)), route, act) for method, route, act in _ROUTES]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request below :data:`~mapveil.collector.operators.peer.PEER_ROUTES`."""
        helper, key = self._helper, self._key
        if helper is None or key is None:
            raise NotFound
        act = self._find(scope)
        given = (header(scope, b"authorization") or b"").decode("latin-1")
        if not given.startswith(SCHEME):
            self._access.count_failure(scope)
            raise Unauthorized("no key of two operators", f"the header 'Authorization: {SCHEME} <mac>'")
        digest = key.body_digest(given, scope["method"], address_of(scope))
        if digest is None:  # a stranger's body is not read
            self._access.count_failure(scope)
            raise Unauthorized("the request is not authenticated by the key that the operators share")
        body = await read_body(scope, receive, self._most, self._bodies)
        if hashlib.sha256(body).digest() != digest:
            raise Unauthorized("the request's body is not the one that its header authenticates")
        Exchange.of(scope).who = "leader"
        status, media = 200, _BYTES
        try:
            answer = await self._run(partial(act, helper, body)) or b""
        except MapveilError as error:  # a refusal ends the collection, so that it is authenticated too
            refusal = refusal_of(error, Exchange.of(scope))
            if refusal.status >= 500:
                raise
            status, media, answer = refusal.status, JSON, refusal.body()
        told = (ANSWERED.encode(), key.answered(given, status, answer).encode())
        await send_body(send, status, answer, media, (told,))

    def _find(self, scope: Scope) -> Callable[..., bytes | None]:
        path = scope["path"].removeprefix(PEER_ROUTES)
        allowed = []
        for method, pattern, route, act in self._table:
            found = pattern.fullmatch(path)
            if found is not None:
                Exchange.of(scope).route = PEER_ROUTES + route
                if method == scope["method"]:
                    return partial(act, **found.groupdict())
                allowed.append(method)
        if not allowed:
            raise NotFound
        refusal = Refusal(status=405)
        refusal.allow = ", ".join(allowed)
        raise refusal


def _pattern(route: str) -> str:
    for name, pattern in _PATTERNS.items():
        route = route.replace(f"{{{name}}}", pattern)
    return route
