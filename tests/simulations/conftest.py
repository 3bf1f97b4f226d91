"""The commands of the simulations in process: exit code, stdout and stderr."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from mapveil.cli.app import run
from simulations.traffic.command import command


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def traffic(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run ``python -m simulations.traffic ARGUMENTS``."""

    def call(*arguments: object) -> Outcome:
        with pytest.raises(SystemExit) as stopped:
            run([str(argument) for argument in arguments], command, "traffic")
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Outcome(int(stopped.value.code or 0), captured.out, captured.err)

    return call
