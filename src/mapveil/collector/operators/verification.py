"""An operator of a task: made from the terms and what the store holds, with the reports of one job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Final, NamedTuple

from mapveil.collector.operators.operator_keys import OperatorKeys, PeerKey
from mapveil.collector.operators.peer_messages import MOST_REPORTS, AskedQuery, Reason
from mapveil.collector.operators.task import Answered, Task
from mapveil.privacy.claim import Share
from mapveil.two_operators.aggregation import Operator, Standing
from mapveil.two_operators.site_queries import of_sites
from mapveil.two_operators.sum_schemes import Scheme, scheme_of
from mapveil.two_operators.verification_messages import InputShares
from mapveil_client.encodings import LabelEncoding
from mapveil_client.errors import InputError, PromiseError
from mapveil_client.method_parameters import OperatorParameters
from mapveil_client.terms import CollectionTerms
from mapveil_client.two_operators.sealed_report import HelperShare, open_share

_NUMBERS: Final = 1 << 19
"""Sites of a job's reports together: 512 reports of 1,024 sites."""

_LEAST_JOB: Final = 16
_MOST_JOB: Final = 512


class Secrets(NamedTuple):
    """An operator's own keys, and those that it shares."""

    own: OperatorKeys
    peer: PeerKey


class Prepared(NamedTuple):
    """An operator with the reports of one job that it can read."""

    operator: Operator
    reasons: tuple[Reason, ...]  # of each report of the job


def scheme_for(terms: CollectionTerms) -> Scheme:
    """The scheme of a task's reports."""
    parameters = parameters_of(terms)
    sites = terms.shared_sites
    return scheme_of(sites.depth + sites.levels, parameters.units, terms.digest)


def most_reports(scheme: Scheme) -> int:
    """Most reports of a job, so that their sites together fit into some tens of megabytes at either operator."""
    return min(MOST_REPORTS, _MOST_JOB, max(_LEAST_JOB, _NUMBERS // scheme.sites))


def parameters_of(terms: CollectionTerms) -> OperatorParameters:
    """Parameters of sums by two operators; raises InputError for terms of another trust."""
    parameters = terms.parameters
    if not isinstance(parameters, OperatorParameters):
        raise InputError(f"trust must be operators, got {terms.trust}")
    return parameters


def least_batch(terms: CollectionTerms) -> int:
    """Least number of accepted reports of an answer."""
    return max(terms.minimum, parameters_of(terms).minimum_batch)


def operator_of(terms: CollectionTerms, keys: Secrets) -> Operator:
    """An operator of a task, without any report yet."""
    epsilon = terms.epsilon or Fraction(0)
    verify_key = keys.peer.verify_key(terms.digest)
    return Operator(scheme_for(terms), keys.own.number, terms.digest, verify_key, epsilon, least_batch(terms))


def prepare(
    terms: CollectionTerms,
    keys: Secrets,
    shares: Sequence[HelperShare],
    replayed: frozenset[bytes] = frozenset(),
) -> Prepared:
    """Open the shares of a job's reports. Run by: each operator.

    Parameters
    ----------
    terms : CollectionTerms
        Of the task.
    keys : Secrets
        Of this operator.
    shares : sequence of HelperShare
        This operator's part of each report: at the leader too.
    replayed : frozenset of bytes
        Ids that were in another job.
    """
    operator, seen = operator_of(terms, keys), set(replayed)
    reasons = []
    for each in shares:
        name = each.metadata.report_id
        if name in seen:
            reasons.append(Reason.REPLAYED)
            continue
        seen.add(name)
        try:
            opened = open_share(
                terms.digest,
                keys.own.number,
                keys.own.config,
                keys.own.private_key,
                each.metadata,
                each.public,
                each.share,
            )
        except InputError:
            reasons.append(Reason.SEALED_FOR_ANOTHER)
            continue
        kept = operator.receive([InputShares(name, each.public, opened)])
        reasons.append(Reason.NONE if kept else Reason.MALFORMED)
    return Prepared(operator, tuple(reasons))


def added(terms: CollectionTerms, keys: Secrets, task: Task, job: Standing) -> Standing:
    """A task's sums with those of a job."""
    whole = operator_of(terms, keys)
    whole.resume(Standing(task.sums, task.accepted))
    whole.resume(job)
    return whole.standing


def count_reasons(reasons: Sequence[Reason], accepted: Sequence[bool]) -> Counter[Reason]:
    """Reports of a job that are not in the sums, by reason; of those that were read, the proof decided."""
    pairs = zip(reasons, accepted, strict=True)
    return Counter((reason or Reason.NOT_VERIFIED) for reason, good in pairs if not good)


def noisy_share(
    terms: CollectionTerms, keys: Secrets, task: Task, given: Sequence[Answered], query: AskedQuery
) -> bytes:
    """This operator's noisy share of the answer to a query: the same bytes however often it is made.

    Raises
    ------
    BudgetExceeded
        It would cost more than the terms allow.
    PromiseError
        Fewer reports than the minimum batch were accepted, or the query is on another raster or of other windows.
    """
    places, sites = query.encoding, terms.shared_sites
    if isinstance(places, LabelEncoding) and terms.series is not None:
        if places.labels != sites.labels:
            raise PromiseError(
                f"labels of the query must be the {sites.labels} windows of the terms, got {places.labels}"
            )
        places = places.places
    depth = places.to_dict().get("depth")
    if depth != terms.depth:
        raise PromiseError(f"depth of the query's raster must be {terms.depth}, got {depth}")
    operator = operator_of(terms, keys)
    answered = tuple(Share(each.query.purpose, each.query.epsilon) for each in given)
    drawn = sum(each.query.encoding.length for each in given)
    operator.resume(Standing(task.sums, task.accepted, answered, drawn))
    number = (len(given) + 1).to_bytes(4, "big")
    rng = keys.own.noise(terms.digest, number, query.encode(), task.sums)
    return operator.answer(query.purpose, of_sites(query.encoding, sites), query.epsilon, rng).tobytes()
