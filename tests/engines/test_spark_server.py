"""Servers that cannot be used, or stop, hang or say nothing: each is told, and nothing is charged."""

from __future__ import annotations

import select
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pyarrow
import pytest

import mapveil as mv
from mapveil.engines import spark_connect, user_sums
from mapveil.engines.spark_connect import SparkEngine
from mapveil.engines.spark_executor import versions
from mapveil.privacy.population import see
from mapveil_client.errors import CuratorWarning, InputError

from .conftest import SERVER
from .test_spark_connect import QUADTREE, both, pytestmark, random_frame, run

__all__ = ["pytestmark"]  # of this module too
_STOPPED = (
    r"stopped answering during the query; see the cluster's log, then run this again; nothing was charged"
)


@pytest.mark.parametrize("parameters", ["secret", "use_ssl=true;secret", "session_id=secret"])
def test_parameters_of_a_url_that_are_none(engine: SparkEngine, parameters: str) -> None:
    """It was an internal error, which quoted them."""
    url = f"{engine.url}/;{parameters}"
    with pytest.raises(InputError, match=r"no parameter; expected .*nothing was charged") as raised:
        SparkEngine(url)
    assert "secret" not in str(raised.value)


def test_a_server_that_does_not_answer() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(InputError, match=f"127.0.0.1:{port}: no server answers.*nothing was charged"):
        SparkEngine(f"sc://127.0.0.1:{port}/;token=secret")


