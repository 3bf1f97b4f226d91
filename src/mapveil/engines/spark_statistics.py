"""Refusal of numbers that a server reads from the statistics of Parquet files instead of from the rows.

Sail (that is, DataFusion) takes a column for constant where a file's statistics have one minimum and maximum.
Writers such as Arrow leave NaN out of those statistics, so each NaN of the file is read as that number. The plan of a
query shows which statistics the server knows, of all files together. Apache Spark reads the rows, and is known by its
plans; a server whose plans are neither Spark's nor of that form of Sail's is refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from mapveil.engines.spark_errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Sequence

_SPARK: Final = "Statistics(sizeInBytes="  # in each cost plan of Apache Spark
_SAIL: Final = "statistics=[Rows="  # in each cost plan of Sail 0.7, whether it collects statistics or not
_OTHER_FORM: Final = re.compile(r"Min=(?!\w+\(([A-Z]\w*\(|NULL)|Absent)")
_KNOWN: Final = re.compile(r"Min=\w+\(Float\d+\(")
_CONSTANT: Final = re.compile(r"Min=\w+\((Float\d+\([^()]*\))\) Max=\w+\(\1\)")
_CURE: Final = "a server that collects no statistics (Sail: SAIL_EXECUTION__COLLECT_STATISTICS=false)"


def quoted(name: str) -> str:
    """A column's name in backticks."""
    return f"`{name.replace('`', '``')}`"


def server_kind(session: Any) -> str:
    """Name and version of a server: Sail calls itself Spark, but its plans have a form of their own."""
    plan = str(session.range(1)._explain_string(mode="cost"))
    if _SPARK in plan:
        return f"Apache Spark {session.version}"
    if _SAIL in plan:
        own = session.sql("SELECT version() AS version").toArrow()["version"][0].as_py()
        return f"Sail {own}, which answers as Spark {session.version}"
    return f"neither Apache Spark nor Sail by its plans, answers as Spark {session.version}"


def refuse_trusted_statistics(frame: Any, where: str, user: str, numbers: Sequence[str] = ()) -> None:
    """Refuse a table of which the server may read a missing number, which is NaN, as another one.

    Parameters
    ----------
    frame : DataFrame
        The table, as the session has it.
    where : str
        Server and table, for messages.
    user : str
        Column of ids, refused where any statistics of floating point stand behind it: ids of a single file could merge.
    numbers : sequence of str
        Other columns that are read, refused where one of them is constant by its statistics.

    Raises
    ------
    ClusterError
        Such a column is there, or the server's plans are of no known form.
    """
    unknown = (
        f"{where}: this server's plans show statistics in no form that Mapveil knows, so NaN in a file could be read "
        "as another number; expected Apache Spark or Sail 0.7.2"
    )
    plan = _plan(frame, [user])
    if plan is None:
        raise ClusterError(unknown)
    if _KNOWN.search(plan):
        raise ClusterError(
            f"{where}: column {user!r} has ids of floating point, and this server reads NaN beside one id in a file "
            f"as that id; expected ids that are whole numbers or texts, or {_CURE}"
        )
    plan = _plan(frame, numbers) if numbers else ""
    if plan is None:
        raise ClusterError(unknown)
    if _CONSTANT.search(plan):
        one = next((each for each in numbers if _CONSTANT.search(_plan(frame, [each]) or "")), numbers[0])
        raise ClusterError(
            f"{where}: column {one!r} has the same number in all files, and this server would read NaN beside it as "
            f"that number; expected numbers that differ, whole numbers, no such column (without one each row weighs "
            f"1), or {_CURE}"
        )


def _plan(frame: Any, columns: Sequence[str]) -> str | None:
    """Plan of a query of some columns with the statistics that the server knows, empty of Spark; None of another form.

    Sail's plan of mode ``cost`` tells whether there are statistics. Theirs are those after optimization, of the types
    of a view's casts: ids cast to texts would look harmless. Of the modes, ``codegen`` alone has each step of the
    plan, and so the first physical one, with the types of the files. (The client is pinned, so a private method stays.)
    """
    from pyspark.sql import functions as fn

    query = frame.select(*(fn.col(quoted(each)) for each in columns))
    plan = str(query._explain_string(mode="cost"))
    if _SAIL in plan:
        if "Exact(" in plan:
            plan = str(query._explain_string(mode="codegen"))
        return plan if _SAIL in plan and not _OTHER_FORM.search(plan) else None
    return "" if _SPARK in plan else None
