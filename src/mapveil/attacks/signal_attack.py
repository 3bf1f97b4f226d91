"""Attack a privatizer with every adversary, each freshly trained on its output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mapveil.attacks.signal_adversary import BlindGuess, SignalAdversary, SignalCodes
from mapveil.attacks.signal_evidence import SignalEvidence
from mapveil.attacks.signal_neighbours import SignalNeighbours
from mapveil.attacks.signal_network import SignalNetwork
from mapveil.attacks.signal_score import SignalAttack, score_guess
from mapveil.attacks.signal_trees import SignalTrees
from mapveil.obfuscation.privatizers.privatizer import Progress
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness, as_randomness

_QUICK_RUNS: Final = 20_000


def signal_adversaries(*, quick: bool = False, network: bool = True) -> tuple[SignalAdversary, ...]:
    """The adversaries that judge every privatizer.

    Parameters
    ----------
    quick : bool
        A tenth of the work: weaker, so privacy looks higher than it is.
    network : bool
        Whether to include the network, which needs PyTorch.
    """
    trees, neighbours, net = SignalTrees(), SignalNeighbours(), SignalNetwork()
    if quick:
        trees = SignalTrees(most_runs=_QUICK_RUNS, trees=200, rounds=40, leaves=31)
        neighbours = SignalNeighbours(most_runs=_QUICK_RUNS // 2, judged=500)
        net = SignalNetwork(most_runs=_QUICK_RUNS, epochs=15, patience=2)
    made = (BlindGuess(), SignalCodes(), trees, neighbours)
    return (*made, net) if network else made


def attack_signal(
    known: SignalEvidence,
    held_out: SignalEvidence,
    *,
    adversaries: Sequence[SignalAdversary] | None = None,
    weights: tuple[float, float] = (1.0, 1.0),
    most_judged: int = 50_000,
    rng: Randomness | int | None = None,
    progress: Progress | None = None,
) -> SignalAttack:
    """Train every adversary on known runs, and judge all of them on the same others.

    Run by: whoever wants to know what a privatizer leaves: it needs the truth of both parts.

    Parameters
    ----------
    known : SignalEvidence
        Privatized runs to train on: the pilot's.
    held_out : SignalEvidence
        Privatized runs to judge on; of the same length and features.
    adversaries : sequence of SignalAdversary, optional
        :func:`signal_adversaries` by default.
    weights : tuple of float
        :math:`v_1, v_2` of the privacy P; an adversary's own loss may differ.
    most_judged : int
        Held-out runs beyond so many are sampled: at 50,000 the standard error of P1 is 0.002.
    rng : Randomness or int, optional
        The source of bits.
    progress : callable, optional
        Called with a step's name and its finished fraction.

    Raises
    ------
    InputError
        The parts differ in length, features or users.
    MissingExtra
        An adversary's library is not installed.
    """
    if (known.observed.shape[1:], known.user_count) != (held_out.observed.shape[1:], held_out.user_count):
        raise InputError(
            f"trained on runs of shape {known.observed.shape[1:]} of {known.user_count} users, judged "
            f"on {held_out.observed.shape[1:]} of {held_out.user_count}; expected the same"
        )
    chosen = signal_adversaries() if adversaries is None else tuple(adversaries)
    if not chosen:
        raise ParameterError("adversaries is empty; expected at least one")
    stream, tell = as_randomness(rng), progress or (lambda step, done: None)
    judged = held_out.sample(most_judged, stream.child("judged"))
    scores = []
    for at, adversary in enumerate(chosen):
        label = adversary.label

        def told(_step: str, part: float, at: int = at, label: str = label) -> None:
            tell(f"attacking: {label}", (at + part) / len(chosen))

        told("", 0.0)
        trained = adversary.train(known, stream.child(label), told)
        scores.append(
            score_guess(
                judged,
                trained(judged.observed),
                adversary=label,
                weights=weights,
                rng=stream.child(f"{label} nats"),
            )
        )
    tell("attacked", 1.0)
    return SignalAttack(tuple(scores), weights)
