"""Tables as CSV, with the metadata beside them."""

from __future__ import annotations

from os import PathLike, fspath
from typing import TYPE_CHECKING

import numpy as np

from mapveil.formats.atomic import all_or_none, atomic_path
from mapveil.formats.content_hash import file_record, record_json
from mapveil.formats.measurement_record import MEASUREMENTS_KEY, as_kept
from mapveil.formats.table import DECIMALS, cell_columns, columns_of, line_columns
from mapveil.privacy.file_hash import CSV_METADATA_SUFFIX

if TYPE_CHECKING:
    import pyarrow

    from mapveil.maps.released import ReleasedMap


def write_csv(released: ReleasedMap, path: str | PathLike[str]) -> None:
    """Write one row per cell (code, name, centre, numbers) or per line."""
    import pyarrow as pa

    released = as_kept(released)
    rows = released.rows()
    if rows is not None:
        columns = line_columns(rows)
    else:
        tiling = released.tiling
        found = cell_columns(tiling, columns_of(released), np.arange(tiling.size, dtype=np.int64))
        head = {name: found.pop(name) for name in ("cell", "name")}
        centres = tiling.centres()
        columns = {
            **{name: column for name, column in head.items() if column.null_count < max(tiling.size, 1)},
            **{name: pa.array(np.round(getattr(centres, name), DECIMALS)) for name in ("lon", "lat")},
            **found,
        }
    metadata, measured = file_record(released)
    held = {MEASUREMENTS_KEY: measured} if measured else {}
    write_csv_table(pa.table(columns), record_json(metadata | held), path)


def write_csv_table(table: pyarrow.Table, metadata_json: str, path: str | PathLike[str]) -> None:
    """Write a table as CSV, and its metadata beside it in ``NAME.csv-metadata.json``."""
    from pyarrow import csv

    with all_or_none():
        # The promise first: a table without it must never lie there.
        with atomic_path(fspath(path) + CSV_METADATA_SUFFIX) as place:
            place.write_text(metadata_json + "\n", encoding="utf-8")
        with atomic_path(path) as place:
            csv.write_csv(table, place)
