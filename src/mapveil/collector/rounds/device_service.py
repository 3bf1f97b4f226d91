"""The service that devices use: documents, progress, joining, reports and messages.

Whatever is acknowledged was committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from sqlalchemy import select

from mapveil.collector.recent import Recent
from mapveil.collector.refusals import Conflict, Invalid, NotFound, TooLate
from mapveil.collector.rounds.collection import find, listed
from mapveil.collector.rounds.intake import KeepMembers, KeepMessages, KeepReports, Kept, Message, Report
from mapveil.collector.rounds.life_cycle import State
from mapveil.collector.rounds.progress import Progress, ProgressBoard
from mapveil.collector.rounds.reports import report_check
from mapveil.collector.rounds.shard_machines import Assignment, RoundMachines, ShardMachine, ShardMachines
from mapveil.collector.store.database import Store
from mapveil.collector.store.schema import messages, rounds
from mapveil_client.secure_sum.states import PeerFault, ProtocolError, ServerState, phase_name, phase_named
from mapveil_client.terms import CollectionTerms

_INLINE_BYTES: Final = 1 << 14  # a larger message is checked in a thread
_CHECKS: Final = 8
_TERMS: Final = 256


class ServerMessage(NamedTuple):
    """The server's message to one device at the beginning of a phase."""

    phase: str
    body: bytes  # empty where the device was left out, or the phase has none


