"""A Spark Connect server of the JVM, from an environment that has pyspark with its jars, and mapveil for executors."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path

from benchmarks.record import pin

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_START = 300  # seconds; it takes 20 on an idle core
_STOP = 60  # seconds between SIGTERM and SIGKILL; it takes 2


@contextmanager
def spark_server(python: str, master: str, partitions: int = 2) -> Iterator[str]:
    """Run a server until the block ends; yields its URL.

    ``master`` is what Spark calls so: ``local[2]``, or ``local-cluster[executors,cores,megabytes]``, whose executors
    are processes. ``make faults`` and ``make bench`` make the environment of ``python`` from requirements/spark.txt.
    """
    where = "import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent)"
    home = subprocess.run([python, "-c", where], capture_output=True, text=True, check=True).stdout.strip()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    confs = {
        "spark.connect.grpc.binding.port": port,
        "spark.sql.shuffle.partitions": partitions,
        "spark.ui.enabled": "false",
        "spark.connect.progress.reportInterval": "100ms",  # a short query would end untold
    }
    options = [part for name, value in confs.items() for part in ("--conf", f"{name}={value}")]
    # Executors start it from folders of their own; links are kept, since an environment's Python is one.
    environment = os.environ | {"SPARK_HOME": home, "PYSPARK_PYTHON": os.path.abspath(python)}
    with tempfile.TemporaryDirectory(prefix="mapveil-spark-") as folder:
        log = Path(folder, "log")
        with log.open("w") as written:
            command = [f"{home}/bin/spark-submit", "--master", master, "--class", _CLASS, *options]
            server = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=written, stderr=written, start_new_session=True
            )
        try:
            until = time.monotonic() + _START
            while "Spark Connect server started" not in log.read_text():
                if time.monotonic() > until:
                    raise RuntimeError(f"Spark did not start in {_START} s: {log.read_text()[-2000:]}")
                if server.poll() is not None:
                    raise RuntimeError(f"Spark did not start: {log.read_text()[-2000:]}")
                time.sleep(0.5)
            _pin_executors(server.pid)
            yield f"sc://127.0.0.1:{port}"
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            try:
                server.wait(_STOP)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()


def _pin_executors(session: int) -> None:
    """Give each executor one core: it counts its tasks, while its threads and its Python would spread over all."""
    cores = cycle(sorted(os.sched_getaffinity(0)))
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended
            if (
                os.getsid(int(process.name)) != session
                or b"CoarseGrained" not in (process / "cmdline").read_bytes()
            ):
                continue
            pin(int(process.name), next(cores))
