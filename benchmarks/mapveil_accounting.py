"""The default release of a table, in a process of its own: seconds of it all, and those that the account adds.

Counted are the recognition of the people, every charge and read of the ledger, the kept replies and their deletion; not
counted is what a release without an account does too: the check of the rows, which shares a pass with the people, and
drawing the replies.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb  # noqa: F401  the libraries that a release loads when it needs them: imports are not timed
import pyarrow  # noqa: F401
import scipy.special  # noqa: F401

import mapveil as mv
from mapveil.privacy.charges import Charges
from mapveil.privacy.ledger_file import transaction

path, file, spends = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
region = mv.Region.from_bbox(*map(float, sys.argv[4:8]))
accounted = 0.0


def timed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose seconds count as the account's."""

    def call(*given: Any, **named: Any) -> Any:
        global accounted
        start = time.perf_counter()
        try:
            return function(*given, **named)
        finally:
            accounted += time.perf_counter() - start

    return call


def keep(charges: Charges, purpose: str, kind: type, draw: Callable[[], Any]) -> Any:
    """Keep a reply; the seconds of drawing it are not the account's."""

    def drawn() -> Any:
        global accounted
        start, charged = time.perf_counter(), accounted
        reply = draw()
        accounted -= time.perf_counter() - start - (accounted - charged)
        return reply

    return kept(charges, purpose, kind, drawn)


kept = timed(Charges.keep)
setattr(Charges, "keep", keep)  # noqa: B010  mypy knows that a class's methods stay as they are
for holder, names in ((mv.Account, ["charges"]), (Charges, ["check", "spend", "with_account", "__exit__"])):
    for name in names:
        setattr(holder, name, timed(getattr(holder, name)))

for old in file.parent.glob(f"{file.name}*"):
    old.unlink()
account = mv.Account.open("city", budget=1_000, ledger=file)
first = mv.Ledger(file).spend("city", "1/100000", method="emd", parameters={"epsilon": "1/100000"})
with transaction(file, write=True) as connection:
    connection.executemany(
        "INSERT INTO spends SELECT NULL, ?, time, dataset, epsilon, method, parameters, tiling, region,"
        " outputs, answers FROM spends WHERE spend = 1",
        [(f"{number:016x}",) for number in range(spends)],
    )
points = mv.read_points(path)
with points.held_once(check=False) as copy:
    start = time.perf_counter()
    copy.check()
    checked = time.perf_counter() - start
accounted = 0.0
start = time.perf_counter()
mv.release(mv.read_points(path), epsilon=1, region=region, account=account)
seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "accounted": accounted - checked}))
