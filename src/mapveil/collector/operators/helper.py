"""The helper: it verifies reports beside the leader, and answers queries from its own share, ledger and noise.

It tells nothing twice in two ways: what it replies is in its store before it is sent, and a repeated request gets the
same bytes. It believes the leader about who is enrolled, and about nothing else.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from typing import Final

import numpy as np
from sqlalchemy.engine import Connection

from mapveil.collector.operators import task_records as records
from mapveil.collector.operators.operator_keys import OperatorKeys, PeerKey
from mapveil.collector.operators.peer_messages import (
    AskedQuery,
    JobClosing,
    JobReply,
    JobRequest,
    Reason,
    byte_rows,
)
from mapveil.collector.operators.plan_answers import check_answerable
from mapveil.collector.operators.task import Answered, Job, Task
from mapveil.collector.operators.verification import (
    Prepared,
    Secrets,
    added,
    count_reasons,
    most_reports,
    noisy_share,
    prepare,
    scheme_for,
)
from mapveil.collector.refusals import Conflict, NotFound
from mapveil.collector.rounds import collection as rows_of
from mapveil.collector.rounds.life_cycle import Happening, State
from mapveil.collector.store.database import Store, lock_collection
from mapveil.collector.store.home import generation_of
from mapveil.privacy.claim import check_large_epsilon
from mapveil.privacy.sampling import sampling_delta
from mapveil.two_operators.aggregation import HELPER
from mapveil.two_operators.verification_messages import Closing, Opening
from mapveil_client.errors import InputError
from mapveil_client.terms import CollectionTerms

_HELD: Final = 4  # jobs whose state is in memory; the others are read again from the store


class Helper:
    """Answers the leader.

    Parameters
    ----------
    store : Store
        The helper's own.
    own, peer : OperatorKeys and PeerKey
        Its own keys, and those that it shares with the leader.
    """

    def __init__(self, store: Store, own: OperatorKeys, peer: PeerKey) -> None:
        self._store, self._keys = store, Secrets(own, peer)
        self._lock = threading.Lock()  # a job takes all processors in any case
        self._held: OrderedDict[tuple[str, int], Prepared] = OrderedDict()

    def config(self) -> bytes:
        """Its HPKE configuration, then its store's generation."""
        with self._store.read() as connection:
            return self._keys.own.config.encode() + bytes.fromhex(generation_of(connection))

    def begin(self, collection: str, terms: bytes) -> None:
        """Take part in a collection; once more changes nothing, and other terms of one identifier are refused.

        Raises
        ------
        InputError
            The terms cannot be used, or are for another helper, or for another store of this one.
        Conflict
            The collection has other terms, or its end came before them.
        """
        read = CollectionTerms.decode(terms)
        if read.identifier != collection:
            raise InputError("the terms are those of another collection")
        if read.trust != "operators" or read.configs[HELPER] != self._keys.own.config:
            raise InputError("the terms are not of sums by two operators, one of which is this one")
        if self._is_in(read):  # an upgrade to stricter checks aborts nothing
            return
        if read.epsilon is None:
            raise InputError("the terms name no epsilon")
        check_large_epsilon(read.epsilon, sampling_delta(read.epsilon), accepted=False)
        check_answerable(read)  # the helper's own bound on the memory and time of a report
        with self._store.write() as connection:
            state = lock_collection(connection, collection)
            if state is not None and rows_of.find(connection, collection).terms.digest != read.digest:
                raise Conflict("the collection has other terms")
            if records.has_ended(connection, collection):
                raise records.over(connection, collection)
            if state is not None:
                return
            # What another store answered, one that was lost or restored since, is not known here: no terms of then
            # are begun again.
            generation = generation_of(connection)
            if not collection.endswith(generation):
                raise InputError(
                    f"the terms are of another store of the helper, lost or restored since: their identifier must end "
                    f"in {generation}; create the collection anew"
                )
            rows_of.create_helped(connection, read)
            records.begin_task(connection, collection, HELPER)

    def _is_in(self, terms: CollectionTerms) -> bool:
        """Whether it takes part in a collection of exactly these terms, which has not ended."""
        with self._store.read() as connection:
            helped = records.is_helped(connection, terms.identifier)
            if not helped or records.has_ended(connection, terms.identifier):
                return False
            return rows_of.find(connection, terms.identifier).terms.digest == terms.digest

    def job(self, collection: str, number: int, request: bytes) -> bytes:
        """Verify reports beside the leader's shares; durable before the reply is known.

        Raises
        ------
        Conflict
            The job was begun with another request, or answers have been given.
        """
        with self._lock:
            terms = self._terms(collection)
            with self._store.read() as connection:
                known = _known_reply(connection, collection, number, request)
            if known is not None:
                return known
            read, most = JobRequest.decode(request), most_reports(scheme_for(terms))
            if len(read.shares) > most:
                raise InputError(
                    f"a job of these terms must have at most {most} reports, got {len(read.shares)}"
                )
            ids = [share.metadata.report_id for share in read.shares]
            with self._store.read() as connection:
                replayed = records.known_reports(connection, collection, ids)
            made = prepare(terms, self._keys, read.shares, frozenset(replayed))
            reply = _respond(made, read)
            fresh = [
                each for each, reason in zip(ids, made.reasons, strict=True) if reason is not Reason.REPLAYED
            ]
            with records.active(self._store, collection) as connection:
                known = _known_reply(connection, collection, number, request)  # another process was faster
                if known is not None:
                    return known
                records.open_job(connection, collection, number, request, fresh, reply)
            self._hold(collection, number, made)
            return reply

    def close(self, collection: str, number: int, closing: bytes) -> None:
        """Add the reports that both accept; the same once more changes nothing.

        Raises
        ------
        Conflict
            The job was closed in another way, or does not exist.
        """
        with self._lock:
            terms = self._terms(collection)
            with self._store.read() as connection:
                job = records.find_job(connection, collection, number)
            digest = hashlib.sha256(closing).digest()
            if job is None or (job.done and job.closing != digest):
                raise Conflict(f"there is no job {number}, or it was closed in another way")
            if job.done:
                return
            request = JobRequest.decode(job.request)
            read = JobClosing.decode(closing, len(request.shares))
            made = self._held.pop((collection, number), None) or self._rebuilt(terms, request, job)
            reply = JobReply.decode(job.reply, len(request.shares))
            accepted = _settle(made, reply, read)
            with records.active(self._store, collection) as connection:
                if records.find_job(connection, collection, number) != job:
                    raise Conflict(f"another process has closed job {number}")
                task = records.find_task(connection, collection)
                standing = added(terms, self._keys, task, made.operator.standing)
                refused = count_reasons(made.reasons, accepted)
                records.close_job(
                    connection, collection, job._replace(closing=digest), standing, refused, done=True
                )

    def answer(self, collection: str, number: int, query: bytes) -> bytes:
        """This operator's noisy share of an answer, charged before it is known.

        Raises
        ------
        Conflict
            Another query has this number, or a job is under way.
        PromiseError
            Fewer reports than the minimum batch were accepted, or the terms' epsilon does not allow it.
        """
        with self._lock:
            terms, asked = self._terms(collection), AskedQuery.decode(query)
            with self._store.read() as connection:
                standing = _before_answer(connection, collection)
            given, task, under_way = standing
            if number <= len(given):
                if given[number - 1].query.encode() != query:
                    raise Conflict(f"answer {number} was to another query")
                return given[number - 1].share
            if number != len(given) + 1 or under_way is not None:
                raise Conflict(
                    f"the next answer is {len(given) + 1}, after every job is closed; got {number}"
                )
            share = noisy_share(terms, self._keys, task, given, asked)
            with records.active(self._store, collection) as connection:
                now = _before_answer(connection, collection)
                if len(now[0]) != len(given) or now[1:] != standing[1:]:
                    raise Conflict("another process has changed the collection")
                records.keep_answer(connection, collection, number, asked, share)
            return share

    def end(self, collection: str, reason: bytes) -> None:
        """Take no more requests of a collection, and forget its sums; terms that come later are refused.

        Parameters
        ----------
        collection : str
            Identifier, known or not. The first end of a collection stands.
        reason : bytes
            Why the collection was aborted, UTF-8; empty where the leader has all answers.

        Raises
        ------
        InputError or Invalid
            The reason is no text that can be shown.
        """
        try:
            why = reason.decode()
        except UnicodeDecodeError:
            raise InputError("a reason must be text in UTF-8") from None
        if why:
            rows_of.check_reason(why)
        with self._store.read() as connection:
            known = records.has_ended(connection, collection)
        if not known:
            self._end(collection, why)
        with self._lock:
            for held in [each for each in self._held if each[0] == collection]:
                del self._held[held]

    def _end(self, collection: str, why: str) -> None:
        with self._store.write() as connection:
            state = lock_collection(connection, collection)
            if state is None:
                records.end_unknown(connection, collection, why)
            elif state == State.RUNNING and records.is_helped(connection, collection):
                if why:
                    rows_of.abort(connection, collection, "leader", why)
                else:
                    rows_of.move(connection, collection, Happening.SUMMED, "leader")
                    rows_of.move(connection, collection, Happening.MAPPED, "leader")
                    rows_of.forget_sums(connection, collection)

    def _terms(self, collection: str) -> CollectionTerms:
        with self._store.read() as connection:
            if not records.is_helped(connection, collection):
                raise NotFound("there is no such collection that this service helps")
            if records.has_ended(connection, collection):
                raise records.over(connection, collection)
            return rows_of.find(connection, collection).terms

    def _hold(self, collection: str, number: int, made: Prepared) -> None:
        self._held[collection, number] = made
        while len(self._held) > _HELD:
            self._held.popitem(last=False)

    def _rebuilt(self, terms: CollectionTerms, request: JobRequest, job: Job) -> Prepared:
        """The state of a job, made again from its request: as before, for nothing of it is drawn."""
        reply = JobReply.decode(job.reply, len(request.shares))
        replayed = frozenset(
            share.metadata.report_id
            for share, reason in zip(request.shares, reply.reasons, strict=True)
            if reason is Reason.REPLAYED
        )
        made = prepare(terms, self._keys, request.shares, replayed)
        if _respond(made, request) != job.reply:
            raise AssertionError("a job's reply follows from its request")
        return made


