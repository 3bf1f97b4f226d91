"""The engine: the collector without HTTP, as operators use it; devices use its :class:`DeviceService`.

Every method may be called from any thread. Whatever is acknowledged was committed; whatever is held in memory can be
dropped at any moment.
"""

import secrets
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from sqlalchemy import select
from sqlalchemy.engine import Connection

from mapveil.collector.clock import Clock, time_text
from mapveil.collector.operators.helper import Helper
from mapveil.collector.operators.leader import Leader
from mapveil.collector.operators.peer import PeerUnavailable
from mapveil.collector.operators.task_records import account_of, begin_task
from mapveil.collector.refusals import Conflict
from mapveil.collector.rounds import collection as records
from mapveil.collector.rounds.charge_table import abort_rows
from mapveil.collector.rounds.collection import Collection, find, listed, move, present, rounds_of, terms_of
from mapveil.collector.rounds.conductor import Conductor
from mapveil.collector.rounds.device_service import DeviceService
from mapveil.collector.rounds.export_process import Made
from mapveil.collector.rounds.forecast import Forecast, forecast
from mapveil.collector.rounds.life_cycle import ACTIVE, Happening, State
from mapveil.collector.rounds.loops import Loops
from mapveil.collector.rounds.progress import Deadlines, Progress, ProgressBoard, progress_of
from mapveil.collector.rounds.results import guarantee_of, stored_guarantee, stored_map
from mapveil.collector.rounds.shard_machines import ShardMachines
from mapveil.collector.rounds.specification import (
    CollectionSpec,
    PendingCollection,
    Trust,
    read_specification,
)
from mapveil.collector.rounds.worker import Worker, export_file
from mapveil.collector.store import audit_log
from mapveil.collector.store.audit_log import AuditLine
from mapveil.collector.store.database import Store
from mapveil.collector.store.export_files import ExportFiles
from mapveil.collector.store.schema import charges, collections
from mapveil.collector.store.work_queue import LEASE_SECONDS, Task, Work, failure, finish, is_ordered, order
from mapveil.maps.density_map import DensityMap
from mapveil.privacy.guarantee import Guarantee
from mapveil.secure_sum.enrolment_authority import EnrolmentAuthority
from mapveil.two_operators.aggregation import LEADER
from mapveil_client.announcement import RoundAnnouncement
from mapveil_client.errors import InputError, PromiseError
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.certificate import Authority
from mapveil_client.secure_sum.states import ServerState, phase_name


