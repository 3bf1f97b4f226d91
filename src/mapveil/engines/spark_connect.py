"""Tables on a cluster, summed there through Spark Connect: Apache Spark from version 4, or Sail.

Every executor finds the contributions of its rows with the SQL that DuckDB runs for a local table, batch by batch, and
cells by the edges that the driver sends. What remains is integers, which every engine adds and divides alike. The
cluster reads the source once: contributions are counted by user, cell and weight, then divided by the user's total in a
window over the user. So a user's many rows are merged before they meet in one task. Only sums per cell reach the
driver, where the noise is drawn; they are never stored.
"""

from __future__ import annotations

import functools
import os
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np

from mapveil.engines.contributions import UNIT, unchecked_rows
from mapveil.engines.duckdb_engine import placed
from mapveil.engines.spark_address import checked_address, shown_address
from mapveil.engines.spark_errors import (
    NO_FILE,
    SILENT,
    STOPPED,
    ClusterError,
    quiet_client,
    reason_of,
    treat_bad_rows,
)
from mapveil.engines.spark_executor import ALL, BAD, contributions, executed, read_columns, valued, versions
from mapveil.engines.spark_statistics import quoted, refuse_trusted_statistics, server_kind
from mapveil.engines.table_engine import EngineTable
from mapveil.geo.points import Points
from mapveil.geo.tables import FrameTable, Table
from mapveil.geo.tiling import Tiling
from mapveil.geo.windowed_points import WindowedPoints
from mapveil_client import __version__
from mapveil_client.arrays import IntArray
from mapveil_client.errors import CuratorWarning, require

if TYPE_CHECKING:
    import duckdb
    import pyarrow

_NAMED: Final = ("columns", "expressions")  # of points, by kind of column
_WAIT: Final = 10.0  # seconds until a server counts as unreachable
_ANSWER: Final = 30.0  # seconds for the answer to the first call: gRPC takes 20 to find a port silent
_RETRIES: Final = 7  # of a call; with pauses of 0.05, 0.2, 0.8, 3.2 and then 8 seconds, 28 in all
_LONGEST_PAUSE: Final = 8000  # milliseconds between retries
_EARLIEST: Final = 4  # of Spark
_PING: Final = (
    330_000  # milliseconds of silence until a server is asked whether it is there; Spark allows 300,000
)
_PONG: Final = 20_000  # milliseconds until a server that does not answer that counts as gone
_QUIET: Final = 600.0  # seconds without progress between two warnings of it

_sessions: dict[str, Any] = {}  # by URL


