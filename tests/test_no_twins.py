"""A module's name stands for one thing: modules of one name are a command and its function, or two halves."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path, PurePosixPath

SRC = Path(__file__).resolve().parents[1] / "src"

COMMANDS = "mapveil/cli"  # a command's file and the function that it calls
HALVES = {
    "mapveil/local/randomizers",
    "mapveil_client/local",
}  # of one randomizer: the server's and the client's


def meanings(files: list[PurePosixPath]) -> dict[str, set[str]]:
    """The rooms of each module's name, without the halves of one thing."""
    rooms: dict[str, set[str]] = defaultdict(set)
    for file in files:
        rooms[file.stem].add(str(file.parent))
    for found in rooms.values():
        found.discard(COMMANDS)
        if found >= HALVES:
            found -= set(sorted(HALVES)[1:])
    return rooms


def test_no_two_modules_of_one_name_differ_in_meaning() -> None:
    files = [PurePosixPath(path.relative_to(SRC).as_posix()) for path in SRC.rglob("*.py")]
    twins = {name: rooms for name, rooms in meanings(files).items() if len(rooms) > 1 and name != "__init__"}
    assert not twins


def test_a_twin_is_found() -> None:
    files = [
        "mapveil/cli/plan.py",
        "mapveil/geo/plan.py",
        "mapveil/maps/plan.py",
        "mapveil/local/randomizers/hr.py",
    ]
    rooms = meanings([PurePosixPath(file) for file in [*files, "mapveil_client/local/hr.py"]])
    assert {name for name, found in rooms.items() if len(found) > 1} == {"plan"}
