"""Tasks in the store: an operator's sums, the reports that it knows, its jobs and its answers.

Whatever one operator tells the other is in the store before it leaves, so that it is told once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from sqlalchemy import delete, func, insert, select, union_all, update
from sqlalchemy.engine import Connection

from mapveil.collector.operators.peer_messages import AskedQuery, Reason
from mapveil.collector.operators.task import Answered, Job, Task
from mapveil.collector.refusals import Conflict, NotFound
from mapveil.collector.rounds.collection import charge, now_text
from mapveil.collector.rounds.intake import Kept, Report, keep_reports
from mapveil.collector.rounds.life_cycle import State
from mapveil.collector.store import audit_log as audit
from mapveil.collector.store.database import Store, lock_collection
from mapveil.collector.store.schema import answers, collections, ended_tasks, jobs, report_ids, reports, tasks
from mapveil.two_operators.aggregation import HELPER, Standing
from mapveil_client.two_operators.sealed_report import ID_BYTES

_AT_ONCE: Final = 500
_UNSENT: Final = 0
"""Number in place of a job of the reports that the leader could not read, of which the helper is not told."""


def begin_task(connection: Connection, identifier: str, operator: int) -> None:
    """Record which operator this service is in a collection."""
    fresh = {"operator": operator, "sums": b"", "accepted": 0, "refused": "{}", "at_helper": False}
    connection.execute(insert(tasks).values(collection=identifier, **fresh))


def find_task(connection: Connection, identifier: str) -> Task:
    """Read a task; raises NotFound where the collection is none of two operators."""
    row = connection.execute(select(tasks).where(tasks.c.collection == identifier)).first()
    if row is None:
        raise NotFound("there is no such task")
    return Task(row.operator, bytes(row.sums), row.accepted, json.loads(row.refused))


def is_helped(connection: Connection, identifier: str) -> bool:
    """Whether another service leads the collection."""
    found = connection.execute(select(tasks.c.operator).where(tasks.c.collection == identifier)).scalar()
    return found == HELPER


def tell_helper(connection: Connection, identifier: str, *, at_helper: bool) -> None:
    """Record whether the helper may hold a part of the collection. Run by: the leader."""
    connection.execute(update(tasks).where(tasks.c.collection == identifier).values(at_helper=at_helper))


def ended_at_leader(connection: Connection) -> dict[str, str]:
    """Collections that ended here without the helper's confirmation; why they were aborted, or nothing."""
    over = [state.value for state in (State.FINISHING, State.DONE, State.ABORTED)]
    query = (
        select(tasks.c.collection, collections.c.reason)
        .join(collections, collections.c.id == tasks.c.collection)
        .where(tasks.c.at_helper, collections.c.state.in_(over))
        .order_by(tasks.c.collection)
    )
    return {row.collection: row.reason or "" for row in connection.execute(query)}


def has_ended(connection: Connection, identifier: str) -> bool:
    """Whether a collection has ended here, or its end came before its terms. Run by: the helper."""
    over = collections.c.state.in_([State.DONE.value, State.ABORTED.value])
    known = select(collections.c.id).where(collections.c.id == identifier, over)
    unknown = select(ended_tasks.c.collection).where(ended_tasks.c.collection == identifier)
    return connection.execute(union_all(known, unknown)).first() is not None


def end_unknown(connection: Connection, identifier: str, reason: str) -> None:
    """Record the end of a collection whose terms are unknown: they are refused later. Run by: the helper."""
    if not has_ended(connection, identifier):
        connection.execute(insert(ended_tasks).values(collection=identifier, at=now_text(connection)))
        audit.record(connection, "leader", "task.end", identifier, reason=reason)


@contextmanager
def active(store: Store, identifier: str) -> Iterator[Connection]:
    """A transaction for writing, of a collection that has not ended; raises Conflict where it has."""
    with store.write() as connection:
        if lock_collection(connection, identifier) not in (State.OPEN, State.RUNNING):
            raise over(connection, identifier)
        yield connection


def over(connection: Connection, identifier: str) -> Conflict:
    """The refusal of a collection that has ended here, with the reason where it was aborted."""
    why = connection.execute(select(collections.c.reason).where(collections.c.id == identifier)).scalar()
    return Conflict("the collection is over at this operator" + (f": {why}" if why else ""))


def find_job(connection: Connection, identifier: str, number: int) -> Job | None:
    """Read a job; None where there is none of the number."""
    row = connection.execute(
        select(jobs).where(jobs.c.collection == identifier, jobs.c.number == number)
    ).first()
    return None if row is None else _job(row)


