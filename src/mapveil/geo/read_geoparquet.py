"""Tables whose places are points in a geometry column: GeoParquet, WKB, GeoArrow."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from mapveil.geo.projected import is_wgs84, read_crs
from mapveil.geo.tables import Place, Table, create_function, quote_name

if TYPE_CHECKING:
    import duckdb
    import pyarrow

_USUAL: Final = ("geometry", "geom", "wkb_geometry", "the_geom", "wkb")


@dataclass(frozen=True, eq=False, repr=False)
class GeometryTable(Table):
    """A table with the points of one geometry column beside it, decoded."""

    name: str
    table: Table
    column: str
    sql_type: str

    @property
    def place(self) -> Place:
        """See :class:`mapveil.geo.tables.Table`."""
        # Bytes say nothing to a reader; the decoded number at least says that it is none.
        readable = self.sql_type.startswith(("GEOMETRY", "STRUCT"))
        written = quote_name(self.column) if readable else "mapveil_place.lon"
        return Place(self.column, "mapveil_place.lon", "mapveil_place.lat", written)

    def relation(self, connection: duckdb.DuckDBPyConnection) -> str:
        """See :class:`mapveil.geo.tables.Table`."""
        geometry = quote_name(self.column)
        if self.sql_type.startswith("STRUCT"):
            place = f"{{'lon': {geometry}.x, 'lat': {geometry}.y}}"
        else:
            create_function(connection, "mapveil_wkb", _places, ["BLOB"])
            place = f"mapveil_wkb(CAST({geometry} AS BLOB))"
        return f"(SELECT *, {place} AS mapveil_place FROM {self.table.relation(connection)}) AS places"

    def parts(self) -> tuple[Table, ...]:
        """See :class:`mapveil.geo.tables.Table`."""
        return tuple(replace(self, name=part.name, table=part) for part in self.table.parts())


def find_geometry(types: Mapping[str, str]) -> str | None:
    """The column that holds points, by its type, or by its usual name where the type is bytes."""
    for name, kind in types.items():
        if kind.startswith("GEOMETRY") or re.match(r'STRUCT\("?x"? DOUBLE, "?y"? DOUBLE', kind):
            return name
    for usual in _USUAL:
        for name, kind in types.items():
            if kind in ("BLOB", "WKB_BLOB") and name.lower() == usual:
                return name
    return None


def declared_crs(source: str, column: str, sql_type: str, metadata: bytes | None) -> str | None:
    """The reference system of a geometry column as WKT, where it declares one that is not WGS84 degrees.

    The declaration is in ``sql_type`` or in ``metadata``, the file's ``geo`` record (GeoParquet).

    Raises
    ------
    InputError
        PROJ does not know the reference system.
    """
    declared: Any = None
    inside = re.match(r"GEOMETRY\('(.*)'\)$", sql_type, flags=re.DOTALL)
    if inside:
        declared = inside.group(1).replace("''", "'")
    elif metadata:
        declared = json.loads(metadata).get("columns", {}).get(column, {}).get("crs")
    if declared is None:
        return None
    crs = read_crs(declared, f"{source}: column {column!r}")
    return None if is_wgs84(crs) else crs.to_wkt()


def decode_wkb_points(values: pyarrow.BinaryArray) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Longitudes and latitudes of WKB points (ISO and extended, either byte order); NaN for every other value."""
    import shapely

    shapes = shapely.from_wkb(values.to_numpy(zero_copy_only=False), on_invalid="ignore")
    return np.asarray(shapely.get_x(shapes)), np.asarray(shapely.get_y(shapes))


def _places(values: Any) -> Any:
    """Longitudes and latitudes of a batch of WKB."""
    import pyarrow

    whole = values.combine_chunks() if isinstance(values, pyarrow.ChunkedArray) else pyarrow.array(values)
    lon, lat = decode_wkb_points(whole.cast(pyarrow.binary()))
    return pyarrow.StructArray.from_arrays([pyarrow.array(lon), pyarrow.array(lat)], names=["lon", "lat"])
