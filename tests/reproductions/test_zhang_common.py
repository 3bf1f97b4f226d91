"""The paper's common adversaries know less than one trained on a privatizer's own output."""

from __future__ import annotations

import numpy as np

from mapveil.attacks.signal_attack import attack_signal
from mapveil.attacks.signal_evidence import SignalEvidence
from mapveil.attacks.signal_neighbours import SignalNeighbours
from mapveil_client.randomness.random import Randomness
from reproductions.zhang.common_adversaries import attack_with_others


def two_users(seed: int, *, turned: bool = False) -> SignalEvidence:
    """Feature 2 is at -2 or at 2 by user, under normal noise; turned, the users change sides."""
    draw = np.random.default_rng(seed)
    users = draw.integers(0, 2, 1500)
    observed = draw.normal(size=(1500, 1, 4))
    observed[..., 2] += 2.0 * (2 * users - 1)[:, None]
    places = draw.normal(size=(1500, 1, 2))
    sign = [1, 1, -1 if turned else 1, 1]
    return SignalEvidence(observed * sign, users, places, 2, np.array([35.5, 24.0]), np.array([0.002, 0.004]))


def test_common_adversaries_know_less_than_its_own() -> None:
    known, turned = two_users(1), (two_users(1, turned=True), two_users(2, turned=True))
    adversaries = [SignalNeighbours(counts=(15,))]
    privatizers = {"none": (known, two_users(2)), "turned": turned}
    found = attack_with_others(privatizers, known, adversaries, Randomness(1))
    by = {(name, each.trained_on): each.p1 for name, attack in found.items() for each in attack.scores}
    assert by["none", "unobfuscated"] < 0.06
    # An adversary trained on raw measurements gets nearly all users wrong.
    assert by["turned", "unobfuscated"] > 0.9
    assert 0.3 < by["turned", "aggregate"] < 0.7
    assert attack_signal(*turned, adversaries=adversaries, rng=1).strongest.p1 < 0.06