def unfinished_job(connection: Connection, identifier: str) -> Job | None:
    """The job that is under way; None where there is none."""
    query = select(jobs).where(jobs.c.collection == identifier, ~jobs.c.done).order_by(jobs.c.number)
    row = connection.execute(query).first()
    return None if row is None else _job(row)


def _job(row: Any) -> Job:
    return Job(row.number, bytes(row.request), bytes(row.reply), bytes(row.closing), row.done)


def next_number(connection: Connection, identifier: str) -> int:
    """The number of the next job."""
    newest = select(func.max(jobs.c.number)).where(jobs.c.collection == identifier)
    return int(connection.execute(newest).scalar() or 0) + 1


def waiting_reports(connection: Connection, identifier: str, most: int) -> list[bytes]:
    """Reports that are in no job yet, in the order of their ids, as they were uploaded. Run by: the leader."""
    return _bodies(connection, identifier, None, most)


def reports_of(connection: Connection, identifier: str, job: int) -> list[bytes]:
    """The reports of a job, in the order in which they were taken. Run by: the leader."""
    return _bodies(connection, identifier, job, -1)


def _bodies(connection: Connection, identifier: str, job: int | None, most: int) -> list[bytes]:
    chosen = select(report_ids.c.device).where(report_ids.c.collection == identifier, report_ids.c.job == job)
    in_order = chosen.order_by(report_ids.c.report)
    if most >= 0:
        in_order = in_order.limit(most)
    senders = connection.execute(in_order).scalars().all()
    # Not a join, for which PostgreSQL would read all reports of a collection whose rows it has not counted yet.
    sent = select(reports.c.device, reports.c.body).where(
        reports.c.collection == identifier, reports.c.device.in_(senders)
    )
    bodies = {row.device: bytes(row.body) for row in connection.execute(sent)}
    return [bodies[device] for device in senders if device in bodies]


def count_waiting(connection: Connection, identifier: str) -> int:
    """Reports that are in no job yet."""
    query = select(func.count()).select_from(report_ids)
    where = report_ids.c.collection == identifier, report_ids.c.job.is_(None)
    return int(connection.execute(query.where(*where)).scalar_one())


def known_reports(connection: Connection, identifier: str, ids: Sequence[bytes]) -> set[bytes]:
    """Those of the ids that are known. Run by: the helper."""
    found: set[bytes] = set()
    for first in range(0, len(ids), _AT_ONCE):
        query = select(report_ids.c.report).where(
            report_ids.c.collection == identifier, report_ids.c.report.in_(ids[first : first + _AT_ONCE])
        )
        found.update(bytes(each) for each in connection.execute(query).scalars())
    return found


def open_job(
    connection: Connection,
    identifier: str,
    number: int,
    request: bytes,
    ids: Iterable[bytes],
    reply: bytes = b"",
) -> None:
    """Record a job and the reports that it takes: those that the leader knows, or that are new to the helper."""
    row = {"number": number, "request": request, "reply": reply, "closing": b"", "done": False}
    connection.execute(insert(jobs).values(collection=identifier, **row))
    taken = list(ids)
    if not is_helped(connection, identifier):
        _take(connection, identifier, number, taken)
    elif taken:
        values = [{"collection": identifier, "report": each, "job": number} for each in taken]
        connection.execute(insert(report_ids), values)


def refuse_reports(
    connection: Connection, identifier: str, ids: Sequence[bytes], refused: Mapping[Reason, int]
) -> None:
    """Refuse reports before they are in any job: the helper is not told, and misses no number. Run by: the leader."""
    _take(connection, identifier, _UNSENT, ids)
    counts = _refused(connection, identifier, refused)
    connection.execute(update(tasks).where(tasks.c.collection == identifier).values(refused=counts))


def _take(connection: Connection, identifier: str, number: int, ids: Sequence[bytes]) -> None:
    for first in range(0, len(ids), _AT_ONCE):
        some = report_ids.c.report.in_(ids[first : first + _AT_ONCE])
        connection.execute(
            update(report_ids).where(report_ids.c.collection == identifier, some).values(job=number)
        )


def _refused(connection: Connection, identifier: str, more: Mapping[Reason, int]) -> str:
    """The reports that were refused by reason, and more, as the store holds them."""
    counts = Counter(find_task(connection, identifier).refused)
    counts.update({reason.words: count for reason, count in more.items()})
    return json.dumps(dict(sorted(counts.items())))


