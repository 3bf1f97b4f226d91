"""A map as an xarray dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mapveil.geo.projection import named_crs
from mapveil.geo.windows import Windows
from mapveil.maps.frame import RasterFrame, raster_frame
from mapveil.maps.series_map import SeriesMap
from mapveil_client.errors import require

if TYPE_CHECKING:
    import xarray

    from mapveil.maps.released import ReleasedMap


def as_dataset(released: ReleasedMap) -> xarray.Dataset:
    """Make labelled arrays of every number of a map's cells: ``users``, ``users_per_km2``, bounds where known.

    A raster map has dimensions ``y`` (north to south) and ``x`` (west to east) in its plane, and its CRS in
    ``spatial_ref`` as rioxarray reads it. Any other has the dimension ``cell`` with ``lon`` and ``lat`` of the centres.
    A series has the dimension ``window`` too, of the variable ``users_by_window``, and ``time`` where windows begin at
    one. The attribute ``mapveil`` holds the whole metadata as JSON.
    """
    module = require("xarray", "geo")
    frame, guarantee = raster_frame(released.tiling), released.guarantee
    coords: dict[str, Any]
    mapping = {}
    if frame is None:
        lon, lat = released.tiling.centres()
        coords = {"cell": np.arange(released.tiling.size), "lon": ("cell", lon), "lat": ("cell", lat)}
    else:
        coords = {"y": ("y", frame.y_centres(), {"axis": "Y"}), "x": ("x", frame.x_centres(), {"axis": "X"})}
        if frame.crs:
            coords["spatial_ref"] = ((), 0, _spatial_reference(frame))
            mapping = {"grid_mapping": "spatial_ref"}
    variables = {}
    series = released if isinstance(released, SeriesMap) else None
    for layer in released.columns() if series is None else series.pooled_columns():
        dims, values = ("cell", layer.values) if frame is None else (("y", "x"), frame.image(layer.values))
        variables[layer.name] = (dims, values, {"units": layer.unit, **mapping})
    if series is not None:
        coords |= _window_coordinates(series.windows)
        rows = [each if frame is None else frame.image(each) for each in series.by_window]
        named = ("window", *(("cell",) if frame is None else ("y", "x")))
        variables["users_by_window"] = (named, np.stack(rows), {"units": "users per cell", **mapping})
    attributes = {
        "mapveil": released.metadata_json(),
        "method": released.method,
        **({} if guarantee.epsilon is None else {"epsilon": float(guarantee.epsilon)}),
        "guarantee": guarantee.in_words(),
        "version": released.version,
    }
    made: xarray.Dataset = module.Dataset(variables, coords, attributes)
    return made


def _window_coordinates(windows: Windows) -> dict[str, Any]:
    """The name of each window, and the clock's reading at its start where it has one, as CF decodes it."""
    coords: dict[str, Any] = {"window": ("window", list(windows.names))}
    starts = [start for start in windows.starts if start is not None]
    if starts:
        about = {"standard_name": "time", "axis": "T", "clock": windows.zone or "UTC"}
        coords["time"] = ("window", np.array(starts, dtype="datetime64[ns]"), about)
    return coords


def _spatial_reference(frame: RasterFrame) -> dict[str, str]:
    text = named_crs(frame.crs).to_wkt()
    # Three spellings of the same two facts: CF, GDAL and rioxarray each read their own.
    return {
        "crs_wkt": text,
        "spatial_ref": text,
        "GeoTransform": " ".join(repr(number) for number in frame.geotransform()),
    }
