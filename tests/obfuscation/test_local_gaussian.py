"""The local Gaussian: what it promises follows from what it does, on any input."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil.geo.measurements import Measurements
from mapveil.obfuscation.privatizers.local_gaussian import LocalGaussian
from mapveil.privacy.sampling import SAMPLE, sampling_delta
from mapveil_client.errors import ParameterError
from mapveil_client.gaussian_curve import gaussian_delta
from mapveil_client.randomness.random import Randomness

Tables = Callable[..., Measurements]


@given(st.fractions("1/10", 100), st.floats(-9, -2).map(lambda x: 10.0**x), st.floats(0.1, 50))
def test_the_deviation_keeps_the_promise_at_twice_the_radius(
    epsilon: Fraction, delta: float, clip: float
) -> None:
    made = LocalGaussian(epsilon=epsilon, delta=delta, clip=clip)
    state = made.learn(np.zeros((2, 3)), np.zeros(2, dtype=np.int64), Randomness(1), lambda *_: None)
    assert gaussian_delta(float(epsilon), 2 * clip / float(state["deviation"])) <= delta
    promise = made.promise(state, 3)
    assert (promise.epsilon, promise.unit) == (epsilon, "report")
    assert promise.delta == min(Fraction(str(delta)) + sampling_delta(epsilon, 3 * SAMPLE), Fraction(1))


@pytest.mark.parametrize(("asked", "true"), [(1, 2.155), (10, 24.389)])
def test_the_paper_s_calibration_says_what_holds(made_up: Tables, asked: int, true: float) -> None:
    fitted = LocalGaussian(epsilon=asked, calibration="paper").fit(made_up(400))
    assert float(fitted.state["deviation"]) < 0.6 * float(
        LocalGaussian(epsilon=asked).fit(made_up(400)).state["deviation"]
    )
    promised = fitted.guarantee().epsilon
    assert promised is not None
    assert float(promised) == pytest.approx(true, abs=1e-3)
    ratio = 2 * float(fitted.state["radius"]) / float(fitted.state["deviation"])
    assert gaussian_delta(float(promised), ratio) <= 1e-5


def test_less_noise_than_promised_changes_the_promise(made_up: Tables) -> None:
    fitted = LocalGaussian(epsilon=1).fit(made_up(400))
    halved = {**fitted.state, "deviation": fitted.state["deviation"] / 2}
    promise = fitted.privatizer.promise(halved, 5)
    assert promise.epsilon is not None
    assert 2 < promise.epsilon < 3


def test_the_radius_is_the_pilot_s_quantile_of_whole_runs(made_up: Tables) -> None:
    pilot = made_up(3_000)
    for length in (1, 5):
        fitted = LocalGaussian(epsilon=1, sequence=length, clipped=0.1).fit(pilot)
        runs = fitted.normalisation.apply(pilot.rows)[pilot.sequences(length)].reshape(-1, 5 * length)
        norms = np.linalg.norm(runs, axis=1)
        assert np.mean(norms > float(fitted.state["radius"])) == pytest.approx(0.1, abs=0.01)
    assert float(LocalGaussian(epsilon=1, clip=2.5).fit(pilot).state["radius"]) == 2.5


def test_noise_and_clipping_are_those_of_the_state(made_up: Tables) -> None:
    pilot = made_up(50_000)
    fitted = LocalGaussian(epsilon=20, clip=1.0).fit(pilot)
    normalised = fitted.normalisation.apply(pilot.rows)
    privatized = fitted.normalisation.standardise(fitted.privatize(pilot.rows, rng=3))
    clipped = normalised * np.minimum(1, 1 / np.linalg.norm(normalised, axis=1))[:, None]
    noise = (privatized - clipped) / float(fitted.state["deviation"])
    # 250,000 normals: mean and variance within 6 of their standard errors, far below 30 %.
    assert abs(noise.mean()) < 6 / np.sqrt(noise.size) + 1 / 256
    assert abs(noise.var() - 1) < 6 * np.sqrt(2 / noise.size) + 1e-4
    assert np.abs(np.corrcoef(noise, rowvar=False) - np.eye(5)).max() < 6 / np.sqrt(len(noise))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0}, "epsilon must be"),
        ({"epsilon": 2000}, "epsilon must be"),
        ({"epsilon": 1, "delta": 0}, "delta must be"),
        ({"epsilon": 1, "delta": 0.5}, "delta must be"),
        ({"epsilon": 1, "clip": -1}, "clip must be"),
        ({"epsilon": 1, "clip": float("nan")}, "clip must be"),
        ({"epsilon": 1, "clipped": 1}, "clipped must be"),
        ({"epsilon": 1, "calibration": "loose"}, "calibration must be"),
        ({"epsilon": 1, "sequence": 0}, "sequence must be"),
    ],
)
def test_parameters_out_of_range_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        LocalGaussian(**options)  # type: ignore[arg-type]
