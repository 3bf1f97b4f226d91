"""Sites, their codes and their fingerprint."""

from __future__ import annotations

import numpy as np
import pytest
import shapely

import mapveil as mv
from mapveil_client.errors import InputError
from mapveil_client.local.domain import Domain

BOX = (-74.03, 40.69, -73.90, 40.83)
REGION = mv.Region.from_bbox(*BOX)


def triangle() -> mv.Region:
    west, south, east, north = BOX
    return mv.Region.from_polygon(shapely.Polygon([(west, south), (east, south), (west, north)]))


def test_the_codes_of_a_quadtree_are_its_cells() -> None:
    domain = Domain(mv.Quadtree(REGION, depth=3))
    np.testing.assert_array_equal(domain.codes.code, np.arange(64))
    np.testing.assert_array_equal(domain.codes.site, np.arange(64))
    assert domain.codes.bits == 6


def test_the_code_of_new_york_is_that_of_the_paper() -> None:
    # Example 3.1: (40.730610, -73.935242) is e1147b6afff at 46 bits (the paper counts rows from the other end).
    lon, lat = np.array([-73.935242, -73.9]), np.array([40.730610, 40.8])
    domain = Domain(mv.Places(lon, lat, REGION))
    code = int(domain.codes.code[domain.codes.rank[0]])
    row = sum(((code >> (2 * k + 1)) & 1) << k for k in range(23))
    col = sum(((code >> (2 * k)) & 1) << k for k in range(23))
    west, east = col / (1 << 23) * 360 - 180, (col + 1) / (1 << 23) * 360 - 180
    assert west <= lon[0] < east
    north, south = (np.degrees(np.arctan(np.sinh(np.pi * (1 - 2 * r / (1 << 23))))) for r in (row, row + 1))
    assert south <= lat[0] < north
    assert code.bit_length() <= 46


def test_codes_are_sorted_unique_and_ranks_invert_them() -> None:
    generator = np.random.default_rng(0)
    near = -73.95 + generator.uniform(0, 1e-5, 40)  # within one tile or two
    domain = Domain(mv.Places(np.append(near, -73.99), np.append(np.full(40, 40.75), 40.72), REGION))
    codes = domain.codes
    assert (np.diff(codes.code) > 0).all()
    assert codes.bits > 46
    np.testing.assert_array_equal(codes.rank[codes.site], np.arange(41))
    assert int(codes.code[-1]) < 1 << codes.bits


def test_sites_are_the_cells_inside_the_polygon() -> None:
    tiling = mv.Quadtree(triangle(), depth=4)
    domain = Domain(tiling)
    inside = tiling.lattice().inside
    np.testing.assert_array_equal(domain.cells, np.flatnonzero(inside))
    np.testing.assert_array_equal(domain.sites_of(domain.cells), np.arange(domain.size))
    assert domain.size < tiling.size
    values = domain.on_cells(np.arange(1.0, domain.size + 1))
    assert values.shape == (tiling.size,)
    assert (values[~inside] == 0).all()
    assert values.sum() == pytest.approx(domain.size * (domain.size + 1) / 2)
    with pytest.raises(InputError, match="not among"):
        domain.sites_of(np.flatnonzero(~inside)[:1])


@pytest.mark.parametrize("cells", [-1, 16, [0, 99], 0.5, "3"], ids=str)
def test_what_is_no_cell_is_refused_without_saying_which(cells: object) -> None:
    with pytest.raises(InputError) as caught:
        Domain(mv.Quadtree(REGION, depth=2)).sites_of(cells)
    assert "99" not in str(caught.value)


def test_fewer_than_two_sites_are_refused() -> None:
    with pytest.raises(InputError, match="two or more"):
        Domain(mv.Quadtree(REGION, depth=0))


def test_too_many_sites_are_refused() -> None:
    with pytest.raises(InputError, match="67108864"):
        Domain(mv.Quadtree(REGION, depth=14))


def test_the_fingerprint_tells_versions_apart() -> None:
    lon, lat = np.linspace(-74.0, -73.92, 11), np.linspace(40.70, 40.82, 11)
    old, again = (Domain(mv.Places(lon, lat, REGION)).fingerprint for _ in range(2))
    moved = Domain(mv.Places(lon + 1e-9, lat, REGION)).fingerprint
    fewer = Domain(mv.Places(lon[1:], lat[1:], REGION)).fingerprint
    assert old == again
    assert len({old, moved, fewer, Domain(mv.Quadtree(REGION, 3)).fingerprint}) == 4
    assert len(old) == 16


def test_a_raster_that_is_nowhere_has_codes_and_a_plane() -> None:
    region = mv.Region.without_georeference(8, 4)
    domain = Domain(mv.Grid(region, rows=4, columns=8))
    assert domain.plane.shape == (2, 32)
    assert (np.diff(domain.codes.code) > 0).all()
