"""The ramp is even to the eye, and the scale inverts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil.pictures.colours import colormap, density_scale, ramp, round_down
from mapveil_client.errors import ParameterError


def luminance(colours: np.ndarray) -> np.ndarray:
    """WCAG's relative luminance, an oracle that shares nothing with Oklab."""
    part = colours / 255
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    return np.asarray(linear @ [0.2126, 0.7152, 0.0722])


def test_more_people_are_always_darker() -> None:
    light = luminance(ramp(64))
    assert (np.diff(light) < 0).all()
    # CIE lightness falls nearly evenly: no step is twice another.
    lightness = 116 * np.cbrt(light[light > 0.009]) - 16
    steps = -np.diff(lightness)
    assert steps.max() < 2 * steps.min()


def test_the_ends_can_be_told_from_each_other_and_from_text() -> None:
    paper, ink = luminance(ramp(2))
    assert (paper + 0.05) / (ink + 0.05) > 10


def test_matplotlib_gets_the_same_colours() -> None:
    np.testing.assert_array_equal(np.rint(colormap()(np.arange(256))[:, :3] * 255), ramp())
    assert colormap()(np.nan)[3] == 0.0


@pytest.mark.parametrize("kind", ["log", "linear"])
@given(densities=st.lists(st.floats(0, 1e9), min_size=1, max_size=20))
def test_the_scale_rises_from_zero_to_one_and_inverts(kind: str, densities: list[float]) -> None:
    scale = density_scale(np.array(densities), kind)  # type: ignore[arg-type]
    fractions = scale.fraction(np.sort(densities))
    assert (np.diff(fractions) >= 0).all()
    assert fractions.min() >= 0
    assert fractions.max() <= 1 + 1e-12
    np.testing.assert_allclose(scale.density(fractions), np.sort(densities), rtol=1e-6, atol=scale.top * 1e-9)
    ticks = scale.ticks()
    assert ticks[0] == 0
    assert (np.diff(ticks) > 0).all()
    assert 3 <= ticks.size <= 12
    assert ticks[-1] <= scale.top * (1 + 1e-9)


@given(top=st.floats(1, 1e6), noise_floor=st.floats(1e-3, 1e7))
def test_no_shade_is_spent_on_what_chance_puts_anywhere(top: float, noise_floor: float) -> None:
    densities = np.array([top / 2, top])
    scale, plain = (density_scale(densities, "log", noise_floor=each) for each in (noise_floor, 0.0))
    # Below the knee it is nearly linear.
    assert scale.knee >= max(noise_floor, plain.knee) * (1 - 1e-9)
    assert noise_floor > plain.knee or scale == plain
    assert scale.fraction(top) == pytest.approx(1)
    ticks = scale.ticks()
    assert ticks[0] == 0
    assert 3 <= ticks.size <= 12
    assert (np.diff(ticks) > 0).all()
    assert ticks[-1] <= top * (1 + 1e-9)


@pytest.mark.parametrize("kind", ["log", "linear"])
@given(density=st.floats(1e-3, 1e6), noise_floor=st.floats(0, 1e6))
def test_one_density_alone_is_not_drawn_as_the_densest(kind: str, density: float, noise_floor: float) -> None:
    one = np.array([np.nan, 0.0, density, 1.005 * density])
    scale = density_scale(one, kind, noise_floor=noise_floor)  # type: ignore[arg-type]
    assert 0.49 <= scale.fraction(density) <= 0.6
    assert scale.ticks()[-1] >= density, "its value is between ticks"


@pytest.mark.parametrize("empty", [[], [0.0], [np.nan], [-3.0, 0.0]])
def test_a_map_of_nobody_still_has_a_scale(empty: list[float]) -> None:
    scale = density_scale(np.array(empty))
    assert scale.fraction(0.0) == 0.0
    assert scale.fraction(-1.0) == 0.0


def test_unknown_scales_and_ramps_are_refused() -> None:
    with pytest.raises(ParameterError, match="log"):
        density_scale(np.ones(2), "cubic")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="steps"):
        ramp(1)


@given(st.floats(1e-6, 1e9))
def test_rounding_down_gives_a_round_number_close_below(value: float) -> None:
    found = round_down(value)
    assert value / 2.5 * (1 - 1e-9) <= found <= value * (1 + 1e-9)
    assert f"{found:.0e}"[0] in "125"
