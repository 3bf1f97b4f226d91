"""The xarray dataset: labelled, and placed where rioxarray looks."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
import rioxarray
import xarray
from pyproj import CRS, Transformer

from mapveil.maps.density_map import DensityMap

MakeMap = Callable[..., DensityMap]


@pytest.mark.parametrize("kind", ["grid", "quadtree", "utm", "degrees", "tiles"])
def test_every_cell_is_found_at_its_centre(kind: str, make_map: MakeMap) -> None:
    heat = make_map(kind)
    made = heat.to_xarray()
    to_plane = Transformer.from_crs("EPSG:4326", CRS(made.rio.crs.to_wkt()), always_xy=True)
    x, y = to_plane.transform(*heat.tiling.centres())
    places = {"x": xarray.DataArray(x, dims="cell"), "y": xarray.DataArray(y, dims="cell")}
    found = made.sel(places, method="nearest")
    interval = heat.error(0.05)
    np.testing.assert_array_equal(found["users"], heat.values)
    np.testing.assert_array_equal(found["users_per_km2"], heat.per_km2())
    np.testing.assert_array_equal(found["lower"], interval.lower)
    np.testing.assert_array_equal(found["upper"], interval.upper)


@pytest.mark.filterwarnings("ignore:Use `@` matmul:PendingDeprecationWarning")  # inside rioxarray
def test_rioxarray_sees_the_same_pixels(make_map: MakeMap) -> None:
    made = make_map("grid").to_xarray()
    assert isinstance(made.rio, rioxarray.raster_dataset.RasterDataset)
    transform = made.rio.transform()
    assert transform.e < 0 < transform.a
    assert made.rio.transform(recalc=True).almost_equals(transform, precision=1e-6)
    assert made["y"].to_numpy()[0] > made["y"].to_numpy()[-1]


@pytest.mark.parametrize("kind", ["hexagons", "places"])
def test_other_cells_are_labelled_by_centre(kind: str, make_map: MakeMap) -> None:
    heat = make_map(kind)
    made = heat.to_xarray()
    assert made["users"].dims == ("cell",)
    np.testing.assert_array_equal(made["lon"], heat.tiling.centres().lon)
    np.testing.assert_array_equal(made["users"], heat.values)


def test_the_attributes_carry_everything(make_map: MakeMap) -> None:
    heat = make_map()
    made = heat.to_xarray()
    assert json.loads(made.attrs["mapveil"]) == heat.metadata()
    assert made.attrs["epsilon"] == pytest.approx(1 / 3)
    assert made["users_per_km2"].attrs["units"] == "users/km2"


def test_without_georeference_and_measurements(make_map: MakeMap) -> None:
    made = make_map("no georeference", measured=False).to_xarray()
    assert set(made.data_vars) == {"users"}
    assert "spatial_ref" not in made.coords
