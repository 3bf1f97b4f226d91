"""Filters of rows: one SQL expression over the columns of a table, evaluated for each row alone.

A user's own rows decide which of them count, so the contribution bound holds for every filter. Aggregates, windows,
subqueries and random functions, by which one user's rows could decide about another's, are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from mapveil.geo.tables import Table, connect, reading
from mapveil_client.errors import InputError

if TYPE_CHECKING:
    import duckdb

_PARTS: Final = {
    *("COMPARISON", "CONJUNCTION", "CONSTANT", "COLUMN_REF", "FUNCTION", "OPERATOR"),
    *("CAST", "TYPE", "CASE", "BETWEEN", "COLLATE"),
}
_ORDERS: Final = {
    *("COMPARE_LESSTHAN", "COMPARE_GREATERTHAN", "COMPARE_BETWEEN"),
    *("COMPARE_LESSTHANOREQUALTO", "COMPARE_GREATERTHANOREQUALTO"),
}
_DATE: Final = re.compile(r"\s*\d{4}-\d{2}")
_NUMBER_OR_DATE: Final = re.compile(r"\s*[-+.]?\d")
_ACCEPTED: Final = 'expected one SQL condition on the table\'s columns, such as "hour(time) < 12"'


def check_filter(text: str, table: Table, types: Mapping[str, str]) -> list[str]:
    """The columns that a filter reads; refuse one that is not one condition on each row of a table. Reads no rows.

    Parameters
    ----------
    text : str
        The SQL expression.
    table : Table
        The table.
    types : mapping of str to str
        SQL type of each of its columns.

    Raises
    ------
    InputError
        Not an expression, not a condition, a column that the table does not have, or a function that cannot be used.
    """
    import duckdb

    with connect() as connection:
        node, plain = _parsed(connection, text), _parsed(connection, "TRUE")
        expressions = node.pop("select_list", [])
        plain.pop("select_list")
        if len(expressions) != 1 or node != plain:
            raise InputError(f"filter {text!r}: is more than one condition; {_ACCEPTED}")
        used = _check_parts(connection, text, expressions[0], types)
        with reading(f"filter {text!r}"):
            relation = table.described(connection)
            try:
                sql = f"DESCRIBE SELECT ({text}\n) AS kept FROM {relation}"
                held = str(connection.execute(sql).fetchall()[0][1])
            except (duckdb.BinderException, duckdb.CatalogException) as error:
                texts = [name for name in used if types[name] == "VARCHAR"]
                if not texts:
                    raise
                raise InputError(
                    f"filter {text!r}: {str(error).splitlines()[0].rstrip('.!')}; {' and '.join(map(repr, texts))} "
                    f"{'is' if len(texts) == 1 else 'are'} text in {table.name}: write {texts[0]}::TIMESTAMP or "
                    f"{texts[0]}::DOUBLE"
                ) from None
            _check_constants(connection, text, relation)
    if held != "BOOLEAN":
        raise InputError(f"filter {text!r}: is of type {held.lower()}; {_ACCEPTED}")
    return used


def _check_constants(connection: duckdb.DuckDBPyConnection, text: str, relation: str) -> None:
    """Evaluate the expression on one row of nulls, which only its constants can make fail."""
    import duckdb

    connection.execute(f"CREATE TEMP TABLE nulls AS SELECT * FROM {relation} LIMIT 0")
    connection.execute("INSERT INTO nulls DEFAULT VALUES; PRAGMA disable_optimizer")
    try:
        connection.execute(f"SELECT ({text}\n) FROM nulls").fetchall()
    except duckdb.Error as error:
        reason = str(error).splitlines()[0].rstrip(".!")
        raise InputError(f"filter {text!r}: {reason}; {_ACCEPTED}") from None


def _parsed(connection: duckdb.DuckDBPyConnection, text: str) -> dict[str, Any]:
    """The syntax tree of a SELECT of the expression, but for where its parts stand in the text."""
    import duckdb

    try:
        found = connection.execute("SELECT json_serialize_sql(?)", [f"SELECT ({text}\n)"]).fetchall()
        tree: dict[str, Any] = json.loads(found[0][0])
        error = tree.get("error_message", "")
    except duckdb.Error as raised:
        tree, error = {}, str(raised).splitlines()[0]
    if error or len(tree["statements"]) != 1:
        raise InputError(f"filter {text!r}: {error or 'is more than one statement'}; {_ACCEPTED}")
    node: dict[str, Any] = tree["statements"][0]["node"]
    node.get("from_table", {}).pop("query_location", None)
    return node


def _check_parts(
    connection: duckdb.DuckDBPyConnection, text: str, expression: Any, types: Mapping[str, str]
) -> list[str]:
    """The columns that an expression reads; an :class:`InputError` where a part of it cannot be used."""
    allowed = {
        str(row[0])
        for row in connection.execute(
            "SELECT function_name FROM duckdb_functions() WHERE NOT contains(function_name, 'like_escape') "
            "GROUP BY ALL HAVING bool_and(function_type = 'scalar' AND stability <> 'VOLATILE')"
        ).fetchall()
    }
    names = {name.lower(): name for name in types}
    used: dict[str, None] = {}
    for part in _parts(expression):
        if part["class"] not in _PARTS:
            raise InputError(
                f"filter {text!r}: a {part['class'].lower()} cannot be used, since each row is kept or left out by "
                f"itself; {_ACCEPTED}"
            )
        if part["class"] == "FUNCTION" and part["function_name"].lower() not in allowed:
            raise InputError(
                f"filter {text!r}: function {part['function_name']} cannot be used, since each row is kept or left "
                f"out by itself; {_ACCEPTED}"
            )
        if part["class"] == "COLUMN_REF":
            name = names.get(part["column_names"][0].lower())
            if name is None:
                raise InputError(
                    f"filter {text!r}: no column {part['column_names'][0]!r}; its columns are {', '.join(types)}"
                )
            used[name] = None
        _check_order(text, part, names, types)
    return list(used)


def _check_order(
    text: str, part: Mapping[str, Any], names: Mapping[str, str], types: Mapping[str, str]
) -> None:
    """Refuse to order a column of text by a number or a date: letters would be compared, so that '10' < '9'."""
    if part["type"] not in _ORDERS:
        return
    beside = [
        part[side]
        for side in ("left", "right", "input", "lower", "upper")
        if isinstance(part.get(side), dict)
    ]
    columns = [
        names.get(each["column_names"][0].lower(), "") for each in beside if each["class"] == "COLUMN_REF"
    ]
    constants = [_constant(each) for each in beside if each["class"] == "CONSTANT"]
    texts = [name for name in columns if types.get(name) == "VARCHAR"]
    given = [each for each in constants if _NUMBER_OR_DATE.match(each)]
    if texts and given:
        kind = "TIMESTAMP" if _DATE.match(given[0]) else "DOUBLE"
        raise InputError(
            f"filter {text!r}: column {texts[0]!r} is text, which is ordered by its letters: write {texts[0]}::{kind}"
        )


def _constant(part: Mapping[str, Any]) -> str:
    """The text of a constant; empty for another kind. DuckDB changed the name of its place in the tree."""
    held = part.get("literal") or part.get("value") or {}
    text = held.get("text", held.get("value"))
    return text if isinstance(text, str) else ""


def _parts(tree: Any) -> Iterator[dict[str, Any]]:
    """All expressions in a syntax tree."""
    if isinstance(tree, dict):
        if "class" in tree:
            yield tree
        for value in tree.values():
            yield from _parts(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _parts(value)
