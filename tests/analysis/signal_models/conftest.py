"""Measurements of a field of signal strength that is known everywhere."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from mapveil.analysis.signal_models.signal_model import LocalPlane
from mapveil.geo.measurements import Measurements

MIDDLE = np.array([[35.5, 24.0]])
PLANE = LocalPlane.around(MIDDLE)

Field = Callable[[np.ndarray], np.ndarray]


def measure(field: Field, count: int, *, seed: int, noise: float, side_m: float = 2000.0) -> Measurements:
    """Rows at random in a square; ``field`` maps metres east and north to dBm. Feature 3 is noise, 4 the cell."""
    draw = np.random.default_rng(seed)
    metres = draw.uniform(-side_m / 2, side_m / 2, (count, 2))
    strength = field(metres) + noise * draw.normal(size=count)
    rows = np.stack(
        [
            PLANE.lat + metres[:, 1] / PLANE.metres_per_lat,
            PLANE.lon + metres[:, 0] / PLANE.metres_per_lon,
            strength,
            draw.normal(size=count),
            (metres[:, 0] > 0) + 7.0,
        ],
        axis=1,
    )
    names = ("lat", "lon", "rss_dbm", "speed", "cell_id")
    return Measurements(rows, names, np.arange(count) % 2, ("a", "b"), None, np.arange(count))


def waves(metres: np.ndarray) -> np.ndarray:
    """A smooth field of deviation 7 dB."""
    return -85 + 10 * np.sin(metres[:, 0] / 250) * np.cos(metres[:, 1] / 300)


def towers(metres: np.ndarray) -> np.ndarray:
    """Cell 8 east of the middle line, cell 7 west of it, each with its transmitter."""
    east = metres[:, 0] > 0
    place = np.where(east[:, None], [[400.0, 300.0]], [[-500.0, -200.0]])
    away = np.maximum(np.hypot(*(metres - place).T), 10.0)
    return np.where(east, -20.0, -30.0) - 10 * np.where(east, 3.0, 2.2) * np.log10(away)


@pytest.fixture(scope="session")
def fields() -> SimpleNamespace:
    """The functions above."""
    return SimpleNamespace(measure=measure, waves=waves, towers=towers, plane=PLANE)
