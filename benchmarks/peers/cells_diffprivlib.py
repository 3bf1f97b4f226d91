"""Noisy numbers of check-ins per cell with diffprivlib: docs/how-to/from-other-libraries.md shows it."""

import diffprivlib.tools
import polars as pl

table = pl.read_parquet("examples/checkins_nyc.parquet")
counts, _, _ = diffprivlib.tools.histogram2d(
    table["lat"].to_numpy(),
    table["lon"].to_numpy(),
    epsilon=1.0,
    bins=16,
    range=[[40.69, 40.83], [-74.03, -73.90]],
)
print(counts[::-1])  # the northmost row first
