"""The client half: whole numbers, an exact bound, and sums that are those of the devices' vectors."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.mechanisms.fourier_features import (
    FourierFeatures,
    choose_features,
    feature_vectors,
    sum_of_vectors,
)
from mapveil_client.randomness.random import Randomness

FEATURES = choose_features((500.0, -200.0), (6_500.0, 4_800.0), 700.0, epsilon=1, users=4_000)
RNG = Randomness(3)
PLACES = np.random.default_rng(2).uniform([[500.0], [-200.0]], [[6_500.0], [4_800.0]], (2, 300))


def slowly(place: np.ndarray, features: FourierFeatures) -> list[int]:
    """Feature by feature, without the scaling down."""
    phases = [
        2
        * math.pi
        * sum(
            (place[a] - features.origin[a]) * int(features.index[a, m]) / features.period[a] for a in (0, 1)
        )
        for m in range(features.count)
    ]
    amplitudes = features.amplitude.tolist()
    return [round(a * f(p)) for f in (math.cos, math.sin) for a, p in zip(amplitudes, phases, strict=True)]


def test_a_vector_is_the_rounded_cosines_and_sines() -> None:
    made = feature_vectors(PLACES[:, :40], FEATURES)
    assert made.shape == (40, FEATURES.length)
    for row, place in zip(made, PLACES.T, strict=False):
        wanted = np.array(slowly(place, FEATURES))
        if np.abs(wanted).sum() <= FEATURES.limit:
            # A cosine that floating point cannot tell from half a unit may round either way.
            assert np.abs(row - wanted).max() <= 1
            assert np.count_nonzero(row != wanted) <= 1


@settings(max_examples=60, deadline=None)
@given(
    st.floats(-1e12, 1e12),
    st.floats(-1e12, 1e12),
    st.sampled_from([1, 2, 7, 1_000, FEATURES.limit // 3, FEATURES.limit]),
)
def test_no_place_at_all_exceeds_the_limit(x: float, y: float, limit: int) -> None:
    tight = dataclasses.replace(FEATURES, limit=limit)
    place = np.array([[x], [y]])
    made = feature_vectors(place, tight)[0]
    assert np.abs(made).sum() <= limit
    whole = feature_vectors(place, dataclasses.replace(FEATURES, limit=1 << 50))[0]
    assert (np.sign(made) * np.sign(whole) >= 0).all()
    if limit >= FEATURES.limit // 3:
        factor = min(1.0, limit / np.abs(whole).sum())
        np.testing.assert_allclose(made, whole * factor, atol=1.0)


def test_the_sum_is_exact_beyond_64_bits() -> None:
    users = np.random.default_rng(6).integers(0, 1 << 61, 300)
    users[::3] = 0
    told: list[float] = []
    made = sum_of_vectors(PLACES, users, FEATURES, lambda step, done: told.append(done))
    vectors = feature_vectors(PLACES, FEATURES).astype(np.int64).astype(object)
    wanted = (vectors * users.astype(object)[:, None]).sum(axis=0)
    assert made == wanted.tolist()
    assert max(abs(value) for value in made) > 1 << 64
    assert told[-1] == 1.0
    assert sum_of_vectors(PLACES, np.zeros(300, dtype=np.int64), FEATURES) == [0] * FEATURES.length


def test_the_sum_does_not_depend_on_how_places_are_cut() -> None:
    users = np.random.default_rng(7).integers(0, 1 << 30, 300)
    whole = sum_of_vectors(PLACES, users, FEATURES)
    parts = [
        sum_of_vectors(PLACES[:, part], users[part], FEATURES) for part in (slice(0, 113), slice(113, 300))
    ]
    assert whole == [a + b for a, b in zip(*parts, strict=True)]
