"""The documentation cannot rot: pages exist, commands are current, links point somewhere."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")])
PAGES = [page for page in PAGES if "_build" not in page.parts]


def test_the_command_line_page_is_current() -> None:
    spec = importlib.util.spec_from_file_location("make_command_line", ROOT / "docs" / "make_command_line.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    written = (ROOT / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    assert written == made.page(), "run: python docs/make_command_line.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_point_to_files(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_named_in_backticks_exist(page: Path) -> None:
    for name in re.findall(
        r"`((?:src|tests|docs|examples|benchmarks|requirements)/[\w./-]+)`", page.read_text(encoding="utf-8")
    ):
        assert (ROOT / name).exists(), f"{page.name} names {name}"


def test_every_page_is_in_the_table_of_contents() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*/*.md"):
        if "_build" not in page.parts:
            assert f"{page.parent.name}/{page.stem}" in index, page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_are_doctests(page: Path) -> None:
    # A Python block that is not a doctest is never run, so it would rot.
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL):
        assert block.lstrip().startswith(">>>"), f"{page.name}: {block[:60]!r}"