class Engine:
    """The collector behind its API.

    Parameters
    ----------
    store : Store
        With its tables created.
    clock : Clock
        For deadlines.
    rng : Randomness, optional
        Draws shards and graphs; the operating system's by default, and in every release.
    authority : Authority or EnrolmentAuthority, optional
        The enrolment authority of active secure sums: one apart from this collector, or its own. Without one,
        collections of active sums are refused.

    leader, helper : Leader and Helper, optional
        This service's part in sums by two operators. Without a leader such collections are refused; a helper answers
        another service.
    lease_seconds : int
        Time after which another worker may take work whose worker was killed.
    exports : ExportFiles, optional
        Files of maps; by default in a temporary folder of this process.
    keep_days : int
        Days after a collection's end for which the rows of who took part are kept; 0 sets no limit.

    Attributes
    ----------
    devices : DeviceService
        Answers devices.
    loops : Loops
        Take whatever steps are due.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        rng: Randomness | None = None,
        *,
        authority: Authority | EnrolmentAuthority | None = None,
        leader: Leader | None = None,
        helper: Helper | None = None,
        lease_seconds: int = LEASE_SECONDS,
        exports: ExportFiles | None = None,
        keep_days: int = 0,
    ) -> None:
        self._store, self.authority, self._leader, self.helper = store, authority, leader, helper
        self._deadlines = Deadlines(clock)
        self._machines = ShardMachines(store)
        self._board = ProgressBoard(store, self._deadlines)
        self.devices = DeviceService(store, self._machines, self._board)
        self._conductor = Conductor(
            store, self._deadlines, self._machines, self._board, rng or Randomness(), leader, keep_days
        )
        self._exports = exports or ExportFiles()
        ends = self._conductor.end, self._conductor.forget
        worker = Worker(store, self._machines, *ends, lease_seconds, self._exports)
        self.loops = Loops(store, self._conductor, worker)

    # Operators

    def create(self, spec: CollectionSpec | Mapping[str, Any], actor: str) -> dict[str, Any]:
        """Create a pending collection: no device is asked yet."""
        made = self._terms_of(spec)
        with self._store.write() as connection:
            records.create(connection, made, actor)
            if made.terms.trust == "operators":
                begin_task(connection, made.terms.identifier, LEADER)
        return self.collection(made.terms.identifier)

    def forecast(self, spec: CollectionSpec) -> Forecast:
        """The expected error and traffic of a specified collection, which is not created. CPU-heavy."""
        try:
            return forecast(self._terms_of(spec).terms)
        except (InputError, PromiseError, PeerUnavailable) as error:
            return Forecast.refusal(str(error))

    @property
    def trusts(self) -> tuple[Trust, ...]:
        """Trust models that new collections can have here, the recommended one first."""
        others: tuple[Trust, ...] = ("distributed", "local", "random-features")
        return others if self._leader is None else ("operators", *others)

    def _terms_of(self, spec: CollectionSpec | Mapping[str, Any]) -> PendingCollection:
        operators = None if self._leader is None else self._leader.operators
        made = read_specification(spec, secrets.token_hex(16), self.authority, operators)
        if self._leader is not None and made.terms.trust == "operators":
            self._leader.check(made.terms)
        return made

    def open(self, id: str, actor: str) -> dict[str, Any]:
        """Offer a pending collection to devices."""
        with self._store.read() as connection:
            terms = find(connection, id).terms
        if terms.trust == "operators":
            if self._leader is None:
                raise Conflict(
                    "the helper cannot be told", "a service started with --operator leader and --peer"
                )
            self._leader.begin(terms)
        with self._store.write() as connection:
            if move(connection, id, Happening.OPENED, actor) is None:
                raise Conflict(f"the collection is {find(connection, id).state.value}", "a pending one")
        self._board.forget(id)
        return self.collection(id)

    def begin(self, id: str, actor: str) -> dict[str, Any]:
        """Stop waiting for more devices, now that the minimum is there."""
        self._conductor.begin(id, actor)
        return self.collection(id)

    def abort(self, id: str, actor: str, reason: str) -> dict[str, Any]:
        """End a collection without a map; what was charged stays charged."""
        with self._store.write() as connection:
            records.abort(connection, id, actor, reason)
        self._conductor.forget(id)
        return self.collection(id)

    def let_go(self) -> None:
        """Drop what this process holds of collections that another process ended. Run by: one that answers devices."""
        held = self._machines.collections | self._board.collections
        with self._store.read() as connection:
            active = {each.id for each in listed(connection, ACTIVE)}
        for id in held - active:
            self._conductor.forget(id)

    def collections(self) -> list[dict[str, Any]]:
        """The record of every collection, the newest first."""
        with self._store.read() as connection:
            return [
                _record(connection, each, progress_of(connection, each, self._deadlines))
                for each in listed(connection)
            ]

    def collection(self, id: str) -> dict[str, Any]:
        """The record of a collection."""
        with self._store.read() as connection:
            found = find(connection, id)
            return _record(connection, found, progress_of(connection, found, self._deadlines))

    def ledger(self) -> list[dict[str, Any]]:
        """Lines of the ledger, the newest first."""
        with self._store.read() as connection:
            return _ledger(connection)

    def account(self, id: str) -> dict[str, Any]:
        """This operator's own account of a collection by two operators, for everybody to read."""
        with self._store.read() as connection:
            found = find(connection, id)
            return {"collection": id, "terms": found.terms.digest.hex()} | account_of(connection, id)

    def audit(self, after: int, limit: int, collection: str | None = None) -> list[AuditLine]:
        """Lines of the audit log with numbers above ``after``, in order."""
        with self._store.read() as connection:
            return audit_log.lines(connection, after=after, limit=limit, collection=collection)

    # Results

    def map(self, id: str) -> DensityMap:
        """Read the finished map of a collection from the store."""
        with self._store.read() as connection:
            found = stored_map(connection, id)
        return found.decode()

    def guarantee(self, id: str) -> Guarantee:
        """The guarantee of a finished map."""
        with self._store.read() as connection:
            return stored_guarantee(connection, id)

    def export(self, id: str, form: str, charge: Callable[[], None] = lambda: None) -> int | None:
        """Bytes of a finished map's file, which is ordered where it is not there; None until it is made.

        ``charge`` is called before it is ordered, and may refuse.

        Raises
        ------
        Refusal
            It cannot be made.
        """
        with self._store.read() as connection:
            stored_guarantee(connection, id)  # there is a map
        wanted = Work(Task.EXPORT, id, name=form, place=self._exports.place)
        size = self._exports.size(export_file(wanted))
        if size is not None:
            return size
        with self._store.read() as connection:
            ordered, failed = is_ordered(connection, wanted), failure(connection, wanted)
        if failed is not None:
            with self._store.write() as connection:
                finish(connection, wanted)  # whoever asks again orders it again
            raise Made.decode(failed).refusal
        if not ordered:
            charge()
            with self._store.write() as connection:
                order(connection, [wanted])
        return None

    def exported(self, id: str, form: str) -> Iterator[bytes]:
        """Content of a file that was made, in chunks."""
        return self._exports.read(export_file(Work(Task.EXPORT, id, name=form)))

    # Steps

    def observe_phases(self, observer: Callable[[str, float], None]) -> None:
        """Call ``observer`` with every phase that this process closes: its name, and its seconds."""
        self._conductor.on_phase = observer

    def tick(self) -> None:
        """Take every step that is due now, one after another."""
        self.loops.tick()


