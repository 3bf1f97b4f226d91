"""The command line in process: exit code, stdout and stderr."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import mapveil as mv


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        """The lines on stderr but for the note on columns."""
        return [line for line in self.err.strip().splitlines() if not line.startswith("columns: ")]


@pytest.fixture
def mapveil(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Outcome]:
    """Run ``mapveil ARGUMENTS`` with a ledger of its own."""
    from mapveil.cli.app import run

    monkeypatch.setenv("MAPVEIL_LEDGER", str(tmp_path / "ledger.sqlite"))
    monkeypatch.delenv("MAPVEIL_REQUIRE", raising=False)  # of the tests: a service would warn of it
    # A service sends its log to stderr, which is this test's alone.
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", root.handlers[:])

    def call(*arguments: object) -> Outcome:
        with pytest.raises(SystemExit) as stopped:
            run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Outcome(int(stopped.value.code or 0), captured.out, captured.err)

    return call


@pytest.fixture
def headings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The heads of all figures that are written, in their order."""
    figures = pytest.importorskip("matplotlib.figure")
    found: list[str] = []
    save = figures.Figure.savefig

    def saved(figure: Any, *arguments: Any, **given: Any) -> None:
        found.append(figure.get_suptitle())
        save(figure, *arguments, **given)

    monkeypatch.setattr(figures.Figure, "savefig", saved)
    return found


NOT_PRIVATE = "NOT PRIVATE: made from the true data. Do not publish."


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small table of check-ins in the box of :data:`BOX`."""
    import pandas as pd

    region = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
    city = mv.synthetic.city(users=300, seed=1, region=region).arrays()
    path = tmp_path_factory.mktemp("table") / "checkins.csv"
    pd.DataFrame({"user_id": city.users, "lon": city.lon, "lat": city.lat}).to_csv(path, index=False)
    return path
