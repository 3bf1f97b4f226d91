"""Facts about a table of points for its curator, who must not publish them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mapveil.geo.point_query import first_failures, look_swapped
from mapveil.geo.tables import column_types, connection, reading
from mapveil.geo.windowed_points import unlisted, windowed

if TYPE_CHECKING:
    from mapveil.geo.points import Points
    from mapveil.geo.region import Region
    from mapveil.geo.windows import Windows
    from mapveil_client.plane import BoxEdges

_QUANTILES: Final = {
    "least": 0.0,
    "quarter": 0.25,
    "median": 0.5,
    "three quarters": 0.75,
    "99 %": 0.99,
    "most": 1.0,
}
_BATCH: Final = 1 << 17
_USERS_SQL: Final = """
WITH users AS (
    SELECT user_id, COUNT(*) AS n, MIN(lon) AS west, MIN(lat) AS south, MAX(lon) AS east, MAX(lat) AS north, {times}
    FROM ({points}) AS points
    GROUP BY user_id
)
SELECT COALESCE(SUM(n), 0), COUNT(*), QUANTILE_DISC(n, {quantiles}), MIN(west), MIN(south), MAX(east), MAX(north),
       CAST(MIN(first) AS VARCHAR), CAST(MAX(last) AS VARCHAR), COALESCE(SUM(unread), 0), MIN(unlike)
FROM users
"""


@dataclass(frozen=True, repr=False)
class Description:
    """Exact facts about a table. NOT private: for its curator, never for publication; ``print`` shows them."""

    source: str
    rows: int  # that can be used, and pass the filter
    users: int
    rows_per_user: dict[str, int]  # quantiles
    bbox: BoxEdges | None  # degrees; None without rows
    times: tuple[str, str] | None  # the first and the last; None where any is not read
    unread_times: tuple[int, str] | None  # texts that are not read as times: how many, and one of them
    unlisted: str | None  # rows and listed values of a column of categories that do not meet
    inside: int | None  # rows in the region, where one is given
    swapped: bool  # whether most rows would be locations, or in the region, with lat and lon exchanged
    bad_rows: int
    first_bad: str | None  # the message about the first bad row
    columns: dict[str, str]  # name of each canonical column that the table has
    others: tuple[str, ...]  # columns that are not used

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record."""
        return {"private": False, **dataclasses.asdict(self)}

    def __str__(self) -> str:
        lines = [
            "NOT PRIVATE: exact facts about people, for the curator only; do not publish",
            f"table: {self.source}",
        ]
        lines += [f"rows: {self.rows} of {self.users} users"]
        if self.bbox is not None:
            lines += [f"rows per user: {', '.join(f'{name} {n}' for name, n in self.rows_per_user.items())}"]
            lines += [f"bounding box: {','.join(f'{edge:g}' for edge in self.bbox)}"]
        if self.times is not None:
            lines += [f"times: {self.times[0]} to {self.times[1]}"]
        if self.unread_times is not None:
            number, text = self.unread_times
            lines += [
                f"times: {number} of {self.rows} are not read, such as {text!r}; expected such as 2026-01-31 08:30"
            ]
        if self.unlisted is not None:
            lines += [f"categories: {self.unlisted}"]
        if self.inside is not None:
            lines += [f"rows inside the region: {self.inside}"]
        if self.swapped:
            lines += ["are lat and lon swapped?"]
        lines += [f"bad rows: {self.bad_rows}" + (f"; first {self.first_bad}" if self.first_bad else "")]
        lines += [f"columns: {', '.join(f'{kind}={name}' for kind, name in self.columns.items())}"]
        lines += [f"other columns: {', '.join(self.others) or 'none'}"]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Description({self.source})"  # no numbers: a repr ends up in logs


def describe(
    points: Points, region: Region | None = None, *, categories: Windows | None = None
) -> Description:
    """Describe a table for its curator: exact, NOT private, never for publication. Run by: the curator.

    Nothing is charged, because nothing may leave the curator's hands.

    Parameters
    ----------
    points : Points
        The table; rows that its filter leaves out are not described.
    region : Region, optional
        A region to count the rows of.
    categories : Windows, optional
        A column of categories and their public list, such as ``Windows(by="purpose", values=("work",))``: how many rows
        hold another value, and which values are in no row.

    Raises
    ------
    InputError
        The source cannot be read.

    Examples
    --------
    >>> import mapveil as mv
    >>> print(mv.describe(mv.Points.from_arrays(["ann", "ann", "bob"], [-73.9, -74.0, -74.0], [40.7, 40.8, 40.7])))
    NOT PRIVATE: exact facts about people, for the curator only; do not publish
    table: arrays
    rows: 3 of 2 users
    rows per user: least 1, quarter 1, median 1, three quarters 2, 99 % 2, most 2
    bounding box: -74,40.7,-73.9,40.8
    bad rows: 0
    columns: user=user, lon=lon, lat=lat
    other columns: none
    """
    good, (bad, every) = dataclasses.replace(points, on_bad_rows="drop"), points.bad_rows()
    times = _times_sql(points)
    inside = exchanged = 0
    with connection() as opened, reading(points.source):
        scan = good.scan(opened)
        text = _USERS_SQL.format(times=times, points=scan, quantiles=list(_QUANTILES.values()))
        rows, users, quantiles, *box, first, last, unread, unlike = opened.execute(text).fetchall()[0]
        swapped = bad > 0 and look_swapped(points, opened)
        if region is not None:
            for batch in opened.sql(f"SELECT lon, lat FROM ({scan}) AS points").to_arrow_reader(_BATCH):
                lon, lat = (np.asarray(column) for column in batch.columns)
                inside += int(region.contains(lon, lat).sum())
                exchanged += int(region.contains(lat, lon).sum())
            swapped = swapped or 2 * exchanged > max(int(rows), 2 * inside)
    columns = {kind: name for kind, name in points.columns._asdict().items() if name is not None}
    return Description(
        source=points.source,
        rows=int(rows),
        users=int(users),
        rows_per_user=dict(zip(_QUANTILES, quantiles or (), strict=False)),
        bbox=None if box[0] is None else (box[0], box[1], box[2], box[3]),
        times=None if first is None or unread else (str(first), str(last)),
        unread_times=(int(unread), str(unlike)) if unread else None,
        unlisted=None
        if categories is None
        else unlisted(windowed(points, categories)) or "every row is listed",
        inside=None if region is None else inside,
        swapped=swapped,
        bad_rows=bad,
        first_bad=first_failures(points, bad, every) if bad else None,
        columns=columns,
        others=tuple(name for name in column_types(points.table) if name not in columns.values()),
    )


def _times_sql(points: Points) -> str:
    """SQL of the first and the last time of a user's rows, and of texts that are no times: those have no order."""
    name = points.columns.time
    if name is None:
        return "NULL AS first, NULL AS last, 0 AS unread, NULL AS unlike"
    if column_types(points.table)[name] != "VARCHAR":
        return "MIN(time) AS first, MAX(time) AS last, 0 AS unread, NULL AS unlike"
    missing = "TRY_CAST(time AS TIMESTAMP WITH TIME ZONE) IS NULL AND time IS NOT NULL"
    return (
        f"MIN(time) AS first, MAX(time) AS last, COUNT(*) FILTER ({missing}) AS unread, "
        f"MIN(time) FILTER ({missing}) AS unlike"
    )