def close_job(
    connection: Connection,
    identifier: str,
    job: Job,
    standing: Standing,
    refused: Mapping[Reason, int],
    *,
    done: bool,
) -> None:
    """Add a job's sums, in the transaction that makes its closing durable.

    Parameters
    ----------
    job : Job
        With its reply and its closing.
    standing : Standing
        The operator's sums with those of the job.
    refused : mapping
        Reports of the job by reason.
    done : bool
        Whether the other operator knows: at the helper, or after it confirmed.
    """
    counts = _refused(connection, identifier, refused)
    values = {"sums": standing.sums, "accepted": standing.accepted, "refused": counts}
    connection.execute(update(tasks).where(tasks.c.collection == identifier).values(**values))
    _update_job(connection, identifier, job.number, reply=job.reply, closing=job.closing)
    if done:
        finish_job(connection, identifier, job.number)


def finish_job(connection: Connection, identifier: str, number: int) -> None:
    """Forget the messages of a job that both operators have added."""
    _update_job(connection, identifier, number, request=b"", reply=b"", done=True)


def _update_job(connection: Connection, identifier: str, number: int, **values: Any) -> None:
    connection.execute(
        update(jobs).where(jobs.c.collection == identifier, jobs.c.number == number).values(**values)
    )


def answers_of(connection: Connection, identifier: str) -> list[Answered]:
    """The answers so far, in order."""
    query = select(answers).where(answers.c.collection == identifier).order_by(answers.c.number)
    return [
        Answered(
            AskedQuery.decode(bytes(row.query)),
            bytes(row.share),
            None if row.total is None else bytes(row.total),
        )
        for row in connection.execute(query)
    ]


def keep_answer(
    connection: Connection, identifier: str, number: int, query: AskedQuery, share: bytes
) -> None:
    """Charge an answer and keep this operator's noisy share, before anybody is told."""
    charge(connection, identifier, number, query.purpose, query.epsilon)
    row = {"number": number, "query": query.encode(), "share": share}
    connection.execute(insert(answers).values(collection=identifier, **row))


def keep_total(connection: Connection, identifier: str, number: int, total: bytes) -> None:
    """Keep the noisy sums of both operators."""
    where = answers.c.collection == identifier, answers.c.number == number
    connection.execute(update(answers).where(*where).values(total=total))


def account_of(connection: Connection, identifier: str) -> dict[str, Any]:
    """This operator's own account of a collection: JSON-ready, and nothing of it secret."""
    task = find_task(connection, identifier)
    given = answers_of(connection, identifier)
    return {
        "operator": "helper" if task.operator == HELPER else "leader",
        "accepted": task.accepted,
        "refused": task.refused,
        "answers": [
            {
                "purpose": each.query.purpose,
                "epsilon": str(each.query.epsilon),
                "sums": each.query.encoding.length,
            }
            for each in given
        ],
        "epsilon": str(sum((each.query.epsilon for each in given), Fraction(0))),
    }


@dataclass(frozen=True)
class KeepSealedReports:
    """Keep reports to two operators, each id once: whoever sends another's report again is refused."""

    collection: str

    def __call__(self, connection: Connection, batch: Sequence[Report]) -> list[Kept]:
        """Outcome of each report."""
        ids = [report.body[:ID_BYTES] for report in batch]
        scope = report_ids.c.collection == self.collection
        owners: dict[bytes, int] = {}
        for first in range(0, len(ids), _AT_ONCE):
            some = report_ids.c.report.in_(ids[first : first + _AT_ONCE])
            found = select(report_ids.c.report, report_ids.c.device).where(scope, some)
            owners |= {bytes(row.report): row.device for row in connection.execute(found)}
        mine = [
            owners.get(each, report.device) == report.device for report, each in zip(batch, ids, strict=True)
        ]
        sent = [report for report, own in zip(batch, mine, strict=True) if own]
        kept = iter(keep_reports(connection, self.collection, sent))
        made = [next(kept) if own else Kept.REPLAYED for own in mine]
        fresh: dict[bytes, int] = {}
        replayed: list[int] = []
        for at, (report, each) in enumerate(zip(batch, ids, strict=True)):
            # Only a report that was kept has its id: of several devices the first one's.
            if made[at] is Kept.NEW and fresh.setdefault(each, report.device) != report.device:
                made[at] = Kept.REPLAYED
                replayed.append(report.device)
        if replayed:
            here = reports.c.collection == self.collection, reports.c.device.in_(replayed)
            connection.execute(delete(reports).where(*here))
        if fresh:
            rows = [
                {"collection": self.collection, "report": each, "device": device}
                for each, device in sorted(fresh.items())  # in one order in every process, as in keep_reports
            ]
            connection.execute(insert(report_ids), rows)
        return made
