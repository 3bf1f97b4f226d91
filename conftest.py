"""Settings of the tests and of the examples in docstrings and documentation."""

import hashlib
import itertools
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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


@contextmanager
def _keyed(name: str) -> Iterator[None]:
    """Key what this process draws from the operating system by a name; `make nightly` and other processes draw anew."""
    numbers, process = itertools.count(), os.getpid()

    def urandom(size: int) -> bytes:
        if os.getpid() != process:  # two forked processes must not draw the same
            return os.urandom(size)
        return hashlib.shake_256(f"{name} {next(numbers)}".encode()).digest(size)

    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get("HYPOTHESIS_PROFILE") != "explore":
            known = SimpleNamespace(urandom=urandom, getpid=os.getpid)
            patch.setattr("mapveil_client.randomness.random.os", known)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Give each test randomness by its name: a red run can be repeated, and a green one was not luck."""
    with _keyed(item.nodeid.partition("@")[0]):  # xdist writes the group of a test behind an @
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Give a fixture that several tests share randomness by its own name, whichever of them comes first."""
    if fixturedef.scope == "function":
        return (yield)
    with _keyed(f"{fixturedef.baseid} {fixturedef.argname} {getattr(request, 'param', '')}"):
        return (yield)
