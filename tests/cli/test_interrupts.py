"""Ctrl-C and SIGTERM, in process: one line, the charge, no partial file."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from mapveil.cli.interrupts import interruptible
from mapveil.formats.atomic import atomic_path
from mapveil.maps.density_map import DensityMap

RELEASE = ("--region", "-74.03,40.69,-73.90,40.83", "--tiling", "quadtree:3", "--epsilon", "1")


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that a signal reaches, and that is slow to believe it: it raises an exception of its own."""

    def save(_: DensityMap, path: Path) -> None:
        with atomic_path(path):
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            except KeyboardInterrupt:
                raise RuntimeError("query interrupted") from None

    monkeypatch.setattr(DensityMap, "save", save)


@pytest.mark.usefixtures("stopping")
def test_a_signal_ends_in_one_line_whatever_a_library_makes_of_it(
    mapveil: Callable, table: Path, tmp_path: Path
) -> None:
    done = mapveil("release", table, *RELEASE, "-o", tmp_path / "map.tif")
    assert done.code == 128 + signal.SIGTERM
    (line,) = done.errors
    assert line.startswith("mapveil: interrupted; nothing more was written; epsilon 1 is charged (spend ")
    assert line.endswith("and is not charged again")
    assert sorted(each.suffix for each in tmp_path.iterdir()) == [".answers", ".sqlite"]


@pytest.mark.usefixtures("stopping")
def test_what_costs_nothing_says_so(mapveil: Callable, table: Path, tmp_path: Path) -> None:
    mapveil("release", table, *RELEASE, "-o", tmp_path / "map.tif")
    free = mapveil("release", table, *RELEASE, "-o", tmp_path / "map.tif", "--no-ledger")
    assert free.errors == ["mapveil: interrupted; nothing more was written; nothing was charged"]


def test_a_key_that_is_pressed_twice_does_not_end_the_cleanup() -> None:
    # A job in the background ignores SIGINT from its start.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with interruptible() as came:
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
        assert came == [signal.SIGINT, signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_signal_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interruptible() as came:
            os.kill(os.getpid(), signal.SIGINT)
        assert not came
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_fleet_says_that_its_devices_keep_what_they_charged(
    mapveil: Callable, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("mapveil.collector.fleet.fleet.Fleet.run", run)
    fleet = ("device", "--fleet", table, "--server", "http://127.0.0.1:1")
    done = mapveil(*fleet)
    assert done.errors == [
        "mapveil: interrupted; nothing more was written; what devices have sent cannot be taken back, and without "
        "--state they forget what they charged"
    ]
    key = tmp_path / "fleet.key"
    key.touch(mode=0o600)
    key.write_text("00" * 32)
    done = mapveil(*fleet, "--state", tmp_path / "fleet", "--key-file", key)
    assert done.errors[-1].endswith("stays charged; run again with the same --state")
