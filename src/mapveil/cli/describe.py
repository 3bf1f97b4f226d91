"""``mapveil describe``: facts about a table for its curator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mapveil.cli.arguments import name_list
from mapveil.cli.console import Console, console_options
from mapveil.cli.options import region_option, table_source
from mapveil_client.errors import ParameterError

if TYPE_CHECKING:
    from mapveil.geo.region import Region


@click.command("describe")
@click.argument("source", metavar="INPUT")
@region_option("W,S,E,N in degrees, or a polygon file: count the rows inside.")
@table_source("user", "lon", "lat", "time", "weight", "label")
@click.option("--by", metavar="COLUMN", help="A column of categories, as for 'release --by'.")
@click.option("--values", metavar="A,B,...", help="With --by: their list; count the rows with another value.")
@console_options
def command(
    console: Console,
    source: str,
    region: Region | None,
    columns: dict[str, Any],
    by: str | None,
    values: str | None,
) -> None:
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
    from mapveil.geo.windows import Windows
    from mapveil_client.public_windows import PROFILES

    categories = None
    if by is not None or values is not None:
        if by is None or by in PROFILES:
            raise ParameterError(f"--by must be a column of categories, whose list is --values, got {by}")
        categories = Windows(by=by, values=tuple(name_list(values, "--values")) if values else ())
    found = describe(read_points(source, **columns), region, categories=categories)
    console.result(str(found), found.to_dict())
