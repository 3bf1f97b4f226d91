"""Tables on a cluster, as commands name them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mapveil_client.errors import MapveilError, ParameterError, check

if TYPE_CHECKING:
    from mapveil.geo.points import Points
    from mapveil.geo.region import Region
    from mapveil.privacy.account import Account


def read_cluster(
    source: str | None,
    engine: str | None,
    table: str | None,
    columns: dict[str, Any],
    *,
    account: Account | None,
    region: Region | None,
    trust: str,
) -> Points:
    """Open the table of ``--engine`` and ``--table``; reads no rows.

    Raises
    ------
    ParameterError
        An argument is missing or contradicts another.
    InputError
        The server or the table cannot be used.
    """
    from mapveil.engines.spark_connect import SparkEngine
    from mapveil.engines.spark_errors import UNCHARGED, ClusterError
    from mapveil.geo.read_points import read_points

    check(source is None, "INPUT", "left out with --engine, whose table --table names", source)
    if engine is None or table is None:
        missing = "--engine sc://HOST:PORT" if engine is None else "--table CATALOG.SCHEMA.TABLE"
        raise ParameterError(f"a table on a cluster needs {missing} too")
    if trust != "central":
        raise ParameterError(
            f"--trust must be central with --engine, got {trust}: sums leave the cluster and rows do not, so devices "
            "cannot be simulated; expected --trust central, or a local table"
        )
    if account is not None and account.name is None:
        raise ParameterError(
            "a table on a cluster needs --dataset NAME: a name of its people that does not depend on where the table is"
        )
    if region is None:
        raise ParameterError("a table on a cluster needs --region: none is searched for there")
    try:
        return read_points(SparkEngine(engine).table(table), **columns)
    except ClusterError:
        raise
    except MapveilError as error:  # of columns and filters, which do not know of charges
        error.add_note(UNCHARGED)
        raise
