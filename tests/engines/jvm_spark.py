"""Run the tests of clusters against a Spark Connect server of the JVM: ``python -m tests.engines.jvm_spark PYTHON``.

PYTHON is an interpreter whose environment has pyspark with its jars, and mapveil, which the executors need; Java is on
the path. ``make faults`` makes that environment from requirements/spark.txt.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_TESTS = Path(__file__).with_name("test_spark_connect.py")


def main(python: str) -> int:
    where = "import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent)"
    home = subprocess.run([python, "-c", where], capture_output=True, text=True, check=True).stdout.strip()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    confs = {
        "spark.connect.grpc.binding.port": port,
        "spark.sql.shuffle.partitions": 2,
        "spark.ui.enabled": "false",
    }
    options = [part for name, value in confs.items() for part in ("--conf", f"{name}={value}")]
    environment = os.environ | {"SPARK_HOME": home, "PYSPARK_PYTHON": python}
    with tempfile.TemporaryDirectory(prefix="mapveil-spark-") as folder:
        log = Path(folder, "log")
        with log.open("w") as written:
            command = [f"{home}/bin/spark-submit", "--master", "local[2]", "--class", _CLASS, *options]
            server = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=written, stderr=written, start_new_session=True
            )
        try:
            while "Spark Connect server started" not in log.read_text():
                if server.poll() is not None:
                    sys.stderr.write(log.read_text()[-2000:])
                    return 1
                time.sleep(0.5)
            tests = [sys.executable, "-m", "pytest", "-q", "-n", "0", str(_TESTS)]
            found = os.environ | {"MAPVEIL_SPARK": f"sc://127.0.0.1:{port}"}
            return subprocess.run(tests, env=found).returncode
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
