"""Make examples/checkins_nyc.parquet from the shared Gowalla check-ins of New York.

    python examples/make_checkins_nyc.py ../shared/data/gowalla_nyc_checkins.parquet

User ids are replaced by a random permutation drawn from the operating system and kept nowhere, so a second run
makes a file with other ids. Times are reduced to days and places to 5 decimals (about 1 m).
"""

from __future__ import annotations

import secrets
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

REGION = (-74.03, 40.69, -73.90, 40.83)
FIRST_ID = 1_000_000  # above every id of the published file, so that no id can be taken for one of them
DECIMALS = 5


def main(source: Path) -> None:
    """Write the cut beside this script."""
    table = pq.read_table(source, columns=["user_id", "time", "lat", "lon"])
    lon, lat = np.asarray(table["lon"]), np.asarray(table["lat"])
    west, south, east, north = REGION
    inside = (lon > west) & (lon < east) & (lat > south) & (lat < north)
    table = table.filter(pa.array(inside))
    old, codes = np.unique(np.asarray(table["user_id"]), return_inverse=True)
    new = FIRST_ID + np.array(shuffled(old.size))
    user = new[codes]
    day = table["time"].cast(pa.timestamp("us", tz="UTC")).cast(pa.date32()).combine_chunks()
    lon, lat = np.round(lon[inside], DECIMALS), np.round(lat[inside], DECIMALS)
    # Sorted by what is kept only: the order of the source says when within a day.
    order = np.lexsort((lon, lat, np.asarray(day), user))
    cut = pa.table(
        {
            "user_id": pa.array(user[order].astype(np.int32)),
            "day": day.take(pa.array(order)),
            "lat": pa.array(lat[order]),
            "lon": pa.array(lon[order]),
        }
    )
    target = Path(__file__).with_name("checkins_nyc.parquet")
    pq.write_table(cut, target, compression="zstd", compression_level=19)
    print(f"{target}: {cut.num_rows} rows of {old.size} users, {target.stat().st_size} bytes")


def shuffled(size: int) -> list[int]:
    """A uniformly random permutation of range(size), from the operating system's randomness."""
    order = list(range(size))
    secrets.SystemRandom().shuffle(order)
    return order


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/make_checkins_nyc.py ../shared/data/gowalla_nyc_checkins.parquet")
    main(Path(sys.argv[1]))
