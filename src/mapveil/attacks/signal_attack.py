"""Attack a privatizer, or a file of its output, with every adversary, each freshly trained."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from mapveil.attacks.signal_adversary import BlindGuess, SignalAdversary, SignalAsReported, SignalCodes
from mapveil.attacks.signal_evidence import SignalEvidence
from mapveil.attacks.signal_neighbours import SignalNeighbours
from mapveil.attacks.signal_network import SignalNetwork
from mapveil.attacks.signal_score import AdversaryScore, SignalAttack, score_guess
from mapveil.attacks.signal_trees import SignalTrees
from mapveil.geo.measurements import Measurements
from mapveil.geo.read_points import open_table
from mapveil.geo.tables import column_types
from mapveil.obfuscation.privatized_file import feature_rows, is_shuffled
from mapveil.obfuscation.privatizers.normalisation import Normalisation
from mapveil.obfuscation.privatizers.privatizer import Progress
from mapveil.obfuscation.utility import Utility, utility
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness, as_randomness

_QUICK_RUNS: Final = 20_000
_MOST_JUDGED: Final = 50_000  # runs: the standard error of P1 is then 0.002


def signal_adversaries(
    *, quick: bool = False, network: bool = True, as_reported: bool = True
) -> tuple[SignalAdversary, ...]:
    """The adversaries that judge every privatizer.

    Parameters
    ----------
    quick : bool
        A tenth of the work: weaker, so privacy looks higher than it is.
    network : bool
        Whether to include the network, which needs PyTorch.
    as_reported : bool
        Whether to include the one that believes the reported place; the reproduction of the paper does without.
    """
    trees, neighbours, net = SignalTrees(), SignalNeighbours(), SignalNetwork()
    if quick:
        trees = SignalTrees(most_runs=_QUICK_RUNS, trees=200, rounds=40, leaves=31)
        neighbours = SignalNeighbours(most_runs=_QUICK_RUNS // 2, judged=500)
        net = SignalNetwork(most_runs=_QUICK_RUNS, epochs=15, patience=2)
    believing = (SignalAsReported(),) if as_reported else ()
    made = (BlindGuess(), *believing, SignalCodes(), trees, neighbours)
    return (*made, net) if network else made


def attack_signal(
    known: SignalEvidence,
    held_out: SignalEvidence,
    *,
    adversaries: Sequence[SignalAdversary] | None = None,
    rng: Randomness | int | None = None,
    progress: Progress | None = None,
    strangers: bool = False,
) -> SignalAttack:
    """Train every adversary on known runs, and judge all of them on the same others.

    Run by: the evaluator, who has the truth of both parts. Of the others at most 50,000 are judged.

    Parameters
    ----------
    known : SignalEvidence
        Privatized runs to train on: the pilot's.
    held_out : SignalEvidence
        Privatized runs to judge on; of the same length and features.
    adversaries : sequence of SignalAdversary, optional
        :func:`signal_adversaries` by default.
    rng, progress : optional
        The source of bits; called with a step's name and its finished fraction.
    strangers : bool
        Whether users of the others may be unknown to the adversaries: P1 is then of those they know, NaN without any.

    Raises
    ------
    InputError
        The parts differ in length, features or users.
    MissingExtra
        An adversary's library is not installed.
    """
    return attack_parts(
        known,
        (held_out,),
        adversaries=adversaries,
        rng=rng,
        progress=progress,
        strangers=strangers,
    )[0]


def attack_parts(
    known: SignalEvidence,
    parts: Sequence[SignalEvidence],
    *,
    adversaries: Sequence[SignalAdversary] | None = None,
    rng: Randomness | int | None = None,
    progress: Progress | None = None,
    strangers: bool = False,
) -> tuple[SignalAttack, ...]:
    """Train every adversary once, and judge it on each of several parts; otherwise as :func:`attack_signal`."""
    for held_out in parts:
        if (known.observed.shape[1:], known.user_count) != (held_out.observed.shape[1:], held_out.user_count):
            raise InputError(
                f"trained on runs of shape {known.observed.shape[1:]} of {known.user_count} users, judged "
                f"on {held_out.observed.shape[1:]} of {held_out.user_count}; expected the same"
            )
    chosen = signal_adversaries() if adversaries is None else tuple(adversaries)
    if not chosen:
        raise ParameterError("adversaries is empty; expected at least one")
    stream, tell = as_randomness(rng), progress or (lambda step, done: None)
    judged = [part.sample(_MOST_JUDGED, stream.child("judged")) for part in parts]
    scores: list[list[AdversaryScore]] = [[] for _ in parts]
    for at, adversary in enumerate(chosen):
        label = adversary.label

        def told(_step: str, part: float, at: int = at, label: str = label) -> None:
            tell(f"attacking: {label}", (at + part) / len(chosen))

        told("", 0.0)
        guesser = adversary.train(known, stream.child(label), told)
        for each, found in zip(judged, scores, strict=True):
            nameable = np.isin(each.users, known.users) if strangers else None
            nats = stream.child(f"{label} nats")
            guess = guesser(each.observed)
            found.append(score_guess(each, guess, adversary=label, rng=nats, nameable=nameable))
    tell("attacked", 1.0)
    return tuple(SignalAttack(tuple(found), (1.0, 1.0)) for found in scores)


def attack_measurements(
    private: Any,
    truth: Measurements,
    *,
    pilot: float = 0.7,
    split: str = "random",
    sequence: int = 1,
    quick: bool = False,
    network: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[SignalAttack, Utility]:
    """Train adversaries on a pilot part of a privatized table and judge them on the rest. NOT private.

    Each adversary learns the users and locations of the pilot part and guesses those of the rest. Run by: the
    evaluator, who has the truth.

    Parameters
    ----------
    private : path, str, sequence of paths, frame or relation
        The privatized table, row for row that of ``truth``.
    truth : Measurements
        The measurements before they were privatized.
    pilot : float
        The fraction of the rows, or of the users, that adversaries learn from.
    split : str
        How they are drawn: ``"random"``, ``"time"`` or ``"user"``.
    sequence : int
        Number of measurements of a user that adversaries see together.
    quick : bool
        A tenth of the work: adversaries are weaker, so privacy looks higher than it is.
    network : bool
        Whether the neural network is among the adversaries; it needs PyTorch.
    seed : int
        The same seed gives the same figures.
    progress : callable, optional
        Called with a step's name and its finished fraction.

    Returns
    -------
    SignalAttack, Utility
        The score of every adversary, and what privatization cost.

    Raises
    ------
    InputError
        The tables do not match, or cannot be divided.
    MissingExtra
        An adversary's library is not installed.
    """
    rng = Randomness(seed)
    truth = replace(truth, positions=np.arange(len(truth)))
    parts = truth.split(split, rng.child("split"), pilot=pilot)
    normalisation = Normalisation.learn(parts.pilot)
    rows = _rows(private, truth)
    privatized = truth.with_rows(np.where(np.isnan(rows), normalisation.absent, rows))
    # Overlapping runs are more evidence to learn from; those that are judged do not overlap.
    known, held_out = (
        SignalEvidence.of(part, privatized.take(part.positions), normalisation, length=sequence, step=step)
        for part, step in zip(parts, (max(sequence // 4, 1), sequence), strict=True)
    )
    attack = attack_signal(
        known,
        held_out,
        adversaries=signal_adversaries(quick=quick, network=network),
        rng=rng.child("attack"),
        progress=progress,
    )
    before, after = normalisation.apply(truth.rows), normalisation.standardise(privatized.rows)
    return attack, utility(before[:, truth.numeric], after[:, truth.numeric])


def _rows(private: Any, truth: Measurements) -> FloatArray:
    """The privatized features, NaN where they are empty; ids and times of the table are not looked at."""
    table = open_table(private)
    if is_shuffled(table):
        raise InputError(
            f"{table.name}: its reports are shuffled, and must be row for row those of the truth; expected what "
            "'signal privatize' wrote with a seed (--seed), which keeps the order"
        )
    types = column_types(table)
    for name in truth.names:
        if name not in types:
            raise InputError(
                f"{table.name}: no column {name!r}; expected the features of the truth (--truth)"
            )
    rows = feature_rows(table, truth.names, truth.texts)
    if len(rows) != len(truth):
        raise InputError(
            f"{table.name}: {len(rows)} rows; expected the {len(truth)} complete rows of the truth"
        )
    if np.isinf(rows).any() or np.isnan(rows).all():
        raise InputError(
            f"{table.name}: privatized values are missing or infinite; expected what 'signal privatize' wrote"
        )
    return rows