@dataclass(frozen=True, eq=False, repr=False)
class SparkEngine:
    """A Spark Connect server.

    Parameters
    ----------
    url : str
        ``sc://host:port``, with the parameters that Spark Connect knows, such as ``/;token=...``.

    Raises
    ------
    MissingExtra
        The extra ``spark`` is not installed.
    InputError
        The URL is of another kind, nobody answers there, or the server is older than Spark 4.
    """

    url: str

    def __post_init__(self) -> None:
        address = checked_address(self.url)
        require("pyspark", "spark")
        try:
            socket.create_connection(address, _WAIT).close()
        except OSError as error:
            raise ClusterError(
                f"engine {self.server}: no server answers ({error.strerror or error}); expected Spark Connect at this "
                "host and port"
            ) from None
        with self._speaking(answered=False):
            session = self.session
            try:
                version = _within(_ANSWER, lambda: str(session.version))
            except TimeoutError:
                session.client.close()  # else pyspark asks it again when this process ends
                raise ClusterError(f"engine {self.server}: {SILENT}") from None
        if not version.split(".")[0].isdigit() or int(version.split(".")[0]) < _EARLIEST:
            raise ClusterError(
                f"engine {self.server}: Spark {version}; expected Spark {_EARLIEST} or later, or Sail"
            )

    @property
    def server(self) -> str:
        """Host and port, without parameters, which may hold a token."""
        return shown_address(self.url)

    @functools.cached_property
    def session(self) -> Any:
        """The session on the server; one for each URL, whatever other sessions this process has."""
        from pyspark.sql.connect.client.core import DefaultChannelBuilder
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession

        found = _sessions.get(self.url)
        if found is None or found.is_stopped:
            # A query may say nothing for hours, so a server that hangs is noticed by pings alone.
            options = [("grpc.keepalive_time_ms", _PING), ("grpc.http2.ping_timeout_ms", _PONG)]
            options.append(("grpc.http2.max_pings_without_data", 0))  # else the third is not sent
            channel = DefaultChannelBuilder(self.url, options)
            os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"  # as pyspark's own builder of URLs sets it
            found = _sessions[self.url] = SparkSession.builder.channelBuilder(channel).create()
            policy = DefaultPolicy(
                _RETRIES, max_backoff=_LONGEST_PAUSE, jitter=0, max_server_retry_delay=_LONGEST_PAUSE
            )
            found.client.set_retry_policies([policy])
        return found

    def table(self, name: str) -> ClusterTable:
        """A table of the server's catalogs, by its name ``catalog.schema.table``; reads no rows.

        Raises
        ------
        InputError
            No such table or file, or no permission to read it.
        """
        from pyspark.sql.pandas.types import to_arrow_schema

        with self._speaking(name, opening=True):
            schema = to_arrow_schema(self.session.table(name).schema)
        if not schema.names:  # Sail's of files that are not there
            raise ClusterError(f"{self._place(name)}: {NO_FILE}")
        return ClusterTable(name, self, schema)

    def kind(self) -> str:
        """Name and version of the server, as far as it tells them."""
        with self._speaking():
            return server_kind(self.session)

    def executors(self) -> str:
        """Python and mapveil of an executor.

        Raises
        ------
        InputError
            It has no mapveil, or another version.
        """
        with self._speaking():
            rows = self.session.range(1).mapInArrow(functools.partial(versions, __version__), "found string")
            return str(rows.toArrow()["found"][0].as_py())

    def check(self, points: Points) -> None:
        """Nothing: rows that cannot be used are found in the pass that sums the others."""

    def people(self, table: Table, column: str, values: Callable[[Table], IntArray]) -> IntArray:
        """See :class:`mapveil.engines.table_engine.Engine`; the driver holds 8 bytes of each user."""
        from pyspark.sql import functions as fn

        work = functools.partial(valued, __version__, values)
        assert isinstance(table, ClusterTable)
        with self._speaking(table.name), self._telling():
            frame = self.session.table(table.name)
            table.rows_of_ledger[:] = [int(frame.count())]
            self._check_ids(table, column)
            refuse_trusted_statistics(frame, self._place(table.name), column)
            ids = frame.select(fn.col(quoted(column))).distinct()
            found = ids.mapInArrow(work, "value bigint").toArrow()
        return np.asarray(found["value"].to_numpy(), dtype=np.int64)

    def user_sums(
        self,
        points: Points,
        tiling: Tiling,
        key: str,
        labels: int | None,
        told: Callable[[float], None] = lambda _: None,
    ) -> IntArray:
        """See :class:`mapveil.engines.table_engine.Engine`."""
        import pyarrow

        table = points.table
        assert isinstance(table, ClusterTable)
        windows = points.windows.count if isinstance(points, WindowedPoints) else labels
        empty = table.schema.empty_table()
        here = replace(points, table=FrameTable(empty, points.source), on_bad_rows="drop")
        if windows is None:  # the sums are of cells alone, whatever column of labels the table has
            here = replace(here, **{name: getattr(here, name)._replace(label=None) for name in _NAMED})
        made = contributions(here, tiling, key, empty)
        with unchecked_rows(here, tiling) as rows:
            cells_of = rows.cells
            cells_of(np.zeros(1, dtype=np.int64))  # makes the tables that the executors are sent
        tiling.locate(np.zeros(1), np.zeros(1))
        with self._speaking(points.source), self._telling(told):
            self._check_ids(table, points.columns.user)
            read = read_columns(points, table.schema)
            # Of those alone: executors are sent nothing else, and no other column's name or type can be in the way.
            frame = self.session.table(table.name).select(*map(quoted, read))
            others = [name for name in read if name != points.columns.user]
            refuse_trusted_statistics(frame, self._place(table.name), points.columns.user, others)
            found = self._summed(
                frame, functools.partial(executed, __version__, here, tiling, key, made.schema), made.schema
            )
            if table.rows_of_ledger:
                table.check_rows(table.rows_of_ledger.pop(), int(frame.count()))
        assert isinstance(found, pyarrow.Table)
        bad, every = (
            int(
                pyarrow.compute.sum(found.filter(pyarrow.compute.equal(found["cell"], each))["rows"]).as_py()
                or 0
            )
            for each in (BAD, ALL)
        )
        if bad:
            treat_bad_rows(points, bad, every)
        found = found.filter(pyarrow.compute.greater(found["cell"], BAD))
        label = None if windows is None else found["label"].to_numpy().astype(np.int64)
        size = tiling.size if points.columns.to_lon is None else tiling.size**2
        return placed(cells_of(found["cell"].to_numpy()), label, found["share"].to_numpy(), size, windows)

    def _check_ids(self, table: ClusterTable, column: str) -> None:
        """Refuse ids that engines compare differently: one of a list with -0.0 is the one with 0.0 on some alone."""
        import pyarrow

        kind = table.schema.field(column).type
        if pyarrow.types.is_nested(kind):
            raise ClusterError(
                f"{self._place(table.name)}: column {column!r} has ids of type {kind}; expected numbers or texts"
            )

    def _summed(self, frame: Any, work: Any, schema: pyarrow.Schema) -> Any:
        """Shares and rows per cell, and label where there is one."""
        from pyspark.sql import Window
        from pyspark.sql import functions as fn
        from pyspark.sql.pandas.types import from_arrow_schema

        names = schema.names
        located = frame.mapInArrow(work, from_arrow_schema(schema))
        counted = located.groupBy(*names).agg(fn.count(fn.lit(1)).alias("n"))
        if "place_limit" in names:
            order = Window.partitionBy("user_id").orderBy("chance", "part")
            counted = counted.withColumn("place", fn.dense_rank().over(order))
            counted = counted.where(fn.col("place") <= fn.col("place_limit"))
        user = ["user_id", *(["part"] if "part" in names else [])]
        exact = fn.col("weight").cast("decimal(19,0)")
        total = fn.sum(exact * fn.col("n").cast("decimal(19,0)")).over(Window.partitionBy(*user))
        quotient = fn.expr(f"(CAST(weight AS DECIMAL(19,0)) * CAST({UNIT} AS DECIMAL(10,0))) DIV total")
        divided = counted.withColumn("total", total.cast("decimal(38,0)")).withColumn("each", quotient)
        group = ["cell", *(["label"] if "label" in names else [])]
        counts = fn.col("cell") <= BAD
        rows = fn.when(counts, fn.col("weight") * fn.col("n")).otherwise(fn.lit(0))
        shares = fn.when(counts, fn.lit(0)).otherwise(fn.col("each") * fn.col("n"))
        return (
            divided.groupBy(*group)
            .agg(fn.sum(shares).cast("bigint").alias("share"), fn.sum(rows).cast("bigint").alias("rows"))
            .toArrow()
        )

    @contextmanager
    def _telling(self, told: Callable[[float], None] = lambda _: None) -> Iterator[None]:
        """Tell the fraction of the cluster's tasks that are done, which never falls; warn where it long stays the same.

        The fraction would fall where stages are added. Sail tells no progress at all.
        """
        most, rose, over = 0.0, time.monotonic(), threading.Event()

        def handler(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
            nonlocal most, rose
            known = [(stage.num_completed_tasks, stage.num_tasks) for stage in stages or ()]
            done_of, tasks = map(sum, zip(*known, strict=True)) if known else (0, 0)
            if tasks and done_of > most * tasks:
                most, rose = done_of / tasks, time.monotonic()
            if tasks:
                told(most)

        def watch() -> None:
            warned = rose
            while not over.wait(max(0.0, max(rose, warned) + _QUIET - time.monotonic())):
                now = time.monotonic()
                if now >= max(rose, warned) + _QUIET:
                    warned = now
                    _warn(
                        f"engine {self.server}: no progress told for {(now - rose) / 60:.0f} minutes, and the "
                        "connection has not failed; the cluster's own log or page tells more; nothing is charged "
                        "before its answer is here"
                    )

        self.session.registerProgressHandler(handler)
        threading.Thread(target=watch, name="mapveil-quiet", daemon=True).start()
        try:
            yield
        finally:
            over.set()
            self.session.removeProgressHandler(handler)

    @contextmanager
    def _speaking(self, name: str = "", *, answered: bool = True, opening: bool = False) -> Iterator[None]:
        """Turn the cluster's errors into :class:`ClusterError`, one line without values of rows."""
        from pyspark.errors import PySparkException

        try:
            with quiet_client():
                yield
        except PySparkException as error:
            reason = reason_of(error, answered=answered, opening=opening)
            if reason in (SILENT, STOPPED):
                # Else pyspark retries again when this process ends, and asks this server what it needs for others.
                self.session.client.set_retry_policies([])
                self.session.client.close()
                _sessions.pop(self.url, None)
            raise ClusterError(f"{self._place(name)}: {reason}") from None

    def _place(self, name: str) -> str:
        """Server and table, for messages."""
        return f"engine {self.server}" + f", table {name}" * bool(name)


@dataclass(frozen=True, eq=False, repr=False)
class ClusterTable(EngineTable):
    """A table whose rows stay on the cluster. Made by :meth:`SparkEngine.table`."""

    name: str
    engine: SparkEngine
    schema: pyarrow.Schema
    rows_of_ledger: list[int] = field(default_factory=list, init=False)
    """Number of rows before the ledger read the ids, until the sums are there."""
    elsewhere = True

    def check_rows(self, before: int, after: int) -> None:
        """Refuse sums of a table that had other rows when the ledger read its ids."""
        if before != after:
            raise ClusterError(
                f"{self.name}: rows were added or removed while it was read, so the ledger may not know some people of "
                "the sums; expected a table that keeps its rows, such as a view of one snapshot (SELECT * FROM ... "
                "VERSION AS OF ...)"
            )

    def people(self, column: str, values: Callable[[Table], IntArray]) -> IntArray:
        """See :class:`mapveil.geo.tables.Table`."""
        return self.engine.people(self, column, values)

    def described(self, connection: duckdb.DuckDBPyConnection) -> str:
        """See :class:`mapveil.geo.tables.Table`."""
        return FrameTable(self.schema.empty_table(), self.name).relation(connection)

    def relation(self, connection: duckdb.DuckDBPyConnection) -> str:
        """A :class:`ClusterError`: rows do not leave the cluster."""
        self.check_here("a release of sums")

    def check_here(self, need: str) -> NoReturn:
        """See :class:`mapveil.geo.tables.Table`."""
        raise ClusterError(f"{self.name}: rows do not leave the cluster; expected {need}, or a local table")


def _warn(text: str) -> None:
    """Warn from a thread that must go on: a warning that is turned into an error is written to stderr instead."""
    try:
        warnings.warn(text, CuratorWarning, stacklevel=2)
    except CuratorWarning:
        sys.stderr.write(f"warning: {text}\n")


def _within(seconds: float, call: Callable[[], str]) -> str:
    """Result of a call, made in a thread of its own; :class:`TimeoutError` where it takes longer."""
    answer: Future[str] = Future()

    def ask() -> None:
        try:
            answer.set_result(call())
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=ask, daemon=True).start()
    return answer.result(seconds)
