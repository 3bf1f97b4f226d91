"""Totals of zones that a page answers: those of :mod:`mapveil.analysis.zone_totals`, and no request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely

import mapveil as mv
from mapveil.analysis.zone_totals import totals
from mapveil.engines import UNIT, UserSums
from mapveil.geo.context import Context
from mapveil.geo.hexagons import Hexagons
from mapveil.geo.tiling import Tiling
from mapveil.geo.zones import Zones
from mapveil.maps.density_map import DensityMap
from mapveil.maps.measurement import Measurement
from mapveil.pictures.scene_record import scene_record
from mapveil.privacy.weighted_noise import WeightedNoise, half_width
from tests.node import run_in_node

ASSETS = Path(__file__).parents[2] / "src/mapveil/pictures/shared/assets"
REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
TILINGS: dict[str, Tiling] = {
    "quadtree": mv.Quadtree(REGION, depth=5),
    "grid": mv.Grid(REGION, rows=23, columns=17),
    "hexagons": Hexagons(REGION, resolution=8),
}


def in_node(script: str, given: Any) -> Any:
    """Run a script beside the page's modules."""
    names = {
        "halfWidth": "noise_law",
        "noisySums": "noisy_sums",
        "totalOfZones": "noisy_sums",
        "unpackAll": "packed",
    }
    names |= {"pixelFractions": "zone_shapes", "crosses": "zone_shapes", "isInside": "zone_shapes"}
    imports = [f'import {{ {name} }} from "{(ASSETS / file).as_uri()}.js";' for name, file in names.items()]
    return run_in_node("\n".join([*imports, script]), given)


def people(tiling: Tiling) -> UserSums:
    rng = np.random.default_rng(4)
    lon, lat = tiling.centres()
    mean = 40 * np.exp(-((lon + 73.98) ** 2 + (lat - 40.74) ** 2) / 0.0004) + 0.2
    return UserSums(rng.poisson(mean).astype(np.int64) * UNIT, tiling)


def boxes(count: int) -> Zones:
    rng = np.random.default_rng(2)
    west, south, east, north = REGION.bbox
    made = []
    for _ in range(count):
        side = (east - west) * 2.0 ** rng.uniform(-6, 0)
        x, y = rng.uniform(west - side / 3, east), rng.uniform(south - side / 3, north)
        made.append(shapely.box(x, y, x + side, y + side))
    return Zones.read(made)


RELEASES: dict[str, Callable[[Tiling], DensityMap]] = {
    "multiscale": lambda tiling: mv.mechanisms.Multiscale(epsilon=1).release(
        people(tiling), tiling, account=None, rng=1
    ),
    "laplace": lambda tiling: mv.mechanisms.LaplaceHistogram(epsilon=Fraction(1, 10)).release(
        people(tiling), tiling, account=None, rng=1
    ),
    "spatial-decomposition": lambda tiling: mv.mechanisms.SpatialDecomposition(epsilon=2).release(
        people(tiling), tiling, account=None, rng=1
    ),
    "reports": lambda tiling: mv.release(
        mv.synthetic.city(users=3000, seed=1, region=REGION),
        tiling,
        epsilon=2,
        trust="local",
        account=None,
        rng=1,
    ),
}

_ZONES = """
const scene = await unpackAll(given), { zones } = scene, sums = noisySums(scene);
console.log(JSON.stringify(zones.name.map((_, zone) => {
  const weights = new Map();
  for (let i = zones.start[zone]; i < zones.start[zone + 1]; i++) weights.set(zones.leaf[i], zones.part[i]);
  return { ...sums.totalOf(weights), shown: zones.shown[zone], covered: zones.covered[zone] };
})));
"""


@pytest.mark.parametrize(
    ("method", "tiling"),
    [
        ("multiscale", "quadtree"),
        ("laplace", "grid"),
        ("spatial-decomposition", "quadtree"),
        ("laplace", "hexagons"),
        ("reports", "quadtree"),
    ],
)
def test_a_page_answers_as_the_command_does(method: str, tiling: str) -> None:
    heat = RELEASES[method](TILINGS[tiling])
    found = totals(heat, boxes(25))
    page = scene_record(replace(heat, context=Context.of_zones(boxes(25))))["scene"]["questions"]
    answers = in_node(_ZONES, page)
    assert page["zones"]["name"] == list(found.zones.names)
    expected = {
        "estimate": np.maximum(found.estimate, 0),
        **{
            name: getattr(found, name)
            for name in ("low", "high", "inside", "touched", "placed", "shown", "covered")
        },
    }
    for name, values in expected.items():
        assert np.allclose([each[name] for each in answers], values, rtol=1e-6, atol=0.01), name


