"""What users of a road cost."""

from __future__ import annotations

import numpy as np
import pytest

from mapveil.navigation.congestion import StepDelay, VolumeDelay
from mapveil_client.errors import ParameterError


def test_the_step_is_the_papers_beyond_its_threshold_only() -> None:
    users, seconds = np.array([0.0, 50.0, 50.5, 500.0]), np.array([1.0, 2.0, 3.0, 4.0])
    assert StepDelay().delay(users, seconds).tolist() == [0.0, 0.0, 3.0, 3.0]


def test_the_volume_delay_is_the_fourth_power_up_to_three_times_the_capacity() -> None:
    seconds = np.full(5, 20.0)
    made = VolumeDelay(capacity=10).delay(np.array([-5.0, 5.0, 10.0, 20.0, 99.0]), seconds)
    assert made.tolist() == pytest.approx([0.0, 3 / 16, 3.0, 48.0, 243.0])


@pytest.mark.parametrize("model", [StepDelay(10, 2), VolumeDelay(10)])
def test_more_users_never_cost_less(model: StepDelay | VolumeDelay) -> None:
    made = model.delay(np.linspace(0, 50, 101), np.full(101, 7.0))
    assert (np.diff(made) >= 0).all()
    assert made[-1] > made[0]


@pytest.mark.parametrize("value", [0, -1, np.nan, np.inf])
def test_a_model_needs_numbers_above_zero(value: float) -> None:
    for make in (lambda: StepDelay(value), lambda: StepDelay(1, value), lambda: VolumeDelay(value)):
        with pytest.raises(ParameterError, match="must be a number above 0"):
            make()
