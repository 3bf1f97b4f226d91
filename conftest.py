"""Settings of the tests and of the examples in docstrings and documentation."""

import itertools
from pathlib import Path

import pytest

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def ledgers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of ledgers."""
    return tmp_path_factory.mktemp("ledgers")


@pytest.fixture(autouse=True)
def own_ledger(ledgers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a ledger of its own: none ever charges the user's."""
    monkeypatch.setenv("MAPVEIL_LEDGER", str(ledgers / f"{next(_NUMBERS)}.sqlite"))
