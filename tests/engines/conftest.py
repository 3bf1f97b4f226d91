"""The cluster of the tests: a Sail server in this process, or the server of ``MAPVEIL_SPARK``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException

from mapveil.engines.spark_connect import SparkEngine

SERVER = os.environ.get("MAPVEIL_SPARK")  # of the long suite: JVM Spark


@pytest.fixture(scope="session")
def engine() -> Iterator[SparkEngine]:
    if SERVER is not None:
        yield SparkEngine(SERVER)
        return
    from pysail.spark import SparkConnectServer

    server = SparkConnectServer(ip="127.0.0.1", port=0)
    server.start(background=True)
    host, port = server.listening_address
    found = SparkEngine(f"sc://{host}:{port}")
    yield found
    with contextlib.suppress(PySparkException):  # Sail has ended a session that nothing asked for long
        found.session.stop()
    server.stop()
