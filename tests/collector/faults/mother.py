"""The process that services and fleets are forked from: Python starts once, and each of them can be killed alone.

Reads a JSON object a line, ``{"run": "serve" or "fleet", "log": path, "given": {...}}``, and answers with the process
id. What it started ends with it.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import sys
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

_DEATH = 1  # of prctl: the signal that the end of the parent sends


def serve(given: dict[str, Any]) -> None:
    """Do what the command ``mapveil serve`` does, by a wall clock that is ahead by what a file says."""
    from mapveil.cli import main
    from mapveil.collector.clock import SystemClock

    if given["skew"] is not None:
        skew = Path(given["skew"])
        SystemClock.now = lambda _: datetime.now(UTC) + timedelta(seconds=float(skew.read_text()))
    sys.argv = ["mapveil", "serve", *given["arguments"]]
    main()


def fleet(given: dict[str, Any]) -> None:
    """Answer one collection with devices that allow a large epsilon, so that hardly any noise is in the sums."""
    from mapveil.collector.fleet.fleet import Fleet
    from mapveil.collector.fleet.lapses import Lapses
    from mapveil.secure_sum.enrolment_authority import EnrolmentAuthority
    from mapveil_client.device_account import Budget
    from mapveil_client.device_locations import Whereabouts
    from mapveil_client.policy import DevicePolicy
    from mapveil_client.secure_sum.certificate import Authority, Certificate
    from mapveil_client.secure_sum.keys import Identity

    class Everlasting(EnrolmentAuthority):
        """An authority apart, that gives a device the same certificate again when its fleet is started again."""

        def certify(self, key: bytes, now: float, **_: Any) -> Certificate:
            plain = ("tests", key, int.from_bytes(key[:7], "big"), 0, 1 << 40)
            return Certificate(*plain, self._key.sign(Certificate(*plain).statement))

    policy = DevicePolicy(
        budget=Budget(Fraction(10**6)),
        most_per_collection=Fraction(10**6),
        least_shard=3,
        least_corrupt=Fraction(0),
        most_dropout=Fraction(1, 2),
        authority=Authority.parse(given["authority"]),
        helper=given["helper"],
    )
    devices = Fleet(
        given["server"],
        [Whereabouts(np.array([lon]), np.array([lat])) for lon, lat in given["places"]],
        policy,
        lapses=Lapses(slow=0.999999 if given["slow_s"] else 0.0, slow_s=given["slow_s"], seed=1),
        folder=given["folder"],
        key=bytes.fromhex(given["key"]),
        authority_apart=None if given["hosted"] else Everlasting("tests", Identity(bytes(range(32)))),
        connections=8,
        look_s=0.05,
        patience_s=90,
    )
    made = asyncio.run(devices.run(given["token"], [given["collection"]]))
    Path(given["summary"]).write_text(json.dumps(made.to_record()))


def _preload() -> None:
    import importlib

    for name in (
        *(
            "mapveil.cli",
            "mapveil.collector.http.asgi",
            "mapveil.collector.rounds.engine",
            "mapveil.collector.rounds.results",
        ),
        *(
            "mapveil.collector.http.serving",
            "mapveil.cli.serve",
            "mapveil.collector.fleet.fleet",
            "mapveil.mechanisms.methods",
        ),
        *(
            "uvicorn.protocols.http.httptools_impl",
            "uvicorn.lifespan.on",
            "pyarrow.parquet",
        ),
        *("mapveil.mechanisms.adaptive_grid", "mapveil.secure_sum.server", "httpx", "psycopg", "uvloop"),
        *("sqlalchemy.dialects.sqlite", "sqlalchemy.dialects.postgresql.psycopg"),
    ):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:  # then it is loaded where it is used, if at all
            continue


def _become(order: dict[str, Any]) -> NoReturn:
    status = 1
    try:
        ctypes.CDLL(None).prctl(_DEATH, signal.SIGKILL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for number, target in ((0, nothing), (1, log), (2, log)):
            os.dup2(target, number)
        {"serve": serve, "fleet": fleet}[order["run"]](order["given"])
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def main() -> None:
    """Fork what is asked for until nobody asks any more."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # whatever ended is gone at once
    _preload()
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if not child:
            _become(order)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
