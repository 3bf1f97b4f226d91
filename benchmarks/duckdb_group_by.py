"""What DuckDB alone takes for the group-by: rows per user and cell, cells by plain degrees."""

import json
import sys
import time

import duckdb

path, side = sys.argv[1], int(sys.argv[2])
west, south, east, north = map(float, sys.argv[3:7])
start = time.perf_counter()
with duckdb.connect() as connection:
    found = connection.execute(
        f"""
        SELECT user_id,
               CAST(floor(({north} - lat) / {(north - south) / side}) AS BIGINT) * {side}
               + CAST(floor((lon - {west}) / {(east - west) / side}) AS BIGINT) AS cell,
               count(*) AS visits
        FROM read_parquet(?) GROUP BY user_id, cell
        """,
        [path],
    ).fetchnumpy()
print(json.dumps({"seconds": time.perf_counter() - start, "pairs": len(found["cell"])}))
