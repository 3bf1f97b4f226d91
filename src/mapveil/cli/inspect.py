"""``mapveil inspect``: the sign-off sheet of a released file."""

from __future__ import annotations

from pathlib import Path

import click

from mapveil.cli.console import Console, console_options


@click.command("inspect")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Write the sheet as a page to sign (.html)."
)
@console_options
def command(console: Console, path: Path, output: Path | None) -> None:
    """Show what a released file promises, over which data, by which method, and what its reader must confirm.

    GeoTIFF, GeoParquet, GeoJSON, GeoPackage, CSV, PNG and page carry the record; vector tiles (.pmtiles) do not.
    Nothing is charged, and nothing but the file is read.

    \b
    Examples:
      mapveil inspect map.parquet
      mapveil inspect map.png -o sheet.html
      mapveil inspect map.tif --json
    """
    from mapveil.pictures.release_sheet import inspect

    sheet = inspect(path)
    if output is not None:
        sheet.save(output)
    console.result(str(sheet), sheet.to_dict(), () if output is None else (output,))
