"""``mapveil serve`` as a process: started, asked, told to stop."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from mapveil.collector.http.serving import authority_of, bind
from mapveil.collector.http.settings import Settings
from mapveil.collector.store.audit_log import record
from mapveil.collector.store.database import Store
from mapveil.collector.store.device_certificates import CERTIFY
from mapveil_client.errors import InputError

from ..conftest import PostgresqlServer
from ..faults.scene import until

MAPVEIL = Path(sys.executable).with_name("mapveil")
ADDRESS = re.compile(r"Serving on (https?://\S+) from")


class Served(NamedTuple):
    process: subprocess.Popen[bytes]
    url: str
    log: Path

    @property
    def place(self) -> tuple[str, int]:
        host, _, port = self.url.split("//")[1].partition(":")
        return host, int(port)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


@contextlib.contextmanager
def served(store: Path | str, folder: Path, *options: object) -> Iterator[Served]:
    """A background job of a shell, so that SIGINT is ignored at its start; killed at the end if it still runs."""
    log = folder / "log"
    command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", str(MAPVEIL)]
    command += ["serve", "--store", str(store), "--port", "0", *map(str, options)]
    with log.open("wb") as written, subprocess.Popen(command, stderr=written) as process:
        try:
            until(lambda: ADDRESS.search(log.read_text()) or process.poll() is not None, "the service starts")
            found = ADDRESS.search(log.read_text())
            assert found is not None, log.read_text()
            yield Served(process, found[1], log)
        finally:
            if process.poll() is None:
                process.kill()


def begin_body(connection: socket.socket, length: int) -> None:
    """Send the head of a request; returns once the service waits for its body."""
    head = (
        b"POST /v1/devices HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n"
    )
    connection.sendall(head + b"Content-Length: %d\r\n\r\n" % length)
    assert connection.recv(100).startswith(b"HTTP/1.1 100")


def refuses(place: tuple[str, int]) -> bool:
    try:
        socket.create_connection(place, timeout=5).close()
    except OSError:
        return True
    return False


def token(store: Path | str) -> str:
    command = [str(MAPVEIL), "serve", "--store", str(store), "--new-operator", "admin", "-q"]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()


def test_a_second_service_on_one_file_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    store = tmp_path / "store.sqlite"
    with served(store, tmp_path) as first:
        command = [str(MAPVEIL), "serve", "--store", str(store), "--port", "0"]
        second = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert second.returncode == 2
        assert "another 'mapveil serve' serves from this store" in second.stderr
        assert httpx.get(f"{first.url}/healthz").status_code == 200
        first.stop(signal.SIGKILL)
    with served(store, tmp_path) as again:
        assert again.stop() == 0


def test_a_request_on_its_way_is_answered_before_the_service_stops(tmp_path: Path) -> None:
    with served(tmp_path / "store.sqlite", tmp_path, "--log-format", "json") as one:
        assert httpx.get(f"{one.url}/healthz", timeout=300).json()["status"] == "ok"
        body = json.dumps({"token": "x"}).encode()
        with socket.create_connection(one.place, timeout=300) as connection:
            begin_body(connection, len(body))
            connection.sendall(body[:5])
            one.process.send_signal(signal.SIGTERM)
            until(lambda: refuses(one.place), "no connection is taken any more")
            connection.sendall(body[5:])
            assert connection.recv(10_000).startswith(b"HTTP/1.1 422")
        assert one.process.wait(60) == 0
        told = one.log.read_text()
    assert f"New store made at {tmp_path / 'store.sqlite'}\n" in told
    assert "There is no operator yet" in told
    assert "Traceback" not in told
    requests = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    assert {line["route"] for line in requests} == {"/healthz", "/v1/devices"}


def test_what_does_not_end_is_cut_off_in_time(tmp_path: Path) -> None:
    options = ("--shutdown-seconds", 1, "--body-seconds", 3600)
    with (
        served(tmp_path / "store.sqlite", tmp_path, *options) as one,
        socket.create_connection(one.place, timeout=300) as connection,
    ):
        begin_body(connection, 100)
        assert one.stop(signal.SIGINT) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_stop_is_obeyed_from_the_moment_the_address_is_announced(
    tmp_path: Path, number: signal.Signals
) -> None:
    with served(tmp_path / "store.sqlite", tmp_path) as one:
        assert one.stop(number) == 0
    assert "Traceback" not in one.log.read_text()


def test_what_was_done_is_there_after_a_restart(tmp_path: Path) -> None:
    store = tmp_path / "store.sqlite"
    headers = {"Authorization": f"Bearer {token(store)}"}
    draft = {
        "title": "kept",
        "trust": "local",
        "epsilon": "1",
        "region": [-74.03, 40.69, -73.90, 40.83],
        "tiling": "quadtree:3",
        "devices": 3,
        "accept_custom_policy": True,
    }
    with served(store, tmp_path) as one:
        made = httpx.post(f"{one.url}/v1/collections", json=draft, headers=headers, timeout=300)
        assert made.status_code == 201
        one.process.kill()
        one.process.wait()
    with served(store, tmp_path) as again:
        listed = httpx.get(f"{again.url}/v1/collections", headers=headers, timeout=300).json()
        assert listed == [made.json()]
        assert again.stop() == 0


def test_tls_is_served_and_insisted_on(tmp_path: Path, make_certificate: Any) -> None:
    chain, key = make_certificate(tmp_path)
    with served(tmp_path / "store.sqlite", tmp_path, "--tls-cert", chain, "--tls-key", key) as one:
        trusted = ssl.create_default_context(cafile=str(chain))
        answer = httpx.get(f"{one.url}/healthz", verify=trusted, timeout=300)
        assert one.url.startswith("https://")
        assert answer.status_code == 200
        assert answer.headers["strict-transport-security"].startswith("max-age=")
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{one.url}/healthz", timeout=300)
        assert one.stop() == 0


def test_several_workers_share_one_postgresql(postgresql: PostgresqlServer, tmp_path: Path) -> None:
    url = postgresql.new_database()  # no other test's: a worker may outlive its service
    headers = {"Authorization": f"Bearer {token(url)}"}
    with served(url, tmp_path, "--workers", 2) as one:
        assert httpx.get(f"{one.url}/healthz", timeout=300).status_code == 200
        processes = []

        def ask() -> int:
            """Ask on a connection of its own; how many workers have answered so far."""
            answer = httpx.get(f"{one.url}/v1/me", headers=headers, timeout=300)
            assert answer.status_code == 200
            processes.append(answer.headers["x-request-id"][:10])
            return len(set(processes))

        until(lambda: ask() == 2, "both workers answer")
        counted = httpx.get(f"{one.url}/metrics", timeout=300).text
        found = re.search(
            r'mapveil_requests_total\{method="GET",route="/v1/me",status="200"\} (\S+)', counted
        )
        assert found is not None
        assert float(found[1]) == len(processes)
        assert one.stop() == 0
    assert "Traceback" not in one.log.read_text()


def test_a_port_that_was_taken_lets_connections_wait_and_is_nobody_else_s() -> None:
    """Before anything answers: whoever reads the address in the log is not refused."""
    with bind(Settings(port=0)) as listener:
        place = listener.getsockname()
        with socket.create_connection(place, timeout=5):
            pass
        with pytest.raises(InputError, match="cannot be listened on"):
            bind(Settings(port=place[1]))


def test_whoever_answers_devices_has_the_key_that_certified_them(
    postgresql_store: Store, postgresql_url: str, tmp_path: Path
) -> None:
    """Else one intake of several refuses whom the others certified."""

    def settings(role: str) -> Settings:
        return Settings(store=postgresql_url, role=role, exports=str(tmp_path))

    assert authority_of(settings("intake"), postgresql_store) is None
    with postgresql_store.write() as connection:
        record(connection, "authority", CERTIFY, None, device=1)
    for role in ("all", "intake"):
        with pytest.raises(InputError, match=r"^the enrolment authority's key is not here"):
            authority_of(settings(role), postgresql_store)
    assert authority_of(settings("worker"), postgresql_store) is None


def test_a_service_seldom_walks_its_objects_for_circles(tmp_path: Path) -> None:
    """Not for what thousands of requests make, and never for its modules."""
    program = """
import gc, sys
from mapveil.collector.http.serving import application
from mapveil.collector.http.settings import Settings

made = application(Settings(store=sys.argv[1]))
walks = []
gc.callbacks.append(lambda phase, _: walks.append(phase))
kept = [[] for _ in range(10_000)]
print(len(walks), gc.get_freeze_count() > len(gc.get_objects()))
"""
    command = [sys.executable, "-c", program, str(tmp_path / "store.sqlite")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "True"]
