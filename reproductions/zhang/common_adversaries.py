"""The paper's common adversaries: trained on raw measurements, and on the output of all privatizers together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from mapveil.attacks.signal_adversary import SignalAdversary
from mapveil.attacks.signal_evidence import SignalEvidence
from mapveil.attacks.signal_score import SignalAttack, score_guess
from mapveil_client.randomness.random import Randomness

_MOST_JUDGED = 50_000  # runs: the standard error of P1 is then 0.002


def attack_with_others(
    privatizers: Mapping[str, tuple[SignalEvidence, SignalEvidence]],
    unobfuscated: SignalEvidence,
    adversaries: Sequence[SignalAdversary],
    rng: Randomness,
) -> dict[str, SignalAttack]:
    """Scores of every privatizer, marked "unobfuscated" and "aggregate".

    Parameters
    ----------
    privatizers : mapping of str to (SignalEvidence, SignalEvidence)
        By name, known and held-out runs of each privatizer.
    unobfuscated : SignalEvidence
        The known runs as they were.
    adversaries : sequence of SignalAdversary
        All of them are trained on either source.
    rng : Randomness
        The source of bits.

    Source: Section 6.5 and Table 6 of Zhang et al. 2022.
    """
    sources = {
        "unobfuscated": unobfuscated,
        "aggregate": _joined([known for known, _ in privatizers.values()]),
    }
    judged = {name: held.sample(_MOST_JUDGED, rng.child(name)) for name, (_, held) in privatizers.items()}
    scores: dict[str, SignalAttack] = {name: SignalAttack((), (1.0, 1.0)) for name in privatizers}
    for source, evidence in sources.items():
        for adversary in adversaries:
            label = adversary.label
            guess = adversary.train(evidence, rng.child(f"{source} {label}"), lambda step, done: None)
            for name, held in judged.items():
                score = score_guess(held, guess(held.observed), adversary=label, trained_on=source)
                scores[name] = scores[name].merged(SignalAttack((score,), (1.0, 1.0)))
    return scores


def _joined(parts: Sequence[SignalEvidence]) -> SignalEvidence:
    return replace(
        parts[0],
        observed=np.concatenate([each.observed for each in parts]),
        users=np.concatenate([each.users for each in parts]),
        places=np.concatenate([each.places for each in parts]),
    )
