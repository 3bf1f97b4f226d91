"""Requests sent as fast as they are answered, to the collector or to an endpoint that keeps nothing."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.record import Context, in_process

CONNECTIONS: Final = 64


def send(
    context: Context, address: str, requests: list[bytes], connections: int = CONNECTIONS
) -> dict[str, Any]:
    """Send them over so many connections; see `collector_sender.py` for what is measured."""
    written = context.folder / "requests"
    written.write_bytes(b"".join(len(each).to_bytes(4, "big") + each for each in requests))
    return in_process(sys.executable, "collector_sender.py", address, written, connections)


@contextlib.contextmanager
def _bare_endpoint() -> Iterator[str]:
    script = Path(__file__).with_name("collector_bare.py")
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as process:
        if process.stdout is None:
            raise AssertionError("a pipe was asked for")
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def bare(context: Context, requests: list[bytes], connections: int = CONNECTIONS) -> dict[str, Any]:
    """The same requests, or such bodies, to the endpoint that keeps nothing."""
    whole = [
        each
        if each.startswith(b"PUT")
        else b"PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(each), each)
        for each in requests
    ]
    with _bare_endpoint() as address:
        return send(context, address, whole, connections)
