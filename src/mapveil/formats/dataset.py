"""A map as an xarray dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mapveil.maps.frame import RasterFrame, raster_frame
from mapveil_client.errors import require

if TYPE_CHECKING:
    import xarray

    from mapveil.maps.density_map import DensityMap


def as_dataset(heat: DensityMap) -> xarray.Dataset:
    """Make labelled arrays of every number of a map's cells: ``users``, ``users_per_km2``, bounds where known.

    A raster map has dimensions ``y`` (north to south) and ``x`` (west to east) in its plane, and its CRS in
    ``spatial_ref`` as rioxarray reads it. Any other has the dimension ``cell`` with ``lon`` and
    ``lat`` of the centres. The attribute ``mapveil`` holds the whole metadata as JSON.

    Raises
    ------
    MissingExtra
        xarray is not installed.
    """
    module = require("xarray", "geo")
    frame = raster_frame(heat.tiling)
    columns = {layer.name: layer.values for layer in heat.columns()}
    units = {layer.name: layer.unit for layer in heat.columns()}
    coords: dict[str, Any]
    variables: dict[str, Any]
    if frame is None:
        lon, lat = heat.tiling.centres()
        coords = {"cell": np.arange(heat.tiling.size), "lon": ("cell", lon), "lat": ("cell", lat)}
        variables = {name: ("cell", values) for name, values in columns.items()}
    else:
        coords = {"y": ("y", frame.y_centres(), {"axis": "Y"}), "x": ("x", frame.x_centres(), {"axis": "X"})}
        variables = {name: (("y", "x"), frame.image(values)) for name, values in columns.items()}
        if frame.crs:
            coords["spatial_ref"] = ((), 0, _spatial_reference(frame))
    made: xarray.Dataset = module.Dataset(variables, coords, _attributes(heat))
    for name, variable in made.data_vars.items():
        variable.attrs["units"] = units[str(name)]
        if "spatial_ref" in coords:
            variable.attrs["grid_mapping"] = "spatial_ref"
    return made


def _spatial_reference(frame: RasterFrame) -> dict[str, str]:
    from pyproj import CRS

    text = CRS.from_user_input(frame.crs).to_wkt()
    # Three spellings of the same two facts: CF, GDAL and rioxarray each read their own.
    return {
        "crs_wkt": text,
        "spatial_ref": text,
        "GeoTransform": " ".join(repr(number) for number in frame.geotransform()),
    }


def _attributes(heat: DensityMap) -> dict[str, str | float]:
    return {
        "mapveil": heat.metadata_json(),
        "method": heat.method,
        **({} if heat.guarantee.epsilon is None else {"epsilon": float(heat.guarantee.epsilon)}),
        "guarantee": heat.guarantee.in_words(),
        "version": heat.version,
    }
