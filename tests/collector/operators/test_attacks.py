"""A malicious leader against an honest helper, and a malicious helper against an honest leader: each learns noisy sums.

The view of either, beside what it holds itself, is which reports pass, and the other's noisy shares.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from mapveil.collector.operators import task_records as records
from mapveil.collector.operators.helper import Helper
from mapveil.collector.operators.operator_keys import OperatorKeys
from mapveil.collector.operators.peer_messages import AskedQuery, JobClosing, JobReply, JobRequest, Reason
from mapveil.collector.operators.task import Task
from mapveil.collector.operators.verification import Secrets, noisy_share, prepare, scheme_for
from mapveil.collector.refusals import Conflict, NotFound
from mapveil.privacy.discrete_laplace import discrete_laplace
from mapveil.two_operators.aggregation import HELPER, LEADER
from mapveil_client.encodings import NodeEncoding
from mapveil_client.errors import BudgetExceeded, InputError, PromiseError
from mapveil_client.morton import PrefixTree
from mapveil_client.randomness.random import Randomness
from mapveil_client.terms import CollectionTerms
from mapveil_client.two_operators.sealed_report import HelperShare, Report
from tests.collector.engine.conftest import ACTOR

from .pair import OWN, SHARED, Pair, spec
from .test_malformed_reports import SITES, counted_twice

WHOLE = NodeEncoding(PrefixTree.uniform(2, 0))
CELLS = NodeEncoding(PrefixTree.uniform(2, 2))


def task_of(pair: Pair, **changes: Any) -> str:
    """A collection that the helper takes part in, led by a test."""
    id = str(pair.engine.create(spec(devices=20, **changes), ACTOR)["id"])
    with pair.stores[LEADER].read() as connection:
        from mapveil.collector.rounds.collection import find

        pair.terms = find(connection, id).terms
    pair.helper.begin(id, pair.terms.encode())
    return id


def request_of(terms: CollectionTerms, bodies: list[bytes]) -> tuple[Any, bytes]:
    """The leader's state of a job of these reports, and its request."""
    read = [Report.decode(body) for body in bodies]
    own = [HelperShare(each.metadata, each.public, each.shares[LEADER]) for each in read]
    made = prepare(terms, Secrets(OWN[LEADER], SHARED), own).operator
    opening = made.open([each.metadata.report_id for each in read])
    return made, JobRequest(tuple(map(HelperShare.of, read)), opening.shares).encode()


def verified(pair: Pair, id: str, bodies: list[bytes], number: int = 1) -> list[bool]:
    """Lead one job; what the leader accepted."""
    from mapveil.collector.operators.peer_messages import byte_rows
    from mapveil.two_operators.verification_messages import Response

    made, request = request_of(pair.terms, bodies)
    reply = JobReply.decode(pair.helper.job(id, number, request), len(bodies))
    columns = [byte_rows(each, len(bodies), "a reply") for each in (reply.message, reply.shares)]
    good = np.array([reason is Reason.NONE for reason in reply.reasons])
    closing = made.close(Response(columns[0], columns[1], good))
    told = JobClosing(closing.accepted.tolist(), closing.shares.tobytes()).encode()
    pair.helper.close(id, number, told)
    pair.helper.close(id, number, told)
    return list(closing.accepted)


def ask(encoding: Any = CELLS, epsilon: str = "1", purpose: str = "cells") -> bytes:
    return AskedQuery(purpose, encoding, Fraction(epsilon)).encode()


def test_a_malicious_leader_is_refused_a_sum_of_fewer_than_the_minimum_batch(pair_of: Any) -> None:
    pair = pair_of()
    id = task_of(pair)
    assert all(verified(pair, id, pair.reports(SITES[:19])))
    with pytest.raises(PromiseError, match="19 reports were accepted and 20 are needed"):
        pair.helper.answer(id, 1, ask())
    assert pair.other.ledger() == []


