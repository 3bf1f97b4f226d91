"""Two operators: reports count once, malformed ones change nothing, and each answers with noise, within its budget."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from mapveil.two_operators.aggregation import HELPER, LEADER, Operator, verify_together
from mapveil.two_operators.sum_schemes import PathScheme, Scheme, VectorScheme, noisy_sums_of
from mapveil.two_operators.verification_messages import Closing, InputShares, Opening
from mapveil_client.arrays import IntArray
from mapveil_client.encodings import NodeEncoding
from mapveil_client.errors import BudgetExceeded, PromiseError
from mapveil_client.morton import PrefixTree
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.states import OwnFault, PeerFault
from mapveil_client.two_operators.finite_fields import Elements
from mapveil_client.two_operators.validity_circuits import L1BoundSum

KEY = bytes(range(32))
COLLECTION = b"test collection." * 2
SITES = NodeEncoding(PrefixTree.uniform(1, 1))  # four sites, each for itself
TOTAL = NodeEncoding(PrefixTree.uniform(1, 0))
SURE = Fraction(1000)  # an epsilon at which noise is zero but once in e^250
SCHEMES: list[Scheme] = [VectorScheme(4, 3, COLLECTION), PathScheme(1, COLLECTION)]
OF_SCHEME = pytest.mark.parametrize("scheme", SCHEMES, ids=["vectors", "paths"])
Sent = list[tuple[InputShares, InputShares]]


def operators(scheme: Scheme, budget: Fraction = 3 * SURE, minimum: int = 1) -> tuple[Operator, Operator]:
    leader, helper = (
        Operator(scheme, number, COLLECTION, KEY, budget, minimum) for number in (LEADER, HELPER)
    )
    return leader, helper


def reports(scheme: Scheme, contributions: IntArray, seed: int = 0) -> Sent:
    generator = np.random.default_rng(seed)
    count = len(contributions)
    nonces, randomness = (
        generator.integers(0, 256, (count, size), dtype=np.uint8) for size in (16, scheme.randomness_bytes)
    )
    made = scheme.shard(contributions, nonces, randomness)
    return [
        (
            InputShares(nonces[i].tobytes(), made.public[i].tobytes(), made.inputs[0][i].tobytes()),
            InputShares(nonces[i].tobytes(), made.public[i].tobytes(), made.inputs[1][i].tobytes()),
        )
        for i in range(count)
    ]


def one_hot(sites: list[int]) -> IntArray:
    return (np.array(sites)[:, None] == np.arange(4)).astype(np.int64)


def collected(scheme: Scheme, sent: Sent, budget: Fraction = 3 * SURE) -> tuple[Operator, Operator]:
    both = operators(scheme, budget)
    for operator, column in zip(both, zip(*sent, strict=True), strict=True):
        operator.receive(column)
    verify_together(*both, batch=500)
    return both


def exact(scheme: Scheme, both: tuple[Operator, Operator]) -> list[int]:
    shares = [operator.answer("sites", SITES, SURE, Randomness(9)) for operator in both]
    return noisy_sums_of(scheme, (shares[0], shares[1])).tolist()


@OF_SCHEME
def test_reports_add_up_and_a_client_may_add_nothing(scheme: Scheme) -> None:
    contributions = np.concatenate([one_hot([0, 3, 3, 1, 3]), np.zeros((2, 4), dtype=np.int64)])
    both = collected(scheme, reports(scheme, contributions))
    assert [operator.accepted for operator in both] == [7, 7]
    assert exact(scheme, both) == [1, 1, 0, 3]


@OF_SCHEME
def test_replays_and_duplicates_count_once(scheme: Scheme) -> None:
    sent = reports(scheme, one_hot([0, 1, 2]))
    again = reports(scheme, one_hot([3, 3, 3]), seed=1)
    renamed = [
        (a._replace(nonce=b.nonce), c._replace(nonce=b.nonce))
        for (a, c), (b, _) in zip(again, sent, strict=True)
    ]
    leader, helper = operators(scheme)
    for number, operator in enumerate((leader, helper)):
        for batch in (sent, sent, renamed):
            operator.receive(pair[number] for pair in batch)
    verify_together(leader, helper)
    assert not leader.receive(pair[0] for pair in sent), "a report is taken again after it was verified"
    assert exact(scheme, (leader, helper)) == [1, 1, 1, 0]


class _LyingCircuit(L1BoundSum):
    def encode(self, measurements: IntArray) -> Elements:
        bits = np.zeros((len(measurements), self.shape.length), dtype=np.int64)
        bits[:, :4] = measurements
        return self.over.small(bits)


def _lying() -> VectorScheme:
    """Clients that send elements that are no bits, and claim a sum of none."""
    scheme = VectorScheme(4, 3, COLLECTION)
    honest = scheme.vdaf
    assert isinstance(honest.circuit, L1BoundSum)
    circuit = _LyingCircuit(count=4, most=3, chunk=honest.circuit.chunk)
    scheme.__dict__["vdaf"] = dataclasses.replace(honest, circuit=circuit)
    return scheme


def _byte(octets: bytes, at: int, generator: np.random.Generator) -> bytes:
    changed = bytearray(octets)
    changed[at % len(changed)] ^= int(generator.integers(1, 256))
    return bytes(changed)


Pair = tuple[InputShares, InputShares]


def _both_public(pair: Pair, public: bytes) -> Pair:
    return pair[0]._replace(public=public), pair[1]._replace(public=public)


Break = Callable[[Pair, np.random.Generator], Pair]
KINDS: dict[str, Break] = {
    "an input too short": lambda pair, g: (pair[0]._replace(input=pair[0].input[:-1]), pair[1]),
    "an input too long": lambda pair, g: (pair[0], pair[1]._replace(input=pair[1].input + b"\0")),
    "nothing at all": lambda pair, g: (InputShares(b"", b"", b""), InputShares(b"", b"", b"")),
    "a number that is no element": lambda pair, g: (
        pair[0]._replace(input=b"\xff" * len(pair[0].input)),
        pair[1],
    ),
    "a changed measurement share": lambda pair, g: (
        pair[0]._replace(input=_byte(pair[0].input, int(g.integers(0, 64)), g)),
        pair[1],
    ),
    "a changed proof share": lambda pair, g: (
        pair[0]._replace(input=_byte(pair[0].input, -33 - int(g.integers(0, 64)), g)),
        pair[1],
    ),
    "a changed seed": lambda pair, g: (
        pair[0],
        pair[1]._replace(input=_byte(pair[1].input, int(g.integers(0, 32)), g)),
    ),
    "a changed blind": lambda pair, g: (pair[0], pair[1]._replace(input=_byte(pair[1].input, -1, g))),
    "a changed public share": lambda pair, g: _both_public(
        pair, _byte(pair[0].public, int(g.integers(0, 64)), g)
    ),
    "a nonce of another report": lambda pair, g: (
        pair[0]._replace(nonce=pair[0].nonce[::-1]),
        pair[1]._replace(nonce=pair[1].nonce[::-1]),
    ),
    "half a report": lambda pair, g: (pair[0], InputShares(b"", b"", b"")),
}  # and the twelfth: elements that are no bits, with a proof made for them


def test_ten_thousand_malformed_reports_of_twelve_kinds_change_nothing() -> None:
    """Honest reports among them are in the sum, and nothing else is."""
    scheme, generator = SCHEMES[0], np.random.default_rng(5)
    each = 10_000 // 12 + 1
    honest = reports(scheme, one_hot([0, 1, 2, 3, 3]))
    sent = list(honest)
    for number, (kind, broken) in enumerate(KINDS.items()):
        made = [broken(pair, generator) for pair in reports(scheme, one_hot([2] * each), seed=10 + number)]
        assert len(made) == each, kind
        sent += made
    lies = generator.integers(2, 1 << 40, (each, 4))
    sent += reports(_lying(), lies, seed=99)
    assert len(sent) - len(honest) >= 10_000
    order = generator.permutation(len(sent))
    both = collected(scheme, [sent[at] for at in order.tolist()])
    assert [operator.accepted for operator in both] == [5, 5]
    assert exact(scheme, both) == [1, 1, 1, 2]


def test_a_malicious_helper_sees_the_same_whatever_a_client_reports() -> None:
    """Its part of a report does not depend on the location: a seed, and a hash of a share that it does not see."""
    scheme = SCHEMES[0]
    here, there = (reports(scheme, one_hot([site]), seed=4)[0] for site in (0, 3))
    assert here[1].nonce == there[1].nonce
    assert here[1].input == there[1].input
    # Of the public share, 32 bytes are a hash of the leader's share under the leader's blind; the others are its own.
    assert here[1].public[32:] == there[1].public[32:]


@OF_SCHEME
def test_a_malicious_leader_sees_shares_that_are_uniform(scheme: Scheme) -> None:
    """Bytes of the leader's input share, over random reports of one location, are as of any other."""
    size = scheme.sizes(LEADER)[1]
    counts = []
    for seed, site in ((6, 0), (7, 3)):
        octets = b"".join(pair[0].input for pair in reports(scheme, one_hot([site] * 300), seed=seed))
        counts.append(np.bincount(np.frombuffer(octets, dtype=np.uint8) & 15, minlength=16))
    for count in counts:
        expected = 300 * size / 16
        assert ((count - expected) ** 2 / expected).sum() < 60  # 15 degrees of freedom: 60 once in 4 million


