"""Two operators as an answerer of plans: one message a client, noise of both, and a promise against either."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import mapveil as mv
from mapveil.attacks.audited_inputs import worst_neighbours
from mapveil.attacks.epsilon_audit import audit_epsilon
from mapveil.geo.counts import Counts
from mapveil.mechanisms.laplace_histogram import LaplaceHistogram
from mapveil.mechanisms.methods import METHODS, find_method
from mapveil.privacy.claim import Adversary, Assumes, Neighbouring, TrustModel
from mapveil.secure_sum.protocol_sum import ProtocolSum
from mapveil.trust import two_operators
from mapveil.trust.queries import Execution, Query
from mapveil.trust.two_operators import TwoOperators
from mapveil.two_operators import sum_schemes
from mapveil_client.encodings import NodeEncoding
from mapveil_client.errors import InputError, ParameterError, PromiseError
from mapveil_client.morton import PrefixTree
from mapveil_client.randomness.random import Randomness
from mapveil_client.two_operators import field_arithmetic, sharding, turbo_shake
from mapveil_client.two_operators.sealed_report import TASK_BYTES

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
SMALL = mv.Quadtree(REGION, depth=2)
MUCH = 10**9
ROWS = [method for method in METHODS if method.trust == "operators"]


@pytest.fixture(autouse=True)
def plain_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled kernels take seconds to compile; tests/two_operators runs both."""
    for module in (field_arithmetic, turbo_shake):
        monkeypatch.setattr(module, "COMPILE_AFTER_S", math.inf)


def some_counts(tiling: mv.Quadtree = SMALL, users: int = 60) -> Counts:
    generator = np.random.default_rng(0)
    weights = generator.pareto(1.0, tiling.size) + 1e-3
    return Counts(generator.multinomial(users, weights / weights.sum()).astype(np.int64), tiling)


def visits(users: int = 30) -> mv.Points:
    generator = np.random.default_rng(4)
    rows = 3 * users
    return mv.Points.from_arrays(
        np.arange(rows) % users,
        generator.uniform(-74.05, -73.91, rows),
        generator.uniform(40.70, 40.82, rows),
    )


def plain(scale: int | None = None) -> LaplaceHistogram:
    return LaplaceHistogram(epsilon=MUCH, trust=TwoOperators(scale=scale), accept_large_epsilon=True)


def test_every_plan_over_sums_has_two_operators_as_a_third_answerer() -> None:
    over_sums = {method.name for method in METHODS if method.trust == "distributed"}
    assert {method.name for method in ROWS} == over_sums - {"local-laplace", "proportions"}


def test_the_promise_names_both_operators_the_neighbours_and_a_malicious_one() -> None:
    guarantee = LaplaceHistogram(epsilon=1, trust=TwoOperators()).release(some_counts(), rng=1).guarantee
    assert (guarantee.model, guarantee.adversary) == (TrustModel.TWO_OPERATORS, Adversary.EITHER_OPERATOR)
    assert guarantee.neighbours is Neighbouring.ZERO_OUT
    assert guarantee.simulated
    assert {Assumes.OPERATORS_APART(), Assumes.SECRET_SHARES()} <= set(guarantee.assumptions)
    words = guarantee.in_words()
    for said in (
        "the leader or the helper",
        "replaced by zero",
        "deviates from the protocol",
        "do not collude",
        "learn noisy sums, who takes part and which reports pass",
    ):
        assert said in words


@pytest.mark.parametrize("protocol", [False, True], ids=["in the clear", "in full"])
def test_counts_and_visits_come_back_without_noise(protocol: bool) -> None:
    transport = ProtocolSum() if protocol else None
    counts = some_counts()
    heat = plain().release(counts, rng=1, secure_sum=transport)
    np.testing.assert_array_equal(heat.values, counts.values)
    table = plain(scale=16).release(visits(), SMALL, rng=1, secure_sum=transport)
    np.testing.assert_array_equal(table.values, plain(scale=16).release(visits(), SMALL, rng=1).values)
    assert table.values.sum() <= 30


def test_all_the_cryptography_gives_the_sums_that_are_added_in_the_clear() -> None:
    """The same seed draws the same noise, so that the maps are equal to the bit."""
    for name in ("adaptive", "multiscale"):
        mechanism = find_method(name, "operators").make(1)
        clear, full = (
            mechanism.release(some_counts(), rng=3, secure_sum=how) for how in (None, ProtocolSum())
        )
        np.testing.assert_array_equal(clear.values, full.values)
        assert len(full.guarantee.shares) == len(clear.guarantee.shares)


def test_adaptive_rounds_are_charged_one_by_one_for_one_message(tmp_path: Path) -> None:
    account = mv.Account(ledger=mv.Ledger(tmp_path / "ledger.sqlite"))
    heat = (
        find_method("adaptive", "operators")
        .make(1, {"schedule": "even", "rounds": 3})
        .release(visits(200), mv.Quadtree(REGION, 4), account=account)
    )
    assert len(heat.guarantee.shares) > 1
    assert sum(share.epsilon for share in heat.guarantee.shares) <= 1
    assert heat.guarantee.account is not None
    assert len(heat.guarantee.account.entries) == len(heat.guarantee.shares)
    assert len(heat.rounds) == 1, "a device sends one message, whatever is asked"


def test_a_message_is_within_its_reach() -> None:
    """A vector of 1,024 numbers of sum 16, and a path of depth 10."""
    fine = mv.Quadtree(REGION, depth=5)
    (vector,) = plain(scale=16).release(some_counts(fine), rng=1).rounds
    assert vector.length == 1024
    assert vector.bytes_up["report"] < 100_000
    (path,) = plain().release(some_counts(mv.Quadtree(REGION, depth=10)), rng=1).rounds
    assert path.bytes_up["report"] < 2_000


