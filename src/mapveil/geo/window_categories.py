"""The category of a row, as the public value that names it: a column's type decides which texts are one value."""

from __future__ import annotations

import re
from typing import Final

from mapveil.geo.find_columns import find_column
from mapveil.geo.points import Points
from mapveil.geo.tables import column_types, connection, quote_name, quote_text
from mapveil.geo.windows import Windows
from mapveil_client.errors import InputError

_NUMBER: Final = re.compile(r"U?(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)|DECIMAL\(.*\)|FLOAT|DOUBLE")
_ROUNDS: Final = re.compile(r"(?!FLOAT|DOUBLE)")
"""Types of numbers that DuckDB rounds a text to, such as 1.6 to 2."""


def category_sql(points: Points, windows: Windows) -> str:
    """SQL of the public value that a row's category is, NULL or another text for none.

    Numbers, booleans and days are compared as what they are: 1 is 1.0, True is true. Anything else is compared as text.

    Raises
    ------
    InputError
        There is no such column, no value can be one of its type, or two values are one of it.
    """
    types = column_types(points.table)
    found = str(find_column("categories", points.source, types, str(windows.category), ()))
    column, kind = quote_name(found), types[found]
    number = _NUMBER.fullmatch(kind) is not None
    if not number and kind not in ("BOOLEAN", "DATE"):
        return f"CAST({column} AS VARCHAR)"
    exact = f"AND TRY_CAST(given AS DOUBLE) = CAST(TRY_CAST(given AS {kind}) AS DOUBLE)"
    read = (
        f"SELECT CASE WHEN TRUE {exact if number and _ROUNDS.match(kind) else ''} "
        f"THEN CAST(TRY_CAST(given AS {kind}) AS VARCHAR) END FROM (SELECT CAST(? AS VARCHAR) AS given)"
    )
    with connection() as opened:
        texts = {value: opened.execute(read, [value]).fetchall()[0][0] for value in windows.values}
    able = {value: text for value, text in texts.items() if text is not None}
    listed = ", ".join(map(repr, windows.values))
    if not able:
        raise InputError(
            f"{points.source}: column {found!r} is of type {kind.lower()}, and none of the values {listed} can be one "
            "of it, so every window would be empty; name its values (--values)"
        )
    if len(set(able.values())) < len(able):
        raise InputError(
            f"{points.source}: column {found!r} is of type {kind.lower()}, in which some of the values {listed} are "
            "one; give each once (--values)"
        )
    cases = " ".join(
        f"WHEN {column} = CAST({quote_text(text)} AS {kind}) THEN {quote_text(value)}"
        for value, text in able.items()
    )
    return f"(CASE {cases} END)"
