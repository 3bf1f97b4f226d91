"""The two databases of a store, SQLite and PostgreSQL, and everything in which they differ.

SQLite: one file with a write-ahead log, ``synchronous=FULL``, so that a commit is on the disk when it returns; one
connection writes, others read. PostgreSQL: one pool of connections; several processes may share it.
"""

import contextlib
import os
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from sqlalchemy import create_engine, event
from sqlalchemy.engine import URL, Connection, Engine, ExceptionContext, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DatabaseError,
    DBAPIError,
    InterfaceError,
    InternalError,
    InvalidatePoolError,
    OperationalError,
    PendingRollbackError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from mapveil.collector.refusals import StoreUnavailable
from mapveil_client.errors import InputError
from mapveil_client.private_file import create_private

APPLICATION_ID: Final = 0x4D56_434C  # "MVCL"
CLOCK: Final = "mapveil_clock"  # the execution option of a connection that holds its store's clock
_WAIT_SECONDS: Final = 10
_READERS: Final = 8
_SILENT_SECONDS: Final = 1.0
"""Silence after which a connection to PostgreSQL is first asked whether it is there. Chosen, not measured: where the
server restarts faster, one transaction of this process fails, and whoever waits for it is told to come again."""
_USED: Final = "mapveil_used"  # when it was used last, in what the pool knows of a connection
_CONNECTIONS: Final = 10  # of one process to PostgreSQL, which has 100 for everybody by default

_SQLITE_SETTINGS: Final = (
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",
    "PRAGMA foreign_keys = ON",
    "PRAGMA recursive_triggers = ON",  # REPLACE asks the triggers that refuse to delete
    "PRAGMA trusted_schema = OFF",
    "PRAGMA secure_delete = FAST",  # what is deleted is overwritten, where that takes no writing of its own
    "PRAGMA journal_size_limit = 67108864",
)
HOLDER_SECONDS: Final = 60
"""Seconds of silence after which PostgreSQL ends a session that holds a lock for its process alone. Chosen, not
measured: the conductor says between two steps that it goes on, and a longer step loses the lock, which does no harm."""

FOREIGN: Final = "another program's file; use a new path, or a store of Mapveil"
OWNED: Final = (
    "make that user the owner of the database and of all that is in it, as createdb --owner=USER does"
)
"""The remedy where the user of PostgreSQL lacks a right."""

_NO_RIGHT: Final = ("42501", "3F000")  # insufficient privilege, and no schema that the user may use
LIMITS_SILENCE: Final = (14,)
"""First version of PostgreSQL that ends silent sessions."""

_CONFLICTS: Final = ("40001", "40P01")  # serialization failure, deadlock
_LOCKED: Final = "55P03"  # a wait for a lock that ended in vain
_POSTGRESQL_SETTINGS: Final = (
    "SET lock_timeout = '30s'",
    "SET idle_in_transaction_session_timeout = '60s'",  # a process that was stopped must not hold its locks
    # A machine that is gone must not hold them for the two hours of the system's default; without effect on a socket
    # of the same machine.
    "SET tcp_keepalives_idle = 15",
    "SET tcp_keepalives_interval = 5",
    "SET tcp_keepalives_count = 3",
    "SET tcp_user_timeout = 20000",
)
# A network that swallows packets must not hold a request for ever.
_POSTGRESQL_ARGUMENTS: Final = {
    "connect_timeout": _WAIT_SECONDS,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "application_name": "mapveil",
}


class Repeatable(StoreUnavailable):
    """Two transactions were in each other's way, and this one gave way: run again, it may succeed."""


class Locked(StoreUnavailable):
    """Another transaction held a lock for longer than this one waits."""

    def __init__(
        self, message: str = "the store cannot be read or written now: another change of it takes long"
    ) -> None:
        super().__init__(message)


class Database(NamedTuple):
    """The engines of a store."""

    url: URL
    path: Path | None  # of an SQLite store
    reading: Engine
    writing: Engine
    alone: Engine  # every statement a transaction of its own

    @property
    def shown(self) -> str:
        """Address, without a password and without the driver."""
        query = {name: given for name, given in self.url.query.items() if "password" not in name}
        plain = self.url.set(drivername=self.url.get_backend_name(), query=query)
        return str(self.path) if self.path else plain.render_as_string(hide_password=True)

    def dispose(self) -> None:
        """Close every connection that is not in use."""
        self.reading.dispose()
        self.writing.dispose()


