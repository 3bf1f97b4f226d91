"""Tables whose coordinates are in a projected reference system, as longitudes and latitudes."""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mapveil.geo.tables import Place, Table, create_function, quote_text
from mapveil_client.errors import InputError

if TYPE_CHECKING:
    import duckdb
    from pyproj import CRS, Transformer

WGS84: Final = "OGC:CRS84"
"""Longitude and latitude of WGS84, in this order."""

_FUNCTION: Final = "mapveil_wgs84"


@dataclass(frozen=True, eq=False, repr=False)
class ProjectedTable(Table):
    """A table with its coordinates as WGS84 degrees beside it.

    Parameters
    ----------
    name : str
        Name in messages.
    table : Table
        The rows.
    column : str
        Name of the coordinates' column or columns, for messages.
    x, y : str
        SQL of type DOUBLE: the coordinates, easting and northing in this order.
    written : str
        SQL of the coordinates as text, for messages.
    crs : str
        Reference system of x and y, as PROJ reads it.
    """

    name: str
    table: Table
    column: str
    x: str
    y: str
    written: str
    crs: str

    @property
    def place(self) -> Place:
        """See :class:`mapveil.geo.tables.Table`."""
        return Place(self.column, "mapveil_degrees.lon", "mapveil_degrees.lat", self.written)

    def relation(self, connection: duckdb.DuckDBPyConnection) -> str:
        """See :class:`mapveil.geo.tables.Table`."""
        create_function(connection, _FUNCTION, _degrees, ["VARCHAR", "DOUBLE", "DOUBLE"])
        place = f"{_FUNCTION}({quote_text(self.crs)}, {self.x}, {self.y})"
        return f"(SELECT *, {place} AS mapveil_degrees FROM {self.table.relation(connection)}) AS projected"

    def parts(self) -> tuple[Table, ...]:
        """See :class:`mapveil.geo.tables.Table`."""
        return tuple(replace(self, name=part.name, table=part) for part in self.table.parts())


def read_crs(text: Any, source: str) -> CRS:
    """A reference system by its code (EPSG:32618), PROJ string, WKT or PROJJSON.

    Raises
    ------
    InputError
        PROJ does not know it.
    """
    from pyproj import CRS
    from pyproj.exceptions import CRSError

    try:
        return CRS.from_user_input(text)
    except CRSError as error:
        shown = str(text)[:60]
        raise InputError(
            f"{source}: {shown!r} is no known reference system; expected one such as EPSG:32618"
        ) from error


def is_wgs84(crs: CRS) -> bool:
    """Whether coordinates are WGS84 degrees as they are."""
    from pyproj import CRS

    return any(crs.equals(CRS(code), ignore_axis_order=True) for code in ("EPSG:4326", WGS84))


@functools.cache
def projector() -> ThreadPoolExecutor:
    """The one thread that calls PROJ: its contexts do not survive in DuckDB's threads, which come and go."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="mapveil-proj")


@functools.lru_cache(maxsize=16)
def _transformer(crs: str) -> Transformer:
    """The transformation to WGS84, in the projector's thread."""
    from pyproj import Transformer

    return Transformer.from_crs(crs, WGS84, always_xy=True)


def _degrees(crs: Any, x: Any, y: Any) -> Any:
    """Longitudes and latitudes of a batch; NaN where a coordinate is missing or outside of the system's domain."""
    import pyarrow

    east, north = (np.asarray(each.to_numpy(zero_copy_only=False), dtype=np.float64) for each in (x, y))
    named = crs[0].as_py() if len(crs) else WGS84
    lon, lat = projector().submit(lambda: _transformer(named).transform(east, north)).result()
    known = np.isfinite(lon) & np.isfinite(lat)
    found = [pyarrow.array(np.where(known, each, np.nan)) for each in (lon, lat)]
    return pyarrow.StructArray.from_arrays(found, names=["lon", "lat"])
