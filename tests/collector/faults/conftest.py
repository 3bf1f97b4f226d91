"""The process that services and fleets come from, and scenes on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ..conftest import PostgresqlServer
from .scene import Mother, Scene


@pytest.fixture(scope="session")
def mother() -> Iterator[Mother]:
    made = Mother()
    yield made
    made.close()


# The store is asked for first, so that it is taken away last.
@pytest.fixture
def postgresql_scene(postgresql: PostgresqlServer, scene_on: Callable[[str], Scene]) -> Scene:
    """A scene on PostgreSQL."""
    # No other test is given its database: a worker that outlives its service would close that test's phases.
    return scene_on(postgresql.new_database())


@pytest.fixture
def scene_on(mother: Mother, tmp_path: Path) -> Iterator[Callable[[str], Scene]]:
    """A scene on a store of the test's own."""
    made: list[Scene] = []

    def scene(store: str) -> Scene:
        made.append(Scene(mother, store, tmp_path))
        return made[-1]

    yield scene
    for each in made:
        each.close()


@pytest.fixture
def scene(scene_on: Callable[[str], Scene], tmp_path: Path) -> Scene:
    """A scene on SQLite."""
    return scene_on(str(tmp_path / "store.sqlite"))