def read_store_url(text: str) -> URL:
    """Read where a store is: ``sqlite:///path``, a bare path, or ``postgresql://user@host/name``."""
    expected = "expected a path, sqlite:///path or postgresql://user:password@host/name"
    if "://" not in text:
        if not text or text == ":memory:" or re.match("(sqlite|postgres(ql)?):", text):
            raise InputError(f"store must be a file or a database, got {text!r}; {expected}")
        return URL.create("sqlite", database=text)
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise InputError(f"the URL of the store cannot be read; {expected}") from None
    scheme = url.drivername
    if scheme in ("sqlite", "sqlite+pysqlite"):
        if not url.database or url.database == ":memory:" or url.host or url.query:
            raise InputError(f"the URL of the store must name a file only; {expected}")
        return URL.create("sqlite", database=url.database)
    if scheme in ("postgresql", "postgres", "postgresql+psycopg"):
        return url.set(drivername="postgresql+psycopg")
    raise InputError(f"unknown kind of store {scheme[:20]!r}; {expected}")


def open_database(url: URL, options: dict[str, Any]) -> Database:
    """Make the engines, with execution options of every connection; nothing is opened yet."""
    if url.drivername == "sqlite":
        path = Path(str(url.database)).absolute()
        place = _Place(path)
        reading = _sqlite(path, options, place, "BEGIN", _READERS)
        writing = _sqlite(path, options, place, "BEGIN IMMEDIATE", 1)
        return Database(url, path, reading, writing, reading)
    arguments = {key: value for key, value in _POSTGRESQL_ARGUMENTS.items() if key not in url.query}
    writing = create_engine(
        url,
        hide_parameters=True,
        pool_size=_CONNECTIONS // 2,
        max_overflow=_CONNECTIONS - _CONNECTIONS // 2,
        pool_timeout=_WAIT_SECONDS,
        isolation_level="READ COMMITTED",  # whatever the server's default: what waited for a row's lock sees it anew
        connect_args=arguments,
        execution_options=options,
    )
    event.listen(writing, "connect", _prepare(_POSTGRESQL_SETTINGS))
    event.listen(writing, "checkin", _note_use)
    event.listen(writing, "checkout", partial(_ping_after_silence, writing))
    event.listen(writing, "handle_error", _hide_detail)
    reading = writing.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    alone = writing.execution_options(isolation_level="AUTOCOMMIT")
    return Database(url, None, reading, writing, alone)


class _Place:
    """Notices a file that was moved, deleted or replaced under its open connections: they would go on writing to it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: tuple[int, int] | None = None

    def forget(self) -> None:
        self._known = None

    def check(self) -> None:
        try:
            found = os.stat(self._path)
        except OSError as error:
            raise StoreUnavailable("the file of the store is not there") from error
        identity = (found.st_dev, found.st_ino)
        if self._known is None:
            self._known = identity
        elif self._known != identity:
            raise StoreUnavailable(
                "the file of the store was replaced by another; the service must be restarted"
            )


def _sqlite(path: Path, options: dict[str, Any], place: _Place, begin: str, connections: int) -> Engine:
    def connect() -> sqlite3.Connection:
        place.check()  # else the log of the file that was there would be played back into the one that is
        # mode=rw: opening must never bring an empty file into being.
        return sqlite3.connect(
            f"{path.as_uri()}?mode=rw",
            uri=True,
            isolation_level=None,  # transactions are begun below, the same way on every version of Python
            timeout=_WAIT_SECONDS,
            check_same_thread=False,
        )

    engine = create_engine(
        "sqlite://",
        creator=connect,
        poolclass=QueuePool,
        pool_size=connections,
        max_overflow=0,
        pool_timeout=_WAIT_SECONDS,
        hide_parameters=True,
        execution_options=options,
    )

    def start(connection: Connection) -> None:
        place.check()
        connection.exec_driver_sql(begin)

    settings = (*_SQLITE_SETTINGS, "PRAGMA query_only = ON") if begin == "BEGIN" else _SQLITE_SETTINGS
    event.listen(engine, "connect", _prepare(settings))
    event.listen(engine, "begin", start)
    event.listen(engine, "engine_disposed", lambda _: place.forget())
    return engine


def _note_use(_: Any, record: ConnectionPoolEntry) -> None:
    record.info[_USED] = time.monotonic()


def _ping_after_silence(engine: Engine, connection: Any, record: ConnectionPoolEntry, _: Any) -> None:
    """Ask a connection that was silent whether it is there, before it is used; if not, discard the whole pool."""
    now = time.monotonic()
    if now - record.info.get(_USED, now) < _SILENT_SECONDS:
        return
    try:
        engine.dialect.do_ping(connection)
    except engine.dialect.loaded_dbapi.Error as error:
        raise InvalidatePoolError from error


def _prepare(statements: tuple[str, ...]) -> Callable[[Any, Any], None]:
    def prepare(connection: Any, _: Any) -> None:
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
        cursor.close()
        connection.commit()

    return prepare


def _hide_detail(context: ExceptionContext) -> None:
    """Keep the rows that PostgreSQL quotes in an error's detail out of its text."""
    diagnosis = getattr(context.original_exception, "diag", None)
    if diagnosis is None or diagnosis.message_primary is None or context.sqlalchemy_exception is None:
        return
    context.original_exception.args = (diagnosis.message_primary,)
    kind = type(context.original_exception).__name__
    context.sqlalchemy_exception.args = (f"({kind}) {diagnosis.message_primary}",)