class DeviceService:
    """Answers devices."""

    def __init__(self, store: Store, machines: ShardMachines, board: ProgressBoard) -> None:
        self._store, self._machines, self._board = store, machines, board
        self._terms: Recent[str, CollectionTerms] = Recent(_TERMS)
        self._checks: Recent[str, Callable[[bytes], None]] = Recent(_CHECKS)

    def open_collections(self) -> list[dict[str, Any]]:
        """The collections that devices may take part in."""
        with self._store.read() as connection:
            found = listed(connection, (State.OPEN,))
        return [
            {
                "id": each.id,
                "trust": each.terms.trust,
                "title": each.terms.title,
                "terms": each.terms.digest.hex(),
            }
            for each in found
        ]

    def terms(self, id: str) -> bytes:
        """Terms of a collection, as devices read them."""
        return self._terms_of(id).encode()

    def progress(self, id: str) -> Progress:
        """Progress of a collection, at most a moment old."""
        return self._board.of(id)

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
        terms = await self._terms_for(id)
        if terms.trust != "distributed":
            raise Conflict("this collection is of reports", "a report")
        kept = await self._store.put(KeepMembers(id, terms.devices), device)
        if kept is Kept.FULL:
            raise TooLate("as many devices as are expected have joined")
        if kept is Kept.LATE:
            raise TooLate("the collection takes no more devices")

    async def report(self, id: str, device: int, body: bytes) -> None:
        """Take a device's report; the same once more changes nothing."""
        terms = await self._terms_for(id)
        if terms.trust == "distributed":
            raise Conflict("this collection is of rounds", "a message of a round")
        check = self._checks.get(id)
        if check is None:
            check = self._checks.put(id, await asyncio.to_thread(report_check, terms))
        check(body)
        kept = await self._store.put(KeepReports(id), Report(device, body))
        if kept is Kept.CONFLICT:
            raise Conflict("this device has sent another report; only one is kept")
        if kept is Kept.LATE:
            raise TooLate("the collection takes no more reports")

    def assignment(self, id: str, number: int, device: int) -> Assignment:
        """The shard and number of a device in a round."""
        return self._assigned(self._round(id, number), device)

    def server_message(self, id: str, number: int, device: int) -> ServerMessage:
        """The server's message to a device in the phase that a round is in.

        May rebuild the shard's machine: not for an event loop.
        """
        held = self._round(id, number)
        assigned = self._assigned(held, device)
        now = self._board.of(id)
        if now.state != State.RUNNING or now.round != number or now.phase is None:
            now = self._board.read(id)
        phase = None if now.phase is None else phase_named(now.phase)
        if now.state != State.RUNNING or now.round != number or phase is None:
            raise TooLate("the round is over")
        machine = held.machines[assigned.shard]
        with machine.lock:
            self._bring_up(machine, phase)
            body = machine.server_message(phase, assigned.client)
        return ServerMessage(now.phase or "", body)

    def assignment_at_hand(self, id: str, number: int, device: int) -> Assignment | None:
        """As :meth:`assignment`, for an event loop: None where something must be read or built first."""
        held = self._machines.held(id, number)
        return None if held is None else self._assigned(held, device)

    def server_message_at_hand(self, id: str, number: int, device: int) -> ServerMessage | None:
        """As :meth:`server_message`, for an event loop: None where anything must be read, built or waited for."""
        held, now = self._machines.held(id, number), self._board.fresh(id)
        if held is None or now is None or now.state != State.RUNNING or now.round != number:
            return None
        phase = None if now.phase is None else phase_named(now.phase)
        assigned = self._assigned(held, device)
        machine = held.machines[assigned.shard]
        if phase is None or not machine.lock.acquire(blocking=False):
            return None
        try:
            if machine.server.state is not phase:
                return None
            return ServerMessage(now.phase or "", machine.server_message(phase, assigned.client))
        finally:
            machine.lock.release()

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
        now = self._board.fresh(id)
        if now is None:
            now = await asyncio.to_thread(self._board.of, id)
        if not _is_at(now, number, phase):
            now = await asyncio.to_thread(self._board.read, id)
        if not _is_at(now, number, phase):
            if now.state == State.RUNNING and now.round == number and _comes(now, phase):
                raise Conflict(f"the round is collecting {now.phase}", "a message of that phase")
            if now.state != State.RUNNING:
                self._machines.forget(id)  # another process ended it
            await self._settle_late(id, number, phase, message)
            return
        machine = held.machines[assigned.shard]
        if len(body) <= _INLINE_BYTES and machine.lock.acquire(blocking=False):
            try:
                ready = machine.server.state is phase
                if ready:
                    self._check(machine, assigned, body)
            finally:
                machine.lock.release()
        else:
            ready = False
        if not ready and not await asyncio.to_thread(self._check_slowly, machine, phase, assigned, body):
            await self._settle_late(id, number, phase, message)
            return
        _raise_unless_kept(await self._store.put(KeepMessages(id, number, phase), message))

    def _terms_of(self, id: str) -> CollectionTerms:
        kept = self._terms.get(id)
        if kept is not None:
            return kept
        with self._store.read() as connection:
            found = find(connection, id)
        if found.state is State.PENDING:
            raise NotFound("there is no such collection")
        return self._terms.put(id, found.terms)

    async def _terms_for(self, id: str) -> CollectionTerms:
        kept = self._terms.get(id)
        return kept if kept is not None else await asyncio.to_thread(self._terms_of, id)

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
        return assigned

    @staticmethod
    def _bring_up(machine: ShardMachine, phase: ServerState) -> None:
        try:
            machine.bring_up(phase)
        except ProtocolError:
            raise TooLate("the round cannot be finished") from None

    @staticmethod
    def _check(machine: ShardMachine, assigned: Assignment, body: bytes) -> None:
        try:
            machine.server.check(assigned.client, body)
        except PeerFault as fault:
            raise Invalid(str(fault)) from None

    def _check_slowly(
        self, machine: ShardMachine, phase: ServerState, assigned: Assignment, body: bytes
    ) -> bool:
        """Check a message, whatever must be waited for; False where the phase is over."""
        with machine.lock:
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


def _is_at(now: Progress, number: int, phase: ServerState) -> bool:
    return now.state == State.RUNNING and now.round == number and now.phase == phase_name(phase)


def _comes(now: Progress, phase: ServerState) -> bool:
    """Whether a phase is still to come."""
    current = None if now.phase is None else phase_named(now.phase)
    return current is not None and phase.value > current.value


def _raise_unless_kept(kept: Kept) -> None:
    if kept is Kept.CONFLICT:
        raise Conflict("this device has sent another message; only one is kept")
    if kept is Kept.LATE:
        raise TooLate("the phase is over")
