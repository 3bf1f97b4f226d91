"""The people of the reproduction: drawn from the densities they are said to be, read from the boxes they are in."""

from __future__ import annotations

import math
from pathlib import Path

import duckdb
import numpy as np
import pytest
from scipy import integrate, special, stats

from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness
from reproductions.zong.data import (
    CITIES,
    GRID,
    SYNTHETIC,
    City,
    city_scene,
    line_density,
    line_people,
    read_city,
    synthetic_scene,
    true_density,
)

BOX = (-74.03, 40.69, -73.90, 40.83)


def octagon_slowly(point: tuple[float, float], *, literal: bool = False) -> float:
    """Section 4.1.1 entry by entry, with the corrected (or the printed) first entry of the covariance."""
    total = 0.0
    for i in range(1, 9):
        sine, cosine = math.sin(math.pi * i / 4), math.cos(math.pi * i / 4)
        first = math.cos(2 * i / 4) ** 2 if literal else cosine**2
        off = (1 - 0.16**2) * sine * cosine
        covariance = [[first + 0.16**2 * sine**2, off], [off, sine**2 + 0.16**2 * cosine**2]]
        law = stats.multivariate_normal([3 * cosine, 3 * sine], covariance)
        total += float(law.pdf(point))
    return total / 8


def nine_slowly(point: tuple[float, float]) -> float:
    laws = [stats.multivariate_normal([i, j], 0.25 * np.eye(2)) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    return float(np.mean([law.pdf(point) for law in laws]))


@pytest.mark.parametrize("point", [(0.0, 0.0), (1.3, -0.4), (2.9, 0.1), (-2.0, 2.2), (3.6, 3.4)])
def test_densities_are_those_of_the_paper(point: tuple[float, float]) -> None:
    at = np.array(point)[:, None]
    assert true_density("a", at)[0] == pytest.approx(nine_slowly(point), rel=1e-9)
    assert true_density("b", at)[0] == pytest.approx(octagon_slowly(point), rel=1e-9)


def test_the_printed_covariance_is_none() -> None:
    with pytest.raises(ValueError, match="positive semidefinite"):
        octagon_slowly((0.0, 0.0), literal=True)


@pytest.mark.parametrize("name", SYNTHETIC)
def test_people_follow_their_density_and_no_other(name: str) -> None:
    scene = synthetic_scene(name, 40_000, Randomness(3))
    assert scene.users == 40_000
    assert (scene.places >= np.array(scene.low)[:, None]).all()
    assert (scene.places <= np.array(scene.high)[:, None]).all()
    edges = np.linspace(scene.low[0], scene.high[0], 9)
    counted = np.histogram2d(*scene.places, bins=[edges, edges])[0].ravel()

    def pvalue(density: str) -> float:
        fine = np.linspace(scene.low[0], scene.high[0], 8 * 16 + 1)
        middles = (fine[1:] + fine[:-1]) / 2
        points = np.stack([part.ravel() for part in np.meshgrid(middles, middles, indexing="ij")])
        mass = true_density(density, points).reshape(8, 16, 8, 16).sum(axis=(1, 3)).ravel()
        expected = mass / mass.sum() * counted.sum()
        kept = expected > 5
        rest = [counted[~kept].sum()], [expected[~kept].sum()]
        observed, wanted = (
            np.append(part[kept], more) for part, more in zip((counted, expected), rest, strict=True)
        )
        return float(stats.chisquare(observed[wanted > 0], wanted[wanted > 0]).pvalue)

    assert pvalue(name) > 1e-9
    assert pvalue("a" if name != "a" else "b") < 1e-9


def test_a_scene_has_its_grid_and_truth() -> None:
    scene = synthetic_scene("a", 10, Randomness(1))
    assert scene.grid.count == (GRID, GRID)
    assert scene.grid.axis(0)[[0, -1]].tolist() == pytest.approx([-2.5, 2.5])
    assert scene.truth is not None
    assert scene.truth.argmax() == true_density("a", scene.grid.points()).argmax()
    # The northmost row first.
    lifted = scene.on_map(scene.grid.points()[1])
    assert lifted[0, 0] > lifted[-1, 0]
    with pytest.raises(ParameterError, match="no synthetic set is called 'c'"):
        synthetic_scene("c", 10, Randomness(1))


def test_the_line_is_three_gaussians() -> None:
    people = line_people(50_000, Randomness(4))[0]
    assert integrate.quad(lambda x: line_density(np.array([x]))[0], -30, 30)[0] == pytest.approx(1.0)

    def below(x: np.ndarray) -> np.ndarray:
        parts = zip((-10.0, 0.0, 5.0), (0.2, 0.6, 0.2), strict=True)
        return sum((weight * special.ndtr((x - mean) / 2) for mean, weight in parts), np.zeros(np.shape(x)))

    assert stats.kstest(people, below).pvalue > 1e-9
    assert stats.kstest(people * 1.1, below).pvalue < 1e-9


def written(folder: Path, name: str, rows: list[tuple[float, float, int]]) -> None:
    values = ", ".join(f"({lon}::DOUBLE, {lat}::DOUBLE, {count}::BIGINT)" for lon, lat, count in rows)
    duckdb.sql(f"SELECT * FROM (VALUES {values}) AS rows(lon, lat, count)").write_parquet(str(folder / name))


def test_a_cut_has_a_person_for_every_check_in_of_its_box(tmp_path: Path) -> None:
    written(tmp_path, "some.parquet", [(-74.0, 40.7, 3), (-73.95, 40.8, 1), (-75.0, 40.7, 9)])
    lon, lat = read_city(tmp_path, City("x", "some.parquet", BOX, "count"))
    assert lon.tolist() == [-74.0] * 3 + [-73.95]
    assert lat.tolist() == [40.7] * 3 + [40.8]
    assert read_city(tmp_path, City("x", "some.parquet", BOX, "1"))[0].size == 2
    with pytest.raises(InputError, match=r"other\.parquet: no such file"):
        read_city(tmp_path, City("x", "other.parquet", BOX, "1"))


def test_a_city_is_in_metres_with_the_papers_bandwidth_or_its_rule(tmp_path: Path) -> None:
    written(tmp_path, "some.parquet", [(-74.0, 40.7, 3), (-73.95, 40.8, 1)])
    scene = city_scene(tmp_path, City("x", "some.parquet", BOX, "count", 2e-3), 1)
    assert scene.bandwidth == pytest.approx(222.4, rel=1e-3)
    assert [high - low for low, high in zip(scene.low, scene.high, strict=True)] == pytest.approx(
        [10_977, 15_547], rel=1e-3
    )
    assert scene.side == pytest.approx(10_977, rel=1e-3)
    assert scene.truth is None
    generator = np.random.default_rng(5)
    rows = [
        (float(x), float(y), 1)
        for x, y in zip(generator.uniform(*BOX[::2], 900), generator.uniform(*BOX[1::2], 900), strict=True)
    ]
    written(tmp_path, "many.parquet", rows)
    ruled = city_scene(tmp_path, City("x", "many.parquet", BOX, "1"), 1)
    # The 500th of 900 neighbours spread over 170 square kilometres.
    assert 4_000 < ruled.bandwidth < 8_000


def test_the_cuts_of_the_paper_have_its_boxes_and_bandwidths() -> None:
    named = {city.name: city for city in CITIES}
    assert len(named) == len(CITIES)
    assert named["Foursquare, Tokyo"].box == (139.75249, 35.65504, 139.77897, 35.70064)
    assert named["Foursquare, Tokyo"].degrees == 1.4e-3
    assert named["Foursquare, Los Angeles"].box == (-118.42099, 34.00617, -118.21599, 34.11246)