@OF_SCHEME
@pytest.mark.parametrize("malicious", [LEADER, HELPER])
def test_a_malicious_operator_without_its_noise_meets_the_others(scheme: Scheme, malicious: int) -> None:
    """It knows its own exact share; what it is told is the other's share with the other's whole noise."""
    epsilon, draws = Fraction(1, 2), 1200
    both = collected(scheme, reports(scheme, one_hot([0, 3])), budget=Fraction(10**6))
    other = both[1 - malicious]
    own = scheme.field.encode(both[malicious]._share[None])
    rng, seen = Randomness(3), []
    for _ in range(draws // 4):
        told = other.answer("sites", SITES, epsilon, rng)
        shares = (own, told) if malicious == LEADER else (told, own)
        seen.append(noisy_sums_of(scheme, shares) - [1, 0, 0, 1])
    noise = np.concatenate(seen)
    rate = float(epsilon) / scheme.most
    # The discrete Laplace law: mean 0, and E|Z| = 2 q / (1 - q^2).
    q = np.exp(-rate)
    mean, deviation = 2 * q / (1 - q * q), np.sqrt(2 * q) / (1 - q)
    assert abs(noise.mean()) < 5 * deviation / np.sqrt(draws)
    assert abs(np.abs(noise).mean() - mean) < 5 * deviation / np.sqrt(draws)


@OF_SCHEME
def test_a_malicious_leader_cannot_have_a_report_counted_or_verified_twice(scheme: Scheme) -> None:
    sent = reports(scheme, one_hot([0, 1]))
    leader, helper = operators(scheme)
    for number, operator in enumerate((leader, helper)):
        operator.receive(pair[number] for pair in sent)
    victim = sent[0][0].nonce
    opening = leader.open([victim])
    twice = Opening(np.repeat(opening.nonces, 2, axis=0), np.repeat(opening.shares, 2, axis=0))
    response = helper.respond(twice)
    assert response.accepted.tolist() == [True, False]
    with pytest.raises(OwnFault):
        helper.respond(opening)  # one is under way
    assert victim not in helper.waiting


def test_a_malicious_leader_asks_a_helper_within_the_helpers_budget_only() -> None:
    scheme = SCHEMES[0]
    _, helper = collected(scheme, reports(scheme, one_hot([0, 1])), budget=Fraction(1))
    helper.answer("first", SITES, Fraction(3, 4), Randomness(1))
    with pytest.raises(BudgetExceeded, match="is left, so nothing is answered"):
        helper.answer("second", TOTAL, Fraction(1, 2), Randomness(1))
    assert [(share.purpose, share.epsilon) for share in helper.answered] == [("first", Fraction(3, 4))]
    helper.answer("second", TOTAL, Fraction(1, 4), Randomness(1))


def test_a_batch_below_the_minimum_is_not_answered() -> None:
    """The leader verifies its victim alone, and asks: the batch is too small, and nothing is charged or told."""
    scheme = SCHEMES[0]
    sent = reports(scheme, one_hot([0, 1, 2]))
    leader, helper = operators(scheme, minimum=3)
    for number, operator in enumerate((leader, helper)):
        operator.receive(pair[number] for pair in sent)
    helper.settle(leader.close(helper.respond(leader.open([sent[0][0].nonce]))))
    with pytest.raises(PromiseError, match="1 reports were accepted and 3 are needed"):
        helper.answer("sites", SITES, SURE, Randomness(1))
    assert helper.answered == []


@OF_SCHEME
@pytest.mark.parametrize("malicious", [LEADER, HELPER])
def test_a_malicious_operators_changed_shares_drop_the_report(scheme: Scheme, malicious: int) -> None:
    """A verifier share changed by whatever amount: the other operator accepts nothing, and tells nothing but that."""
    sent = reports(scheme, one_hot([0, 1]))
    leader, helper = operators(scheme)
    for number, operator in enumerate((leader, helper)):
        operator.receive(pair[number] for pair in sent)
    opening = leader.open(leader.waiting)
    if malicious == LEADER:
        shares = opening.shares.copy()
        shares[:, 0] ^= 1
        closing = leader.close(helper.respond(opening._replace(shares=shares)))
        helper.settle(closing._replace(accepted=np.ones(2, dtype=np.bool_)))
        assert helper.accepted == 0
    else:
        response = helper.respond(opening)
        message = response.message.copy()
        message[:, 0] ^= 1
        leader.close(response._replace(message=message))
        assert leader.accepted == 0


def test_answers_end_the_collection() -> None:
    scheme = SCHEMES[0]
    leader, helper = collected(scheme, reports(scheme, one_hot([0, 1])))
    leader.answer("sites", SITES, Fraction(1), Randomness(1))
    leader.receive(pair[0] for pair in reports(scheme, one_hot([2]), seed=8))
    with pytest.raises(OwnFault, match="or it has answered"):
        leader.open(leader.waiting)
    with pytest.raises(OwnFault, match="no verification"):
        helper.settle(Closing(np.zeros((1, 0), dtype=np.uint8), np.ones(1, dtype=np.bool_)))


@OF_SCHEME
def test_a_malformed_message_changes_nothing(scheme: Scheme) -> None:
    sent = reports(scheme, one_hot([0, 1]))
    leader, helper = operators(scheme)
    for number, operator in enumerate((leader, helper)):
        operator.receive(pair[number] for pair in sent)
    opening = leader.open(leader.waiting)
    for wrong in (
        opening._replace(shares=opening.shares[:, 1:]),
        opening._replace(nonces=opening.nonces[:, 1:]),
        opening._replace(nonces=np.zeros((2, 16), dtype=np.uint8)),
    ):
        with pytest.raises(PeerFault):
            helper.respond(wrong)
    response = helper.respond(opening)
    for bad in (
        response._replace(message=response.message[:, 1:]),
        response._replace(accepted=response.accepted[1:]),
        response._replace(shares=np.zeros((2, 77), dtype=np.uint8)),
    ):
        with pytest.raises(PeerFault):
            leader.close(bad)
    closing = leader.close(response)
    with pytest.raises(PeerFault):
        helper.settle(closing._replace(accepted=closing.accepted[:1]))
    helper.settle(closing)
    assert exact(scheme, (leader, helper)) == [1, 1, 0, 0]


@OF_SCHEME
def test_negative_sums_survive_the_fields_wrap_around(scheme: Scheme) -> None:
    both = collected(scheme, reports(scheme, np.zeros((2, 4), dtype=np.int64)), budget=Fraction(10**6))
    epsilon, rng = Fraction(1, 1000), Randomness(2)
    shares = [operator.answer("sites", SITES, epsilon, rng) for operator in both]
    sums = noisy_sums_of(scheme, (shares[0], shares[1]))
    assert sums.min() < 0
    assert np.abs(sums).max() < 10**6


def test_a_share_that_makes_no_sums_is_an_operators_fault() -> None:
    scheme = SCHEMES[0]
    both = collected(scheme, reports(scheme, one_hot([0])))
    share = both[0].answer("sites", SITES, SURE, Randomness(1))
    with pytest.raises(PeerFault, match="make no sums"):
        noisy_sums_of(scheme, (share, share))
    with pytest.raises(PeerFault, match="malformed"):
        noisy_sums_of(scheme, (share, np.full_like(share, 255)))
