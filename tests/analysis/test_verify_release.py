"""The noise that a map's measurements state is that of its promise, by every method that answers with noisy sums."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import mapveil as mv
from mapveil.analysis import verify_release
from mapveil.mechanisms.methods import METHODS, Method

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
TILING = mv.Quadtree(REGION, depth=4)
SUMMED = [
    each
    for each in METHODS
    if each.trust in ("central", "distributed", "operators") and each.name != "proportions"
]
WEEKS = mv.Windows(every="1w", start="2026-01-05", until="2026-02-02")


def states(heat: mv.DensityMap) -> tuple[str, str]:
    """Of the map as it is, and under nine tenths of its epsilon."""
    less = replace(heat.guarantee, epsilon=heat.guarantee.epsilon * 9 / 10, shares=())
    found = (verify_release._measurements(each) for each in (heat, replace(heat, guarantee=less)))
    one, other = (each.state for each in found)
    return one, other


@pytest.mark.parametrize("method", SUMMED, ids=lambda each: f"{each.trust} {each.name}")
def test_no_method_states_less_noise_than_it_promises(method: Method) -> None:
    city = mv.synthetic.city(users=300, seed=1, region=REGION)
    given: dict[str, Any] = {"method": method.name, "trust": method.trust, "account": None, "rng": 2}
    heat = mv.release(city, TILING, epsilon=1, **given)
    one, other = states(heat)
    assert one == "ok"
    if method.name in (
        "multiscale",
        "laplace",
        "hierarchical",
        "uniform",
    ):  # they measure with the whole budget
        assert other == "failed"


@pytest.mark.parametrize(
    "given",
    [{}, {"windows_per_user": 2}, {"per": "user-week"}, {"trust": "distributed"}, {"trust": "operators"}],
    ids=str,
)
def test_a_series_states_the_noise_of_its_promise(given: dict[str, Any]) -> None:
    rng = np.random.default_rng(3)
    user, week = np.repeat(np.arange(300), 4), np.tile(np.arange(4), 300)
    west, south, east, north = REGION.bbox
    places = rng.uniform(west, east, user.size), rng.uniform(south, north, user.size)
    points = mv.Points.from_arrays(user, *places, time=np.datetime64("2026-01-05") + 7 * week)
    series = mv.release_series(points, WEEKS, TILING, epsilon=1, account=None, rng=2, **given)
    assert states(series) == ("ok", "failed")
