"""The conductor: whatever is due for a collection is decided here, one durable step after another.

What is heavy, the shards of a phase that ends and the map, it orders of the workers. A step reads where the
collection stands, works outside any transaction, and commits once. Another process on the same store may take the same
step at the same time: each commit is guarded by where the collection stood, so that one of them changes nothing.
"""

import contextlib
import logging
import math
import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from sqlalchemy import select

from mapveil.collector.operators.leader import Leader
from mapveil.collector.operators.peer import PeerUnavailable
from mapveil.collector.operators.task_records import is_helped
from mapveil.collector.refusals import Conflict, Refusal, StoreUnavailable, where_raised
from mapveil.collector.roles import Loop
from mapveil.collector.rounds import plan_replay, retention, secure_rounds
from mapveil.collector.rounds.collection import (
    MOST_REASON,
    Collection,
    Round,
    abort,
    asked_devices,
    charge_reports,
    counted,
    find,
    listed,
    move,
    newest_round,
    present,
)
from mapveil.collector.rounds.life_cycle import ACTIVE, Happening, State
from mapveil.collector.rounds.progress import COUNTED_PART, Deadlines, Progress, ProgressBoard, progress_of
from mapveil.collector.rounds.restoration import restored_meanwhile
from mapveil.collector.rounds.shard_ends import Lines, ShardEnd, close_round
from mapveil.collector.rounds.shard_machines import ShardMachines
from mapveil.collector.store import audit_log as audit
from mapveil.collector.store.database import Store, lock_collection
from mapveil.collector.store.heartbeats import BEAT_SECONDS, send_heartbeat
from mapveil.collector.store.schema import reports, rounds
from mapveil.collector.store.work_queue import Task, Work, is_ordered, order, results, unfinished
from mapveil.trust.queries import Query
from mapveil_client.announcement import RoundAnnouncement
from mapveil_client.errors import MapveilError
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.states import Abort, phase_name

_LOG: Final = logging.getLogger(__name__)
_REST_SECONDS: Final = 5.0  # after a step that failed for no reason of the collection's own
_BLOCKED_SECONDS: Final = (
    60.0  # after one that waited for the store in vain, and all other collections with it
)
_RETENTION_SECONDS: Final = 60.0  # between looks for collections that are kept in days

LANES: Final = (Loop.CONDUCT, Loop.LEAD)
"""Loops of which one process at a time takes the steps, one after another; the value of each names its role."""


