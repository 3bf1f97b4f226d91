"""Tilings as the command line writes them, and back from their records."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mapveil.geo.counts import Counts
from mapveil.geo.grid import Grid
from mapveil.geo.hexagons import Hexagons
from mapveil.geo.places import Places
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.geo.tables import QueryTable, column_types, connect, quote_name, quote_text, reading
from mapveil.geo.tiling import Tiling
from mapveil.geo.web_mercator import WebMercatorTiles
from mapveil.geo.zone_cells import ZoneCells
from mapveil_client.errors import InputError

if TYPE_CHECKING:
    from mapveil.geo.points import Points

DEFAULT_TILING: Final = "quadtree:8"
"""Cells of a map where none are asked for."""

_KINDS: Final[Mapping[str, tuple[Callable[..., Tiling], tuple[str, ...]]]] = {
    "grid": (Grid, ("rows", "columns")),
    "quadtree": (Quadtree, ("depth",)),
    "tiles": (WebMercatorTiles, ("zoom",)),
    "h3": (Hexagons, ("resolution",)),
}
"""Class and fields beside the region of each kind that is divided by numbers."""

_ACCEPTED: Final = (
    "expected quadtree:8, grid:ROWSxCOLUMNS, h3:8, tiles:15, places:FILE (lon and lat columns) or places:COLUMN "
    "(of the table, with places_are_public=True (--places-are-public))"
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
    if kind in _KINDS:
        make, fields = _KINDS[kind]
        numbers = rest.split("x")
        if len(numbers) == len(fields) and all(re.fullmatch(r"\d{1,10}", number) for number in numbers):
            return make(region, *map(int, numbers))
    raise InputError(f"tiling {text!r} is not known; {_ACCEPTED}")


def column_of_places(tiling: str | None) -> str | None:
    """The column of ``places:COLUMN``; None for any other tiling."""
    kind, _, rest = (tiling or "").partition(":")
    return rest if kind == "places" and rest and not Path(rest).is_file() else None


def tiling_for(
    source: Points | Counts,
    tiling: Tiling | str | None,
    region: Region | None,
    *,
    places_are_public: bool = False,
) -> Tiling:
    """The cells for a source: those of counts, a tiling, or a specification in a region.

    Parameters
    ----------
    source : Points or Counts
        Data on the cells; ``places:COLUMN`` reads a column of it.
    tiling : Tiling or str, optional
        Cells, or their specification in ``region``; :data:`DEFAULT_TILING` where there is none.
    region : Region, optional
        The region of a specification.
    places_are_public : bool
        States that the list of places in ``places:COLUMN`` is public, although the users' own table names them.

    Raises
    ------
    InputError
        Counts with a tiling or region, a table without a region, a specification that cannot be read, or
        ``places:COLUMN`` without ``places_are_public``.
    """
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
    if column is None:
        return parse_tiling(tiling or DEFAULT_TILING, region)
    looks_like_a_file = Path(column).name != column or Path(column).suffix
    if looks_like_a_file and column not in column_types(source.table):
        raise InputError(f"places: {column}: no such file; {_ACCEPTED}")
    if not places_are_public:
        raise InputError(
            f"tiling 'places:{column}' must be a public list, got a column of the users' own table: a place with one "
            "visitor reveals that visitor. Give places:FILE, or state that the list is public by "
            "places_are_public=True (--places-are-public)"
        )
    return places_of_column(source, column, region)


def _places_of_file(path: str, region: Region) -> Places:
    """The sites of a file: those within the region."""
    from mapveil.geo.read_points import read_points

    if not Path(path).is_file():
        raise InputError(f"places: {path}: no such file; {_ACCEPTED}")
    reader = {".parquet": "read_parquet", ".csv": "read_csv"}.get(Path(path).suffix.lower())
    if reader is None:
        raise InputError(f"places: {path}: expected a .csv or .parquet file with lon and lat columns")
    # A list of sites has no users; each row stands for itself.
    rows = f"SELECT ROW_NUMBER() OVER () AS site, * FROM {reader}({quote_text(path)})"
    points = read_points(QueryTable(rows, f"places: {path}"), user="site")
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
    points.table.check_here(f"a tiling that is not made of column {column!r}")
    with connect() as connection, reading(points.source):
        relation = points.table.relation(connection)
        if column not in column_types(points.table):
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
        if kind in _KINDS:
            make, fields = _KINDS[kind]
            return make(region, *(record[name] for name in fields))
        if kind == "places":
            return Places.from_record(record, region)
        if kind == "zones":
            return ZoneCells.from_record(record)
    except (KeyError, TypeError) as error:
        raise InputError(f"a tiling's record lacks {error}") from error
    raise InputError(
        f"a tiling of kind {kind!r} is not known; expected grid, quadtree, tiles, h3, places and zones"
    )