def test_a_malicious_leader_cannot_subtract_two_batches_that_differ_in_one_person(pair_of: Any) -> None:
    """After an answer no report is added, and a report of the batch is in no other one: nothing is left to subtract."""
    pair = pair_of()
    id = task_of(pair)
    bodies = pair.reports([*SITES, 3])
    assert all(verified(pair, id, bodies[:20]))
    pair.helper.answer(id, 1, ask())
    with pytest.raises(Conflict, match="answers have been given"):
        pair.helper.job(id, 2, request_of(pair.terms, bodies[20:])[1])
    first = pair.terms
    other = task_of(pair)
    _, request = request_of(first, bodies)
    reply = JobReply.decode(pair.helper.job(other, 1, request), 21)
    assert set(reply.reasons) == {Reason.SEALED_FOR_ANOTHER}
    assert (reply.message, reply.shares) == (b"", b"")


@pytest.mark.parametrize("sides", [(500_000_000, 1), (1 << 31, 1 << 31)])
def test_a_malicious_leader_cannot_fill_the_helpers_memory(pair_of: Any, sides: tuple[int, int]) -> None:
    """Terms of a few hundred bytes, whose cells as an array would take gigabytes."""
    pair = pair_of()
    id = task_of(pair)
    grid = {
        **json.loads(pair.terms.encode())["tiling"],
        "kind": "grid",
        "rows": sides[0],
        "columns": sides[1],
    }
    del grid["depth"]
    terms = dataclasses.replace(pair.terms, tiling=grid, identifier="0" * 16 + id[16:])
    with pytest.raises(InputError, match=f"{sides[0] * sides[1]} sites: expected at most"):
        pair.helper.begin(terms.identifier, terms.encode())


def test_a_malicious_leader_has_no_report_verified_twice(pair_of: Any) -> None:
    """Two sketches of one path, under two openings, would name its site."""
    pair = pair_of()
    id = task_of(pair)
    bodies = pair.reports(SITES)
    _, request = request_of(pair.terms, bodies)
    told = pair.helper.job(id, 1, request)
    pair.start()
    assert pair.helper.job(id, 1, request) == told
    other = JobRequest.decode(request)
    flipped = other._replace(openings=other.openings ^ 1).encode()
    with pytest.raises(Conflict, match="begun with another request"):
        pair.helper.job(id, 1, flipped)
    reply = JobReply.decode(pair.helper.job(id, 2, flipped), 20)
    assert set(reply.reasons) == {Reason.REPLAYED}
    assert not (reply.message + reply.shares).strip(b"\0")
    twice = JobRequest(other.shares[:1] * 2, other.openings[:2]).encode()
    with pytest.raises(InputError, match="one report twice"):
        pair.helper.job(id, 3, twice)


