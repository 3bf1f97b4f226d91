"""Every adversary comes near the best attack where that is known, and none beats it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from mapveil.attacks.signal_adversary import BlindGuess, SignalAdversary, geometric_median
from mapveil.attacks.signal_attack import attack_signal, signal_adversaries
from mapveil.attacks.signal_evidence import SignalEvidence
from mapveil.attacks.signal_neighbours import SignalNeighbours
from mapveil.attacks.signal_network import SignalNetwork
from mapveil.attacks.signal_score import AdversaryScore
from mapveil.attacks.signal_trees import SignalTrees
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness

ADVERSARIES = {
    "trees": SignalTrees(trees=100, rounds=60, leaves=15),
    "neighbours": SignalNeighbours(counts=(10, 100)),
    "network": SignalNetwork(epochs=10, batch=256, hidden=(64, 64)),
}


@pytest.fixture(params=list(ADVERSARIES))
def adversary(request) -> SignalAdversary:
    if request.param == "network":
        pytest.importorskip("torch")
    else:
        pytest.importorskip("sklearn")
    return ADVERSARIES[request.param]


def scored(adversary: SignalAdversary, known: SignalEvidence, held_out: SignalEvidence) -> AdversaryScore:
    return attack_signal(known, held_out, adversaries=[adversary], rng=1).scores[0]


def test_the_user_is_told_nearly_as_well_as_can_be(
    worlds: SimpleNamespace, adversary: SignalAdversary
) -> None:
    found = scored(adversary, worlds.two_users(1, 4000, apart=1.0), worlds.two_users(2, 4000, apart=1.0))
    # The standard error is 0.006; a learner of 4,000 runs errs a little more than the best there is.
    assert worlds.best_p1(1.0) - 0.035 < found.p1 < worlds.best_p1(1.0) + 0.05
    assert worlds.best_p1(0.7) > worlds.best_p1(1.0) + 0.05  # so that the bound above has power


def test_the_place_is_told_nearly_as_well_as_can_be(
    worlds: SimpleNamespace, adversary: SignalAdversary
) -> None:
    found = scored(adversary, worlds.seen_places(1, 4000, noise=0.5), worlds.seen_places(2, 4000, noise=0.5))
    assert worlds.best_p2(0.5) * 0.94 < found.p2 < worlds.best_p2(0.5) * 1.2
    assert found.p1 > 0.6  # three users everywhere alike


def test_a_report_that_says_nothing_tells_nothing(
    worlds: SimpleNamespace, adversary: SignalAdversary
) -> None:
    known, held_out = worlds.two_users(3, 3000, apart=0.0), worlds.two_users(4, 3000, apart=0.0)
    blind = scored(BlindGuess(), known, held_out)
    found = scored(adversary, known, held_out)
    assert abs(found.p1 - 0.5) < 0.06
    assert found.p2 > 0.97 * blind.p2


def test_a_longer_sequence_tells_more(worlds: SimpleNamespace, adversary: SignalAdversary) -> None:
    found = scored(
        adversary,
        worlds.two_users(5, 2000, apart=0.5, length=10),
        worlds.two_users(6, 2000, apart=0.5, length=10),
    )
    assert worlds.best_p1(0.5, 10) - 0.03 < found.p1 < worlds.best_p1(0.5, 10) + 0.12 < worlds.best_p1(0.5)


def test_the_same_seed_guesses_the_same(worlds: SimpleNamespace, adversary: SignalAdversary) -> None:
    known, held_out = worlds.two_users(7, 600, apart=1.0), worlds.two_users(8, 300, apart=1.0)
    assert scored(adversary, known, held_out) == scored(adversary, known, held_out)


def test_probabilities_are_probabilities(worlds: SimpleNamespace, adversary: SignalAdversary) -> None:
    known, held_out = worlds.two_users(9, 600, apart=1.0), worlds.two_users(10, 300, apart=1.0)
    # A user whom nobody trained on is possible all the same.
    known = SignalEvidence(known.observed, known.users, known.places, 3, known.middle, known.scale)
    guess = adversary.train(known, Randomness(1), lambda step, done: None)(held_out.observed)
    assert guess.users.shape == (300, 3)
    assert guess.places.shape == (300, 1, 2)
    np.testing.assert_allclose(guess.users.sum(axis=1), 1, rtol=1e-5)
    assert (guess.users >= 0).all()


def test_one_user_and_constant_features_are_no_trouble(
    worlds: SimpleNamespace, adversary: SignalAdversary
) -> None:
    known = worlds.two_users(11, 400, apart=1.0)
    observed = known.observed.copy()
    observed[..., 1] = 7.0
    alone = SignalEvidence(observed, known.users * 0, known.places, 2, known.middle, known.scale)
    assert scored(adversary, alone, alone).p1 == 0


def test_other_weights_of_the_loss_serve_their_own_end() -> None:
    pytest.importorskip("torch")
    draw = np.random.default_rng(1)

    def world(runs: int) -> SignalEvidence:
        users = draw.integers(0, 2, runs)
        places = draw.normal(size=(runs, 1, 2))
        observed = np.concatenate(
            [places, 2.0 * users[:, None, None] - 1 + draw.normal(size=(runs, 1, 1))], axis=2
        )
        return SignalEvidence(observed, users, places, 2, np.zeros(2), np.ones(2))

    known, held_out = world(2000), world(2000)
    blind_to_users = scored(SignalNetwork(epochs=6, batch=128, weights=(0.0, 1.0)), known, held_out)
    blind_to_places = scored(SignalNetwork(epochs=6, batch=128, weights=(1.0, 0.0)), known, held_out)
    assert blind_to_users.p1 > blind_to_places.p1 + 0.1
    assert blind_to_places.p2 > blind_to_users.p2 + 0.3
    assert blind_to_users.adversary == "network, v = 0, 1"


def test_training_leaves_the_global_stream_of_pytorch_alone(worlds: SimpleNamespace) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    scored(SignalNetwork(epochs=1), worlds.two_users(1, 100, apart=1.0), worlds.two_users(2, 100, apart=1.0))
    assert torch.equal(torch.rand(3), expected)


def test_the_middle_place_has_the_least_mean_distance() -> None:
    draw = np.random.default_rng(1)
    places = np.concatenate([draw.normal(size=(300, 2)), draw.normal([8.0, 3.0], size=(200, 2))])
    middle = geometric_median(places)

    def mean_distance(at: np.ndarray) -> float:
        return float(np.hypot(*(places - at).T).mean())

    others = middle + 0.3 * draw.normal(size=(200, 2))
    assert mean_distance(middle) <= min(mean_distance(each) for each in others)
    assert mean_distance(middle) < mean_distance(places.mean(axis=0)) - 0.01


def test_quick_adversaries_are_the_same_kinds() -> None:
    assert [each.name for each in signal_adversaries(quick=True)] == [
        each.name for each in signal_adversaries()
    ]
    assert "network" not in [each.name for each in signal_adversaries(network=False)]


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        (SignalNetwork, {"epochs": 0}),
        (SignalNetwork, {"weights": (0.0, 0.0)}),
        (SignalNetwork, {"hidden": (0,)}),
        (SignalNetwork, {"rate": 1.5}),
        (SignalTrees, {"leaves": 1}),
        (SignalTrees, {"rate": 0.0}),
        (SignalNeighbours, {"counts": ()}),
        (SignalNeighbours, {"counts": (0,)}),
        (BlindGuess, {"most_runs": 1}),
    ],
)
def test_parameters_outside_their_range_are_refused(kind: type[SignalAdversary], parameters: dict) -> None:
    with pytest.raises(ParameterError, match=next(iter(parameters))):
        kind(**parameters)


def test_very_wide_runs_are_compared_as_they_are() -> None:
    draw = np.random.default_rng(1)
    users = draw.integers(0, 2, 200)
    observed = draw.normal(size=(200, 21, 100)) + 0.3 * users[:, None, None]
    evidence = SignalEvidence(observed, users, np.zeros((200, 21, 2)), 2, np.zeros(2), np.ones(2))
    found = scored(
        SignalNeighbours(counts=(5,)), evidence.take(np.arange(150)), evidence.take(np.arange(150, 200))
    )
    assert found.p1 < 0.1


def test_reports_that_are_all_alike_tell_nothing(adversary: SignalAdversary) -> None:
    """Such as null codes of a few rows, whose variance is 0."""
    users = np.arange(80) % 2
    places = np.random.default_rng(1).normal(size=(80, 3, 2))
    evidence = SignalEvidence(np.ones((80, 3, 2)), users, places, 2, np.zeros(2), np.ones(2))
    found = scored(adversary, evidence.take(np.arange(60)), evidence.take(np.arange(60, 80)))
    assert found.p1 >= 0.5
