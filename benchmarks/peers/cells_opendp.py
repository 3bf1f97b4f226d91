"""Noisy numbers of check-ins per cell with OpenDP: docs/how-to/from-other-libraries.md shows it."""

import opendp.prelude as dp
import polars as pl

dp.enable_features("contrib")
column = ((pl.col("lon") + 74.03) / 0.13 * 16).cast(pl.Int64)
row = ((40.83 - pl.col("lat")) / 0.14 * 16).cast(pl.Int64)
table = pl.read_parquet("examples/checkins_nyc.parquet").select("user_id", cell=row * 16 + column)
context = dp.Context.compositor(
    data=table.lazy(),
    privacy_unit=dp.unit_of(contributions=1, identifier="user_id"),
    privacy_loss=dp.loss_of(epsilon=1.0),
    split_evenly_over=1,
)
cells = pl.LazyFrame({"cell": list(range(256))})
query = context.query().truncate_per_group(10).group_by("cell").agg(dp.len(signed=True)).with_keys(cells)
print(query.release().collect())
