"""The contract of engines: whoever holds a table sums its users exactly, and nobody else reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from mapveil.geo.tables import Table
from mapveil_client.arrays import IntArray

if TYPE_CHECKING:
    from mapveil.geo.points import Points
    from mapveil.geo.tiling import Tiling


class Engine(Protocol):
    """Exact sums of tables of users. Run by: the curator. Equal tables have equal sums, whatever the engine."""

    def check(self, points: Points) -> None:
        """Refuse a table that cannot be used, by an :class:`InputError`."""

    def people(self, table: Table, column: str, values: Callable[[Table], IntArray]) -> IntArray:
        """Distinct values that a function gives for a column of ids, for the ledger; ids stay where the table is."""

    def user_sums(
        self,
        points: Points,
        tiling: Tiling,
        key: str,
        labels: int | None,
        told: Callable[[float], None] = ...,
    ) -> IntArray:
        """Sums of :func:`mapveil.engines.user_sums.user_sums`; the source is read once, and its rows are checked.

        ``told`` is called with the fraction that is done, by an engine that knows it.
        """


class EngineTable(Table):
    """A table that an engine of its own reads, such as one on a cluster."""

    engine: Engine


def engine_of(points: Points) -> Engine:
    """The engine that reads a table: its own, or DuckDB in this process."""
    if isinstance(points.table, EngineTable):
        return points.table.engine
    from mapveil.engines.duckdb_engine import DuckDbEngine

    return DuckDbEngine()
