"""Run the tests of clusters against a Spark Connect server of the JVM: ``python -m tests.engines.jvm_spark PYTHON``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.jvm_spark import spark_server

_TESTS = [
    str(Path(__file__).with_name(f"test_spark_{name}.py"))
    for name in ("changes", "connect", "files", "refusals", "server")
]


def main(python: str) -> int:
    with spark_server(python, "local[2]") as url:
        tests = [sys.executable, "-m", "pytest", "-q", "-n", "0", *_TESTS]
        return subprocess.run(tests, env=os.environ | {"MAPVEIL_SPARK": url}).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