def failure_of(error: BaseException) -> StoreUnavailable | None:
    """The error to raise for one of the database itself (full, locked, damaged, gone); None for any other error.

    It is :class:`Repeatable` where running the transaction again may help, :class:`Locked` where it may later.
    """
    if isinstance(error, StoreUnavailable):
        return error
    if isinstance(error, PoolTimeout):
        return StoreUnavailable("the store has no free connection; it is busy, or something holds it")
    if isinstance(error, PendingRollbackError):
        return StoreUnavailable("the store was lost in the middle of a transaction")
    if not isinstance(error, DBAPIError):
        return None
    state = getattr(error.orig, "sqlstate", None)
    if state in _CONFLICTS:
        return Repeatable("two changes of the store were in each other's way")
    if state == _LOCKED:
        return Locked()
    if state in _NO_RIGHT:
        return StoreUnavailable(f"PostgreSQL refuses the store's user a right: {error.orig}; {OWNED}")
    damaged = type(error) is DatabaseError and isinstance(error.orig, sqlite3.DatabaseError)
    own = isinstance(error, OperationalError | InterfaceError | InternalError)
    if own or damaged or error.connection_invalidated:
        return StoreUnavailable("the store cannot be read or written now")
    return None


def create_file(path: Path) -> None:
    """Make an empty store, readable by its owner only, unless there is a file already."""
    last = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            return _create_file(path)
        except StoreUnavailable as error:
            # SQLite does not wait where two connections turn the write-ahead log on at once.
            busy = getattr(error.__cause__, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > last:
                raise
            time.sleep(0.01)


def fault_of_folder(path: Path) -> str | None:
    """Why no store can be made at a path; None where one can. A folder that is not there may be a mistyped one."""
    folder = path.parent
    if folder.exists() and not folder.is_dir():
        return f"{folder} is a file, not a folder; give another path"
    if not folder.is_dir():
        return f"there is no folder {folder}; make it, or give another path"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"the folder {folder} cannot be written"
    return None


def fault_of_place(path: Path, *, folder: bool = False) -> str | None:
    """Why a file, or a folder, can neither be used nor made at a path; None where one can."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return "it is a link to nothing" if path.is_symlink() else fault_of_folder(path)
    except OSError as error:
        return f"it cannot be reached ({error.strerror})"
    if path.is_dir() if folder else path.is_file():
        return None
    return f"it is no {'folder' if folder else 'file'}; give another path"


def is_foreign(application: int, *, tables: bool) -> bool:
    """Whether a file of SQLite with this application id, with or without tables, is another program's."""
    return application != APPLICATION_ID and (application != 0 or tables)


def _create_file(path: Path) -> None:
    if (fault := fault_of_place(path)) is not None:
        raise InputError(f"{path}: no store can be made here: {fault}")
    try:
        with contextlib.suppress(FileExistsError):
            create_private(path)
        with contextlib.closing(sqlite3.connect(path, timeout=_WAIT_SECONDS, isolation_level=None)) as file:
            application = file.execute("PRAGMA application_id").fetchone()[0]
            tables = file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if is_foreign(application, tables=tables > 0):
                raise InputError(f"{path}: {FOREIGN}")
            if not application:
                file.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            file.execute("PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError as error:
        raise StoreUnavailable(f"the store cannot be opened ({error})") from error
    except sqlite3.DatabaseError as error:
        raise InputError(
            f"{path}: no file of SQLite, or a damaged one ({error}); use a new path, or restore a backup"
        ) from error
    except (OSError, sqlite3.Error) as error:
        raise InputError(
            f"{path}: no store can be made here ({error}); use a path in a folder that can be written"
        ) from error


@contextlib.contextmanager
def file_lock(path: Path, role: str) -> Iterator[bool]:
    """Try to be the only one in a role with an SQLite store, by a lock on a file beside it; yields whether it is.

    Where the system has no ``flock`` the answer is yes: there a store has one process.
    """
    if sys.platform == "win32":
        yield True
        return
    import fcntl

    try:
        handle = os.open(path.with_name(f"{path.name}-{role}"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreUnavailable("the folder of the store cannot be written now") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = True
        except BlockingIOError:
            mine = False
        yield mine
    finally:
        os.close(handle)  # which gives the lock back; so does the end of the process
