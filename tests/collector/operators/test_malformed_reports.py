"""Malformed and malicious reports against honest operators: each is in no sum, and counted by its reason."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

from mapveil.collector.refusals import Invalid
from mapveil.two_operators.aggregation import HELPER, LEADER
from mapveil_client.randomness.random import Randomness
from mapveil_client.terms import CollectionTerms
from mapveil_client.two_operators.sealed_report import Metadata, Report, seal_report
from mapveil_client.two_operators.sharding import ReportRandomness
from tests.collector.engine.conftest import ACTOR

from .pair import HOUR, changed

SITES = [index % 5 for index in range(20)]


class Parts(NamedTuple):
    """A report before it is sealed: what a malicious client may change as it likes."""

    public: bytearray
    inputs: tuple[bytearray, bytearray]


def sealed_by_client(
    terms: CollectionTerms, sites: Sequence[int], changes: Sequence[Callable[[Parts], None]], seed: int
) -> list[bytes]:
    """Reports whose shares a malicious client changes before it seals them."""
    rng, (leader, helper) = Randomness(seed), terms.configs
    drawn = [ReportRandomness.draw(terms.sharding, rng) for _ in sites]
    contributions = np.zeros((len(sites), terms.sharding.sites), dtype=np.int64)
    contributions[np.arange(len(sites)), sites] = terms.sharding.most
    nonces, randomness = (
        np.frombuffer(b"".join(each), dtype=np.uint8).reshape(len(sites), -1)
        for each in zip(*((own.report_id, own.shares) for own in drawn), strict=True)
    )
    made = terms.sharding.shard(contributions, nonces, randomness)
    bodies = []
    for row, (own, change) in enumerate(zip(drawn, changes, strict=True)):
        public, first, second = (bytearray(each[row].tobytes()) for each in (made.public, *made.inputs))
        parts = Parts(public, (first, second))
        change(parts)
        shares = bytes(parts.inputs[LEADER]), bytes(parts.inputs[HELPER])
        metadata = Metadata(own.report_id, HOUR)
        report = seal_report(
            terms.digest, (leader, helper), metadata, bytes(parts.public), shares, own.ephemerals
        )
        bodies.append(report.encode())
    return bodies


def counted_twice(terms: CollectionTerms) -> bytes:
    """A report whose two shares are of two different sharings: their sum is no path."""
    kept: list[bytes] = []

    def keep(parts: Parts) -> None:
        kept.append(bytes(parts.inputs[HELPER]))

    def exchange(parts: Parts) -> None:
        parts.inputs[HELPER][:] = kept[0]

    return sealed_by_client(terms, [0, 0], [keep, exchange], seed=1)[1]


REPORTS = 1_000 * int(os.environ.get("MAPVEIL_FAULT_SEEDS", "0")) or 160
"""`make faults` sends 10,000."""


def flip(data: bytes, draw: random.Random, first: int = 0, end: int | None = None) -> bytes:
    """One bit changed at a random place."""
    made = bytearray(data)
    made[draw.randrange(first, len(made) if end is None else end)] ^= 1 << draw.randrange(8)
    return bytes(made)


CHANGED: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "cut": lambda body, draw: body[: draw.randrange(len(body))],
    "longer": lambda body, draw: body + draw.randbytes(draw.randint(1, 40)),
    "extension": lambda body, draw: body[:24] + b"\0\4\0\1\0\0" + body[26:],
    "public cut": lambda body, draw: changed(body, public=Report.decode(body).public[:-1]),
    "shares crossed": lambda body, draw: changed(body, shares=Report.decode(body).shares[::-1]),
    "leader short": lambda body, draw: _sealed(body, LEADER, lambda payload: payload[:-1]),
    "helper empty": lambda body, draw: _sealed(body, HELPER, lambda payload: b""),
    "public flipped": lambda body, draw: changed(body, public=flip(Report.decode(body).public, draw)),
    "leader flipped": lambda body, draw: _sealed(body, LEADER, lambda payload: flip(payload, draw)),
    "helper flipped": lambda body, draw: _sealed(body, HELPER, lambda payload: flip(payload, draw)),
    "other time": lambda body, draw: flip(body, draw, 16, 24),
    "other id": lambda body, draw: flip(body, draw, 0, 16),
}
"""Changes of a sealed report; the first seven are refused at the upload, the others do not open."""

CHEATING: dict[str, Callable[[Parts, random.Random], None]] = {
    "correction word": lambda parts, draw: _in_place(parts.public, draw, 2, 2 + 5 * 16),  # down to the cells
    "leader's key": lambda parts, draw: _in_place(parts.inputs[LEADER], draw, 0, 16),
    "helper's key": lambda parts, draw: _in_place(parts.inputs[HELPER], draw, 0, 16),
    "correlation": lambda parts, draw: _in_place(parts.inputs[LEADER], draw, 16, 48),
}
"""Changes by the client itself, which open: the proof alone refuses them."""


def test_malformed_reports_of_sixteen_kinds_change_no_sum(pair_of: Any) -> None:
    """Each kind is refused at the upload or by the operators, and counted by reason."""
    draw = random.Random(1)
    pair = pair_of(devices=20 + REPORTS)
    id = pair.open(devices=20 + REPORTS)
    pair.send(id, pair.reports(SITES))
    each = REPORTS // (len(CHANGED) + len(CHEATING))
    plain = sealed_by_client(pair.terms, [7] * each * len(CHANGED), [lambda _: None] * each * len(CHANGED), 2)
    bodies = [change(plain.pop(), draw) for change in CHANGED.values() for _ in range(each)]
    cheats = [partial(change, draw=draw) for change in CHEATING.values() for _ in range(each)]
    bodies += sealed_by_client(pair.terms, [7] * len(cheats), cheats, 3)

    async def send() -> list[Any]:
        return [
            answer
            for first in range(0, len(bodies), 64)
            for answer in await asyncio.gather(
                *(
                    pair.engine.devices.report(id, 21 + number, bodies[number])
                    for number in range(first, min(first + 64, len(bodies)))
                ),
                return_exceptions=True,
            )
        ]

    answers = asyncio.run(send())
    refused = [isinstance(answer, Invalid) for answer in answers]
    assert refused == [number < 7 * each for number in range(len(bodies))]
    assert all(answer is None for answer in answers[7 * each :])
    pair.engine.begin(id, ACTOR)
    assert pair.play(id) == "done"
    account = pair.engine.account(id)
    assert account["accepted"] == 20
    assert account["refused"] == {"not verified": 4 * each, "sealed for another": 5 * each}
    field = pair.terms.sharding.field
    shares = [
        field.decode(np.frombuffer(pair.kept[operator].sums, dtype=np.uint8)[None])[0][0]
        for operator in (LEADER, HELPER)
    ]
    sums = field.integers(field.add(*shares))
    assert sums == np.bincount(SITES, minlength=pair.terms.sharding.sites).tolist()


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
    draw = random.Random(1)
    pair.send(id, [_sealed(body, LEADER, lambda payload: flip(payload, draw)) for body in bodies])
    assert pair.play(id, turns=1) == "open"
    assert pair.engine.account(id)["refused"] == {"sealed for another": 16}
    pair.send(id, pair.reports(SITES), first=17)
    pair.engine.begin(id, ACTOR)
    assert pair.play(id) == "done"
    assert [engine.account(id)["accepted"] for engine in (pair.engine, pair.other)] == [20, 20]
    assert pair.engine.account(id)["refused"] == {"sealed for another": 16}


def _in_place(part: bytearray, draw: random.Random, first: int, end: int) -> None:
    part[:] = flip(part, draw, first, end)


def _sealed(body: bytes, operator: int, change: Callable[[bytes], bytes]) -> bytes:
    shares = list(Report.decode(body).shares)
    sealed = shares[operator].sealed
    shares[operator] = shares[operator]._replace(sealed=sealed._replace(payload=change(sealed.payload)))
    return changed(body, shares=tuple(shares))
