"""A fingerprint of a table's content, for the ledger: which dataset was asked."""

from __future__ import annotations

import hashlib
from typing import Final

from mapveil.geo.point_query import PointQuery
from mapveil.geo.tables import connection, reading

# Two sums of mixed integers for each user's rows, then a digest per user: a digest per row takes several
# times as long. Nothing here depends on the version of the engine, unlike its own HASH. With |x| <= 1.8e9,
# |y| <= 9e8 and w <= 1e18, every product and sum of a row stays below 2^63.
_SQL: Final = """
WITH scaled AS (
    SELECT user_id,
           CAST(ROUND(lon * 10000000) AS BIGINT) AS x,
           CAST(ROUND(lat * 10000000) AS BIGINT) AS y,
           CAST(ROUND({weight} * 1000000) AS BIGINT) AS w
    FROM ({points}) AS points
),
users AS (
    SELECT user_id, COUNT(*) AS n,
           SUM(((x * 2654435761 + y) % 2147483647) * ((y * 2246822519 + x + w) % 2147483629)) AS a,
           SUM(((x * 3266489917 + w) % 2147483647) * ((y * 668265263 - x) % 2147483629)) AS b
    FROM scaled
    GROUP BY user_id
)
SELECT SUM(n), COUNT(*),
       SUM(MD5_NUMBER_LOWER(CONCAT_WS('|', n, a, b, user_id))),
       SUM(MD5_NUMBER_UPPER(CONCAT_WS('|', n, a, b, user_id)))
FROM users
"""


def fingerprint(points: PointQuery) -> bytes:
    """SHA-256 over the multiset of (user id as text, place to 1e-7 degrees, weight to 1e-6).

    It tells datasets apart for book-keeping; it is not meant to resist somebody who forges one. Order
    of rows, file format, column names, times and labels do not change it. Run by: the curator.

    Returns
    -------
    bytes
        32 bytes.

    Raises
    ------
    InputError
        The source cannot be read.
    """
    weight = "weight" if points.columns.weight is not None else "1"
    with connection() as opened, reading(points.source):
        rows = opened.execute(_SQL.format(weight=weight, points=points.scan(opened))).fetchall()
    return hashlib.sha256(f"mapveil points 1 {rows[0]}".encode()).digest()