def test_a_port_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the time for an answer, from the first call on: pyspark alone takes ten minutes."""
    starts: list[float] = []
    within = spark_connect._within
    assert spark_connect._ANSWER == 30, "the how-to says 30 seconds"
    monkeypatch.setattr(spark_connect, "_ANSWER", 2.0)
    monkeypatch.setattr(
        spark_connect, "_within", lambda *asked: starts.append(time.monotonic()) or within(*asked)
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"sc://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(InputError, match=r"no Spark Connect server answers.*nothing was charged"):
            SparkEngine(url)
    assert time.monotonic() - starts[0] < 32


def test_a_later_call_is_retried_for_half_a_minute(engine: SparkEngine) -> None:
    (policy,) = engine.session.client._retry_policies
    pauses = [
        policy.initial_backoff * policy.backoff_multiplier**retry for retry in range(policy.max_retries)
    ]
    assert 25_000 < sum(min(policy.max_backoff, each) for each in pauses) < 35_000, (
        "the how-to says 30 seconds"
    )


def test_tls_to_a_server_without(engine: SparkEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_connect, "_RETRIES", 1)
    with pytest.raises(InputError, match=r"or TLS is not spoken.*nothing was charged"):
        SparkEngine(f"{engine.url}/;use_ssl=true")


@pytest.mark.skipif(SERVER is not None, reason="stops a server of its own, which is Sail's")
def test_a_server_that_stops_between_two_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    from pysail.spark import SparkConnectServer

    monkeypatch.setattr(spark_connect, "_RETRIES", 2)
    server = SparkConnectServer(ip="127.0.0.1", port=0)
    server.start(background=True)
    engine = SparkEngine("sc://{}:{}".format(*server.listening_address))
    points = both(engine, random_frame(20))[1]
    server.stop()
    with pytest.raises(InputError, match=_STOPPED):
        user_sums(points, QUADTREE)


_SERVER = """
from pysail.spark import SparkConnectServer
server = SparkConnectServer(ip="127.0.0.1", port=0)
server.start(background=True)
print(server.listening_address[1], flush=True)
input()
"""


def slowly(begun: str, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    import time
    from pathlib import Path

    for batch in batches:
        Path(begun).touch()
        time.sleep(600)
        yield batch


@pytest.mark.skipif(SERVER is not None, reason="freezes a server of its own, which is Sail's")
def test_a_server_that_hangs_in_a_query(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As a machine that is gone: its connection stands, and nothing comes."""
    begun, ended = tmp_path / "begun", threading.Event()
    monkeypatch.setattr(spark_connect, "_RETRIES", 1)
    monkeypatch.setattr(spark_connect, "_PING", 2000)
    monkeypatch.setattr(
        spark_connect, "_PONG", 5000
    )  # on a busy machine an answer takes longer than a second
    command = [sys.executable, "-c", _SERVER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert select.select([server.stdout], [], [], 120)[0], "the server did not start"
            engine = SparkEngine(f"sc://127.0.0.1:{int(server.stdout.readline())}")
            query = engine.session.range(1).mapInArrow(partial(slowly, str(begun)), "id bigint")

            def freeze() -> None:
                while not begun.exists() and not ended.wait(0.05):
                    pass
                server.send_signal(signal.SIGSTOP)

            threading.Thread(target=freeze).start()
            with (
                pytest.raises(InputError, match=_STOPPED),
                engine._speaking(),
            ):
                spark_connect._within(240, query.toArrow)  # else a fault here would hang the suite
            assert begun.exists()
        finally:
            ended.set()
            server.kill()


def test_long_silence_is_told(engine: SparkEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_connect, "_QUIET", 0.2)
    # Recorded, not awaited by pytest: threads of pyspark may warn of servers of other tests meanwhile.
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with engine._telling():
            time.sleep(0.5)
        ours = [each for each in heard if each.category is CuratorWarning]
        assert "no progress told for 0 minutes, and the connection has not failed" in str(ours[0].message)
        time.sleep(0.5)
        assert [each for each in heard if each.category is CuratorWarning] == ours, "it warned after the end"


def test_silence_after_progress_is_told_in_time(engine: SparkEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress in the first second put the first warning off to twice the time."""
    heard: list[float] = []
    monkeypatch.setattr(spark_connect, "_QUIET", 2.0)
    monkeypatch.setattr(spark_connect, "_warn", lambda _: heard.append(time.monotonic()))
    with engine._telling():
        time.sleep(0.5)
        (told,) = engine.session.client._progress_handlers
        told([SimpleNamespace(num_completed_tasks=1, num_tasks=2)], 1, None, False)
        rose = time.monotonic()
        while len(heard) < 2 and time.monotonic() < rose + 60:
            time.sleep(0.05)
    assert heard[0] - rose == pytest.approx(2.0, abs=0.9)
    assert heard[1] - heard[0] == pytest.approx(2.0, abs=0.9)


def test_silence_is_told_where_warnings_are_errors(
    engine: SparkEngine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twice: the first warning does not end the watcher, nor the query."""
    monkeypatch.setattr(spark_connect, "_QUIET", 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with engine._telling():
            time.sleep(1)
    assert capsys.readouterr().err.count("warning: engine") >= 2


def test_the_pass_of_the_ledger_tells_of_silence_too(
    engine: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ids of all rows may take as long as the sums."""
    watched: list[SparkEngine] = []
    telling = SparkEngine._telling
    monkeypatch.setattr(
        SparkEngine, "_telling", lambda self, *told: watched.append(self) or telling(self, *told)
    )
    _, there = both(engine, random_frame(20))
    with see(there, b"k" * 32):
        assert watched == [engine]


def test_doctor_asks_the_executors(engine: SparkEngine) -> None:
    _, shown = run("doctor", "--engine", engine.url)
    assert f"mapveil {mv.__version__}" in shown
    kind = "Apache Spark 4." if SERVER else f"Sail {version('pysail')}, which answers as Spark 4."
    assert f"{engine.server}: {kind}" in shown


def test_executors_of_another_version_are_refused(engine: SparkEngine) -> None:
    asked = engine.session.range(1).mapInArrow(partial(versions, "9.9"), "found string")
    with pytest.raises(InputError, match=r"the driver 9.9; expected the same version"), engine._speaking():
        asked.toArrow()


def test_spark_below_4_is_refused(engine: SparkEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkEngine, "session", SimpleNamespace(version="3.5.1"))
    with pytest.raises(InputError, match=r"Spark 3\.5\.1; expected Spark 4 or later, or Sail; nothing"):
        SparkEngine(engine.url)