def test_devices_that_drop_out_are_not_missed() -> None:
    heat = plain().release(some_counts(), rng=1, dropout=0.25, secure_sum=ProtocolSum())
    assert heat.values.sum() == 45
    assert (heat.rounds[0].devices, heat.rounds[0].included) == (60, 45)


def test_fewer_devices_than_the_minimum_batch_release_nothing_and_spend_nothing(tmp_path: Path) -> None:
    ledger, few = mv.Ledger(tmp_path / "ledger.sqlite"), visits(9)
    with pytest.raises(PromiseError, match="9 devices report and 10 are needed"):
        LaplaceHistogram(epsilon=1, trust=TwoOperators()).release(
            few, SMALL, account=mv.Account(ledger=ledger)
        )
    assert ledger.account(ledger.recognise(few)).spent == 0


def test_noise_of_both_operators_is_in_the_sums() -> None:
    mechanism = LaplaceHistogram(epsilon=Fraction(1, 2), trust=TwoOperators())
    empty = Counts(np.concatenate([[12], np.zeros(1023, dtype=np.int64)]), mv.Quadtree(REGION, depth=5))
    noise = np.concatenate(
        [mechanism.release(empty, rng=seed).measurements[0].noisy[1:] for seed in range(4)]
    )
    q = np.exp(-0.5)
    assert noise.var() == pytest.approx(2 * 2 * q / (1 - q) ** 2, rel=0.15)
    assert noise.min() < 0


def test_the_view_of_either_operator_keeps_the_claim_and_half_the_noise_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The audit leaves one operator's noise out: the other operator subtracts its own."""
    mechanism, pairs = (
        LaplaceHistogram(epsilon=1, trust=TwoOperators(minimum_batch=1)),
        worst_neighbours(SMALL),
    )
    report = audit_epsilon(mechanism, pairs, trials=1_500, rng=3)
    assert report.holds, report
    assert report.epsilon_lower > 0.4, "the audit saw nothing, so it could not have seen a fault"
    draw = two_operators.discrete_laplace

    def halved(count: int, epsilon: Fraction, sensitivity: int, rng: Randomness) -> object:
        return draw(count, 2 * epsilon, sensitivity, rng)

    monkeypatch.setattr(two_operators, "discrete_laplace", halved)
    assert not audit_epsilon(mechanism, pairs, trials=1_500, rng=3).holds


def test_the_view_of_one_operator_is_not_audited_through_the_protocol() -> None:
    """Operators of the protocol both add noise: such an audit would be of the noise of both."""
    raster = plain().raster(SMALL)
    audited = Execution(Randomness(1), secure_sum=ProtocolSum())
    with pytest.raises(ParameterError, match="least_noise must be False"):
        TwoOperators().answerer(some_counts(), SMALL, raster, audited, least_noise=True)
    TwoOperators().answerer(some_counts(), SMALL, raster, Execution(Randomness(1)), least_noise=True)


def test_the_deepest_raster_of_a_path_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = plain().release(some_counts(), rng=1).rounds
    monkeypatch.setattr(sharding, "DEEPEST", 1)
    with pytest.raises(ParameterError, match="from 0 to 1"):
        sum_schemes.PathScheme(2, bytes(32))
    (vector,) = plain().release(some_counts(), rng=1).rounds
    assert (vector.length, path.length) == (16, 16)
    assert vector.bytes_up["report"] != path.bytes_up["report"]


def test_each_collection_has_an_id_of_its_own_from_the_releases_randomness() -> None:
    """Also of one seeded stream; the scheme of clients and operators is of this id."""
    rng = Randomness(1)
    ids = [
        TwoOperators()
        .answerer(some_counts(), SMALL, plain().raster(SMALL), Execution(rng))
        ._scheme.collection
        for _ in range(2)
    ]
    again = TwoOperators().answerer(some_counts(), SMALL, plain().raster(SMALL), Execution(Randomness(1)))
    assert ids[0] != ids[1]
    assert again._scheme.collection == ids[0]
    assert {len(each) for each in ids} == {TASK_BYTES}


def test_a_query_that_is_refused_draws_no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_operators, "MOST_SAMPLES", 16)
    answerer = TwoOperators().answerer(some_counts(), SMALL, plain().raster(SMALL), Execution(Randomness(1)))
    cells, whole = (NodeEncoding(PrefixTree.uniform(2, depth)) for depth in (2, 0))
    answerer.answer(Query("whole", whole, Fraction(1)))
    with pytest.raises(ParameterError, match="16 samples of noise, got 17"):
        answerer.answer(Query("cells", cells, Fraction(1)))
    answerer.answer(Query("whole again", whole, Fraction(1)))
    assert [share.purpose for share in answerer.revealed] == ["whole", "whole again"]


def test_what_two_operators_cannot_do_is_refused() -> None:
    with pytest.raises(InputError, match="curator's sums have no clients"):
        plain().release(mv.engines.user_sums(visits(), SMALL), rng=1)
    with pytest.raises(ParameterError, match="active"):
        mv.release(visits(), SMALL, epsilon=1, trust="operators", secure_sum="active", rng=1)
    with pytest.raises(ParameterError, match="region"):
        mv.release(visits(), epsilon=1, trust="operators", rng=1)
    with pytest.raises(ParameterError, match="privtree cannot run with trust operators"):
        dataclasses.replace(find_method("privtree").make(1), trust=TwoOperators())
    with pytest.raises(InputError, match="65536 sites is too long"):
        plain(scale=2).release(some_counts(mv.Quadtree(REGION, depth=8)), rng=1, secure_sum=ProtocolSum())
