"""A public prior beside an estimate."""

from __future__ import annotations

import numpy as np
import pytest

import mapveil as mv
from mapveil.local.estimators.prior_evidence import Mixture, leaning_to
from mapveil.local.estimators.smoothed_likelihood import smooth_likelihood
from mapveil.local.randomizers.generalized_response import GeneralizedRandomizedResponse
from mapveil.local.randomizers.hierarchical_hashing import HierarchicalHashing
from mapveil.local.randomizers.randomizer import Randomizer, Tally
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness

TILING = mv.Quadtree(mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83), depth=4)
SIZE = TILING.size
EVEN = np.full(SIZE, 1 / SIZE)
SPOT = 70
SPOTTED = 0.6 * EVEN + 0.4 * (np.arange(SIZE) == SPOT)
UNEVEN = np.random.default_rng(7).dirichlet(np.full(SIZE, 0.1))


def tally_of(randomizer: Randomizer, truth: np.ndarray, reports: int, seed: int) -> Tally:
    cells = np.random.default_rng(seed).choice(truth.size, reports, p=truth)
    return randomizer.tally(randomizer.randomize(cells, Randomness(seed)))


def adversarial(truth: np.ndarray) -> dict[str, np.ndarray]:
    """Priors that are right of the densest cell, or of nothing."""
    drawn = np.random.default_rng(3)
    densest = np.arange(SIZE) == truth.argmax()
    quarter = (drawn.random(SIZE) < 0.25) & ~densest
    made = {
        "counts of 100 people": drawn.multinomial(100, truth),
        "rest on a quarter": np.where(densest, truth, (1 - truth.max()) * quarter / quarter.sum()),
        "empty in the west": truth * (TILING.lattice().col >= TILING.lattice().col[truth.argmax()]),
        "one cell off": np.roll(truth, 1),
        "times a heavy factor": truth * drawn.lognormal(0, 1.5, SIZE),
        "shuffled": drawn.permutation(truth),
        "inverse": truth.max() - truth,
    }
    return {name: prior / prior.sum() for name, prior in made.items()}


@pytest.mark.parametrize("freedom", [0.0, 5.0, 40.0])
def test_the_weight_of_a_mixture_is_that_of_the_largest_penalised_likelihood(freedom: float) -> None:
    """Against the likelihood of every report by itself, on a grid of weights."""
    truth, other = np.random.default_rng(5).dirichlet(np.full(SIZE, 0.5), 2)
    randomizer = GeneralizedRandomizedResponse(epsilon=3).on(Domain(TILING))
    tally = tally_of(randomizer, truth, 2000, 5)
    mixture = Mixture(randomizer.likelihood(tally), EVEN, 0.5 * truth + 0.5 * other)
    grid = np.linspace(0, 1, 2001)
    channel = randomizer.transition_matrix()
    value = np.array([tally.counts @ np.log(mixture.at(t) @ channel) for t in grid])
    assert mixture.best(freedom) == pytest.approx(grid[np.argmax(value - freedom * grid)], abs=1e-3)
    assert mixture.gain(0.4) == pytest.approx(value[800] - value[0], rel=0.02)


def test_a_prior_moves_users_to_the_sites_that_the_reports_find_and_no_others() -> None:
    randomizer = HierarchicalHashing(epsilon=1).on(Domain(TILING))
    likelihood = randomizer.likelihood(tally_of(randomizer, SPOTTED, 8000, 1))
    made = leaning_to(likelihood, EVEN, adversarial(SPOTTED)["rest on a quarter"])
    assert made.sum() == pytest.approx(1)
    assert made[SPOT] == pytest.approx(0.4, abs=0.1)
    assert np.ptp(np.delete(made, SPOT)) < 1e-9
    assert leaning_to(likelihood, SPOTTED, EVEN) is SPOTTED


@pytest.mark.parametrize(("truth", "epsilon"), [(SPOTTED, 1), (SPOTTED, "0.5"), (UNEVEN, "0.5")])
def test_a_wrong_prior_costs_3_percent_at_most_and_a_right_one_helps(
    truth: np.ndarray, epsilon: str | int
) -> None:
    randomizer = HierarchicalHashing(epsilon=epsilon).on(Domain(TILING))
    priors = adversarial(truth) | {"right": 0.8 * truth + 0.2 * EVEN, "none": EVEN}
    errors: dict[str, list[float]] = {name: [] for name in priors}
    for reports in (2000, 8000, 32_000):
        for seed in range(4):
            tally = tally_of(randomizer, truth, reports, seed)
            plain, likelihood = (
                smooth_likelihood(randomizer, tally).distribution,
                randomizer.likelihood(tally),
            )
            for name, prior in priors.items():
                errors[name].append(float(np.abs(leaning_to(likelihood, plain, prior) - truth).sum()))
    none, right = np.array(errors.pop("none")), np.array(errors.pop("right"))
    assert right.mean() < (0.9 if truth is UNEVEN else 1.001) * none.mean()
    for name, found in errors.items():
        assert np.mean(found) < 1.03 * none.mean(), name


def test_a_prior_that_is_right_of_empty_cells_alone_is_not_believed_elsewhere() -> None:
    drawn = np.random.default_rng(7)
    truth = np.ones(SIZE)
    truth[drawn.choice(SIZE, 16, replace=False)] = 0
    prior = truth * (1 + 0.2 * drawn.choice((-1.0, 1.0), SIZE))
    truth, prior = truth / truth.sum(), prior / prior.sum()
    randomizer = HierarchicalHashing(epsilon=2).on(Domain(TILING))
    for seed in range(2):
        tally = tally_of(randomizer, truth, 64_000, seed)
        plain = smooth_likelihood(randomizer, tally).distribution
        made = leaning_to(randomizer.likelihood(tally), plain, prior)
        assert np.abs(made - truth).sum() < np.abs(plain - truth).sum() / 2
        assert np.ptp(made[truth > 0]) < 0.05 / SIZE
