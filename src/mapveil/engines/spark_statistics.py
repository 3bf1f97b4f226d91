"""Refusal of numbers that a server reads from the statistics of Parquet files instead of from the rows.

Sail (that is, DataFusion) takes a column for constant where a file's statistics have one minimum and maximum.
Writers such as Arrow leave NaN out of those statistics, so each NaN of the file is read as that number. The plan of a
query shows which statistics the server knows, of all files together; other servers write plans without them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from mapveil_client.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

_KNOWN: Final = re.compile(r"Min=\w+\(Float\d+\(")
_CONSTANT: Final = re.compile(r"Min=\w+\((Float\d+\([^()]*\))\) Max=\w+\(\1\)")
_CURE: Final = "a server that collects no statistics (Sail: SAIL_EXECUTION__COLLECT_STATISTICS=false)"


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
    InputError
        Such a column is there.
    """
    if _KNOWN.search(_plan(frame, [user])):
        raise InputError(
            f"{where}: column {user!r} has ids of floating point, and this server reads NaN beside one id in a file "
            f"as that id; expected ids that are whole numbers or texts, or {_CURE}; nothing was charged"
        )
    if numbers and _CONSTANT.search(_plan(frame, numbers)):
        one = next((each for each in numbers if _CONSTANT.search(_plan(frame, [each]))), numbers[0])
        raise InputError(
            f"{where}: column {one!r} has the same number in all files, and this server reads NaN beside it as that "
            f"number; expected a column without such numbers, or {_CURE}; nothing was charged"
        )


def _plan(frame: Any, columns: Sequence[str]) -> str:
    """Plan of a query of some columns, with the statistics that the server knows.

    The one before any optimization, because a later one has the types of a view's casts, not those of the files.
    """
    from pyspark.sql import functions as fn

    quoted = [fn.col(f"`{each.replace('`', '``')}`") for each in columns]
    query = frame.select(*quoted)
    plan = str(query._explain_string(mode="cost"))
    return str(query._explain_string(mode="codegen")) if "Exact(" in plan else plan
