"""A collector in a process of its own, as `mapveil serve` runs it, and a PostgreSQL that makes every commit last."""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import httpx

from benchmarks.record import peak_mb
from mapveil.collector.clock import SystemClock
from mapveil.collector.store.database import Store
from mapveil.collector.store.principals import Accounts

REGION = [-74.03, 40.69, -73.90, 40.83]
_TICKS = os.sysconf("SC_CLK_TCK")


class Service:
    """`mapveil serve` on a free port, without limits of rate: thousands of devices come from one address here.

    Parameters
    ----------
    store : str
        An empty one.
    folder : Path
        For the log.
    uses : int
        Devices that may enrol.
    options : str
        More of the command line.
    """

    def __init__(self, store: str, folder: Path, uses: int, *options: str) -> None:
        self.store = store
        opened = Store(store, clock=SystemClock())
        opened.create_tables()
        accounts = Accounts(opened)
        operator = accounts.create_operator("bench", "admin", timedelta(days=1), "command line").token
        self.enrolment = accounts.create_enrolment(
            "bench", uses, timedelta(days=1), None, "command line"
        ).token
        opened.close()
        self._log = folder / f"serve-{time.monotonic_ns()}.log"
        with self._log.open("wb") as log:
            command = [
                sys.executable,
                "-m",
                "mapveil",
                "serve",
                "--store",
                store,
                "--port",
                "0",
                "--enrol-minute",
                "0",
                "--enrol-day",
                "0",
            ]
            self.process = subprocess.Popen(
                [*command, "--address-rate", "0", "--device-rate", "0", *options], stderr=log, stdout=log
            )
        self.address = self._address()
        self._client = httpx.Client(
            base_url=self.address, headers={"Authorization": f"Bearer {operator}"}, timeout=60
        )
        self.idle_mb = self.peak_mb

    def _address(self) -> str:
        until = time.monotonic() + 60
        while time.monotonic() < until and self.process.poll() is None:
            told = re.search(r"http://[\d.]+:\d+", self._log.read_text(encoding="utf-8"))
            if told is not None:
                with contextlib.suppress(httpx.TransportError):
                    if httpx.get(f"{told[0]}/healthz", timeout=10).is_success:
                        return told[0]
            time.sleep(0.1)
        raise RuntimeError(f"the server did not start: {self._log.read_text(encoding='utf-8')[-500:]}")

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """One request of an operator."""
        answer = self._client.request(method, path, json=body)
        if answer.is_error:
            raise RuntimeError(f"{method} {path}: {answer.status_code} {answer.text}")
        return answer.json() if answer.content else None

    def open(self, **spec: Any) -> str:
        """Draft and open a collection; its identifier."""
        draft: dict[str, Any] = {
            "title": "benchmark",
            "epsilon": "1",
            "region": REGION,
            "tiling": "quadtree:8",
        }
        draft |= {"accept_custom_policy": True, **spec}
        identifier = str(self.ask("POST", "/v1/collections", draft)["id"])
        self.ask("POST", f"/v1/collections/{identifier}/open")
        return identifier

    @property
    def helper_key(self) -> str:
        """The key of a helper, as it says when it starts."""
        found = re.search(r"of two operators; its key: ([0-9a-f]{64})", self._log.read_text(encoding="utf-8"))
        if found is None:
            raise RuntimeError("the service is no helper")
        return found[1]

    def text(self, path: str) -> str:
        """A document, as it is."""
        return self._client.get(path).text

    def size(self, path: str) -> int:
        """Bytes of a document, which may take long to make."""
        return len(self._client.get(path, timeout=3600).raise_for_status().content)

    def metric(self, name: str) -> float:
        """One of the server's own numbers."""
        found = re.search(rf"^{name} (\S+)$", self.text("/metrics"), re.MULTILINE)
        return 0.0 if found is None else float(found[1])

    @property
    def cpu(self) -> float:
        """Processor seconds so far of the server and of the processes that it has."""
        return cpu_of(self.process.pid)

    @property
    def peak_mb(self) -> float:
        """The most memory that the server had at any time, MB."""
        return peak_mb(self.process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()


def cpu_of(process: int) -> float:
    """Processor seconds so far of a process and of its children, also of those that it has waited for."""
    used = 0
    for found in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            fields = found.read_text().rpartition(")")[2].split()
            if int(found.parent.name) == process:
                used += sum(map(int, fields[11:15]))
            elif int(fields[1]) == process:
                used += int(fields[11]) + int(fields[12])
    return used / _TICKS


def postgresql_cpu(url: str) -> float:
    """Processor seconds so far of a server of :func:`postgresql`."""
    told = Path(url.rpartition("=")[2], "data", "postmaster.pid").read_text(encoding="ascii")
    return cpu_of(int(told.split()[0]))


@contextlib.contextmanager
def postgresql() -> Iterator[str | None]:
    """The URL of an empty database of a server as it comes, fsync and all; None where none is installed."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: float(Path(path).parent.name))
    installed = shutil.which("initdb")
    if not found and installed is None:
        yield None
        return
    binaries = Path(found[-1]) if found else Path(str(installed)).resolve().parent
    with tempfile.TemporaryDirectory(prefix="mapveil-pg-", ignore_cleanup_errors=True) as folder:
        before: list[str] = []
        if os.geteuid() == 0:  # the server refuses to run as root
            who = pwd.getpwnam("postgres")
            os.chown(folder, who.pw_uid, who.pw_gid)
            before = ["setpriv", f"--reuid={who.pw_uid}", f"--regid={who.pw_gid}", "--clear-groups", "--"]

        def run(name: str, *options: str) -> None:
            command = [*before, str(binaries / name), "-D", f"{folder}/data", *options]
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)

        run("initdb", "--username=mapveil", "--auth=trust", "--encoding=UTF8", "--locale=C")
        settings = f"-c listen_addresses='' -c unix_socket_directories={folder}"
        run("pg_ctl", "-w", "-s", "-l", f"{folder}/log", "-o", settings, "start")
        try:
            yield f"postgresql://mapveil@/postgres?host={folder}"
        finally:
            run("pg_ctl", "-w", "-s", "-m", "fast", "stop")
