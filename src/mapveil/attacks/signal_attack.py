"""Attack a privatizer with every adversary, each freshly trained on its output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mapveil.attacks.signal_adversary import BlindGuess, Progress, SignalAdversary, quiet
from mapveil.attacks.signal_codes import SignalCodes
from mapveil.attacks.signal_evidence import SignalEvidence
from mapveil.attacks.signal_information import signal_information
from mapveil.attacks.signal_neighbours import SignalNeighbours
from mapveil.attacks.signal_network import SignalNetwork
from mapveil.attacks.signal_score import SignalAttack, score_guess
from mapveil.attacks.signal_trees import SignalTrees
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness, as_randomness

_QUICK_RUNS = 20_000


def signal_adversaries(*, quick: bool = False, network: bool = True) -> tuple[SignalAdversary, ...]:
    """The adversaries every privatizer is judged by.

    Parameters
    ----------
    quick : bool
        A tenth of the work: weaker, so privacy looks higher than it is.
    network : bool
        Whether the network is among them; it needs PyTorch.
    """
    made: tuple[SignalAdversary, ...] = (BlindGuess(), SignalCodes(), SignalTrees(), SignalNeighbours())
    net = SignalNetwork()
    if quick:
        made = (
            BlindGuess(),
            SignalCodes(),
            SignalTrees(most_runs=_QUICK_RUNS, trees=200, rounds=40, leaves=31),
            SignalNeighbours(most_runs=_QUICK_RUNS // 2, judged=500),
        )
        net = SignalNetwork(most_runs=_QUICK_RUNS, epochs=15, patience=2)
    return (*made, net) if network else made


def attack_signal(
    known: SignalEvidence,
    held_out: SignalEvidence,
    *,
    adversaries: Sequence[SignalAdversary] | None = None,
    weights: tuple[float, float] = (1.0, 1.0),
    trained_on: str = "own",
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
        :math:`v_1, v_2` of the privacy P; an adversary's own loss may have others.
    trained_on : str
        What the known runs are, for the scores: "own" output of the privatizer, "unobfuscated", "aggregate".
    most_judged : int
        Held-out runs beyond so many are sampled: at 50,000 the standard error of P1 is 0.002.
    rng : Randomness or int, optional
        The source of bits.
    progress : callable, optional
        Called with a step's name and the part done, 0 to 1.

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
    stream, tell = as_randomness(rng), progress or quiet
    judged = held_out.sample(most_judged, stream.child("judged"))
    scores = []
    for at, adversary in enumerate(chosen):
        label = adversary.label

        def told(_step: str, part: float, at: int = at, label: str = label) -> None:
            tell(f"attacking: {label}", (at + part) / len(chosen))

        told("", 0.0)
        trained = adversary.train(known, stream.child(label), told)
        guess = trained.guess(judged.observed)
        score = score_guess(judged, guess, adversary=label, trained_on=trained_on, weights=weights)
        told_nats = signal_information(judged, guess, rng=stream.child(f"{label} nats"))
        scores.append(score._replace(user_nats=told_nats.user, place_nats=told_nats.place))
    tell("attacked", 1.0)
    return SignalAttack(tuple(scores), weights)


def attack_with_others(
    privatizers: Mapping[str, tuple[SignalEvidence, SignalEvidence]],
    unobfuscated: SignalEvidence,
    *,
    adversaries: Sequence[SignalAdversary] | None = None,
    weights: tuple[float, float] = (1.0, 1.0),
    most_judged: int = 50_000,
    rng: Randomness | int | None = None,
    progress: Progress | None = None,
) -> dict[str, SignalAttack]:
    """The paper's common adversaries: trained on raw measurements, and on the output of all privatizers together.

    Parameters
    ----------
    privatizers : mapping of str to (SignalEvidence, SignalEvidence)
        By name, known and held-out runs of each privatizer.
    unobfuscated : SignalEvidence
        The known runs as they were.
    adversaries, weights, most_judged, rng, progress
        As for :func:`attack_signal`.

    Returns
    -------
    dict of str to SignalAttack
        Scores of every privatizer, marked "unobfuscated" and "aggregate"; merge them with its own.

    Source: Section 6.5 and Table 6 of Zhang et al. 2022.
    """
    if not privatizers:
        raise ParameterError("privatizers is empty; expected at least one")
    chosen = signal_adversaries() if adversaries is None else tuple(adversaries)
    stream, tell = as_randomness(rng), progress or quiet
    first, *rest = (known for known, _ in privatizers.values())
    sources = {"unobfuscated": unobfuscated, "aggregate": first.joined(*rest)}
    scores: dict[str, SignalAttack] = {name: SignalAttack((), weights) for name in privatizers}
    judged = {name: held.sample(most_judged, stream.child(name)) for name, (_, held) in privatizers.items()}
    done, steps = 0, len(sources) * len(chosen)
    for source, evidence in sources.items():
        for adversary in chosen:
            tell(f"attacking: {adversary.label}, {source}", done / steps)
            trained = adversary.train(evidence, stream.child(f"{source} {adversary.label}"), quiet)
            for name, held in judged.items():
                score = score_guess(
                    held,
                    trained.guess(held.observed),
                    adversary=adversary.label,
                    trained_on=source,
                    weights=weights,
                )
                scores[name] = SignalAttack((*scores[name].scores, score), weights)
            done += 1
    tell("attacked", 1.0)
    return scores