def _known_reply(connection: Connection, collection: str, number: int, request: bytes) -> bytes | None:
    """The reply to a job that is known; None for the next job. Raises Conflict for any other."""
    known = records.find_job(connection, collection, number)
    if known is not None:
        if known.done or known.request != request:
            raise Conflict(f"job {number} was begun with another request, or is over")
        return known.reply
    if records.answers_of(connection, collection):
        raise Conflict("answers have been given: no report is taken any more")
    expected = records.next_number(connection, collection)
    if number != expected:
        raise Conflict(f"the next job is {expected}, got {number}")
    return None


def _before_answer(connection: Connection, collection: str) -> tuple[list[Answered], Task, Job | None]:
    """The answers so far, the sums, and the job that is under way: all that an answer follows from."""
    return (
        records.answers_of(connection, collection),
        records.find_task(connection, collection),
        records.unfinished_job(connection, collection),
    )


def _respond(made: Prepared, request: JobRequest) -> bytes:
    """The reply to a job's request; without columns where no report can be read."""
    readable = np.array([reason is Reason.NONE for reason in made.reasons])
    if not readable.any():
        return JobReply(made.reasons, b"", b"").encode()
    nonces = np.frombuffer(b"".join(share.metadata.report_id for share in request.shares), dtype=np.uint8)
    # A replayed report is named like any other, and is not waiting: the operator refuses it.
    response = made.operator.respond(Opening(nonces.reshape(-1, 16), request.openings))
    reasons = tuple(
        Reason.NOT_VERIFIED if reason is Reason.NONE and not good else reason
        for reason, good in zip(made.reasons, response.accepted, strict=True)
    )
    return JobReply(reasons, response.message.tobytes(), response.shares.tobytes()).encode()


def _settle(made: Prepared, reply: JobReply, closing: JobClosing) -> list[bool]:
    """Add what both accept to a job's sums; which reports those are."""
    count = len(closing.accepted)
    if not any(reason is Reason.NONE for reason in made.reasons):
        return [False] * count
    accepted = np.array(closing.accepted, dtype=np.bool_)
    settled = made.operator.settle(Closing(byte_rows(closing.shares, count, "a job's closing"), accepted))
    return [bool(each) for each in settled]
