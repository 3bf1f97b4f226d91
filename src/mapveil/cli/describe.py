"""``mapveil describe``: facts about a table for its curator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mapveil.cli.console import Console, console_options
from mapveil.cli.options import region_option, table_source

if TYPE_CHECKING:
    from mapveil.geo.region import Region


@click.command("describe")
@click.argument("source", metavar="INPUT")
@region_option("W,S,E,N in degrees, or a polygon file: count the rows inside.")
@table_source("user", "lon", "lat", "time", "weight", "label")
@console_options
def command(console: Console, source: str, region: Region | None, columns: dict[str, Any]) -> None:
    """Describe a table of points for its curator: exact facts that are NOT private and must not be published.

    Rows, users, rows per user, bounding box, times, bad rows and columns; with a region, whether rows lie inside.
    Nothing is charged to the ledger.

    \b
    Examples:
      mapveil describe checkins.parquet
      mapveil describe visits.csv --user rider --region city.geojson --where "hour(time::TIMESTAMP) < 12"
    """
    from mapveil.geo.describe import describe
    from mapveil.geo.read_points import read_points

    found = describe(read_points(source, **columns), region)
    console.result(str(found), found.to_dict())
