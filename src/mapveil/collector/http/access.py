"""Access control: operators by their token, devices by their signature."""

import asyncio
from concurrent.futures import Executor
from typing import Final, NamedTuple

from starlette.types import Scope

from mapveil.collector.http.device_keys import DeviceKeys
from mapveil.collector.http.exchange import Exchange, header
from mapveil.collector.http.limits import Buckets
from mapveil.collector.http.settings import Settings
from mapveil.collector.http.signature_checks import SignatureChecks
from mapveil.collector.refusals import Unauthorized
from mapveil.collector.store.database import Store
from mapveil.collector.store.principals import Accounts, Operator
from mapveil_client.errors import InputError
from mapveil_client.secure_sum.keys import SCHEME, read_authorization, request_statement

TARGET: Final = "mapveil.target"
"""Key of a scope: the target of the request as it was sent. Its path and query do not tell ``/x?`` from ``/x``."""
_LONGEST: Final = 200  # characters of a token that is looked up at all
_UNKNOWN: Final = "no such device, or one that was revoked or is in quarantine"


class Signer(NamedTuple):
    """The device that a request claims to be from, not yet verified."""

    device: int
    signature: bytes
    key: bytes


class Access:
    """Checks of tokens and signatures; the store is read in the threads of ``pool``."""

    def __init__(self, store: Store, accounts: Accounts, settings: Settings, pool: Executor) -> None:
        self._accounts = accounts
        self._pool = pool
        self.checks = SignatureChecks()
        self._devices = Buckets(settings.device_rate, settings.device_burst, "this device")
        refused = "this address with tokens or signatures that are refused"
        self._failures = Buckets(settings.failure_rate, settings.failure_burst, refused)
        self._keys = DeviceKeys(store, pool)

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
            key = await self._keys.of(signed.device)
            if key is None:
                raise InputError(_UNKNOWN)
        except InputError as error:
            self.count_failure(scope)
            raise Unauthorized(str(error)) from None
        return Signer(signed.device, signed.signature, key)

    async def device(self, scope: Scope, signer: Signer, body: bytes) -> int:
        """The device, now that its signature of this request was checked."""
        if body and await self._keys.of(signer.device) is None:  # it was barred while its body came in
            self.count_failure(scope)
            raise Unauthorized(_UNKNOWN)
        statement = request_statement(scope["method"], address_of(scope), body)
        known_of = None if body else signer.device  # what is asked without a body is asked again
        if not await self.checks.good(signer.key, signer.signature, statement, known_of):
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

    def forget(self) -> None:
        """Look up again who is barred: a device was barred or released. Run by: any thread."""
        self._keys.forget()


def _authorization(scope: Scope) -> str:
    return (header(scope, b"authorization") or b"").decode("latin-1")


def address_of(scope: Scope) -> str:
    """The address as it was sent, with its query."""
    if TARGET in scope:
        return str(scope[TARGET], "latin-1")
    # Only the server of mapveil serve passes the target on; any other may run the application (asgi.create_app) too.
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    # Some servers put the query behind the raw path, others do not.
    path = path.partition(b"?")[0]
    query: bytes = scope["query_string"]
    return (path + b"?" + query if query else path).decode("latin-1")
