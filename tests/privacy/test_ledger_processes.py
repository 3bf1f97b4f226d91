"""The ledger under several processes at once, and under processes that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from mapveil.privacy.ledger import Ledger
from mapveil_client.errors import BudgetExceeded


def at_once(number, program, path):
    """Run a program so often at one moment: each says that it is ready, and all are told to go. Their answers."""
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(number)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    return [worker.communicate(timeout=600)[0] for worker in workers]


def test_processes_that_spend_at_once_never_exceed_the_budget(tmp_path):
    path = tmp_path / "ledger.sqlite"
    program = """
        import sys
        from mapveil_client.errors import BudgetExceeded
        from mapveil.privacy.ledger import Ledger
        print("ready", flush=True)
        sys.stdin.readline()
        ledger = Ledger(sys.argv[1])  # all of them create it at once
        ledger.recognise(None, dataset="checkins")
        granted = 0
        try:
            while True:
                ledger.spend("checkins", "0.1", method="laplace")
                granted += 1
        except BudgetExceeded:
            print(granted)
    """
    granted = [int(said) for said in at_once(6, program, path)]
    assert sum(granted) == 30
    assert Ledger(path).account("checkins").spent == 3


@pytest.mark.skipif(os.name != "posix", reason="kill -9 is POSIX")
def test_killed_between_spending_and_writing_it_stays_spent(tmp_path):
    path = tmp_path / "ledger.sqlite"
    program = """
        import sys
        from mapveil.privacy.ledger import Ledger
        ledger = Ledger(sys.argv[1])
        ledger.recognise(None, dataset="checkins")
        print(ledger.spend("checkins", 2, method="laplace"), flush=True)
        sys.stdin.read()  # until it is killed
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        spend = process.stdout.readline().strip()
        os.kill(process.pid, signal.SIGKILL)
    ledger = Ledger(path)
    (entry,) = ledger.entries()
    assert (entry.id, entry.status) == (spend, "spent")
    with pytest.raises(BudgetExceeded):
        ledger.spend("checkins", 2, method="laplace")


@pytest.mark.skipif(os.name != "posix", reason="kill -9 is POSIX")
def test_killed_at_any_moment_the_ledger_stays_whole(tmp_path):
    path = tmp_path / "ledger.sqlite"
    program = """
        import sys
        from mapveil.privacy.ledger import Ledger
        ledger = Ledger(sys.argv[1])
        ledger.recognise(None, dataset="checkins")
        ledger.set_budget("checkins", 10**6)
        print("ready", flush=True)
        while True:
            ledger.spend("checkins", 1, method="laplace")
            print("spent", flush=True)
    """
    told = 0
    for pause in (1, 7, 16):
        with subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program), str(path)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            for _ in range(pause):
                process.stdout.readline()
            os.kill(process.pid, signal.SIGKILL)
            told += pause - 1 + process.stdout.read().count("spent")
    # Whoever was told "spent" is in the ledger; the last of each run may be there untold.
    assert told <= Ledger(path).account("checkins").spent <= told + 3
    assert Ledger(path).spend("checkins", 1, method="laplace")


def test_processes_that_open_one_population_at_once_open_one_account(tmp_path):
    program = """
        import sys
        import mapveil as mv
        from mapveil.privacy.ledger import Ledger
        city = mv.synthetic.city(users=200, seed=1)
        ledger = Ledger(sys.argv[1])
        print("ready", flush=True)
        sys.stdin.readline()
        print(ledger.recognise(city))
    """
    path = tmp_path / "ledger.sqlite"
    ids = set(at_once(3, program, path))
    assert len(ids) == 1
    assert len(Ledger(path).accounts()) == 1
