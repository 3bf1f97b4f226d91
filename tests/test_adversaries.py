"""The page "What each adversary can learn": every cell names a test, and pytest finds every named test."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from mapveil.mechanisms.methods import DEFAULT_METHODS

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "explanation" / "adversaries.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.read_text("utf-8").splitlines()
    if line.startswith("| ")
]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
NOT_APPLICABLE = "(no test: not applicable)"


@cache
def collected(path: str) -> frozenset[str]:
    """The tests that pytest collects from a file, by name: none in another function, and none of another file."""
    if not Path(path).name.startswith("test_"):
        return frozenset()
    body = ast.parse((ROOT / path).read_text("utf-8")).body
    return frozenset(node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_trust_model_and_every_cell_has_its_test() -> None:
    head, *body = ROWS
    assert [re.findall(r"`(.+?)`", title)[0] for title in head[1:]] == list(DEFAULT_METHODS)
    assert len(body) >= 14
    titles = " ".join(row[0] for row in body)
    for adversary in (
        "Lying device",
        "authority that cheats**, alone",
        "cheats, with the server",
        "drains budgets",
    ):
        assert adversary in titles
    for adversary, *cells in body:
        assert len(cells) == len(DEFAULT_METHODS), adversary
        for cell in cells:
            assert NAMED.search(cell) or NOT_APPLICABLE in cell, f"{adversary}: {cell}"


def test_pytest_finds_every_named_test() -> None:
    named = NAMED.findall(PAGE.read_text("utf-8"))
    assert len(named) == PAGE.read_text("utf-8").count("::")
    missing = [f"{path}::{name}" for path, name in named if name not in collected(path)]
    assert not missing