@pytest.mark.parametrize("second", ["answer", "job"])
def test_two_services_of_one_helper_answer_no_two_batches(
    pair_of: Any, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job of one more report and an answer race: whichever commits later is refused."""
    from mapveil.collector.operators import helper as steps

    pair = pair_of()
    id = task_of(pair)
    bodies = pair.reports([*SITES, 3])
    verified(pair, id, bodies[:20])
    other = Helper(pair.stores[HELPER], OWN[HELPER], SHARED)
    request = request_of(pair.terms, bodies[20:])[1]

    def job(helper: Helper) -> bytes:
        return helper.job(id, 2, request)

    def answer(helper: Helper) -> bytes:
        return helper.answer(id, 1, ask(epsilon="1"))

    work, first, late = ("noisy_share", job, answer) if second == "answer" else ("prepare", answer, job)
    real = getattr(steps, work)

    def racing(*given: Any) -> Any:
        monkeypatch.setattr(steps, work, real)
        first(other)
        return real(*given)

    monkeypatch.setattr(steps, work, racing)
    with pytest.raises(Conflict, match=r"another process|answers have been given"):
        late(pair.helper)
    with pair.stores[HELPER].read() as connection:
        jobs = records.next_number(connection, id) - 1
        assert (jobs, len(records.answers_of(connection, id))) == ((2, 0) if second == "answer" else (1, 1))


def test_a_malicious_leader_gets_no_more_than_the_helpers_own_budget(pair_of: Any) -> None:
    pair = pair_of()
    id = task_of(pair)
    verified(pair, id, pair.reports(SITES))
    first = pair.helper.answer(id, 1, ask(epsilon="3/2"))
    pair.start()
    assert pair.helper.answer(id, 1, ask(epsilon="3/2")) == first
    with pytest.raises(Conflict, match="another query"):
        pair.helper.answer(id, 1, ask(epsilon="3/2", purpose="again"))
    with pytest.raises(BudgetExceeded, match=r"0\.5 is left"):
        pair.helper.answer(id, 2, ask(epsilon="1"))
    pair.helper.answer(id, 2, ask(WHOLE, "1/2", "total"))
    with pytest.raises(BudgetExceeded):
        pair.helper.answer(id, 3, ask(WHOLE, "1/1000000", "once more"))
    assert sum(Fraction(line["epsilon"]) for line in pair.other.ledger()) == 2


def test_a_malicious_leader_cannot_change_the_terms_nor_ask_on_another_raster(pair_of: Any) -> None:
    pair = pair_of()
    id = task_of(pair)
    for changed in (
        dataclasses.replace(pair.terms, epsilon=Fraction(4)),
        dataclasses.replace(pair.terms, minimum=3, options={**pair.terms.options, "minimum_batch": 1}),
    ):
        with pytest.raises(Conflict, match="other terms"):
            pair.helper.begin(id, changed.encode())
    alone = dataclasses.replace(pair.terms, operators=pair.terms.operators[::-1])
    with pytest.raises(InputError, match="one of which is this one"):
        pair.helper.begin(id, alone.encode())
    with pytest.raises(NotFound):
        pair.helper.answer("0" * 32, 1, ask())
    verified(pair, id, pair.reports(SITES))
    with pytest.raises(PromiseError, match="raster must be 2"):
        pair.helper.answer(id, 1, ask(NodeEncoding(PrefixTree.uniform(3, 3))))


def test_a_device_answers_no_leader_that_names_itself_as_helper(pair_of: Any) -> None:
    from mapveil_client.policy import DevicePolicy

    pair = pair_of()
    task_of(pair)
    helper = OWN[HELPER].config.public_key.hex()
    policy = DevicePolicy(helper=helper)
    assert policy.refusal(pair.terms) is None
    both = OperatorKeys(b"\3" * 32, HELPER).config
    own = dataclasses.replace(pair.terms, operators=(pair.terms.operators[0], both.encode().hex()))
    assert "the helper's key must be" in str(policy.refusal(own))
    assert "names no helper" in str(DevicePolicy().refusal(dataclasses.replace(pair.terms)))


class _Lying:
    """A helper that changes what it answers."""

    def __init__(self, helper: Helper, change: Callable[[str, bytes], bytes]) -> None:
        self._helper, self._change = helper, change

    def __getattr__(self, name: str) -> Any:
        honest = getattr(self._helper, name)

        def act(*given: Any) -> Any:
            made = honest(*given)
            return self._change(name, made) if name in ("job", "answer") else made

        return act


def lying(name: str, change: Callable[[bytes], bytes]) -> Callable[[Helper], _Lying]:
    return lambda helper: _Lying(helper, lambda asked, made: change(made) if asked == name else made)


def _reply(made: bytes, **parts: Any) -> bytes:
    return JobReply.decode(made, 20)._replace(**parts).encode()


@pytest.mark.parametrize(
    "change",
    [
        lambda made: _reply(made, message=bytes(len(JobReply.decode(made, 20).message))),
        lambda made: _reply(made, shares=b"\1" * len(JobReply.decode(made, 20).shares)),
        lambda made: _reply(made, message=b"\xff" * len(JobReply.decode(made, 20).message)),
    ],
)
def test_a_malicious_helper_that_forges_the_checks_gets_no_report_accepted(pair_of: Any, change: Any) -> None:
    pair = pair_of(meddle=lying("job", change))
    id = pair.open(devices=20)
    pair.send(id, pair.reports(SITES))
    assert pair.play(id) == "aborted"
    assert "0 reports were accepted" in pair.engine.collection(id)["reason"]
    assert pair.engine.ledger() == []


def test_a_malicious_helper_cannot_accept_a_report_that_the_proof_refuses(pair_of: Any) -> None:
    """The leader judges for itself: a helper that says that all is well changes nothing."""
    pair = pair_of(meddle=lying("job", lambda made: _reply(made, reasons=(Reason.NONE,) * 20)))
    id = pair.open(devices=20, minimum=19)
    bodies = pair.reports(SITES)
    # A client that counts for two: the leader's share of one report, the helper's of its twin elsewhere.
    spoilt = counted_twice(pair.terms)
    pair.send(id, [spoilt, *bodies[1:]])
    assert pair.play(id) == "done"
    assert pair.engine.account(id)["accepted"] == 19


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda made: b"\xff" * len(made), "malformed"),
        (lambda made: made[:-8], "malformed|sums; expected"),
        (lambda made: made[:-1], "malformed"),
        (lambda made: b"\0", "malformed"),
    ],
)
def test_a_malicious_helper_whose_answer_is_none_ends_the_collection(
    pair_of: Any, change: Any, why: str
) -> None:
    import re

    pair = pair_of(meddle=lying("answer", change))
    id = pair.open(devices=20)
    pair.send(id, pair.reports(SITES))
    assert pair.play(id) == "aborted"
    assert re.search(why, pair.engine.collection(id)["reason"])
    assert len(pair.engine.ledger()) == 1  # what was charged stays charged


@pytest.mark.parametrize("operator", [LEADER, HELPER])
def test_the_epsilon_of_each_operators_view_holds_and_half_the_noise_is_caught(
    pair_of: Any, operator: int
) -> None:
    """One operator knows the exact sums but for the other's noise: its law is that of the whole epsilon."""
    pair = pair_of()
    task_of(pair)
    scheme, epsilon = scheme_for(pair.terms), Fraction(2)
    sums = scheme.field.encode(scheme.field.zeros(scheme.sites)[None])[0].tobytes()
    query = AskedQuery("cells", CELLS, epsilon)
    drawn = []
    for secret in range(120):
        keys = Secrets(OperatorKeys(secret.to_bytes(32, "big"), operator), SHARED)
        share = noisy_share(pair.terms, keys, Task(operator, sums, 20, {}), [], query)
        elements = scheme.field.decode(np.frombuffer(share, dtype=np.uint8)[None])[0][0]
        values = scheme.field.integers(elements)
        drawn += [value - scheme.field.modulus if value > 1 << 62 else value for value in values]
    zeros, count = drawn.count(0), len(drawn)

    def accepted(at: Fraction) -> bool:
        p = np.exp(-float(at))
        low, high = binom.interval(1 - 1e-6, count, (1 - p) / (1 + p))
        return bool(low <= zeros <= high)

    assert accepted(epsilon)
    assert not accepted(2 * epsilon)
    halved = discrete_laplace(count, 2 * epsilon, 1, Randomness(1))
    zeros = int((halved == 0).sum())
    assert not accepted(epsilon)


def test_what_an_operator_publishes_names_no_report_and_no_device(pair_of: Any) -> None:
    pair = pair_of()
    id = pair.open(devices=20)
    pair.send(id, pair.reports(SITES))
    assert pair.play(id) == "done"
    account = pair.engine.account(id)
    assert set(account) == {"collection", "terms", "operator", "accepted", "refused", "answers", "epsilon"}
    with pair.stores[LEADER].read() as connection:
        assert records.find_task(connection, id).accepted == account["accepted"]
