"""What mechanisms share: the noise on sums, the number of users, and what a release carries."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest
from scipy import stats

import mapveil as mv
from mapveil.engines import UNIT, UserSums
from mapveil.mechanisms.laplace_histogram import LaplaceHistogram
from mapveil.mechanisms.sum_mechanism import SumMechanism
from mapveil.privacy.claim import ContributionBound, Neighbouring, Norm
from mapveil.privacy.discrete_laplace import discrete_laplace
from mapveil.privacy.sampling import sampling_delta
from mapveil.trust.curator import Curator, noisy_sums
from mapveil.trust.queries import Estimate, Execution, Query, Raster
from mapveil_client.encodings import NodeEncoding
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.morton import PrefixTree
from mapveil_client.randomness.random import Randomness

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
TILING = mv.Quadtree(REGION, depth=2)
CERTAIN = 1e-9


def counts():
    return mv.Counts(np.arange(16, dtype=np.int64), TILING)


@dataclass(frozen=True, kw_only=True)
class Spender(SumMechanism):
    """Spends what it is told to."""

    name: ClassVar[str] = "spender"
    summary: ClassVar[str] = "for tests"
    source: ClassVar[str] = "none"

    spends: Fraction = Fraction(1)
    width: int = 3

    def __post_init__(self):
        super().__post_init__()
        self._check(self.width > 0, "width", "a whole number above 0")

    def plan(self, setting):
        yield Query("all", NodeEncoding(PrefixTree.uniform(setting.depth, 0)), self.spends)
        return Estimate(np.zeros(setting.members.size), (), ("spent it",))


def number_of_users(sums, **parameters):
    """What a plan is told of the number of users."""
    raster = Raster.of(TILING.lattice())
    curator = Curator(**parameters)

    def asked(seed):
        answerer = curator.answerer(UserSums(sums, TILING), TILING, raster, Execution(Randomness(seed)))
        mechanism = Spender(epsilon=1, trust=curator)
        halves = mechanism.number_of_users(answerer.setting)
        try:
            query = next(halves)
            halves.send(answerer.answer(query))
        except StopIteration as stop:
            return stop.value, answerer.revealed

    return asked


def test_noisy_sums_are_the_sums_and_lattice_noise():
    sums = np.arange(12, dtype=np.int64).reshape(3, 4) * UNIT
    made = noisy_sums(sums, Fraction(1, 2), Randomness(1))
    assert made.shape == (3, 4)
    drawn = discrete_laplace(12, Fraction(1, 2), UNIT, Randomness(1)).reshape(3, 4)
    np.testing.assert_array_equal(made, (sums + drawn) / UNIT)


def test_noisy_sums_do_not_depend_on_the_sums_beyond_adding_them():
    # A floating-point sum would round differently for different sums, and give them away.
    large = np.array([(1 << 34) * UNIT], dtype=np.int64)
    for seed in range(20):
        apart = noisy_sums(large, Fraction(1), Randomness(seed)) - noisy_sums(
            large * 0, Fraction(1), Randomness(seed)
        )
        assert apart[0] == pytest.approx(1 << 34, abs=1e-4)


def test_a_declared_number_of_users_costs_nothing():
    made, revealed = number_of_users(np.ones(16, dtype=np.int64), users=500, users_share=0.1)(1)
    assert (made.users, made.rest, revealed) == (500.0, Fraction(1), [])
    assert made.measurements(16) == ()


def test_a_noisy_number_of_users_is_paid_for_and_carries_its_noise():
    sums = np.full(16, 100 * UNIT, dtype=np.int64)
    asked = number_of_users(sums, users_share=0.1)
    found = [asked(seed)[0] for seed in range(5000)]
    spent = asked(0)[1][0].epsilon
    assert spent + found[0].rest <= 1
    assert float(spent) == pytest.approx(0.1)
    drawn = np.array([made.noisy.values[0] for made in found])
    assert stats.kstest(drawn, stats.laplace(1600, 1 / float(spent)).cdf).pvalue > CERTAIN
    assert (
        stats.kstest(1600 + 1.3 * (drawn - 1600), stats.laplace(1600, 1 / float(spent)).cdf).pvalue < CERTAIN
    )
    (measurement,) = found[0].measurements(16)
    assert measurement.epsilon == spent
    assert not measurement.groups.any()


def test_a_noisy_number_of_users_is_at_least_one():
    nobody = np.zeros(16, dtype=np.int64)
    asked = number_of_users(nobody)
    assert all(asked(seed)[0].users >= 1 for seed in range(50))


def test_a_release_carries_what_was_promised_and_how():
    heat = Spender(epsilon="3/2").release(counts(), rng=1)
    assert heat.method == "spender"
    assert heat.parameters == {
        "epsilon": "3/2",
        "spends": "1",
        "width": 3,
        "users": None,
        "users_share": 0.02,
    }
    assert heat.notes == ("spent it",)
    guarantee = heat.guarantee
    assert (guarantee.model, guarantee.epsilon, guarantee.unit, guarantee.delta) == (
        "central",
        Fraction(3, 2),
        "user",
        sampling_delta(Fraction(3, 2)),
    )
    assert guarantee.neighbours is Neighbouring.ADD_OR_REMOVE
    assert guarantee.bound == ContributionBound(Norm.L1, Fraction(1), Fraction(1, UNIT))
    assert not guarantee.simulated
    assert guarantee.seeded
    assert not Spender(epsilon=2).release(counts()).guarantee.seeded


def test_spending_more_than_the_budget_is_a_fault_of_ours_and_releases_nothing():
    with pytest.raises(AssertionError, match="spender spent 1 of 1/2"):
        Spender(epsilon=0.5).release(counts(), rng=1)


def test_parameters_are_checked_and_frozen():
    with pytest.raises(ParameterError, match="width must be"):
        Spender(epsilon=1, width=0)
    for epsilon in (0, -1, "x", float("inf")):
        with pytest.raises(ParameterError, match="epsilon must be"):
            Spender(epsilon=epsilon)
    with pytest.raises(FrozenInstanceError):
        Spender(epsilon=1).width = 4


def test_a_table_needs_a_tiling_and_counts_bring_their_own():
    points = mv.Points.from_arrays([1, 2], [-73.95, -74.0], [40.75, 40.7])
    with pytest.raises(InputError, match="needs a tiling"):
        Spender(epsilon=1).release(points)
    for source in (counts(), UserSums(counts().values * UNIT, TILING)):
        assert Spender(epsilon=1).release(source, rng=1).tiling is TILING
    with pytest.raises(InputError, match="counts must be on the cells of"):
        Spender(epsilon=1).release(counts(), mv.Quadtree(REGION, depth=3))


def test_a_map_that_would_not_fit_is_refused_before_anything_is_read():
    with pytest.raises(InputError, match="cells; expected a dense map of at most"):
        Spender(epsilon=1).release(
            mv.Points.from_arrays([1], [-73.95], [40.75]), mv.Quadtree(REGION, depth=14)
        )


def test_progress_is_told():
    told = []
    Spender(epsilon=1).release(
        mv.Points.from_arrays([1], [-73.95], [40.75]), TILING, rng=1, progress=lambda *step: told.append(step)
    )
    assert told == [("sum users per cell", 0.0), ("sum users per cell", 1.0), ("all", 0.0), ("all", 1.0)]


def test_a_seed_repeats_a_release_and_none_does_not():
    mechanism = LaplaceHistogram(epsilon=1, clip=False)
    np.testing.assert_array_equal(
        mechanism.release(counts(), rng=3).values, mechanism.release(counts(), rng=Randomness(3)).values
    )
    assert (
        mechanism.release(counts(), account=None).values != mechanism.release(counts(), account=None).values
    ).all()


def test_a_query_with_too_many_samples_is_refused_before_it_is_charged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The delta of a release counts on a limit of samples: one query at the limit is answered, the next is not.
    monkeypatch.setattr("mapveil.trust.curator.MOST_SAMPLES", TILING.size)
    charged = []
    answerer = Curator(users=10).answerer(
        UserSums(counts().values, TILING),
        TILING,
        Raster.of(TILING.lattice()),
        Execution(Randomness(1), before_reveal=charged.append),
    )
    cells = Query("cells", NodeEncoding(PrefixTree.uniform(2, 2)), Fraction(1))
    answerer.answer(cells)
    with pytest.raises(ParameterError, match="at most 16 samples of noise, got 32"):
        answerer.answer(cells)
    assert charged == answerer.revealed == [cells.share]
