"""The client half: whole numbers, an exact bound, and sums that are those of the devices' vectors."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.mechanisms.shared_waves import SharedWaves, choose_waves
from mapveil.mechanisms.wave_vectors import place_vectors, sum_of_vectors
from mapveil_client.errors import InputError
from mapveil_client.randomness.random import Randomness

WAVES = choose_waves((500.0, -200.0), (6_500.0, 4_800.0), 700.0, epsilon=1, users=4_000)
RNG = Randomness(3)
PLACES = np.random.default_rng(2).uniform([[500.0], [-200.0]], [[6_500.0], [4_800.0]], (2, 300))


def slowly(place: np.ndarray, waves: SharedWaves) -> list[int]:
    """Wave by wave, without the scaling down."""
    phases = [
        2
        * math.pi
        * sum((place[a] - waves.origin[a]) * int(waves.index[a, m]) / waves.period[a] for a in (0, 1))
        for m in range(waves.count)
    ]
    amplitudes = waves.amplitude.tolist()
    return [round(a * f(p)) for f in (math.cos, math.sin) for a, p in zip(amplitudes, phases, strict=True)]


def test_a_vector_is_the_rounded_cosines_and_sines() -> None:
    made = place_vectors(PLACES[:, :40], WAVES)
    assert made.dtype == np.int64
    assert made.shape == (40, WAVES.length)
    for row, place in zip(made, PLACES.T, strict=False):
        wanted = np.array(slowly(place, WAVES))
        if np.abs(wanted).sum() <= WAVES.limit:
            # A cosine that floating point cannot tell from half a unit may round either way.
            assert np.abs(row - wanted).max() <= 1
            assert np.count_nonzero(row != wanted) <= 1


@settings(max_examples=60, deadline=None)
@given(
    st.floats(-1e12, 1e12),
    st.floats(-1e12, 1e12),
    st.sampled_from([1, 2, 7, 1_000, WAVES.limit // 3, WAVES.limit]),
)
def test_no_place_at_all_exceeds_the_limit(x: float, y: float, limit: int) -> None:
    tight = dataclasses.replace(WAVES, limit=limit)
    place = np.array([[x], [y]])
    made = place_vectors(place, tight)[0]
    assert np.abs(made).sum() <= limit
    whole = place_vectors(place, dataclasses.replace(WAVES, limit=1 << 50))[0]
    assert (np.sign(made) * np.sign(whole) >= 0).all()
    if limit >= WAVES.limit // 3:
        factor = min(1.0, limit / np.abs(whole).sum())
        np.testing.assert_allclose(made, whole * factor, atol=1.0)


def test_the_sum_is_exact_beyond_64_bits() -> None:
    users = np.random.default_rng(6).integers(0, 1 << 61, 300)
    users[::3] = 0
    told: list[float] = []
    made = sum_of_vectors(PLACES, users, WAVES, lambda step, done: told.append(done))
    vectors = place_vectors(PLACES, WAVES).astype(object)
    wanted = (vectors * users.astype(object)[:, None]).sum(axis=0)
    assert made == wanted.tolist()
    assert max(abs(value) for value in made) > 1 << 64
    assert told[-1] == 1.0
    assert sum_of_vectors(PLACES, np.zeros(300, dtype=np.int64), WAVES) == [0] * WAVES.length


def test_the_sum_does_not_depend_on_how_places_are_cut() -> None:
    users = np.random.default_rng(7).integers(0, 1 << 30, 300)
    whole = sum_of_vectors(PLACES, users, WAVES)
    parts = [sum_of_vectors(PLACES[:, part], users[part], WAVES) for part in (slice(0, 113), slice(113, 300))]
    assert whole == [a + b for a, b in zip(*parts, strict=True)]


def test_bad_places_are_refused() -> None:
    with pytest.raises(InputError, match="two finite numbers"):
        place_vectors(np.array([[0.0], [math.nan]]), WAVES)
    with pytest.raises(InputError, match="two finite numbers"):
        place_vectors(np.zeros((3, 4)), WAVES)