class Conductor:
    """Takes the steps that are due; ``rng`` draws shards, graphs and the names of rounds.

    Attributes
    ----------
    on_phase : callable, optional
        Called with every phase that was closed: its name, and the seconds from its opening to that of the next.
    on_step : callable, optional
        Called with its lane whenever a step was taken, or none was due.
    steps : int
        Taken so far.
    """

    def __init__(
        self,
        store: Store,
        deadlines: Deadlines,
        machines: ShardMachines,
        board: ProgressBoard,
        rng: Randomness,
        leader: Leader | None = None,
        keep_days: int = 0,
    ) -> None:
        self._store, self._deadlines, self._machines = store, deadlines, machines
        self._board, self._rng, self._leader = board, rng, leader
        self._keep_days = keep_days
        self._unretired: set[str] = set()
        self._taking = {lane: threading.Lock() for lane in LANES}
        self._beat_at = dict.fromkeys(LANES, -math.inf)
        self._resting: dict[str, float] = {}
        self._count_at: dict[str, float] = {}  # seconds of the store's clock
        self._active: frozenset[str] = frozenset()
        self.steps = 0
        self.on_phase: Callable[[str, float], None] | None = None
        self.on_step: Callable[[Loop], None] | None = None

    def tick(self) -> bool:
        """Take every step of a round that is due for any collection; False where another process is the conductor."""
        return self._take(Loop.CONDUCT)

    def lead(self) -> bool:
        """Take every step that is due together with the helper; as :meth:`tick`."""
        return self._leader is None or self._take(Loop.LEAD)

    def _take(self, lane: Loop) -> bool:
        with self._taking[lane], self._store.sole(lane.value) as mine:
            if mine:
                with self._store.read() as connection:
                    active = listed(connection, ACTIVE)
                self._forget_ended(frozenset(each.id for each in active))
                blocked: list[StoreUnavailable] = []
                own = [each for each in active if self._lane(each) is lane]
                if not own:
                    self._beat(lane)
                for collection in own:
                    steps = partial(self._steps, collection.id, lane)
                    if self._store.remain(lane.value) and self._guarded(collection.id, steps, blocked):
                        self._beat(lane)
                if lane is Loop.LEAD and self._leader is not None:
                    self._guarded("ends", self._leader.end_all, blocked)
                if lane is Loop.CONDUCT and self._keep_days:
                    self._guarded("retention", self._retire, blocked)
                if blocked:  # others went on; that this one cannot must be seen
                    raise blocked[0]
        return mine

    def _beat(self, lane: Loop) -> None:
        """Send a heartbeat where one is due, and this process is still the only one that takes the steps of a lane.

        Called where the store was read or a step was taken, not where every step fails. One that cannot be sent is
        tried again after the next step.
        """
        if self.on_step is not None:
            self.on_step(lane)
        now = self._store.clock.monotonic()
        if now >= self._beat_at[lane] and self._store.remain(lane.value):
            with contextlib.suppress(StoreUnavailable):
                send_heartbeat(self._store, lane.value)
                self._beat_at[lane] = now + BEAT_SECONDS

    def _retire(self) -> None:
        """Order that who took part in one collection of long ago is deleted."""
        self._resting["retention"] = self._store.clock.monotonic() + _RETENTION_SECONDS
        due = (each for each in retention.due(self._store, self._keep_days) if each not in self._unretired)
        identifier = next(due, None)
        if identifier is not None and (problems := retention.begin(self._store, identifier)):
            self._unretired.add(identifier)
            _LOG.error("collection %s keeps its devices: %s", identifier, "; ".join(problems))

    def _lane(self, collection: Collection) -> Loop:
        """The lane of a collection's next step."""
        helped = self._leader is not None and collection.terms.trust == "operators"
        return Loop.LEAD if helped and collection.state is not State.FINISHING else Loop.CONDUCT

    def _forget_ended(self, active: frozenset[str]) -> None:
        """Drop what this process holds of collections that another process, or its own worker, has ended."""
        for identifier in self._active - active:
            self.forget(identifier)
        self._active = active

    def _steps(self, identifier: str, lane: Loop) -> None:
        while self.step(identifier) and self._store.remain(lane.value):
            self._beat(lane)
            with self._store.read() as connection:
                collection = find(connection, identifier)
            # A step of a collection that has ended forgets what this process holds of it.
            if collection.state in ACTIVE and self._lane(collection) is not lane:
                return

    def _guarded(self, name: str, act: Callable[[], None], blocked: list[StoreUnavailable]) -> bool:
        """Do what is due for one collection, and let no failure of it stop the others; False where this process fails.

        That another process was faster, or the peer does not answer, is no failure of this one. Where the store can be
        read but not this collection's rows, which somebody may lock, the failure is added to ``blocked``.
        """
        now = self._store.clock.monotonic()
        if self._resting.get(name, now) > now:
            return False
        try:
            act()
        except StoreUnavailable as error:
            with self._store.read() as connection:
                connection.execute(select(1))
            _LOG.warning("collection %s waits for the store: %s", name, error)
            self._resting[name] = self._store.clock.monotonic() + _BLOCKED_SECONDS
            blocked.append(error)
            return False
        except Conflict as error:
            _LOG.info("collection %s: %s", name, error)
        except PeerUnavailable as error:
            _LOG.warning("collection %s waits: %s", name, error)
            self._resting[name] = now + _REST_SECONDS
        except Exception as error:
            # An internal fault: logged without its text, which could quote what was worked on, and tried again.
            _LOG.error("collection %s: %s", name, where_raised(error))
            self._resting[name] = now + _REST_SECONDS
            return False
        return True

    def step(self, identifier: str) -> bool:
        """Take the next step of a collection, in at most one commit; False where none is due."""
        with self._store.read() as connection:
            collection = find(connection, identifier)
        acts = {State.OPEN: self._wait, State.RUNNING: self._run, State.FINISHING: self._finish}
        if collection.state not in acts:
            self.forget(identifier)
            return False
        return self._attempt(collection, acts[collection.state])

    def _attempt(self, collection: Collection, act: Callable[[Collection], bool]) -> bool:
        """Take a step of a collection; end it where the step is impossible."""
        try:
            done = act(collection)
        except Refusal:
            raise
        except MapveilError as error:
            done = self.end(collection, str(error))
        if done:
            self.steps += 1
            self._board.forget(collection.id)
        return done

    def begin(self, identifier: str, actor: str) -> None:
        """Stop waiting for more devices. Run by: an operator."""
        with self._store.read() as connection:
            collection = find(connection, identifier)
            there = present(connection, collection)
        if collection.state is not State.OPEN:
            raise Conflict(f"the collection is {collection.state.value}", "one that is open")
        if there < collection.terms.minimum:
            raise Conflict(f"{there} devices are there; {collection.terms.minimum} are promised at least")
        with self._store.write() as connection:
            audit.record(connection, actor, "collection.begin", identifier, present=there)
        self._attempt(collection, self._begin)

    def _wait(self, collection: Collection) -> bool:
        """An open collection: begin as soon as enough are there, or the time is over."""
        there = self._counted(collection)
        if there is None or not there.due:
            return self._leads(collection) and self._led.wait(collection)
        if there.present < collection.terms.minimum:
            what = "joined" if collection.terms.trust == "distributed" else "reported"
            return self.end(
                collection,
                f"{there.present} devices {what} in time; {collection.terms.minimum} are promised at least",
            )
        return self._begin(collection)

    def _begin(self, collection: Collection) -> bool:
        if collection.terms.trust == "distributed":
            return self._start_round(collection, 1)
        if collection.terms.trust == "operators":
            with self._store.write() as connection:
                return move(connection, collection.id, Happening.JOINED, "service") is not None
        with self._store.write() as connection:
            lock_collection(connection, collection.id)  # first: on PostgreSQL a report may come in until then
            count = counted(connection, collection.id, reports)
            if move(connection, collection.id, Happening.REPORTED, "service", reports=count) is None:
                return False
            charge_reports(connection, collection)
        return True

    def _start_round(self, collection: Collection, number: int) -> bool:
        """Start the round that the plan asks for, or go on to the map where it asks for none."""
        with self._store.read() as connection:
            asked = asked_devices(connection, collection.id, number)
        wanted = plan_replay.next_step(self._store, collection.terms, asked.size)
        if not isinstance(wanted, Query):
            with self._store.write() as connection:
                return move(connection, collection.id, Happening.SUMMED, "service") is not None
        rng = self._rng.child(f"{collection.id} round {number}")
        try:
            drawn = secure_rounds.draw_round(collection.terms, wanted, number, asked, rng)
        except Abort as error:
            barred = "devices were revoked or put in quarantine since they joined"
            return self._abort(collection, error, barred if number == 1 else _longer_phases(collection))
        with self._store.write() as connection:
            return secure_rounds.start_round(connection, collection.id, drawn)

    def _run(self, collection: Collection) -> bool:
        """A running collection: the next step of its newest round, or of its two operators."""
        if collection.terms.trust == "operators":
            return self._leads(collection) and self._led.step(collection)
        with self._store.read() as connection:
            newest = newest_round(connection, collection.id)
        if newest is None:
            raise AssertionError("a collection runs from its first round on")
        if newest.over:
            self._machines.forget(collection.id)
            return self._start_round(collection, newest.number + 1)
        if newest.open:
            there = self._counted(collection)
            if there is None or not there.due:
                return False
            with self._store.write() as connection:
                return secure_rounds.shut_phase(connection, collection.id, newest.number, newest.phase)
        return self._close(collection, newest)

    def _counted(self, collection: Collection) -> Progress | None:
        """Where a collection stands; None where what came was counted so lately that counting would not end."""
        clock = self._store.clock
        began = clock.monotonic()
        if began < self._count_at.get(collection.id, -math.inf):
            return None
        with self._store.read() as connection:
            found = progress_of(connection, collection, self._deadlines)
        ended = clock.monotonic()
        rest = COUNTED_PART * (ended - began)
        if found.closes_in_s is not None:  # however long this one took: a phase ends in its time
            rest = min(rest, found.closes_in_s)
        self._count_at[collection.id] = ended + rest
        return found

    def _leads(self, collection: Collection) -> bool:
        """Whether the collection is one of two operators that this service leads: the helper's part is asked for."""
        if collection.terms.trust != "operators":
            return False
        with self._store.read() as connection:
            return not is_helped(connection, collection.id)

    @property
    def _led(self) -> Leader:
        if self._leader is None:
            raise PeerUnavailable("this service was started without --operator leader and --peer")
        return self._leader

    def _close(self, collection: Collection, newest: Round) -> bool:
        """Put the results of a phase's shards together, once all are there."""
        number, phase = newest.number, newest.phase
        with self._store.read() as connection:
            waited_for = unfinished(connection, collection.id, number, phase.value)
        if waited_for is None:  # shut by a Mapveil that ordered nothing
            with self._store.write() as connection:
                return secure_rounds.shut_phase(connection, collection.id, number, phase)
        if waited_for:
            return False
        terms = collection.terms
        here = rounds.c.collection == collection.id, rounds.c.number == number
        with self._store.read() as connection:
            written = connection.execute(select(rounds.c.announcement).where(*here)).scalar_one()
            announced = RoundAnnouncement.decode(written)
            ends = map(ShardEnd.decode, results(connection, collection.id, number, phase.value))
            closed = close_round(announced, phase, ends)
        try:
            with self._store.write() as connection:
                moved = secure_rounds.restart(connection, collection.id, number, phase, closed)
                moved = moved or secure_rounds.open_next(connection, terms, announced, phase, closed)
        except Abort as error:
            return self._abort(collection, error, _longer_phases(collection), closed.lines)
        if not moved:  # another process was faster, and may have ended the messages
            self._machines.forget(collection.id)
        if moved:
            _LOG.info("collection %s round %d: %s are in", collection.id, number, phase_name(phase))
            if self.on_phase is not None:
                lasted = (self._store.clock.now() - newest.phase_at).total_seconds()
                self.on_phase(phase_name(phase), max(0.0, lasted))
        return moved

    def _finish(self, collection: Collection) -> bool:
        """Everything is in: order the map."""
        wanted = Work(Task.MAP, collection.id)
        with self._store.read() as connection:
            if is_ordered(connection, wanted):
                return False
        with self._store.write() as connection:
            if lock_collection(connection, collection.id) == State.FINISHING:
                order(connection, [wanted])
        return True

    def _abort(self, collection: Collection, error: Abort, hint: str, lines: Lines = ()) -> bool:
        """Abort a collection of which too few devices are left, with a hint why."""
        with self._store.read() as connection:
            if restored_meanwhile(connection, collection.id):
                hint = "the store was restored from a backup, which may lack what devices had sent"
        return self.end(collection, f"{error}; {hint}", lines)

    def end(self, collection: Collection, reason: str, lines: Lines = ()) -> bool:
        """Abort a collection that cannot go on, unless it has gone on."""
        text = "".join(letter if letter.isprintable() else " " for letter in reason)[:MOST_REASON]
        with self._store.write() as connection:
            reason = text or "no reason was given"
            ended = abort(connection, collection.id, "service", reason, only_in=collection.state)
            if ended:
                secure_rounds.record_lines(connection, collection.id, lines)
        return ended

    def forget(self, identifier: str) -> None:
        """Drop what this process holds of a collection."""
        self._machines.forget(identifier)
        self._deadlines.forget(identifier)
        self._board.forget(identifier)
        self._count_at.pop(identifier, None)


def _longer_phases(collection: Collection) -> str:
    return f"devices had {collection.phase_seconds} s, a longer phase_seconds gives them more"
