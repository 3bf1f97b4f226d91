"""Malformed and malicious reports against honest operators: each is in no sum, and counted by its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mapveil.two_operators.aggregation import HELPER, LEADER
from mapveil_client.randomness.random import Randomness
from mapveil_client.terms import CollectionTerms
from mapveil_client.two_operators.sealed_report import Report
from tests.collector.engine.conftest import ACTOR

from .pair import changed, reports_of

SITES = [index % 5 for index in range(20)]


def counted_twice(terms: CollectionTerms) -> bytes:
    """A report whose two shares are of two different sharings: their sum is no path."""
    from mapveil_client.two_operators.sharding import ReportRandomness, make_report

    drawn = [ReportRandomness.draw(terms.sharding, Randomness(seed)) for seed in (1, 2)]
    second = drawn[1]._replace(report_id=drawn[0].report_id)
    contribution = np.zeros(terms.sharding.sites, dtype=np.int64)
    contribution[0] = terms.sharding.most
    leader, helper = terms.configs
    made = [
        make_report(terms.sharding, contribution, (leader, helper), 1, each) for each in (drawn[0], second)
    ]
    from mapveil_client.two_operators.sealed_report import seal_report

    nonces, randomness = (
        np.frombuffer(each, dtype=np.uint8)[None] for each in (second.report_id, second.shares)
    )
    other = terms.sharding.shard(contribution[None], nonces, randomness).inputs[HELPER].tobytes()
    nonces, randomness = (
        np.frombuffer(each, dtype=np.uint8)[None] for each in (drawn[0].report_id, drawn[0].shares)
    )
    own = terms.sharding.shard(contribution[None], nonces, randomness)
    return seal_report(
        terms.digest,
        (leader, helper),
        made[0].metadata,
        own.public.tobytes(),
        (own.inputs[LEADER].tobytes(), other),
        drawn[0].ephemerals,
    ).encode()


def test_malformed_reports_of_many_kinds_change_nothing(pair_of: Any) -> None:
    """Each kind is refused at the upload or by the operators, and counted by reason."""
    from mapveil.collector.refusals import Invalid

    kinds: dict[str, Callable[[bytes], bytes]] = {
        "cut": lambda body: body[:-1],
        "longer": lambda body: body + b"\0",
        "extension": lambda body: body[:24] + b"\0\4\0\1\0\0" + body[26:],
        "public cut": lambda body: changed(body, public=Report.decode(body).public[:-1]),
        "public flipped": lambda body: changed(body, public=_flip(Report.decode(body).public)),
        "shares crossed": lambda body: changed(body, shares=Report.decode(body).shares[::-1]),
        "leader flipped": lambda body: _sealed(body, LEADER, _flip),
        "helper flipped": lambda body: _sealed(body, HELPER, _flip),
        "leader short": lambda body: _sealed(body, LEADER, lambda payload: payload[:-1]),
        "helper empty": lambda body: _sealed(body, HELPER, lambda payload: b""),
        "other time": lambda body: body[:23] + _flip(body[23:24]) + body[24:],
        "other id": lambda body: _flip(body[:1]) + body[1:],
    }
    pair = pair_of(devices=20 + len(kinds) + 1)
    id = pair.open(devices=200)
    pair.send(id, pair.reports(SITES))
    at_upload = 0
    for number, change in enumerate(kinds.values()):
        (body,) = reports_of(pair.terms, [7], seed=100 + number)
        try:
            pair.send(id, [change(body)], first=21 + number)
        except Invalid:
            at_upload += 1
    pair.send(id, [counted_twice(pair.terms)], first=21 + len(kinds))
    pair.engine.begin(id, ACTOR)
    assert pair.play(id) == "done"
    account = pair.engine.account(id)
    assert account["accepted"] == 20
    assert account["refused"] == {"not verified": 1, "sealed for another": len(kinds) - at_upload}
    assert at_upload == 7


def test_reports_that_the_leader_cannot_read_take_no_number_of_the_helpers_jobs(
    pair_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixteen clients fill a whole job with nonsense: the collection goes on with the reports of the others."""
    from mapveil.collector.operators import verification

    monkeypatch.setattr(verification, "_MOST_JOB", 16)
    pair = pair_of(devices=36)
    id = pair.open(devices=200)
    bodies = [
        bytes(15) + bytes([each]) + body[16:] for each, body in enumerate(pair.reports([1] * 16, seed=9))
    ]
    pair.send(id, [_sealed(body, LEADER, _flip) for body in bodies])
    assert pair.play(id, turns=1) == "open"
    assert pair.engine.account(id)["refused"] == {"sealed for another": 16}
    pair.send(id, pair.reports(SITES), first=17)
    pair.engine.begin(id, ACTOR)
    assert pair.play(id) == "done"
    assert [engine.account(id)["accepted"] for engine in (pair.engine, pair.other)] == [20, 20]
    assert pair.engine.account(id)["refused"] == {"sealed for another": 16}


def _flip(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:]


def _sealed(body: bytes, operator: int, change: Callable[[bytes], bytes]) -> bytes:
    shares = list(Report.decode(body).shares)
    sealed = shares[operator].sealed
    shares[operator] = shares[operator]._replace(sealed=sealed._replace(payload=change(sealed.payload)))
    return changed(body, shares=tuple(shares))
