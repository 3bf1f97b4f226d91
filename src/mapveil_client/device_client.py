"""A device and its collector: finds open collections, decides, joins, and answers until they are over."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeVar

from mapveil_client.announcement import RoundAnnouncement
from mapveil_client.certification import renew_certificate, renew_list
from mapveil_client.connection import (
    Connection,
    FinalRefusal,
    Progress,
    ServerRefusal,
    Traffic,
    Unreachable,
    reading,
)
from mapveil_client.device_locations import Whereabouts
from mapveil_client.errors import InputError, PromiseError
from mapveil_client.memory import DeviceMemory, Part
from mapveil_client.participation import DeviceRefusal, Participation
from mapveil_client.policy import DevicePolicy
from mapveil_client.randomness.random import Randomness
from mapveil_client.terms import CollectionTerms, Document, is_hexadecimal

_Document = TypeVar("_Document", bound=Document)

Work = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs what takes processor time somewhere else than on the event loop."""

_OVER: Final = ("done", "aborted")
_CBOR: Final = "application/cbor"
_SEALED: Final = "application/dap-upload-req"
_PAUSE_S: Final = 1.0
_NOT_FOUND: Final = 404
GONE_S: Final = 3600.0
"""Seconds for which a collection may be unknown to its server before a device leaves it. Chosen so that a server that
is restored from a backup, or a proxy that points elsewhere, within an hour costs no device its part."""
_MOST_OPEN: Final = 100  # each is asked about once
_MOST_KEPT: Final = 200  # documents: a server may publish without end


class Documents:
    """The public documents of a collector: fetched once, however many devices read them.

    Parameters
    ----------
    connection : Connection
        To the collector.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._kept: dict[tuple[str, int], asyncio.Future[Any]] = {}

    async def open(self) -> list[str]:
        """The identifiers of the open collections; the first hundred, whatever the server lists."""
        listed = await self._connection.record("/v1/open")
        with reading("the list of open collections"):
            found = [str(each["id"]) for each in listed]
        return [each for each in found[:_MOST_OPEN] if is_hexadecimal(each, 32)]

    async def terms(self, collection: str) -> CollectionTerms:
        """The terms of a collection; an InputError where they are malformed, or another's."""
        made = await self._read((collection, 0), "terms", CollectionTerms)
        if made.identifier != collection:
            raise InputError("the terms are those of another collection")
        return made

    async def announcement(self, collection: str, number: int) -> RoundAnnouncement:
        """The announcement of a round; an InputError where it is malformed, or another's."""
        made = await self._read((collection, number), f"rounds/{number}", RoundAnnouncement)
        if made.number != number:
            raise InputError("the announcement is that of another round")
        return made

    async def _read(self, key: tuple[str, int], path: str, kind: type[_Document]) -> _Document:
        async def read() -> _Document:
            return kind.decode(await self._connection.document(f"/v1/collections/{key[0]}/{path}"))

        known = self._kept.get(key)
        if known is None:
            known = self._kept[key] = asyncio.ensure_future(read())
            while len(self._kept) > _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
        try:
            made: _Document = await asyncio.shield(known)
        except (Unreachable, ServerRefusal):
            self._kept.pop(key, None)  # not there yet, perhaps
            raise
        return made


