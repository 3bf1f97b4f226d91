"""Two services and their devices."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mapveil.collector.operators.task_records import find_task
from mapveil.collector.refusals import NotFound
from mapveil.collector.rounds import collection
from mapveil_client.two_operators import field_arithmetic, turbo_shake

from .pair import Pair


@pytest.fixture(autouse=True)
def plain_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (field_arithmetic, turbo_shake):
        monkeypatch.setattr(module, "COMPILE_AFTER_S", math.inf)


@pytest.fixture
def pair_of(tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Pair]]:
    made: list[Pair] = []
    forget = collection.forget_sums

    def keep_and_forget(connection: Any, identifier: str) -> None:
        with contextlib.suppress(NotFound):  # a collection of another trust
            task = find_task(connection, identifier)
            made[-1].kept[task.operator] = task
        forget(connection, identifier)

    monkeypatch.setattr(collection, "forget_sums", keep_and_forget)

    def make(**options: Any) -> Pair:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(Pair(folder, clock, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def store_urls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[str]]:
    """Empty stores of the leader and of the helper, of either kind."""
    if request.param == "sqlite":
        yield [f"sqlite:///{tmp_path / name}" for name in ("leader.sqlite", "helper.sqlite")]
        return
    server = request.getfixturevalue("postgresql")
    urls = [server.new_database() for _ in range(2)]
    yield urls
    for url in urls:
        server.drop_database(url)
