"""The engine: everything the collector does, without HTTP. Every method may be called from any thread.

Whatever is acknowledged was committed; whatever is held in memory can be dropped at any moment.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from sqlalchemy import select

from mapveil.collector import collection as records
from mapveil.collector.clock import Clock
from mapveil.collector.collection import Collection, find, listed, move
from mapveil.collector.conductor import Conductor
from mapveil.collector.deadlines import Deadlines
from mapveil.collector.drafting import draft_terms
from mapveil.collector.faults import Conflict, Invalid, NotFound, StoreUnavailable, TooLate
from mapveil.collector.intake import Intake, Kept, Message, Report, take_members, take_messages, take_reports
from mapveil.collector.ledger_view import audit_lines, ledger_lines, record_of
from mapveil.collector.life_cycle import Happening, State, phase_name, phase_named
from mapveil.collector.progress import Progress, ProgressBoard, progress_of
from mapveil.collector.reports import report_check
from mapveil.collector.results import read_map_bytes, stored_guarantee, stored_map
from mapveil.collector.schema import messages, rounds
from mapveil.collector.shard_machines import RoundMachines, Seat, ShardMachine, ShardMachines
from mapveil.collector.store import Store
from mapveil.device.terms import CollectionTerms
from mapveil.maps.density_map import DensityMap
from mapveil.privacy.random import Randomness
from mapveil.secure_sum.faults import PeerFault, ProtocolError
from mapveil.secure_sum.states import ServerState

__all__ = ["Engine", "Mail", "Progress", "Seat"]

_TICK_SECONDS: Final = 0.1
_INLINE_BYTES: Final = 1 << 14  # a larger message is checked in a thread
_MAPS: Final = 8
_TERMS: Final = 256


class Mail(NamedTuple):
    """What a device is sent in a phase."""

    phase: str
    body: bytes  # empty where nothing is for this device: it was left out, or the phase has none


class Engine:
    """The collector behind its API.

    Parameters
    ----------
    store : Store
        Migrated.
    clock : Clock
        For deadlines.
    rng : Randomness, optional
        Draws shards and graphs; the operating system's by default, and in every release.
    """

    def __init__(self, store: Store, clock: Clock, rng: Randomness | None = None) -> None:
        self._store, self._clock = store, clock
        deadlines = Deadlines(clock)
        self._machines = ShardMachines(store)
        self._board = ProgressBoard(store, deadlines)
        self._deadlines = deadlines
        self._intake = Intake(store)
        self._conductor = Conductor(store, deadlines, self._machines, self._board, rng or Randomness())
        self._lock = threading.Lock()
        self._terms: OrderedDict[str, CollectionTerms] = OrderedDict()
        self._checks: OrderedDict[str, Callable[[bytes], None]] = OrderedDict()
        self._maps: OrderedDict[str, DensityMap] = OrderedDict()
        self._stopping = False
        self._ticked = float("-inf")

    # Operators

    def draft(self, spec: Mapping[str, Any], actor: str) -> dict[str, Any]:
        """Make a collection that nobody is asked for yet; see :func:`mapveil.collector.drafting.draft_terms`.

        Raises
        ------
        InputError
            Says what of it cannot be used.
        """
        made = draft_terms(spec, secrets.token_hex(16))
        with self._store.write() as connection:
            records.create(connection, made, actor)
        return self.collection(made.terms.identifier)

    def open(self, id: str, actor: str) -> dict[str, Any]:
        """Offer a draft to devices.

        Raises
        ------
        NotFound, Conflict
            There is none, or it is no draft.
        """
        with self._store.write() as connection:
            if move(connection, id, Happening.OPENED, actor) is None:
                raise Conflict(f"the collection is {find(connection, id).state.value}", "a draft")
        self._board.forget(id)
        return self.collection(id)

    def begin(self, id: str, actor: str) -> dict[str, Any]:
        """Stop waiting for more devices, now that the minimum is there.

        Raises
        ------
        NotFound, Conflict
            There is none, it is not open, or too few are there.
        """
        self._conductor.begin(id, actor)
        return self.collection(id)

    def abort(self, id: str, actor: str, reason: str) -> dict[str, Any]:
        """End a collection without a map; what was charged stays charged.

        Raises
        ------
        NotFound, Conflict, Invalid
            There is none, it is done, or the reason cannot be kept.
        """
        with self._store.write() as connection:
            records.abort(connection, id, actor, reason)
        self._machines.forget(id)
        self._deadlines.forget(id)
        self._board.forget(id)
        return self.collection(id)

    def collections(self) -> list[dict[str, Any]]:
        """The record of every collection, the newest first."""
        with self._store.read() as connection:
            return [
                record_of(connection, each, progress_of(connection, each, self._deadlines))
                for each in listed(connection)
            ]

    def collection(self, id: str) -> dict[str, Any]:
        """The record of a collection.

        Raises
        ------
        NotFound
            There is none.
        """
        with self._store.read() as connection:
            found = find(connection, id)
            return record_of(connection, found, progress_of(connection, found, self._deadlines))

    def ledger(self) -> list[dict[str, Any]]:
        """What was charged, the newest first."""
        with self._store.read() as connection:
            return ledger_lines(connection)

    def audit(self, after: int, limit: int, collection: str | None = None) -> list[dict[str, Any]]:
        """Lines of the audit log with numbers above ``after``, in order."""
        with self._store.read() as connection:
            return audit_lines(connection, after, limit, collection)

    # Devices

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
        """The terms of a collection, as devices are told them.

        Raises
        ------
        NotFound
            There is none, or it is a draft: nobody is told yet.
        """
        return self._terms_of(id).encode()

    def progress(self, id: str) -> Progress:
        """Where a collection stands, at most a moment ago.

        Raises
        ------
        NotFound
            There is none.
        """
        return self._board.of(id)

    def announcement(self, id: str, number: int) -> bytes:
        """What a round asks, as devices are told it.

        Raises
        ------
        NotFound
            There is no such round.
        """
        query = select(rounds.c.announcement).where(rounds.c.collection == id, rounds.c.number == number)
        with self._store.read() as connection:
            found = connection.execute(query).scalar_one_or_none()
        if found is None:
            raise NotFound("there is no such round")
        return bytes(found)

    async def join(self, id: str, device: int) -> None:
        """Let a device take part in a distributed collection; once more changes nothing.

        Raises
        ------
        NotFound, Conflict, TooLate
            There is none, it wants reports, or nobody may join any more.
        """
        terms = await self._terms_for(id)
        if terms.trust != "distributed":
            raise Conflict("this collection is of reports", "a report")
        take = partial(take_members, identifier=id, wanted=terms.devices)
        kept = await self._intake.put(("join", id), device, take)
        if kept is Kept.FULL:
            raise TooLate("as many devices as are wanted have joined")
        if kept is Kept.LATE:
            raise TooLate("the collection takes no more devices")

    async def report(self, id: str, device: int, body: bytes) -> None:
        """Take a device's report; the same once more changes nothing.

        Raises
        ------
        NotFound, Conflict, TooLate, Invalid
            There is none, another report was sent before, the collection is over, or it is no report of it.
        """
        terms = await self._terms_for(id)
        if terms.trust == "distributed":
            raise Conflict("this collection is of rounds", "a message of a round")
        check = self._checks.get(id)
        if check is None:
            check = await asyncio.to_thread(self._make_check, id, terms)
        check(body)
        kept = await self._intake.put(
            ("report", id), Report(device, body), partial(take_reports, identifier=id)
        )
        if kept is Kept.CONFLICT:
            raise Conflict("another report of this device is there; one is accepted")
        if kept is Kept.LATE:
            raise TooLate("the collection takes no more reports")

    def seat(self, id: str, number: int, device: int) -> Seat:
        """Where a device takes part in a round.

        Raises
        ------
        NotFound, TooLate
            There is no such round, it does not ask this device, or it is over.
        """
        return self._seated(self._round(id, number), device)

    def mail(self, id: str, number: int, device: int) -> Mail:
        """What a device is sent in the phase that a round is in. May rebuild the machine: not for an event loop.

        Raises
        ------
        NotFound, TooLate
            As :meth:`seat`.
        """
        held = self._round(id, number)
        seat = self._seated(held, device)
        now = self._board.of(id)
        if now.state != State.RUNNING or now.round != number or now.phase is None:
            now = self._board.read(id)
        phase = None if now.phase is None else phase_named(now.phase)
        if now.state != State.RUNNING or now.round != number or phase is None:
            raise TooLate("the round is over")
        machine = held.machines[seat.shard]
        with machine.lock:
            self._bring_up(machine, phase)
            body = machine.mail(phase, seat.client)
        return Mail(now.phase or "", body)

    async def message(self, id: str, number: int, phase_name: str, device: int, body: bytes) -> None:
        """Take a device's message of a phase; the same once more changes nothing.

        Raises
        ------
        NotFound, Conflict, TooLate, Invalid
            There is no such round or phase, another message was sent before, the phase is over, or the protocol
            refuses it.
        """
        phase = phase_named(phase_name)
        if phase is None:
            raise NotFound("there is no such phase")
        held = self._machines.held(id, number)
        if held is None:
            held = await asyncio.to_thread(self._round, id, number)
        seat = self._seated(held, device)
        message = Message(seat.shard, seat.client, bytes(body))
        now = self._board.fresh(id)
        if now is None:
            now = await asyncio.to_thread(self._board.of, id)
        if not _is_at(now, number, phase):
            now = await asyncio.to_thread(self._board.read, id)
        if not _is_at(now, number, phase):
            if now.state == State.RUNNING and now.round == number and _comes(now, phase):
                raise Conflict(f"the round is collecting {now.phase}", "a message of that phase")
            await self._settle_late(id, number, phase, message)
            return
        machine = held.machines[seat.shard]
        if len(body) <= _INLINE_BYTES and machine.lock.acquire(blocking=False):
            try:
                ready = machine.server.state is phase
                if ready:
                    self._check(machine, seat, body)
            finally:
                machine.lock.release()
        else:
            ready = False
        if not ready and not await asyncio.to_thread(self._check_slowly, machine, phase, seat, body):
            await self._settle_late(id, number, phase, message)
            return
        take = partial(take_messages, identifier=id, number=number, phase=phase)
        kept = await self._intake.put(("message", id, number, phase), message, take)
        _raise_unless_kept(kept)

    # Results

    def map(self, id: str) -> DensityMap:
        """The finished map of a collection.

        Raises
        ------
        NotFound
            There is none.
        """
        with self._lock:
            if id in self._maps:
                self._maps.move_to_end(id)
                return self._maps[id]
        with self._store.read() as connection:
            data = stored_map(connection, id)
        heat = read_map_bytes(data)
        with self._lock:
            self._maps[id] = heat
            while len(self._maps) > _MAPS:
                self._maps.popitem(last=False)
        return heat

    def guarantee(self, id: str) -> dict[str, Any]:
        """The guarantee of a finished map, as its record.

        Raises
        ------
        NotFound
            There is none.
        """
        with self._store.read() as connection:
            return stored_guarantee(connection, id)

    # The conductor

    async def run(self) -> None:
        """Take whatever steps are due, until :meth:`stop`. A store that fails is asked again."""
        self._stopping = False
        while not self._stopping:
            await asyncio.to_thread(self.tick)
            await asyncio.sleep(_TICK_SECONDS)

    def stop(self) -> None:
        """Let :meth:`run` end after the step it is taking."""
        self._stopping = True

    def tick(self) -> None:
        """Take every step that is due now."""
        try:
            self._conductor.tick()
        except StoreUnavailable:
            return
        self._ticked = time.monotonic()

    @property
    def idle_seconds(self) -> float:
        """Seconds since steps were last looked for with success; infinite before."""
        return time.monotonic() - self._ticked

    # Its own

    def _found(self, id: str) -> Collection:
        with self._store.read() as connection:
            return find(connection, id)

    def _terms_of(self, id: str) -> CollectionTerms:
        kept = self._terms.get(id)
        if kept is not None:
            return kept
        found = self._found(id)
        if found.state is State.DRAFT:
            raise NotFound("there is no such collection")
        with self._lock:
            self._terms[id] = found.terms
            while len(self._terms) > _TERMS:
                self._terms.popitem(last=False)
        return found.terms

    async def _terms_for(self, id: str) -> CollectionTerms:
        kept = self._terms.get(id)
        return kept if kept is not None else await asyncio.to_thread(self._terms_of, id)

    def _make_check(self, id: str, terms: CollectionTerms) -> Callable[[bytes], None]:
        made = report_check(terms)
        with self._lock:
            self._checks[id] = made
            while len(self._checks) > _MAPS:
                self._checks.popitem(last=False)
        return made

    def _round(self, id: str, number: int) -> RoundMachines:
        held = self._machines.of(id, number)
        if held is not None:
            return held
        self.announcement(id, number)
        raise TooLate("the round is over")

    @staticmethod
    def _seated(held: RoundMachines, device: int) -> Seat:
        seat = held.seat(device)
        if seat is None:
            raise NotFound("this device is not asked in this round")
        return seat

    @staticmethod
    def _bring_up(machine: ShardMachine, phase: ServerState) -> None:
        try:
            machine.bring_up(phase)
        except ProtocolError:
            raise TooLate("the round cannot be finished") from None

    @staticmethod
    def _check(machine: ShardMachine, seat: Seat, body: bytes) -> None:
        try:
            machine.server.check(seat.client, body)
        except PeerFault as fault:
            raise Invalid(str(fault)) from None

    def _check_slowly(self, machine: ShardMachine, phase: ServerState, seat: Seat, body: bytes) -> bool:
        """Check a message, whatever must be waited for; False where the phase is over."""
        with machine.lock:
            self._bring_up(machine, phase)
            if machine.server.state is not phase:
                return False
            self._check(machine, seat, body)
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
        raise Conflict("another message of this device is there; one is accepted")
    if kept is Kept.LATE:
        raise TooLate("the phase is over")
