"""The service that devices use: documents, progress, joining, reports and messages.

Whatever is acknowledged was committed.
"""

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from sqlalchemy import select

from mapveil.collector.operators.task_records import KeepSealedReports
from mapveil.collector.recent import Recent
from mapveil.collector.refusals import Conflict, Invalid, NotFound, TooLate
from mapveil.collector.rounds.collection import find, listed, terms_of
from mapveil.collector.rounds.intake import KeepMembers, KeepMessages, KeepReports, Kept, Message, Report
from mapveil.collector.rounds.life_cycle import State
from mapveil.collector.rounds.offer import Offer
from mapveil.collector.rounds.progress import Progress, ProgressBoard, Standing
from mapveil.collector.rounds.shard_machines import RoundMachines, ShardMachine, ShardMachines
from mapveil.collector.store.database import Store
from mapveil.collector.store.schema import messages, rounds
from mapveil_client.connection import Assignment
from mapveil_client.secure_sum.states import PeerFault, ProtocolError, ServerState, phase_name, phase_named
from mapveil_client.terms import CollectionTerms

_INLINE_BYTES: Final = 1 << 14  # a larger message is checked in a thread
_CHECKS: Final = 256  # a check keeps fingerprints, no tables
_OPEN_SECONDS: Final = 1.0  # for which devices are told the same list: each looks at it all day
_DOCUMENTS: Final = 256  # terms and announcements, which never change


@dataclass(frozen=True)
class OpenCollection:
    """A collection that devices may take part in."""

    id: str
    trust: str
    title: str
    terms: str  # digest, hexadecimal


class ServerMessage(NamedTuple):
    """The server's message to one device at the beginning of a phase."""

    phase: str
    body: bytes  # empty where the device was left out, or the phase has none


