"""A backup that is made while devices answer, restored after the service and its store are gone: the same total."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ..conftest import PostgresqlServer
from .outcome import Outcome, outcome_of
from .scene import Scene, Service, until
from .test_postgresql import ADAPTIVE, Moments
from .wire import Request, Send, Wire

LOCAL = {
    "trust": "local",
    "method": "srr",
    "epsilon": "4",
    "options": {},
    "devices": 16,
    "join_seconds": 600,
}


def serve(store: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mapveil", "serve", "--store", store, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def of_sqlite(scene: Scene, folder: Path) -> tuple[Callable[[], None], Callable[[], None]]:
    """Backing up a store in a file, losing it and restoring it."""
    backup, store = folder / "backup", Path(scene.store)

    def back_up() -> None:
        done = serve(scene.store, "--backup", str(backup))
        assert done.returncode == 0, done.stderr
        assert [path.stat().st_mode & 0o077 for path in (backup, *backup.iterdir())] == [0] * (
            1 + len(list(backup.iterdir()))
        )

    def restore() -> None:
        for path in store.parent.glob("store.sqlite*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in backup.iterdir():
            shutil.copy(path, store.parent)

    return back_up, restore


def of_postgresql(
    scene: Scene, folder: Path, server: PostgresqlServer
) -> tuple[Callable[[], None], Callable[[], None]]:
    """The same by ``pg_dump`` and ``pg_restore``."""
    name, dump = scene.store.split("@/")[1].split("?")[0], folder / "store.dump"
    where = ("--host", str(server.folder), "--username", "mapveil")

    def run(program: str, *arguments: str) -> None:
        subprocess.run([server.binaries / program, *where, *arguments], check=True, capture_output=True)

    def restore() -> None:
        run("dropdb", "--force", name)
        run("createdb", "--owner=mapveil", name)
        run("pg_restore", "--exit-on-error", "--dbname", name, str(dump))

    return lambda: run("pg_dump", "--format=custom", "--file", str(dump), name), restore


def restored(scene: Scene, service: Service, restore: Callable[[], None], choice: str) -> Callable[[], None]:
    def act() -> None:
        service.kill()
        restore()
        refused = serve(scene.store, "--port", "0")
        assert refused.returncode == 2, "a restored store serves without a word"
        assert "restored from a backup" in refused.stderr
        accepted = serve(scene.store, "--restored", choice)
        assert accepted.returncode == 0, accepted.stderr
        assert "knows nothing after 20" in accepted.stderr
        service.start()

    return act


class Quiet(Moments):
    """Moments while which nobody else is answered, so that little is lost whatever the machine's pace."""

    def __init__(self, doing: dict[int, Callable[[], None]]) -> None:
        super().__init__(doing)
        self._lock: asyncio.Lock | None = None

    async def carry(self, request: Request, send: Send) -> bytes | None:
        self._lock = self._lock or asyncio.Lock()
        async with self._lock:
            return await super().carry(request, send)


def played(
    kind: str, spec: dict[str, object], at: tuple[int, int], request: pytest.FixtureRequest, folder: Path
) -> Outcome:
    """A collection of 16 devices whose store is backed up at a request, and lost and restored at a later one."""
    if kind == "sqlite":
        scene = request.getfixturevalue("scene")
        back_up, restore = of_sqlite(scene, folder)
    else:
        scene = request.getfixturevalue("postgresql_scene")
        back_up, restore = of_postgresql(scene, folder, request.getfixturevalue("postgresql"))
    service = scene.service()
    collection = scene.open(service, **spec)
    lose, fleets = restored(scene, service, restore, "continue"), []

    def lost() -> None:  # what is answered since the backup is in none; devices of the app start again
        fleets[0].kill()
        lose()

    moments = Quiet({at[0]: back_up, at[1]: lost})
    with Wire([service.port], moments.carry) as wire:
        fleets.append(scene.fleet(wire.url, collection, range(16)))
        fleets[0].wait()
        assert moments.done
        scene.fleet(wire.url, collection, range(16)).wait()
    until(lambda: scene.progress(service, collection)["state"] in ("done", "aborted"), "it has ended")
    return outcome_of(scene, service, collection)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_backup_in_the_middle_of_a_round_ends_with_the_same_total(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Devices answer what was lost once more, with the same bytes; who has gone on to the next phase is missing."""
    found = played(kind, {**ADAPTIVE, "phase_seconds": 300, "join_seconds": 900}, (90, 91), request, tmp_path)
    assert (found.state, found.spent) == ("done", 4000), found
    assert min(found.included) >= 12


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_backup_in_the_middle_of_reports_ends_with_all_of_them(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """A device that starts again sends the same bytes again: no report is lost, or counted or charged twice."""
    found = played(kind, LOCAL, (10, 11), request, tmp_path)
    assert (found.state, found.included) == ("done", (16,))


def test_collections_of_a_restored_store_can_be_aborted(scene: Scene, tmp_path: Path) -> None:
    back_up, restore = of_sqlite(scene, tmp_path)
    service = scene.service()
    collection = scene.open(service, **ADAPTIVE)
    back_up()
    restored(scene, service, restore, "abort")()
    record = scene.ask(service, f"/collections/{collection}")
    assert (record["state"], "restored from a backup" in record["reason"]) == ("aborted", True)
