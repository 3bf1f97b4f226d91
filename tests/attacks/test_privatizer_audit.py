"""The audit of privatized measurements: true claims stand, halved noise and the paper's calibration do not."""

from __future__ import annotations

import numpy as np
import pytest

from mapveil.geo.measurements import Measurements
from mapveil.obfuscation.privatizers.gaussian_noise import GaussianNoise
from mapveil.obfuscation.privatizers.local_gaussian import LocalGaussian
from mapveil.obfuscation.privatizers.privatizer import FittedPrivatizer, Privatizer
from mapveil.obfuscation.privatizers.truncated_laplacian import TruncatedLaplacian
from mapveil_client.errors import ParameterError

from .privatizer_audit import audit_privatizer

TRIALS = 200_000
MECHANISMS = [LocalGaussian, TruncatedLaplacian]


def fit(privatizer: Privatizer) -> FittedPrivatizer:
    rng = np.random.default_rng(1)
    table = Measurements(
        np.column_stack([rng.normal(size=(400, 2)), rng.uniform(-100, -50, 400), rng.normal(size=400)]),
        ("lat", "lon", "rss_dbm", "speed"),
        np.arange(400) // 40,
        tuple(map(str, range(10))),
        None,
        np.arange(400),
    )
    return privatizer.fit(table, rng=1)


def halved(fitted: FittedPrivatizer) -> FittedPrivatizer:
    state = {key: value if key == "radius" else value / 2 for key, value in fitted.state.items()}
    return FittedPrivatizer(fitted.privatizer, fitted.normalisation, state)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("epsilon", "delta"), [(1, 1e-5), (3, 1e-4)])
@pytest.mark.parametrize("sequence", [1, 2])
def test_a_true_claim_stands_and_is_nearly_reached(
    mechanism: type[LocalGaussian | TruncatedLaplacian], epsilon: int, delta: float, sequence: int
) -> None:
    report = audit_privatizer(
        fit(mechanism(epsilon=epsilon, delta=delta, sequence=sequence)), trials=TRIALS, rng=1
    )
    assert report.holds
    # An audit that found little would catch little.
    assert report.epsilon_lower > 0.5 * epsilon


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("sequence", [1, 2])
def test_halved_noise_is_caught(mechanism: type[LocalGaussian | TruncatedLaplacian], sequence: int) -> None:
    for epsilon in (1, 3):
        cheat = halved(fit(mechanism(epsilon=epsilon, sequence=sequence)))
        report = audit_privatizer(cheat, claimed=epsilon, trials=TRIALS, rng=2)
        assert not report.holds
        assert report.epsilon_lower > 1.1 * epsilon


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_paper_s_calibration_is_refuted_as_it_asks_and_stands_as_it_promises(
    mechanism: type[LocalGaussian | TruncatedLaplacian],
) -> None:
    fitted = fit(mechanism(epsilon=1, calibration="paper"))
    assert not audit_privatizer(fitted, claimed=1, trials=TRIALS, rng=3).holds
    assert audit_privatizer(fitted, trials=TRIALS, rng=3).holds


def test_what_cannot_be_audited_is_named() -> None:
    with pytest.raises(ParameterError, match="gaussian-noise claims no epsilon"):
        audit_privatizer(fit(GaussianNoise(sigma=1)))
    fitted = fit(LocalGaussian(epsilon=1))
    with pytest.raises(ParameterError, match="trials is 10; at least 1000"):
        audit_privatizer(fitted, trials=10)
    with pytest.raises(ParameterError, match="confidence is 1"):
        audit_privatizer(fitted, confidence=1)
