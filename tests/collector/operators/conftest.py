"""Two services and their devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mapveil_client.two_operators import field_arithmetic, turbo_shake

from .pair import Pair


@pytest.fixture(autouse=True)
def plain_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (field_arithmetic, turbo_shake):
        monkeypatch.setattr(module, "LEAST_COMPILED", 1 << 60)


@pytest.fixture
def pair_of(tmp_path: Path, clock: Any) -> Iterator[Callable[..., Pair]]:
    made: list[Pair] = []

    def make(**options: Any) -> Pair:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(Pair(folder, clock, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()
