"""Hexagons: H3's own library as the oracle."""

from __future__ import annotations

from typing import Any

import h3
import numpy as np
import pytest
import shapely

from mapveil.geo.hexagons import Hexagons
from mapveil.geo.region import Region
from mapveil_client.errors import ParameterError

NEW_YORK = Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
WORLD = Region.from_bbox(-180, -90, 180, 90)
BLOB = Region.from_polygon(
    shapely.Point(13.4, 52.5).buffer(0.3).difference(shapely.box(13.3, 52.4, 13.4, 52.5))
)


def slow_cells(region: Region, resolution: int) -> list[int]:
    """All cells on Earth, those whose centre lies in the region."""
    everywhere = [cell for coarse in h3.get_res0_cells() for cell in h3.cell_to_children(coarse, resolution)]
    lat, lon = np.array([h3.cell_to_latlng(cell) for cell in everywhere]).T
    inside = region.contains(lon, lat)
    return sorted(h3.str_to_int(cell) for cell, kept in zip(everywhere, inside, strict=True) if kept)


@pytest.mark.parametrize("resolution", [0, 1, 2])
@pytest.mark.parametrize(
    "box",
    [
        (-180, -90, 180, 90),
        (-180, 60, 180, 90),
        (-170, -60, 170, 60),
        (-180, -90, 0, 0),
        (100, -10, 180, 70),
        (-180, 50, -120, 75),
        (-10, -90, 10, -70),
        (30, -40, 60, 10),
    ],
)
def test_cells_are_those_with_their_centre_inside(box: tuple[float, ...], resolution: int) -> None:
    region = Region.from_bbox(*box)
    expected = slow_cells(region, resolution)
    if expected:
        assert Hexagons(region, resolution).h3_ids.tolist() == expected
    else:
        with pytest.raises(ParameterError, match="no H3 cell"):
            Hexagons(region, resolution)


@pytest.mark.parametrize("resolution", [6, 9])
def test_cells_of_a_city_and_of_a_polygon(resolution: int) -> None:
    for region in (NEW_YORK, BLOB):
        west, south, east, north = region.bbox
        wide = h3.LatLngPoly(
            [
                (south - 0.1, west - 0.1),
                (south - 0.1, east + 0.1),
                (north + 0.1, east + 0.1),
                (north + 0.1, west - 0.1),
            ]
        )
        cells = h3.polygon_to_cells(wide, resolution)
        lat, lon = np.array([h3.cell_to_latlng(cell) for cell in cells]).T
        inside = region.contains(lon, lat)
        expected = sorted(h3.str_to_int(cell) for cell, kept in zip(cells, inside, strict=True) if kept)
        assert Hexagons(region, resolution).h3_ids.tolist() == expected


def test_places_are_located_as_h3_does() -> None:
    hexagons = Hexagons(NEW_YORK, 8)
    lon, lat = np.random.default_rng(0).uniform([[-74.05], [40.67]], [[-73.88], [40.85]], (2, 1500))
    cells = hexagons.locate(lon, lat)
    expected = [h3.str_to_int(h3.latlng_to_cell(*place, 8)) for place in zip(lat, lon, strict=True)]
    codes = {int(cell): code for code, cell in enumerate(hexagons.h3_ids)}
    assert cells.tolist() == [codes.get(cell, -1) for cell in expected]
    assert (cells == -1).any()


def test_outlines_and_areas_are_h3s() -> None:
    hexagons = Hexagons(NEW_YORK, 8)
    some = np.arange(0, hexagons.size, 17)
    for cell, outline, area in zip(
        hexagons.h3_ids[some], hexagons.polygons(some), hexagons.area_m2(some), strict=True
    ):
        name = h3.int_to_str(int(cell))
        corners = [(lon, lat) for lat, lon in h3.cell_to_boundary(name)]
        assert outline.equals_exact(shapely.Polygon(corners), 1e-9, normalize=True)
        assert area == pytest.approx(h3.cell_area(name, unit="m^2"), rel=1e-9)


@pytest.mark.parametrize("resolution", [0, 1, 2])
def test_the_whole_earth_is_tiled_without_gaps(resolution: int) -> None:
    hexagons = Hexagons(WORLD, resolution)
    assert hexagons.size == 2 + 120 * 7**resolution
    outlines = hexagons.polygons()
    assert shapely.is_valid(outlines).all()
    assert shapely.area(outlines).sum() == pytest.approx(360 * 180, rel=1e-9)
    assert (np.abs(shapely.bounds(outlines)) <= [180, 90, 180, 90]).all()
    assert {outline.geom_type for outline in outlines} == {"Polygon", "MultiPolygon"}
    assert hexagons.area_m2().sum() == pytest.approx(WORLD.area_m2, rel=1e-6)


@pytest.mark.parametrize("bad", [-1, 16, 3.0, True, "3", None])
def test_impossible_resolutions_are_refused(bad: Any) -> None:
    with pytest.raises(ParameterError, match=r"resolution must be"):
        Hexagons(NEW_YORK, bad)


def test_regions_without_cells_or_with_too_many_are_refused() -> None:
    with pytest.raises(ParameterError, match="no H3 cell"):
        Hexagons(NEW_YORK, 1)
    with pytest.raises(ParameterError, match="at most 8388608"):
        Hexagons(NEW_YORK, 15)
    with pytest.raises(ParameterError, match="without georeference"):
        Hexagons(Region.without_georeference(9, 9), 3)