def test_zones_are_added_up_unless_they_overlap() -> None:
    # The second zone and the third overlap in less than a leaf.
    x, y, z = -74.0, 40.72, 40.75
    column = (REGION.bbox[2] - REGION.bbox[0]) / 17
    halves = [(x, x + 1.5 * column), (x + 2 * column, x + 3.7 * column), (x + 3.4 * column, x + 5 * column)]
    zones = [shapely.box(west, y, east, z) for west, east in halves]
    heat = RELEASES["laplace"](TILINGS["grid"])
    context = Context.of_zones(Zones(np.array(zones, dtype=object), ("west", "middle", "east")))
    page = scene_record(replace(heat, context=context))["scene"]["questions"]
    script = """
    const scene = await unpackAll(given), sums = noisySums(scene);
    const answer = (numbers) => totalOfZones(sums, scene.zones, numbers);
    console.log(JSON.stringify([[0, 1], [0, 2], [1], [0, 1, 2]].map(answer)));"""
    *answers, refused = in_node(script, page)
    for numbers, answer in zip(([0, 1], [0, 2], [1]), answers, strict=True):
        expected = heat.total(shapely.union_all([zones[at] for at in numbers]))
        assert answer["estimate"] == pytest.approx(max(expected.estimate, 0), abs=0.01)
        assert [answer["low"], answer["high"]] == pytest.approx(expected.interval(), rel=0.002)
        assert answer["shown"] == pytest.approx(expected.shown, abs=0.01)
    why = "middle and east overlap, so their users cannot be added up: choose one of them."
    assert refused == {"refused": why}


def test_noise_of_several_shards_and_coarse_noise_have_the_law_of_python() -> None:
    laws = [
        WeightedNoise(np.array([0.5, 0.01, 2e-6]), np.array([1.2, 0.3, 1e-6]), np.array([1.0, 7.5, 4000.0])),
        WeightedNoise(np.array([1.0]), np.array([4.0]), np.array([1.0])),
        WeightedNoise(np.array([1e-6]), np.array([1e-6]), np.array([0.5])),
        WeightedNoise(np.array([]), np.array([]), np.array([])),
    ]
    given = [
        [
            dict(zip(("step", "rate", "terms"), row, strict=True))
            for row in zip(*map(np.ndarray.tolist, law), strict=True)
        ]
        for law in laws
    ]
    for alpha in (0.5, 0.05, 1e-6):
        script = f"console.log(JSON.stringify(given.map((noises) => halfWidth(noises, {alpha}))));"
        assert np.allclose(in_node(script, given), [half_width(law, alpha) for law in laws], rtol=1e-9)


def test_pixels_of_a_drawn_outline_are_those_of_the_overlay() -> None:
    rng, outlines = np.random.default_rng(3), []
    for _ in range(20):
        angle = (np.arange(7) + rng.uniform(0, 0.8, 7)) * 2 * np.pi / 7
        size = rng.uniform(0.5, 14, 7)
        outlines.append(np.column_stack((9 + size * np.cos(angle), 11 + size * np.sin(angle))).tolist())
    script = "console.log(JSON.stringify(given.map((corners) => [...pixelFractions(corners, 23, 17)])));"
    for corners, found in zip(outlines, in_node(script, outlines), strict=True):
        row, column = np.divmod(np.arange(23 * 17), 17)
        common = shapely.area(
            shapely.intersection(shapely.Polygon(corners), shapely.box(column, row, column + 1, row + 1))
        )
        pixels = dict(found)
        assert [pixels.get(at, 0) for at in range(23 * 17)] == pytest.approx(common.tolist(), abs=1e-9)


def test_crossing_outlines_are_known_and_places_within_outlines() -> None:
    square, bow = [[0, 0], [2, 0], [2, 2], [0, 2]], [[0, 0], [2, 2], [2, 0], [0, 2]]
    script = """
    console.log(JSON.stringify([given.map(crosses), isInside(given[0], 1, 1), isInside(given[0], 3, 1)]));"""
    assert in_node(script, [square, bow]) == [[False, True], True, False]


def test_a_map_that_cannot_be_asked_says_why() -> None:
    heat = RELEASES["laplace"](TILINGS["grid"])
    assert (
        "carries no measurements"
        in scene_record(replace(heat, measurements=()))["scene"]["questions"]["refused"]
    )


def test_zones_elsewhere_are_left_out_and_noisy_sums_are_rounded_far_below_their_noise() -> None:
    heat = RELEASES["laplace"](TILINGS["grid"])
    far = Context.of_zones(Zones.read([shapely.box(10, 10, 11, 11)]))
    page = scene_record(replace(heat, context=far))["scene"]["questions"]
    assert page["zones"] is None
    script = """
    const { noisy, step } = (await unpackAll(given)).levels.at(-1);
    console.log(JSON.stringify([...noisy].map((steps) => steps * step)));"""
    (measured,) = heat.measurements
    assert isinstance(measured, Measurement)
    assert np.allclose(in_node(script, page), measured.noisy, rtol=0, atol=measured.deviation() / 2**16)
