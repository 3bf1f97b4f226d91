"""Made-up people in every box and file that the reproduction of Wang et al. (2022) reads."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pytest

from reproductions.wang.data import BEYOND, SETS
from reproductions.wang.flows import TRIPS

_PEOPLE = 60
_STEPS = 12
_FIXES = 70


@pytest.fixture(scope="session")
def wang_shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small files of the right names and columns."""
    folder = tmp_path_factory.mktemp("shared")
    generator = np.random.default_rng(7)
    boxes: dict[str, set[tuple[float, float, float, float]]] = {}
    for data in (*SETS, *BEYOND, *TRIPS):
        boxes.setdefault(data.file, set()).add(data.box)
    for name, all_boxes in boxes.items():
        step = next((data.step for data in SETS if data.file == name), None)
        parts = [_walks(box, step, generator) for box in sorted(all_boxes)]
        users, trips, order, lon, lat = (np.concatenate(each) for each in zip(*parts, strict=True))
        venue = np.unique(np.stack([lon, lat]), axis=1, return_inverse=True)[1].ravel()
        rows = {
            "user_id": users,
            "traj_id": trips,
            "session": trips,
            "pos": order,
            "seconds": 15 * order + 7200 * trips,
            "lon": lon,
            "lat": lat,
            "venue_id": venue,
            "count": np.ones(lon.size, dtype=np.int64),
        }
        with duckdb.connect() as connection:
            connection.register("rows", rows)
            made = connection.sql("SELECT *, TIMESTAMP '2012-01-01' + TO_SECONDS(seconds) AS time FROM rows")
            made.write_parquet(str(folder / name))
    return folder


def _walks(
    box: tuple[float, float, float, float],
    step: tuple[float, float] | None,
    generator: np.random.Generator,
) -> tuple[np.ndarray, ...]:
    """Users, trips, numbers within the trip, longitudes and latitudes: venues in turn, or ways on a lattice."""
    west, south, east, north = box
    if step is None:
        sites = np.stack([generator.uniform(west, east, 40), generator.uniform(south, north, 40)])
        part = generator.dirichlet(np.full(40, 0.4))
        at = generator.choice(40, _PEOPLE * _STEPS, p=part)
        user = np.repeat(np.arange(_PEOPLE), _STEPS)
        return user, user, np.tile(np.arange(_STEPS), _PEOPLE), sites[0, at], sites[1, at]
    # A way goes east, then north, one position a cell; 0.002 degrees in 15 s is about 40 km/h.
    user = np.repeat(np.arange(_PEOPLE), _FIXES)
    number = np.tile(np.arange(_FIXES), _PEOPLE)
    turn = np.repeat(generator.integers(5, _FIXES - 5, _PEOPLE), _FIXES)
    start = np.repeat(generator.integers(0, 4, _PEOPLE), _FIXES)
    middle = ((west + east) / 2 - 0.08, (south + north) / 2 - 0.06)
    lon = middle[0] + 0.002 * (10 * start + np.minimum(number, turn))
    lat = middle[1] + 0.0017 * (8 * (3 - start) + np.maximum(number - turn, 0))
    back = np.repeat(generator.random(_PEOPLE) < 0.5, _FIXES)
    order = np.where(back, _FIXES - 1 - number, number)
    return user, user, order, lon, lat
