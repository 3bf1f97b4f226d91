"""Access control: operators by their token, devices by their signature."""

import asyncio
import time
from concurrent.futures import Executor
from typing import Final, NamedTuple

from sqlalchemy import bindparam, select
from starlette.types import Scope

from mapveil.collector.http.exchange import Exchange, header
from mapveil.collector.http.limits import Buckets
from mapveil.collector.http.settings import Settings
from mapveil.collector.http.signature_checks import SignatureChecks
from mapveil.collector.recent import Recent
from mapveil.collector.refusals import Unauthorized
from mapveil.collector.store.database import Store
from mapveil.collector.store.principals import Accounts, Operator
from mapveil.collector.store.schema import ADMITTED, MOST_NUMBER, devices
from mapveil_client.errors import InputError
from mapveil_client.secure_sum.keys import SCHEME, read_authorization, request_statement

_KEPT: Final = 1 << 16  # keys
_KEY_SECONDS: Final = 30.0  # after which a device that is barred is found out
_AT_ONCE: Final = 500
_LONGEST: Final = 200  # characters of a token that is looked up at all


class Signer(NamedTuple):
    """The device that a request claims to be from, not yet verified."""

    device: int
    signature: bytes
    key: bytes


class Access:
    """Checks of tokens and signatures; the store is read in the threads of ``pool``."""

    def __init__(self, store: Store, accounts: Accounts, settings: Settings, pool: Executor) -> None:
        self._store = store
        self._accounts = accounts
        self._pool = pool
        self.checks = SignatureChecks()
        self._devices = Buckets(settings.device_rate, settings.device_burst, "this device")
        refused = "this address with tokens or signatures that are refused"
        self._failures = Buckets(settings.failure_rate, settings.failure_burst, refused)
        self._keys: Recent[int, tuple[float, bytes]] = Recent(_KEPT)
        self._asked: dict[int, asyncio.Future[bytes | None]] = {}
        self._reading: asyncio.Task[None] | None = None

    def operator(self, scope: Scope, role: str = "viewer") -> Operator:
        """The operator whose token a request carries. Run by: a thread that may read the store."""
        scheme, _, token = _authorization(scope).partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Unauthorized("no token", "the header 'Authorization: Bearer mvo_...'")
        try:
            found = self._accounts.verify_operator(token[:_LONGEST])
        except Unauthorized:
            self.count_failure(scope)
            raise
        Exchange.of(scope).who = f"operator {found.id}"
        found.require(role)
        return found

    async def signer(self, scope: Scope) -> Signer:
        """The device that a request names, with the key it enrolled."""
        given = _authorization(scope)
        if not given.startswith(SCHEME):
            raise Unauthorized("no signature", f"the header 'Authorization: {SCHEME} <id> <signature>'")
        try:
            signed = read_authorization(given)
            key = await self._key(signed.device) if 0 < signed.device <= MOST_NUMBER else None
            if key is None:
                raise InputError("no such device, or one that was revoked or is in quarantine")
        except InputError as error:
            self.count_failure(scope)
            raise Unauthorized(str(error)) from None
        return Signer(signed.device, signed.signature, key)

    async def device(self, scope: Scope, signer: Signer, body: bytes) -> int:
        """The device, now that its signature of this request was checked."""
        statement = request_statement(scope["method"], address_of(scope), body)
        if not await self.checks.good(signer.key, signer.signature, statement):
            self.count_failure(scope)
            raise Unauthorized("the signature is not the device's, of this method, address and body")
        Exchange.of(scope).who = f"device {signer.device}"
        self._devices.take(signer.device)
        return signer.device

    async def anybody_known(self, scope: Scope, body: bytes = b"") -> Operator | None:
        """Let in an operator by token, or a device (None) by the signature of the request; raises as those do."""
        if _authorization(scope).startswith(SCHEME):
            await self.device(scope, await self.signer(scope), body)
            return None
        return await asyncio.get_running_loop().run_in_executor(self._pool, self.operator, scope)

    def count_failure(self, scope: Scope) -> None:
        """Count a token or signature that was refused to an address, which slows guessing down.

        A right one is never refused, for others may ask from the same address, and 256 bits are not guessed.
        """
        self._failures.take(Exchange.of(scope).address)

    def forget(self, device: int) -> None:
        """Look a device's key up again next time: it was barred or released. Run by: any thread."""
        self._keys.pop(device)

    async def _key(self, device: int) -> bytes | None:
        kept = self._keys.get(device)
        if kept is not None and time.monotonic() - kept[0] < _KEY_SECONDS:
            return kept[1]
        loop = asyncio.get_running_loop()
        asked = self._asked.get(device)
        if asked is None:
            asked = self._asked[device] = loop.create_future()
            if self._reading is None:
                self._reading = loop.create_task(self._read_asked())
        # Several requests may wait for it; one that leaves takes nothing from the others.
        return await asyncio.shield(asked)

    async def _read_asked(self) -> None:
        """Read the keys that are asked for; whoever asks meanwhile is in the next reading."""
        loop = asyncio.get_running_loop()
        try:
            while self._asked:
                wanted, self._asked = self._asked, {}
                try:
                    found = await loop.run_in_executor(self._pool, self._read, list(wanted))
                except BaseException as error:  # whatever it is, it belongs to those who wait
                    for asked in wanted.values():
                        asked.set_exception(error)
                        asked.exception()  # a request may have been cancelled
                    if not isinstance(error, Exception):
                        raise
                    continue
                for device, asked in wanted.items():
                    if device in found:
                        self._keys.put(device, (time.monotonic(), found[device]))
                    asked.set_result(found.get(device))
        finally:
            self._reading = None

    def _read(self, wanted: list[int]) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        with self._store.read() as connection:
            for first in range(0, len(wanted), _AT_ONCE):
                some = {"wanted": wanted[first : first + _AT_ONCE]}
                for row in connection.execute(_KEYS, some):
                    found[row.id] = bytes(row.public_key)
        return found


_KEYS: Final = select(devices.c.id, devices.c.public_key).where(
    devices.c.id.in_(bindparam("wanted", expanding=True)), ADMITTED
)


def _authorization(scope: Scope) -> str:
    return (header(scope, b"authorization") or b"").decode("latin-1")


def address_of(scope: Scope) -> str:
    """The address as it was sent, with its query."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    # Some servers put the query behind the raw path, others do not.
    path = path.partition(b"?")[0]
    query: bytes = scope["query_string"]
    return (path + b"?" + query if query else path).decode("latin-1")
