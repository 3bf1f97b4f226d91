"""The device's side of the wire: signed requests over HTTP, repeated where that may help.

A request that failed on the way (no connection, a restarting server, too many requests) is repeated after a pause that
doubles, or that ``Retry-After`` names; with status 429 such a pause takes no patience. ``Mapveil-Pause`` in an answer
says when a device should come again: the server spreads its devices evenly. Every request may be sent twice:
the collector takes each message once and answers a repeated one as it did the first time.
"""

from __future__ import annotations

import asyncio
import json
import random
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies

from mapveil_client.errors import InputError, MapveilError, PromiseError, one_line, require
from mapveil_client.pauses import Pauses, seconds_of
from mapveil_client.secure_sum.certificate import Certificate, RevocationList
from mapveil_client.secure_sum.keys import Identity, authorization, enrolment_statement

_AGAIN: Final = (429, 500, 502, 503, 504)
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 10.0
_LONGEST_TOLD_S: Final = 600.0  # a longer wait that a server names counts against the patience
_MOST_ANSWER: Final = 1 << 26
_CONNECT_S: Final = 10.0
_SILENCE_S: Final = 30.0  # between two parts of an answer
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


class Progress(NamedTuple):
    """The progress of a collection, as its server says."""

    state: str  # open | running | finishing | done | aborted
    round: int  # 0 before the first
    phase: str | None  # the messages collected: keys | shares | inputs | consents | answers
    open: bool  # whether messages of the phase are taken
    closes_in_s: float | None
    wanted: int
    present: int
    reason: str = ""  # of an abort


@dataclass(frozen=True)
class Assignment:
    """The shard of a device in a round, and its number within the shard."""

    shard: int
    client: int


class ServerMessage(NamedTuple):
    """The server's message to one device in a phase; empty where it left the device out."""

    phase: str
    body: bytes


class Unreachable(MapveilError):
    """The server did not answer, however often it was asked."""


class ServerRefusal(PromiseError):
    """The server refuses a request: the status of HTTP, the kind of refusal such as ``too-late``, and its reason."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(f"the server refuses ({status} {code}): {text}")
        self.status, self.code = status, code

    def __reduce__(self) -> tuple[type[ServerRefusal], tuple[int, str, str]]:
        return type(self), (self.status, self.code, str(self))


class FinalRefusal(ServerRefusal):
    """A refusal that the same request would meet again (status 4xx)."""


@dataclass
class Traffic:
    """Bytes of bodies, as one device sent and received them; headers are not counted."""

    up: int = 0
    down: int = 0


class TransportFault(MapveilError):
    """The connection failed, or its bytes were no answer; says which, in a word."""


class Answer(NamedTuple):
    """A server's answer."""

    status: int
    reason: str
    headers: Mapping[str, str]  # names in lower case
    content: bytes


class Endpoint(NamedTuple):
    """The address that requests go to, and the limits of its connections."""

    scheme: str
    host: str
    port: int
    secure: ssl.SSLContext | None
    connections: int
    most_bytes: int  # of an answer


