"""Tilings as the command line writes them, and back from their records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mapveil.geo.grid import Grid
from mapveil.geo.hexagons import Hexagons
from mapveil.geo.places import Places
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.geo.tiling import Tiling
from mapveil.geo.web_mercator import WebMercatorTiles
from mapveil_client.errors import InputError

if TYPE_CHECKING:
    from mapveil.geo.counts import Counts
    from mapveil.geo.points import Points

DEFAULT_TILING: Final = "quadtree:8"
"""Cells of a map where none are asked for."""

_ACCEPTED: Final = (
    "expected quadtree:8, grid:ROWSxCOLUMNS, h3:8, tiles:15, places:FILE (lon and lat columns) or places:COLUMN "
    "(of the table, where its list of places is public)"
)


def parse_tiling(text: str, region: Region) -> Tiling:
    """Read a tiling of a region, such as ``quadtree:8``.

    Raises
    ------
    InputError
        An unknown kind, or a number that is missing or out of range.
    """
    kind, _, rest = text.partition(":")
    if kind == "places" and rest:
        return _places_of_file(rest, region)
    if kind == "grid":
        sides = re.fullmatch(r"(\d{1,10})x(\d{1,10})", rest)
        if sides:
            return Grid(region, rows=int(sides[1]), columns=int(sides[2]))
    elif re.fullmatch(r"\d{1,3}", rest):
        number = int(rest)
        if kind == "quadtree":
            return Quadtree(region, number)
        if kind == "h3":
            return Hexagons(region, number)
        if kind == "tiles":
            return WebMercatorTiles(region, number)
    raise InputError(f"tiling {text!r} is not known; {_ACCEPTED}")


def column_of_places(tiling: str | None) -> str | None:
    """The column of ``places:COLUMN``; None for any other tiling."""
    kind, _, rest = (tiling or "").partition(":")
    return rest if kind == "places" and rest and not Path(rest).is_file() else None


def tiling_for(
    source: Points | Counts, tiling: Tiling | str | None, region: Region | None, default: str = DEFAULT_TILING
) -> Tiling:
    """The cells for a source: those that counts bring, a tiling, or its specification in a region.

    Parameters
    ----------
    source : Points or Counts
        What the cells are for; ``places:COLUMN`` reads a column of it.
    tiling : Tiling or str, optional
        The cells, or their specification.
    region : Region, optional
        The region of a specification.
    default : str
        The specification where there is none.

    Raises
    ------
    InputError
        Counts with a tiling or region, a table without a region, or a specification that cannot be read.
    """
    from mapveil.geo.counts import Counts

    if isinstance(source, Counts):
        if tiling is not None or region is not None:
            raise InputError(f"{source.source}: counts bring their own cells; leave out region and tiling")
        return source.tiling
    if tiling is not None and not isinstance(tiling, str):
        if region is not None:
            raise InputError("a tiling brings its region; leave out region, or give the tiling as text")
        return tiling
    if region is None:
        raise InputError(
            f"{source.source}: a table of points needs a region: west,south,east,north in degrees, or a polygon"
        )
    column = column_of_places(tiling)
    return places_of_column(source, column, region) if column else parse_tiling(tiling or default, region)


def _places_of_file(path: str, region: Region) -> Places:
    """The sites of a file: those within the region."""
    import duckdb

    from mapveil.geo.read_points import read_points

    if not Path(path).is_file():
        raise InputError(f"places: {path}: no such file; {_ACCEPTED}")
    # A list of sites has no users; each row stands for itself.
    with duckdb.connect() as connection:
        reader = {".parquet": "read_parquet", ".csv": "read_csv"}.get(Path(path).suffix.lower())
        if reader is None:
            raise InputError(f"places: {path}: expected a .csv or .parquet file with lon and lat columns")
        quoted = path.replace("'", "''")
        try:
            table = connection.sql(
                f"SELECT ROW_NUMBER() OVER () AS site, * FROM {reader}('{quoted}')"
            ).to_arrow_table()
        except duckdb.Error as error:
            raise InputError(f"places: {path}: cannot be read: {str(error).splitlines()[0]}") from error
    points = read_points(table, user="site")
    points.check()
    sites = points.arrays()
    order = np.argsort(sites.users)
    lon, lat = sites.lon[order], sites.lat[order]
    inside = region.contains(lon, lat)
    return Places(lon[inside], lat[inside], region)


def places_of_column(points: Points, column: str, region: Region) -> Places:
    """The sites that a column of the table names, each in the middle of its rows: those within the region.

    Which sites there are, and where, is taken from the table as public knowledge: it is not protected.

    Raises
    ------
    InputError
        The table has no such column, or fewer than two sites lie in the region.
    """
    import duckdb

    from mapveil.geo.tables import quote_name, reading

    with duckdb.connect() as connection, reading(points.source):
        relation = points.table.relation(connection)
        columns = [row[0] for row in connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()]
        if column not in columns:
            raise InputError(
                f"tiling 'places:{column}': no file and no column of {points.source} is called that; {_ACCEPTED}"
            )
        found = connection.execute(
            f"SELECT CAST({quote_name(column)} AS VARCHAR) AS name, "
            f"AVG({points.expressions.lon}) AS lon, AVG({points.expressions.lat}) AS lat "
            f"FROM {relation} WHERE {quote_name(column)} IS NOT NULL GROUP BY {quote_name(column)} ORDER BY 1"
        ).fetchnumpy()
    rounded = np.column_stack([np.asarray(found[axis], dtype=np.float64) for axis in ("lon", "lat")]).round(7)
    inside = region.contains(rounded[:, 0], rounded[:, 1])
    # Sites within a centimetre (1e-7 degrees) are one site: averages of one location differ in their last bits.
    where, first = np.unique(rounded[inside], axis=0, return_index=True)
    if where.shape[0] < 2:
        raise InputError(f"tiling 'places:{column}': fewer than two sites lie in the region {region}")
    names = tuple(str(name) for name in np.asarray(found["name"])[inside][first])
    return Places(where[:, 0], where[:, 1], region, names)


def tiling_from_dict(record: Mapping[str, Any]) -> Tiling:
    """The inverse of every tiling's ``to_dict``.

    Raises
    ------
    InputError
        An unknown kind, or a record that lacks something.
    """
    try:
        kind, region = record["kind"], Region.from_dict(record["region"])
        if kind == "grid":
            return Grid(region, rows=record["rows"], columns=record["columns"])
        if kind == "quadtree":
            return Quadtree(region, record["depth"])
        if kind == "tiles":
            return WebMercatorTiles(region, record["zoom"])
        if kind == "h3":
            return Hexagons(region, record["resolution"])
        if kind == "places":
            return Places.from_record(record, region)
    except (KeyError, TypeError) as error:
        raise InputError(f"a tiling's record lacks {error}") from error
    raise InputError(f"a tiling of kind {kind!r} is not known; expected grid, quadtree, tiles, h3 and places")