def _record(connection: Connection, collection: Collection, progress: Progress) -> dict[str, Any]:
    """A collection as operators see it: JSON-ready."""
    terms = collection.terms
    charged = select(charges.c.epsilon).where(charges.c.collection == collection.id)
    spent = sum((Fraction(each) for each in connection.execute(charged).scalars()), Fraction(0))
    there = present(connection, collection)
    return {
        "id": collection.id,
        "title": terms.title,
        "state": collection.state.value,
        "trust": terms.trust,
        "method": terms.method,
        "epsilon": None if terms.epsilon is None else str(terms.epsilon),
        "options": dict(terms.options),
        "tiling": terms.cells.spec,
        "region": list(terms.cells.region.bbox),
        "devices": terms.devices,
        "minimum": terms.minimum,
        "active": terms.active,
        "authority": None if terms.authority is None else str(terms.authority),
        "guarantee": guarantee_of(terms).to_dict(),
        "join_seconds": collection.join_seconds,
        "phase_seconds": collection.phase_seconds,
        "created_at": time_text(collection.created_at),
        "opened_at": None if collection.opened_at is None else time_text(collection.opened_at),
        "ended_at": None if collection.ended_at is None else time_text(collection.ended_at),
        "reason": collection.reason,
        "terms": terms.digest.hex(),
        "members": there if terms.trust == "distributed" else 0,
        "reports": 0 if terms.trust == "distributed" else there,
        "progress": vars(progress),
        "rounds": [_round(row, collection.state) for row in rounds_of(connection, collection.id)],
        "spent": str(spent),
        "abort_charges": abort_rows(terms, collection.state, progress.phase),
        "result": collection.state is State.DONE,
    }


def _round(row: Any, state: State) -> dict[str, Any]:
    announced, phase = RoundAnnouncement.decode(row.announcement), ServerState(row.phase)
    over = {ServerState.DONE: "done", ServerState.ABORTED: "restarted"}
    if phase in over:
        stands = over[phase]
    elif state is not State.RUNNING:
        stands = "aborted"
    else:
        stands = "open" if row.open else "closing"
    return {
        "number": row.number,
        "purpose": announced.purpose,
        "epsilon": str(announced.epsilon),
        "length": announced.length,
        "bits": announced.bits,
        "asked": sum(announced.sizes),
        "included": row.included,
        "shards": len(announced.sizes),
        "left_out": row.left_out,
        "phase": None if phase in over else phase_name(phase),
        "state": stands,
    }


def _ledger(connection: Connection) -> list[dict[str, Any]]:
    """Epsilon that every collection charged each of its devices, the newest first."""
    query = (
        select(charges, collections.c.terms)
        .join_from(charges, collections, charges.c.collection == collections.c.id)
        .order_by(charges.c.at.desc(), charges.c.collection, charges.c.number.desc())
    )
    return [
        {
            "collection": row.collection,
            "title": terms_of(row.terms).title,
            "trust": terms_of(row.terms).trust,
            "number": row.number,
            "purpose": row.purpose,
            "epsilon": row.epsilon,
            "devices": row.devices,
            "at": row.at,
        }
        for row in connection.execute(query)
    ]
