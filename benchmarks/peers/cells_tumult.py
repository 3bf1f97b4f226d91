"""Noisy numbers of check-ins per cell with Tumult Analytics: docs/how-to/from-other-libraries.md shows it."""

import tempfile

from pyspark.sql import SparkSession
from pyspark.sql.functions import expr
from tmlt.analytics import AddRowsWithID, KeySet, MaxRowsPerID, PureDPBudget, QueryBuilder, Session

warehouse = tempfile.TemporaryDirectory()  # Tumult keeps its tables there: never in the checkout
spark = SparkSession.builder.config("spark.sql.warehouse.dir", warehouse.name).getOrCreate()
cell = expr("int((40.83 - lat) / 0.14 * 16) * 16 + int((lon + 74.03) / 0.13 * 16)")
table = spark.read.parquet("examples/checkins_nyc.parquet").select("user_id", cell.alias("cell"))
session = Session.from_dataframe(
    PureDPBudget(epsilon=1), "checkins", table, protected_change=AddRowsWithID(id_column="user_id")
)
cells = KeySet.from_dict({"cell": list(range(256))})
query = QueryBuilder("checkins").enforce(MaxRowsPerID(10)).groupby(cells).count()
session.evaluate(query, PureDPBudget(epsilon=1)).show()