class DeviceClient:
    """One device, with its connection to the collector, memory, rules and locations.

    Parameters
    ----------
    connection : Connection
        To the collector.
    memory : DeviceMemory
        Identity, account and answers, which outlive the process.
    policy : DevicePolicy
        Rules by which it takes part or refuses.
    whereabouts : Whereabouts
        Its locations, read only after the policy agreed.
    documents : Documents, optional
        Shared by the devices of a process.
    work : Work, optional
        Runs its arithmetic; in a thread by default.
    rng : Randomness, optional
        For simulations; the operating system's by default.
    now : callable
        Clock by which certificates are judged: seconds since 1970.
    gone_s : float
        Seconds after which a collection that the server no longer knows (404) is over.
    """

    def __init__(
        self,
        connection: Connection,
        memory: DeviceMemory,
        policy: DevicePolicy,
        whereabouts: Whereabouts,
        *,
        documents: Documents | None = None,
        work: Work = asyncio.to_thread,
        rng: Randomness | None = None,
        now: Callable[[], float] = time.time,
        gone_s: float = GONE_S,
    ) -> None:
        self.memory, self.policy, self.traffic = memory, policy, Traffic()
        self._connection, self.whereabouts = connection, whereabouts
        self._documents = documents or Documents(connection)
        self._work, self._rng, self._now = work, rng, now
        self.shared: dict[str, bytes] = {}
        """Reports to two operators by collection, where a simulation made those of many devices at once."""
        self._parts: dict[str, Participation] = {}
        self._missing: dict[
            str, float
        ] = {}  # since when the server knows no such collection, monotonic seconds
        self._gone_s = gone_s

    async def enrol(self, token: str, *, simulated: bool = False) -> int:
        """Make this device known to the collector, once; its number there. ``simulated``: one of a fleet."""
        if self.memory.device is None:
            made = await self._connection.enrol(token, self.memory.identity, simulated=simulated)
            self.memory.device = made
            self.memory.log.add("enrolled", f"as device {self.memory.device}")
            await self._work(self.memory.save)
        return self.memory.device

    async def renew(self, *, hosted: bool = True) -> None:
        """Fetch certificate and revocation list from the collector, where less than a third of their time is left.

        Parameters
        ----------
        hosted : bool
            Whether the collector hosts the authority; certificates of one apart come by
            :func:`mapveil_client.certification.certify`, or in the app's own way.
        """
        authority = self.policy.authority
        if authority is None:
            return
        changed = False
        if hosted:
            number = self._signed()["signer"][1]
            changed = await renew_certificate(self._connection, self.memory, authority, number, self._now())
        changed |= await renew_list(self._connection, self.memory, authority, self._now())
        if changed:
            await self._work(self.memory.save)

    async def consider(self, collection: str) -> bool:
        """Read the terms of a collection and take part, or not; whether it does.

        Raises
        ------
        Unreachable
            The server does not answer.
        """
        if collection in self.memory.refused:
            return False
        try:
            part = await self._participation(collection)
            refusal = await self._work(partial(self.policy.refusal, part.terms))
            if refusal is None and part.terms.authority is not None:
                await self.renew(hosted=not part.terms.authority_apart)
            await self._work(part.join)
        except (DeviceRefusal, InputError, FinalRefusal) as error:  # the last: it lists what it does not show
            self._refuse(collection, str(error))
            return False
        stands = part.part
        if part.terms.trust != "distributed" or stands is None or stands.round or stands.sent:
            return True
        try:
            return await self._enter(part)
        except FinalRefusal as error:
            await self._work(partial(part.refused, str(error)))
            return False

    async def _enter(self, part: Participation) -> bool:
        """Tell the server that this device takes part; the same again changes nothing."""
        await self._send("PUT", f"/v1/collections/{part.collection}/members/me")
        part.entered()
        return True

    def _refuse(self, collection: str, reason: str) -> None:
        """Remember why: terms that cannot even be read come this way only."""
        self._parts.pop(collection, None)
        if collection not in self.memory.refused and collection not in self.memory.parts:
            self.memory.refuse(collection, reason)
            self.memory.save()

    async def act(self, collection: str, progress: Progress) -> bool:
        """Do what is due in a collection that this device joined; whether a message was sent.

        Raises
        ------
        Unreachable
            The server does not answer: nothing is lost, the same bytes are sent when it does.
        """
        part = await self._participation(collection)
        stands = part.part
        if stands is None or not stands.running:
            return False
        if progress.state in _OVER:
            await self._work(partial(part.end, f"the server says that it is {progress.state}"))
            return False
        try:
            if part.terms.trust == "distributed":
                return await self._answer(part, stands, progress)
            return await self._report(part, stands)
        except DeviceRefusal:
            pass  # in the log
        except InputError as error:
            await self._work(partial(part.distrust, str(error)))
        except FinalRefusal as error:
            await self._work(partial(part.refused, str(error)))
        return False

    async def _report(self, part: Participation, stands: Part) -> bool:
        shared = self.shared.pop(part.collection, None)
        body = None if stands.sent else await self._work(partial(part.report, shared))
        if body is None:
            return False
        media = _SEALED if part.terms.trust == "operators" else _CBOR
        await self._send("PUT", f"/v1/collections/{part.collection}/report", body, media=media)
        part.acknowledged()
        return True

    async def _answer(self, part: Participation, stands: Part, progress: Progress) -> bool:
        if progress.state == "open" and not stands.round and not stands.sent:
            return await self._enter(part)
        if progress.state != "running" or not progress.open or progress.round < max(1, stands.round):
            return False  # an earlier round: of a process of the service that is a moment behind another
        round_of, phase = (part.collection, progress.round), progress.phase or ""
        if progress.round != stands.round:
            if phase != "keys":
                await self._work(partial(part.refused, f"round {progress.round} went on without this device"))
                return False
            announcement = await self._documents.announcement(*round_of)
            if announcement.active:
                await self.renew(hosted=False)  # a list may expire between two rounds
            assigned = await self._connection.assignment(*round_of, **self._signed())
            body = await self._work(partial(part.begin, announcement, assigned.shard, assigned.client))
        elif phase == stands.phase:
            if stands.sent:
                return False
            body = stands.answer
        else:
            announcement = await self._documents.announcement(*round_of)
            try:
                phase, message = await self._connection.server_message(*round_of, **self._signed())
            except FinalRefusal:
                return False  # the phase was over in between: the next look says what became of it
            body = await self._work(partial(part.answer, announcement, phase, message))
            if body is None or part.part is None or part.part.sent:
                return False
        path = f"/v1/collections/{part.collection}/rounds/{progress.round}/messages/{phase}"
        await self._send("PUT", path, body, media=_CBOR)
        part.acknowledged()
        return True

    async def poll(self) -> bool:
        """Look once at every collection: join what is open, do what is due. Whether any is still running.

        What the server refuses of one collection, the log says; the others go on.

        Raises
        ------
        Unreachable
            The server does not answer.
        """
        for collection in await self._documents.open():
            if collection not in self.memory.parts:
                await self._unless_refused(collection, self.consider(collection))
        running = [name for name, part in self.memory.parts.items() if part.running]
        for collection in running:
            await self._unless_refused(collection, self._look(collection))
        return any(part.running for part in self.memory.parts.values())

    async def _look(self, collection: str) -> bool:
        return await self.act(collection, await self._connection.progress(collection))

    async def _unless_refused(self, collection: str, asking: Awaitable[bool]) -> None:
        try:
            await asking
        except ServerRefusal as error:
            self.memory.log.add("waiting", str(error), collection)
            if error.status == _NOT_FOUND:
                await self._gone(collection)
        else:
            self._missing.pop(collection, None)

    async def _gone(self, collection: str) -> None:
        """Leave a collection that the server has not known for a while: what was not charged is free again.

        Nothing of an uncharged round was sent, and nothing will be: this device answers the collection no more.
        """
        since = self._missing.setdefault(collection, time.monotonic())
        part = self.memory.parts.get(collection)
        if part is not None and part.running and time.monotonic() - since >= self._gone_s:
            reason = f"the server has not known it for {self._gone_s:g} s"
            self._parts.pop(collection, None)
            await self._work(partial(self.memory.leave, collection, "ended", reason))

    async def run(self, *, pause_s: float = _PAUSE_S) -> None:
        """Poll until it is cancelled, when the server says, ``pause_s`` apart or more.

        A server that does not answer, or not as it should, is asked again.
        """
        while True:
            try:
                await self.poll()
            except (Unreachable, ServerRefusal) as error:
                self.memory.log.add("waiting", str(error))
            await asyncio.sleep(self._connection.pauses.next(pause_s))

    async def _participation(self, collection: str) -> Participation:
        if collection not in self._parts:
            terms = await self._documents.terms(collection)
            self._parts[collection] = Participation(
                self.memory, self.policy, terms, self.whereabouts, self._rng, self._now
            )
        return self._parts[collection]

    def _signed(self) -> dict[str, Any]:
        if self.memory.device is None:
            raise PromiseError("this device is not enrolled: enrol() comes first")
        return {"signer": (self.memory.identity, self.memory.device), "traffic": self.traffic}

    async def _send(self, method: str, path: str, body: bytes = b"", *, media: str | None = None) -> None:
        await self._connection.request(method, path, body, media=media, **self._signed())

    def __repr__(self) -> str:
        return f"DeviceClient({self.memory!r})"
