"""The leader's steps of a collection by two operators: jobs of verification, then the plan's queries one by one.

Each step reads where the collection stands, asks the helper outside any transaction, and commits once. What the helper
is told is in the store first, so that a repeated step tells it the same bytes. A helper that does not answer pauses the
collection; a helper that refuses ends it.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

import numpy as np

from mapveil.collector.operators import task_records as records
from mapveil.collector.operators.operator_keys import OperatorKeys, Operators, PeerKey
from mapveil.collector.operators.peer import Peer
from mapveil.collector.operators.peer_messages import (
    JobClosing,
    JobReply,
    JobRequest,
    Reason,
    byte_rows,
)
from mapveil.collector.operators.plan_answers import TOTAL, asked, check_upload, replay, total_of
from mapveil.collector.operators.task import Answered, Job
from mapveil.collector.operators.verification import (
    Prepared,
    Secrets,
    added,
    count_reasons,
    least_batch,
    most_reports,
    noisy_share,
    prepare,
    scheme_for,
)
from mapveil.collector.refusals import Conflict
from mapveil.collector.rounds import collection as rows_of
from mapveil.collector.rounds.life_cycle import Happening
from mapveil.collector.store.database import Store
from mapveil.collector.store.home import GENERATION_BYTES
from mapveil.trust.queries import Query
from mapveil.two_operators.aggregation import LEADER
from mapveil.two_operators.verification_messages import Response
from mapveil_client.errors import MapveilError, PromiseError
from mapveil_client.terms import CollectionTerms
from mapveil_client.two_operators.sealed_report import HelperShare, HpkeConfig, Report

_LOG: Final = logging.getLogger(__name__)
_ASK_SECONDS: Final = 30.0
"""Time after which the helper is asked again whether an open collection goes on: so long may devices report in vain."""


class Leader:
    """Takes the leader's steps.

    Parameters
    ----------
    store : Store
        The leader's own.
    own, shared : OperatorKeys and PeerKey
        Its own keys, and those that it shares with the helper.
    peer : Peer
        The helper.
    report_bytes : int
        Largest report that the service accepts, bytes.
    """

    def __init__(
        self, store: Store, own: OperatorKeys, shared: PeerKey, peer: Peer, report_bytes: int = 1 << 18
    ) -> None:
        self._report_bytes = report_bytes
        self._store, self._keys, self._peer = store, Secrets(own, shared), peer
        self._held: dict[tuple[str, int], tuple[Prepared, JobRequest]] = {}
        self._asked: dict[str, float] = {}  # when the helper was last asked to take the terms, by collection

    def operators(self) -> Operators:
        """Both operators, as new terms name them; asks the helper for its part.

        Raises
        ------
        PromiseError
            The helper names no generation of its store: it could choose the whole identifier of a collection.
        """
        own, told = self._keys.own.config, self._peer.config()
        size = len(own.encode())  # as the helper's: both of X25519
        if len(told) != size + GENERATION_BYTES:
            raise PromiseError(
                f"the helper must name its key and its store's generation in {size + GENERATION_BYTES} bytes, got "
                f"{len(told)}"
            )
        return Operators(own, HpkeConfig.decode(told[:size]), told[size:].hex())

    def check(self, terms: CollectionTerms) -> None:
        """Refuse terms whose reports are larger than the service accepts; raises InputError."""
        check_upload(terms, self._report_bytes)

    def begin(self, terms: CollectionTerms) -> None:
        """Let the helper take part in a collection, before any device is asked."""
        self.check(terms)
        # Before, for it may know from then on; and after, for an abort meanwhile may have told it the end too early.
        self._tell(terms.identifier, at_helper=True)
        self._begin(terms)
        self._tell(terms.identifier, at_helper=True)

    def _begin(self, terms: CollectionTerms) -> None:
        self._asked[terms.identifier] = self._store.clock.monotonic()  # before, for it may not answer
        self._peer.begin(terms.identifier, terms.encode())

    def end_all(self) -> None:
        """Tell the helper of the collections that have ended here, until it confirms: it forgets its sums then.

        Raises
        ------
        PeerUnavailable
            It does not answer; the rest is for later.
        """
        with self._store.read() as connection:
            over = records.ended_at_leader(connection)
        for identifier, reason in over.items():
            try:
                self._peer.end(identifier, reason.encode())
            except PromiseError as error:  # at the next attempt too, and it keeps the others from nothing
                _LOG.warning("collection %s: the helper refuses its end: %s", identifier, error)
                continue
            self._tell(identifier, at_helper=False)
            self._asked.pop(identifier, None)

    def _tell(self, identifier: str, *, at_helper: bool) -> None:
        with self._store.write() as connection:
            records.tell_helper(connection, identifier, at_helper=at_helper)

    def wait(self, collection: rows_of.Collection) -> bool:
        """Take the next step while reports come in: a whole job or, now and then, the terms once more.

        A helper that has ended the collection, or lost its store, refuses them.
        """
        if self.verify(collection, rest=False):
            return True
        asked = self._asked.get(collection.id, float("-inf"))
        if self._store.clock.monotonic() - asked >= _ASK_SECONDS:
            self._begin(collection.terms)
        return False

    def verify(self, collection: rows_of.Collection, *, rest: bool) -> bool:
        """Take the next step of a job, or begin one; with ``rest`` also of fewer reports than a whole job."""
        terms = collection.terms
        with self._store.read() as connection:
            job = records.unfinished_job(connection, collection.id)
        if job is None:
            return self._open_job(terms, rest=rest)
        if not job.closing:
            self._close_job(terms, job)
        else:
            self._peer.close(terms.identifier, job.number, job.closing)
            with records.active(self._store, terms.identifier) as connection:
                records.finish_job(connection, terms.identifier, job.number)
        return True

    def step(self, collection: rows_of.Collection) -> bool:
        """Take the next step of a running collection; a job, an answer, or the end of its plan."""
        if self.verify(collection, rest=True):
            return True
        terms = collection.terms
        with self._store.read() as connection:
            task = records.find_task(connection, collection.id)
            given = records.answers_of(connection, collection.id)
        if task.accepted < least_batch(terms):
            raise PromiseError(
                f"{task.accepted} reports were accepted and {least_batch(terms)} are needed, so nothing is answered"
            )
        if given and given[-1].total is None:
            self._complete(terms, len(given), given[-1])
            return True
        wanted = replay(terms, task.accepted, given)
        if not isinstance(wanted, Query):
            with self._store.write() as connection:
                rows_of.forget_sums(connection, collection.id)
                return rows_of.move(connection, collection.id, Happening.SUMMED, "service") is not None
        query = asked(wanted)
        share = noisy_share(terms, self._keys, task, given, query)
        with records.active(self._store, terms.identifier) as connection:
            records.keep_answer(connection, terms.identifier, len(given) + 1, query, share)
        return True

    def _complete(self, terms: CollectionTerms, number: int, answer: Answered) -> None:
        other = self._peer.answer(terms.identifier, number, answer.query.encode())
        total = total_of(terms, answer.query, (answer.share, other))
        with records.active(self._store, terms.identifier) as connection:
            records.keep_total(connection, terms.identifier, number, total.astype(TOTAL).tobytes())

    def _open_job(self, terms: CollectionTerms, *, rest: bool) -> bool:
        most = most_reports(scheme_for(terms))
        with self._store.read() as connection:
            if not rest and records.count_waiting(connection, terms.identifier) < most:
                return False
            bodies = records.waiting_reports(connection, terms.identifier, most)
            number = records.next_number(connection, terms.identifier)
        if not bodies:
            return False
        reports = [Report.decode(body) for body in bodies]
        ids = [report.metadata.report_id for report in reports]
        made, request = self._opened(terms, reports)
        with records.active(self._store, terms.identifier) as connection:
            if request is None:  # the helper need not know of reports that its peer cannot read
                records.refuse_reports(connection, terms.identifier, ids, Counter(made.reasons))
                return True
            records.open_job(connection, terms.identifier, number, request.encode(), ids)
        self._held = {(terms.identifier, number): (made, request)}
        return True

    def _opened(self, terms: CollectionTerms, reports: list[Report]) -> tuple[Prepared, JobRequest | None]:
        """The leader's half of a job, and its request; none where no report can be read."""
        own = [HelperShare(report.metadata, report.public, report.shares[LEADER]) for report in reports]
        made = prepare(terms, self._keys, own)
        good = [report for report, reason in zip(reports, made.reasons, strict=True) if reason is Reason.NONE]
        if not good:
            return made, None
        opening = made.operator.open([report.metadata.report_id for report in good])
        return made, JobRequest(tuple(map(HelperShare.of, good)), opening.shares)

    def _close_job(self, terms: CollectionTerms, job: Job) -> None:
        """Ask the helper about a job's reports, and keep what both accept with what the helper will be told."""
        made, request = self._job(terms, job)
        count = len(request.shares)
        answered = self._peer.job(terms.identifier, job.number, job.request)
        try:
            reply = JobReply.decode(answered, count)
            readable = np.array([reason is Reason.NONE for reason in reply.reasons])
            if reply.message or reply.shares:
                columns = [byte_rows(each, count, "a job's reply") for each in (reply.message, reply.shares)]
                closing = made.operator.close(Response(columns[0], columns[1], readable))
                told = JobClosing(closing.accepted.tolist(), closing.shares.tobytes())
            else:
                told = JobClosing([False] * count, b"")
        except MapveilError as error:
            raise PromiseError(f"the helper did not follow the protocol: {error}") from None
        refused: Counter[Reason] = Counter(each for each in made.reasons if each is not Reason.NONE)
        refused += count_reasons(reply.reasons, told.accepted)
        with records.active(self._store, terms.identifier) as connection:
            now = records.find_job(connection, terms.identifier, job.number)
            if now != job:
                raise Conflict(f"another process has closed job {job.number}")
            task = records.find_task(connection, terms.identifier)
            standing = added(terms, self._keys, task, made.operator.standing)
            closed = job._replace(reply=answered, closing=told.encode())
            records.close_job(connection, terms.identifier, closed, standing, refused, done=False)
        self._held.clear()

    def _job(self, terms: CollectionTerms, job: Job) -> tuple[Prepared, JobRequest]:
        """The state of a job, made again from the reports where it is not in memory: as before, nothing is drawn."""
        held = self._held.pop((terms.identifier, job.number), None)
        if held is not None:
            return held
        with self._store.read() as connection:
            bodies = records.reports_of(connection, terms.identifier, job.number)
        made, request = self._opened(terms, [Report.decode(body) for body in bodies])
        if request is None or request.encode() != job.request:
            raise PromiseError(
                f"job {job.number} was begun with other keys of the operators than those of today"
            )
        return made, request
