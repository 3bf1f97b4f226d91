"""A cluster's errors and bad rows, in one line without values of rows."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from mapveil.geo.points import Points
from mapveil_client import __version__
from mapveil_client.errors import CuratorWarning, InputError

UNCHARGED: Final = "nothing was charged"

SILENT: Final = "no Spark Connect server answers there, or TLS is not spoken (use_ssl)"
"""The cause of every error of the connection before the server's first answer."""

STOPPED: Final = "the server stopped answering during the query; see the cluster's log, then run this again"
"""The cause of every error of the connection after the session's first answer."""

NO_FILE: Final = (
    "no such file or folder there, or only empty files; expected the full path of one that the server and every "
    "executor can read"
)
"""The cause where a table that is named by its path has no files; Sail then gives it no columns."""

_NOT_FOUND: Final = r"\[(TABLE_OR_VIEW|SCHEMA|CATALOG|NO_SUCH_CATALOG)_(NOT_FOUND|EXCEPTION)\]"
# In each of these three, what Spark says is first; Sail's messages have no classes.
_NO_FILE: Final = (
    r"\[(PATH_NOT_FOUND|UNABLE_TO_INFER_SCHEMA)\]|^No metadata files found|No commit files found in _delta"
)
_UNREADABLE: Final = (
    r"\[(FAILED_READ_FILE[.\]]|FAILED_TO_CREATE_PLAN_FOR_DIRECT_QUERY\])|^Parquet error|HdfsObjectStore error|"
    r"^failed to lookup address|^Connection refused \(os error"
)
_CHANGED: Final = r"\[UNRESOLVED_COLUMN[.\]]|\[FAILED_READ_FILE\.FILE_NOT_EXIST\]|cannot resolve attribute$"
_NO_NAME: Final = (
    r"\[(PARSE_|INVALID_IDENTIFIER)|SINGLE_PART_NAMESPACE|^invalid argument: (found|table reference)"
)
_UNKNOWN_USER: Final = r"(^|StatusCode\.)UNAUTHENTICATED\b"
_FORBIDDEN: Final = (
    r"\[INSUFFICIENT_PERMISSIONS|(^|StatusCode\.)PERMISSION_DENIED\b|AccessControlException|AccessDenied|"
    r"403 Forbidden"
)
_DENIED: Final = "Permission denied (os error 13)"  # of a local file, on Sail
_LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")  # of pyspark
_FOREIGN: Final = r"No module named 'mapveil(_client)?\.|Can't get attribute '\w+' on <module 'mapveil"


class ClusterError(InputError):
    """A cluster or a table on it cannot be used; it says that nothing was charged, unless a note says what was."""

    def __str__(self) -> str:
        return super().__str__() + self._uncharged

    def in_flags(self) -> str:
        """The text as the command line says it."""
        return super().in_flags() + self._uncharged

    @property
    def _uncharged(self) -> str:
        return "" if getattr(self, "__notes__", None) else f"; {UNCHARGED}"


@contextmanager
def quiet_client() -> Iterator[None]:
    """Keep pyspark from writing on stderr: of its retries, and of Spark's errors, which may quote values of rows."""
    from pyspark.logger import PySparkLogger

    def nothing(_record: object) -> bool:
        return False

    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    for each in loggers:
        each.addFilter(nothing)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")
            yield
    finally:
        for each in loggers:
            each.removeFilter(nothing)


def treat_bad_rows(points: Points, bad: int, rows: int) -> None:
    """Refuse so many bad rows of a table, or warn that they were left out."""
    if points.on_bad_rows == "fail" or bad == rows:
        hint = "" if bad == rows else "; on_bad_rows='drop' (--on-bad-rows drop) leaves them out"
        raise ClusterError(
            f"{points.source}: {bad} of {rows} rows cannot be used: no user id, a coordinate that is missing or out of "
            f"range, a weight that is missing or not above 0, or no time where windows need one{hint}"
        )
    text = f"{points.source}: dropped {bad} of {rows} rows, which cannot be used; keep these numbers private"
    warnings.warn(text, CuratorWarning, stacklevel=2)


def reason_of(error: Exception, *, answered: bool = True, opening: bool = False) -> str:
    """The cause of a cluster's error, without what a message may quote of a row.

    Parameters
    ----------
    error : PySparkException
        The error.
    answered : bool
        Whether the server has answered this session before.
    opening : bool
        Whether the call looked a table up by its name, so that the name may be the cause.
    """
    text = str(error)
    status = getattr(getattr(error, "getGrpcStatusCode", lambda: None)(), "name", "")
    if status == "UNAVAILABLE":
        return STOPPED if answered else SILENT
    missing = re.search(r"No module named '([\w.]+)'", text)
    ids = re.search(r"mapveil-ids: (\w+), (\w+)", text)
    version = re.search(r"mapveil-version: (executors have [\w.+]+, the driver [\w.+]+)", text)
    if ids:
        return (
            f"the executors read ids of type {ids[1]}, some of which do not fit {ids[2]}, the type in the table's "
            "schema; expected ids that fit, such as texts"
        )
    if re.search(_FOREIGN, text):
        return f"executors have another build of mapveil than the driver; install the driver's {__version__} there"
    if missing:
        return f"an executor has no Python package {missing[1].split('.')[0]!r}; install mapveil {__version__} there"
    if version:
        return f"{version[1]}; expected the same version"
    if re.search(r"\[INVALID_(CONNECT_URL|SESSION_UUID_ID)\]", text):
        return (
            "what follows the port is no parameter; expected /; and pairs, such as /;use_ssl=true;token=..."
        )
    if re.search(_NOT_FOUND, text):
        return (
            "no such catalog, schema or table; expected a table of a shared catalog (SHOW TABLES lists them), or a "
            "file by its full path, such as parquet.`/full/path`"
        )
    if opening and re.search(_NO_NAME, text):
        return (
            "this is no name of a table there; expected catalog.schema.table, schema.table or table, where a part that "
            "has more than letters, digits and '_' stands in backticks"
        )
    if status == "UNAUTHENTICATED" or re.search(_UNKNOWN_USER, text):
        return (
            "the server does not accept the credentials; expected a user and token that it knows, in the URL"
        )
    if status == "PERMISSION_DENIED" or re.search(_FORBIDDEN, text) or (opening and _DENIED in text):
        return "the user of this session may not read it; expected the right to, or credentials of a user who has it"
    if opening and re.search(_NO_FILE, text):
        return NO_FILE
    if not opening and re.search(f"{_NO_FILE}|{_CHANGED}", text):
        return (
            "a column or file that was there is gone; expected a table that keeps its files, such as a view of one "
            "snapshot"
        )
    if re.search(_UNREADABLE, text):
        return (
            "the server cannot read its files: one is incomplete or of another format, or the storage cannot be "
            "reached; the cluster's log says more"
        )
    condition = re.search(r"\[([A-Z][A-Z_.]+)\]", text)
    return f"{type(error).__name__}{f' {condition[1]}' if condition else ''}; the cluster's log says more"
