"""Stores to test with: SQLite files, and databases of a real PostgreSQL server that is started for the run."""

from __future__ import annotations

import contextlib
import glob
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mapveil.collector.store.database import Store

POSTGRESQL_BINARIES = "/usr/lib/postgresql/*/bin"


class FakeClock:
    """A clock that goes when it is told to; ``jump`` moves the wall clock alone, as setting a machine's clock does."""

    def __init__(self) -> None:
        self.wall = datetime(2026, 3, 1, 12, tzinfo=UTC)
        self.ticks = 1000.0

    def now(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.ticks

    def advance(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)
        self.ticks += seconds

    def jump(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)


class PostgresqlServer:
    """A PostgreSQL server in a folder of its own, spoken to over a Unix socket; nobody else can reach it."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self.binaries = binaries
        self.folder = folder
        self.data = folder / "data"
        self._numbers = itertools.count(1)
        self._emptied: list[str] = []
        # The server refuses to run as root.
        self._user = (
            next(name for name in ("postgres", "nobody") if _exists(name)) if os.geteuid() == 0 else None
        )

    def run(self, *command: str | Path) -> None:
        as_user = []
        if self._user:
            who = pwd.getpwnam(self._user)
            as_user = ["setpriv", f"--reuid={who.pw_uid}", f"--regid={who.pw_gid}", "--clear-groups", "--"]
        done = subprocess.run(
            [*as_user, *map(str, command)], cwd=self.folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed: {done.stdout}{done.stderr}")

    def make(self) -> None:
        if self._user:
            shutil.chown(self.folder, self._user)
        self.run(
            *(self.binaries / "initdb", "-D", self.data, "--username=mapveil", "--auth=trust", "--no-sync"),
            *("--encoding=UTF8", "--locale=C"),
        )
        # Durability is not what the tests test: a machine that loses power is not among them.
        with (self.data / "postgresql.conf").open("a") as settings:
            settings.write(
                f"listen_addresses = ''\nunix_socket_directories = '{self.folder}'\nfsync = off\n"
                "shared_buffers = 32MB\nmax_connections = 100\n"
            )

    def start(self) -> None:
        self.run(self.binaries / "pg_ctl", "-D", self.data, "-l", self.folder / "log", "-w", "-s", "start")

    def stop(self, mode: str = "immediate") -> None:
        self.run(self.binaries / "pg_ctl", "-D", self.data, "-w", "-s", "-m", mode, "stop")

    def restart(self) -> None:
        self.stop()
        self.start()

    def connect(self, database: str = "postgres"):
        import psycopg

        return psycopg.connect(host=str(self.folder), user="mapveil", dbname=database, autocommit=True)

    def new_database(self) -> str:
        """Take an empty database; returns its URL."""
        if self._emptied:
            name = self._emptied.pop()
        else:
            name = f"store_{next(self._numbers)}"
            with self.connect() as connection:
                connection.execute(f"CREATE DATABASE {name}")
        return f"postgresql://mapveil@/{name}?host={self.folder}"

    def drop_database(self, url: str) -> None:
        """Give a database back; emptying it takes a tenth of the time that making one does."""
        name = url.split("@/")[1].split("?")[0]
        with self.connect(name) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
        self._emptied.append(name)


def _exists(name: str) -> bool:
    with contextlib.suppress(KeyError):
        return bool(pwd.getpwnam(name))
    return False


@pytest.fixture(scope="session")
def postgresql():
    """A running server, one for each process of the test run."""
    found = sorted(glob.glob(POSTGRESQL_BINARIES), key=lambda path: float(Path(path).parent.name))
    on_path = shutil.which("postgres")
    if not found and on_path:
        found = [str(Path(on_path).resolve().parent)]
    if not found:
        pytest.skip(f"PostgreSQL is not installed: nothing matches {POSTGRESQL_BINARIES}")
    # A socket's path must be short, so not in the folder of pytest.
    with tempfile.TemporaryDirectory(prefix="mapveil-pg-", ignore_cleanup_errors=True) as folder:
        server = PostgresqlServer(Path(found[-1]), Path(folder))
        server.make()
        server.start()
        try:
            yield server
        finally:
            with contextlib.suppress(RuntimeError):
                server.stop()


@pytest.fixture
def postgresql_url(postgresql):
    """An empty database of its own."""
    url = postgresql.new_database()
    yield url
    postgresql.drop_database(url)


@pytest.fixture
def sqlite_url(tmp_path):
    """A path at which there is nothing yet."""
    return str(tmp_path / "store.sqlite")


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request):
    """An empty store, of both kinds in turn."""
    return request.getfixturevalue(f"{request.param}_url")


@pytest.fixture
def clock():
    """A clock that stands still until it is told to go."""
    return FakeClock()


@pytest.fixture
def new_store(clock):
    """Open stores by URL; they are closed at the end of the test."""
    opened = []

    def open_store(url: str) -> Store:
        store = Store(url, clock=clock)
        opened.append(store)
        return store

    yield open_store
    for store in opened:
        store.close()


@pytest.fixture
def store(new_store, store_url):
    """A store that was made, of both kinds in turn."""
    made = new_store(store_url)
    made.create_tables()
    return made


@pytest.fixture
def sqlite_store(new_store, sqlite_url):
    """A store in an SQLite file."""
    made = new_store(sqlite_url)
    made.create_tables()
    return made


@pytest.fixture
def postgresql_store(new_store, postgresql_url):
    """A store in PostgreSQL."""
    made = new_store(postgresql_url)
    made.create_tables()
    return made