class Transport(Protocol):
    """Exchanges of a request for an answer; raises :class:`TransportFault`. Redirections are not followed."""

    async def exchange(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Send a request once and read its answer."""

    async def aclose(self) -> None:
        """Close the connections."""


class _Httpx:
    """The transport of a device: httpx, through the proxy that the environment names where it names one."""

    def __init__(self, library: Any, endpoint: Endpoint) -> None:
        name = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        self._most = endpoint.most_bytes
        self._failed: type[Exception] = library.HTTPError
        self._client = library.AsyncClient(
            base_url=f"{endpoint.scheme}://{name}:{endpoint.port}",
            verify=endpoint.secure or False,
            trust_env=endpoint.host not in _LOOPBACK,
            timeout=library.Timeout(_SILENCE_S, connect=_CONNECT_S, pool=None),
            limits=library.Limits(
                max_connections=endpoint.connections, max_keepalive_connections=endpoint.connections
            ),
        )

    async def exchange(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        try:
            async with self._client.stream(method, target, content=body or None, headers=headers) as got:
                content = bytearray()
                async for part in got.aiter_bytes():
                    content += part
                    if len(content) > self._most:
                        raise TransportFault(f"an answer of more than {self._most} bytes")
        except self._failed as error:
            raise TransportFault(type(error).__name__) from None
        named = {key.lower(): value for key, value in got.headers.items()}
        return Answer(got.status_code, got.reason_phrase, named, bytes(content))

    async def aclose(self) -> None:
        await self._client.aclose()


class Connection:
    """Requests to one collector; shared by all devices of a process.

    Parameters
    ----------
    server : str
        Such as ``https://collector.example``. Plain HTTP is for this very machine only.
    connections : int
        Largest number of connections at once.
    patience_s : float
        Time for which a request is repeated, beside the waits that the server asks for with status 429.
    authority : path-like, optional
        File of certificates (PEM) to trust instead of the system's.
    plain : bool
        Use plain HTTP to other machines too: the network then sees who takes part in what.
    transport : callable, optional
        Makes the transport to an endpoint; httpx by default, and wherever the environment names a proxy.
    waiting : callable, optional
        Called with the server's reason at every status 429.

    Attributes
    ----------
    pauses : Pauses
        Pauses that the server named.

    Raises
    ------
    InputError
        No address of a server.
    MissingExtra
        httpx is not installed.
    """

    def __init__(
        self,
        server: str,
        *,
        connections: int = 16,
        patience_s: float = 60.0,
        authority: str | PathLike[str] | None = None,
        plain: bool = False,
        transport: Callable[[Endpoint], Transport] | None = None,
        waiting: Callable[[str], None] | None = None,
    ) -> None:
        parts = _address(server)
        secure, here = parts.scheme == "https", parts.hostname in _LOOPBACK
        if not (secure or here or plain):
            raise InputError(f"{server}: plain HTTP is for this machine only; expected https")
        library: Any = require("httpx", "device")
        self._prefix, self._patience_s = parts.path.rstrip("/"), patience_s
        self._waiting, self.pauses = waiting or (lambda reason: None), Pauses()
        trusted: ssl.SSLContext | None = None
        if authority is not None:
            try:
                trusted = ssl.create_default_context(cafile=str(authority))
            except (OSError, ssl.SSLError) as error:
                reason = error.strerror or error
                raise InputError(f"{authority}: is no file of certificates ({reason})") from error
        elif secure:
            trusted = library.create_ssl_context()  # one for all: reading the certificates takes a while
        port, host = parts.port or (443 if secure else 80), parts.hostname or ""
        self._named = f"the server ({host}, port {port})"
        context = trusted if secure else None
        endpoint = Endpoint(parts.scheme, host, port, context, connections, _MOST_ANSWER)
        behind = not here and any(name in getproxies() for name in (parts.scheme, "all"))
        self._transport: Transport = (
            _Httpx(library, endpoint) if transport is None or behind else transport(endpoint)
        )

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._transport.aclose()

    async def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        media: str | None = None,
        signer: tuple[Identity, int] | None = None,
        traffic: Traffic | None = None,
    ) -> Answer:
        """Send a request, such as ``GET`` of ``/v1/open``, until it is answered.

        Parameters
        ----------
        media : str, optional
            ``Content-Type`` of the body.
        signer : tuple of Identity and int, optional
            Identity of the device that signs the request, and its number.
        traffic : Traffic, optional
            Counts the bytes.

        Raises
        ------
        ServerRefusal
            The server refuses.
        Unreachable
            It does not answer, or not as a collector does.
        """
        path = self._prefix + path
        headers = {} if media is None else {"Content-Type": media}
        if signer is not None:
            headers["Authorization"] = authorization(*signer, method, path, body)
        clock = asyncio.get_running_loop().time
        until, pause = clock() + self._patience_s, _FIRST_PAUSE_S
        while True:
            wait = pause
            try:
                answer = await self._transport.exchange(method, path, body, headers)
            except TransportFault as error:
                why = f"no answer ({error})"
            else:
                if traffic is not None:
                    traffic.up += len(body)
                    traffic.down += len(answer.content)
                if 200 <= answer.status < 300:
                    self.pauses.note(seconds_of(answer.headers, "mapveil-pause"))
                    return answer
                if answer.status not in _AGAIN:
                    raise _refusal(answer)
                why = f"status {answer.status}"
                told = seconds_of(answer.headers, "retry-after")
                wait = max(pause, min(told, _LONGEST_TOLD_S))
                if answer.status == 429:
                    self._waiting(str(_refusal(answer)))
                    until += wait if 0 < told <= _LONGEST_TOLD_S else 0.0
            wait *= 1 + random.random() / 4  # not all devices at once
            if clock() + wait > until:
                self.pauses.note(wait)
                raise Unreachable(f"{self._named} gave {why} for {self._patience_s:g} s") from None
            await asyncio.sleep(wait)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def document(self, path: str, **signed: Any) -> bytes:
        """The bytes of a document."""
        return (await self.request("GET", path, **signed)).content

    async def record(self, path: str, **signed: Any) -> Any:
        """An answer in JSON."""
        content = await self.document(path, **signed)
        with reading("the server's answer"):
            return json.loads(content)

    async def progress(self, collection: str) -> Progress:
        """The progress of a collection."""
        record = await self.record(f"/v1/collections/{collection}/progress")
        with reading("the progress of a collection"):
            return Progress(
                str(record["state"]),
                int(record["round"] or 0),
                None if record["phase"] is None else str(record["phase"]),
                bool(record["open"]),
                None if record["closes_in_s"] is None else float(record["closes_in_s"]),
                int(record["wanted"] or 0),
                int(record["present"] or 0),
                one_line(str(record.get("reason") or "")),
            )

    async def enrol(self, token: str, identity: Identity, *, simulated: bool = False) -> int:
        """Make a device known, one of a fleet where it is ``simulated``; the same identity gets the same number."""
        record: dict[str, str | bool] = {
            "token": token,
            "public_key": identity.public.hex(),
            "signature": identity.sign(enrolment_statement(token, identity.public)).hex(),
            **({"simulated": True} if simulated else {}),
        }
        body = json.dumps(record).encode()
        answer = await self.request("POST", "/v1/devices", body, media="application/json")
        with reading("the answer to an enrolment"):
            return _number(json.loads(answer.content)["device"])

    async def certificate(self, **signed: Any) -> Certificate:
        """A certificate of this device's key, where the server hosts the enrolment authority."""
        content = await self.document("/v1/devices/me/certificate", **signed)
        with reading("the certificate of a device"):
            return Certificate.decode(content)

    async def revocation_list(self) -> RevocationList:
        """The newest revocation list that the server has."""
        content = await self.document("/v1/revocation-list")
        with reading("the revocation list"):
            return RevocationList.decode(content)

    async def assignment(self, collection: str, number: int, **signed: Any) -> Assignment:
        """The shard of this device in a round, and its number there."""
        record = await self.record(f"/v1/collections/{collection}/rounds/{number}/assignment", **signed)
        with reading("the assignment of a device"):
            return Assignment(_number(record["shard"]), _number(record["client"]))

    async def server_message(self, collection: str, number: int, **signed: Any) -> ServerMessage:
        """The server's message to this device in the phase that is open."""
        path = f"/v1/collections/{collection}/rounds/{number}/server-message"
        answer = await self.request("GET", path, **signed)
        return ServerMessage(answer.headers.get("mapveil-phase", ""), answer.content)


def _address(server: str) -> SplitResult:
    try:
        parts = urlsplit(server)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good or parts.query or parts.fragment:
        raise InputError(f"{server!r} is no address of a server; expected https://collector.example")
    return parts


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Read ``what`` from an answer of the server.

    Raises
    ------
    Unreachable
        It is malformed.
    """
    try:
        yield
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError, InputError) as error:
        raise Unreachable(f"{what} cannot be read ({type(error).__name__})") from None


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r:.40} is no number of a device")
    return value


def _refusal(answer: Answer) -> ServerRefusal:
    try:
        error = json.loads(answer.content)["error"]
        code, text = str(error["code"]), str(error["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        code, text = "refused", answer.reason
    kind = FinalRefusal if 400 <= answer.status < 500 else ServerRefusal
    return kind(answer.status, code[:40], one_line(text))
