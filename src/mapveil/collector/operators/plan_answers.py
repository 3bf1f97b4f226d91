"""The plan of a collection by two operators, replayed on the answers in the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mapveil.collector.operators.peer_messages import AskedQuery
from mapveil.collector.operators.task import Answered
from mapveil.collector.operators.verification import parameters_of, scheme_for
from mapveil.collector.rounds.offer import Offer
from mapveil.maps.round_cost import RoundCost
from mapveil.trust.queries import Estimate, Query, Raster
from mapveil.trust.two_operators import noisy_sums, setting_of
from mapveil.two_operators.aggregation import HELPER, LEADER
from mapveil.two_operators.sum_schemes import noisy_sums_of
from mapveil_client.arrays import IntArray
from mapveil_client.errors import InputError, PromiseError
from mapveil_client.terms import CollectionTerms
from mapveil_client.two_operators.hpke import KEY_BYTES
from mapveil_client.two_operators.sealed_report import ID_BYTES, SEAL_BYTES

MOST_SITES: Final = 1 << 14
"""Most sites of a raster. Chosen so that an operator verifies a path in tens of milliseconds, and a device sends at
most 2.9 MB of a vector of 1,024 units."""

_REPORT_HEAD: Final = ID_BYTES + 8 + 2 + 4  # id, time, number of extensions, length of the public share
_SEAL_HEAD: Final = 1 + 2 + KEY_BYTES + 4  # configuration, and both fields with their lengths

TOTAL: Final = np.dtype("<i8")
"""Number format of the noisy units of an answer in the store."""


def replay(terms: CollectionTerms, accepted: int, given: Sequence[Answered]) -> Query | Estimate:
    """State of the plan after the answers that are whole: its next query, or its estimate. CPU-heavy.

    Parameters
    ----------
    terms : CollectionTerms
        Of the collection.
    accepted : int
        Reports in the sums: the plan is told their number.
    given : sequence of Answered
        In order, each with its total.
    """
    raster, found = Raster.of(terms.cells.lattice()), Offer(terms)
    setting = setting_of(raster, found.tiling, accepted, parameters_of(terms).units)
    plan = found.sums.plan(found.sums.informed(setting, found.tiling))
    try:
        query = next(plan)
        for each in given:
            if not isinstance(query, Query) or asked(query).encode() != each.query.encode():
                raise PromiseError(
                    f"{each.query.purpose!r} was answered, and this version of Mapveil asks for "
                    f"{query.share.purpose!r}: the collection cannot go on"
                )
            units = np.frombuffer(each.total or b"", dtype=TOTAL).astype(np.int64)
            moves = setting.sensitivity(query.encoding)
            query = plan.send(noisy_sums(units, query.epsilon, moves, setting))
    except StopIteration as stop:
        made: Estimate = stop.value
        return made
    if not isinstance(query, Query):
        raise PromiseError(f"{terms.method} asks what only a curator can answer")
    return query


def asked(query: Query) -> AskedQuery:
    """A plan's query, as both operators are told it."""
    return AskedQuery(query.purpose, query.encoding, query.epsilon)


def total_of(terms: CollectionTerms, query: AskedQuery, shares: tuple[bytes, bytes]) -> IntArray:
    """Noisy units of both operators' shares; raises PeerFault where one of them did not follow the protocol."""
    scheme = scheme_for(terms)
    columns = [np.frombuffer(each, dtype=np.uint8)[None] for each in shares]
    made = noisy_sums_of(scheme, (columns[0], columns[1]))
    if made.shape != (query.encoding.length,):
        raise PromiseError(f"an answer has {made.size} sums; expected {query.encoding.length}")
    return made


def cost_of(terms: CollectionTerms, reported: int, accepted: int) -> RoundCost:
    """Communication cost of the reports, per device."""
    scheme = scheme_for(terms)
    size = scheme.sizes(LEADER)[0] + sum(scheme.sizes(number)[1] for number in (LEADER, HELPER))
    return RoundCost(
        "reports", scheme.sites, 64 * scheme.field.words, reported, accepted, 1, {"report": size}, {}
    )


def check_upload(terms: CollectionTerms, most: int) -> None:
    """Refuse terms whose reports have more than ``most`` bytes: a device would be charged and could not send.

    Raises
    ------
    InputError
        A report is larger.
    """
    parts = [terms.sharding.sizes(number) for number in (LEADER, HELPER)]
    seals = sum(share + SEAL_BYTES + _SEAL_HEAD for _, share in parts)
    size = _REPORT_HEAD + parts[0][0] + seals
    if size > most:
        raise InputError(
            f"a report has {size} bytes and the service accepts {most} (--report-bytes): use a coarser tiling"
            f"{', fewer windows' if terms.series else ''} or a smaller scale"
        )


def check_answerable(terms: CollectionTerms) -> None:
    """Try the first query with the number of devices of the terms, and the size of their reports.

    Raises
    ------
    InputError
        Every report would take too long to verify, or be too long to send, or no query can be put.
    """
    cells = terms.cells.size  # counted first: their lattice is an array of them
    sites = cells if cells > MOST_SITES else scheme_for(terms).sites
    if sites > MOST_SITES:
        windows = f" with {terms.series.count} windows" if terms.series else ""
        raise InputError(
            f"tiling{windows} has {sites} sites: expected at most {MOST_SITES}, since two operators verify every site "
            "of every report"
        )
    try:
        replay(terms, terms.devices, ())
    except PromiseError as error:
        raise InputError(str(error)) from None