class DeviceService:
    """Answers devices."""

    def __init__(self, store: Store, machines: ShardMachines, board: ProgressBoard) -> None:
        self._store, self._machines, self._board = store, machines, board
        self._documents: Recent[tuple[str, int], bytes] = Recent(_DOCUMENTS)
        self._checks: Recent[str, asyncio.Future[Callable[[bytes], None]]] = Recent(_CHECKS)
        self._open: tuple[float, int, list[OpenCollection]] = (-math.inf, 0, [])

    def open_collections(self) -> list[OpenCollection]:
        """The collections that devices may take part in, at most a moment old."""
        known = self.open_at_hand()
        if known is not None:
            return known
        changes = self._board.changes
        with self._store.read() as connection:
            found = [(each.id, each.terms) for each in listed(connection, (State.OPEN,))]
        made = [OpenCollection(id, terms.trust, terms.title, terms.digest.hex()) for id, terms in found]
        self._open = time.monotonic() + _OPEN_SECONDS, changes, made
        return made

    def open_at_hand(self) -> list[OpenCollection] | None:
        """As :meth:`open_collections`, for an event loop: None where the store must be read."""
        until, changes, known = self._open
        return known if time.monotonic() < until and changes == self._board.changes else None

    async def document(self, id: str, number: int = 0) -> bytes:
        """Announcement of a round, or the terms of the collection (round 0), as devices read them."""
        kept = self._documents.get((id, number))
        if kept is not None:
            return kept
        read = (
            asyncio.to_thread(self.announcement, id, number) if number else asyncio.to_thread(self.terms, id)
        )
        return self._documents.put((id, number), await read)

    def terms(self, id: str) -> bytes:
        """Terms of a collection, as devices read them."""
        with self._store.read() as connection:
            found = find(connection, id)
        if found.state is State.PENDING:  # as its progress says; its terms are the operators' until then
            raise NotFound("the collection is not open yet; an operator opens it")
        return found.terms.encode()

    def progress(self, id: str) -> Progress:
        """Progress of a collection, at most a moment old."""
        return self._board.of(id)

    def progress_at_hand(self, id: str) -> Progress | None:
        """As :meth:`progress`, for an event loop: None where it must be read first."""
        return self._board.fresh(id)

    def announcement(self, id: str, number: int) -> bytes:
        """Announcement of a round, as devices read it."""
        query = select(rounds.c.announcement).where(rounds.c.collection == id, rounds.c.number == number)
        with self._store.read() as connection:
            found = connection.execute(query).scalar_one_or_none()
        if found is None:
            raise NotFound("there is no such round")
        return bytes(found)

    async def join(self, id: str, device: int) -> None:
        """Let a device take part in a distributed collection; once more changes nothing."""
        terms = terms_of(await self.document(id))
        if terms.trust != "distributed":
            raise Conflict("this collection is of reports", "a report")
        kept = await self._store.put(KeepMembers(id, terms.devices), device)
        if kept is Kept.FULL:
            raise TooLate("as many devices as are expected have joined")
        if kept is Kept.LATE:
            raise TooLate("the collection takes no more devices")

    async def report(self, id: str, device: int, body: bytes) -> None:
        """Take a device's report; the same once more changes nothing."""
        terms = terms_of(await self.document(id))
        if terms.trust == "distributed":
            raise Conflict("this collection is of rounds", "a message of a round")
        (await self._check_of(id, terms))(body)
        keep = KeepSealedReports(id) if terms.trust == "operators" else KeepReports(id)
        kept = await self._store.put(keep, Report(device, body))
        if kept is Kept.REPLAYED:
            raise Conflict("another device has sent this report")
        if kept is Kept.CONFLICT:
            raise Conflict("this device has sent another report; only one is kept")
        if kept is Kept.LATE:
            raise TooLate("the collection takes no more reports")

    async def _check_of(self, id: str, terms: CollectionTerms) -> Callable[[bytes], None]:
        """The check of a collection's reports: all that wait for it wait for one, whose tables take time and memory."""
        check = self._checks.get(id)
        if check is None:
            check = asyncio.ensure_future(asyncio.to_thread(Offer(terms).report_check))
            self._checks.put(id, check)
            check.add_done_callback(partial(self._forget_failed, id))
        return await asyncio.shield(check)  # a device that leaves takes it from no other

    def _forget_failed(self, id: str, check: asyncio.Future[Callable[[bytes], None]]) -> None:
        if check.cancelled() or check.exception() is not None:
            self._checks.pop(id)

    def assignment(self, id: str, number: int, device: int) -> Assignment:
        """The shard and number of a device in a round."""
        return self._assigned(self._round(id, number), device)

    def server_message(self, id: str, number: int, device: int) -> ServerMessage:
        """The server's message to a device in the phase that a round is in.

        May rebuild the shard's machine: not for an event loop.
        """
        held = self._round(id, number)
        assigned = self._assigned(held, device)
        phase = _phase_of(self._board.of(id), number) or _phase_of(self._board.standing(id), number)
        if phase is None:
            raise TooLate("the round is over")
        machine = held.machines[assigned.shard]
        with machine.lock:
            self._bring_up(machine, phase)
            body = machine.server_message(phase, assigned.client)
        return ServerMessage(phase_name(phase), body)

    def assignment_at_hand(self, id: str, number: int, device: int) -> Assignment | None:
        """As :meth:`assignment`, for an event loop: None where something must be read or built first."""
        held = self._machines.held(id, number)
        return None if held is None else self._assigned(held, device)

    def server_message_at_hand(self, id: str, number: int, device: int) -> ServerMessage | None:
        """As :meth:`server_message`, for an event loop: None where anything must be read, built or waited for long."""
        held, now = self._machines.held(id, number), self._board.fresh(id)
        phase = None if now is None else _phase_of(now, number)
        if held is None or phase is None:
            return None
        assigned = self._assigned(held, device)
        machine = held.machines[assigned.shard]
        with machine.at_hand(phase) as here:
            if not here:
                return None
            return ServerMessage(phase_name(phase), machine.server_message(phase, assigned.client))

    async def message(self, id: str, number: int, phase_text: str, device: int, body: bytes) -> None:
        """Take a device's message of a phase; the same once more changes nothing."""
        phase = phase_named(phase_text)
        if phase is None:
            raise NotFound("there is no such phase")
        held = self._machines.held(id, number)
        if held is None:
            held = await asyncio.to_thread(self._round, id, number)
        assigned = self._assigned(held, device)
        message = Message(assigned.shard, assigned.client, bytes(body))
        now: Progress | Standing | None = self._board.fresh(id)
        if now is None:
            now = await asyncio.to_thread(self._board.of, id)
        if _phase_of(now, number) is not phase:
            now = await asyncio.to_thread(self._board.standing, id)
        current = _phase_of(now, number)
        if current is not phase:
            if current is not None and phase.value > current.value:
                raise Conflict(f"the round is collecting {now.phase}", "a message of that phase")
            if now.state != State.RUNNING:
                await asyncio.to_thread(self._machines.forget, id)  # another process ended it
            await self._settle_late(id, number, phase, message)
            return
        machine = held.machines[assigned.shard]
        ready = False
        if len(body) <= _INLINE_BYTES:
            with machine.at_hand(phase) as ready:
                if ready:
                    self._check(machine, assigned, body)
        if not ready and not await asyncio.to_thread(self._check_slowly, machine, phase, assigned, body):
            await self._settle_late(id, number, phase, message)
            return
        _raise_unless_kept(await self._store.put(KeepMessages(id, number, phase), message))

    def _round(self, id: str, number: int) -> RoundMachines:
        held = self._machines.of(id, number)
        if held is not None:
            return held
        self.announcement(id, number)
        raise TooLate("the round is over")

    @staticmethod
    def _assigned(held: RoundMachines, device: int) -> Assignment:
        assigned = held.assignment(device)
        if assigned is None:
            raise NotFound("this device takes no part in this round")
        held.answers = True
        return assigned

    @staticmethod
    def _bring_up(machine: ShardMachine, phase: ServerState) -> None:
        try:
            machine.bring_up(phase)
        except ProtocolError:
            raise TooLate("the round cannot be finished") from None

    def _check(self, machine: ShardMachine, assigned: Assignment, body: bytes) -> None:
        try:
            machine.server.check(assigned.client, body, self._store.clock.now().timestamp())
        except PeerFault as fault:
            raise Invalid(str(fault)) from None

    def _check_slowly(
        self, machine: ShardMachine, phase: ServerState, assigned: Assignment, body: bytes
    ) -> bool:
        """Check a message, whatever must be waited for; False where the phase is over."""
        large = len(body) > _INLINE_BYTES
        with machine.locked_for_long() if large else machine.lock:
            self._bring_up(machine, phase)
            if machine.server.state is not phase:
                return False
            self._check(machine, assigned, body)
        return True

    async def _settle_late(self, id: str, number: int, phase: ServerState, message: Message) -> None:
        """A message of a phase that is over: fine if it is the one that was kept."""
        query = select(messages.c.body).where(
            messages.c.collection == id,
            messages.c.round == number,
            messages.c.phase == phase.value,
            messages.c.shard == message.shard,
            messages.c.client == message.client,
        )

        def look() -> bytes | None:
            with self._store.read() as connection:
                return connection.execute(query).scalar_one_or_none()

        held = await asyncio.to_thread(look)
        _raise_unless_kept(Kept.AGAIN if held is not None and bytes(held) == message.body else Kept.LATE)


def _phase_of(now: Progress | Standing, number: int) -> ServerState | None:
    """The phase that a round collects; None where it is not the collection's current round."""
    if now.state is not State.RUNNING or now.round != number or now.phase is None:
        return None
    return phase_named(now.phase)


def _raise_unless_kept(kept: Kept) -> None:
    if kept is Kept.CONFLICT:
        raise Conflict("this device has sent another message; only one is kept")
    if kept is Kept.LATE:
        raise TooLate("the phase is over")
