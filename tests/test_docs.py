"""The documentation cannot rot: pages exist, commands are current, links point somewhere."""

from __future__ import annotations

import importlib.util
import itertools
import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest

from mapveil.cli.app import app

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


def test_every_page_is_in_a_table_of_contents() -> None:
    listed = {
        (page.parent / entry).resolve()
        for page in PAGES
        for block in re.findall(r"```{toctree}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for entry in block.split()
        if not entry.startswith(":")
    }
    docs = ROOT / "docs"
    pages = {
        page.with_suffix("")
        for page in [*docs.rglob("*.md"), *docs.rglob("*.ipynb")]
        if "_build" not in page.parts
    }
    assert pages - listed == {docs / "index"}


def test_no_module_is_described_twice() -> None:
    pages = sorted((ROOT / "docs" / "reference" / "python").glob("*.md"))
    modules = re.findall(r"automodule:: (\S+)", "".join(page.read_text(encoding="utf-8") for page in pages))
    assert [name for name in set(modules) if modules.count(name) > 1] == []


def _commands(page: Path) -> list[list[str]]:
    """The words of each call of the program in a page: in blocks of a console, and in cells of a cheat sheet."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL)
    lines = [line for block in blocks for line in re.split(r"^\$ ", block, flags=re.MULTILINE)]
    lines += re.findall(r"\| `(mapveil [^`]+)` \|$", text, flags=re.MULTILINE)
    calls = [re.search(r"(?:^|[ /|(])mapveil( .*)", line, flags=re.DOTALL) for line in lines]
    return [shlex.split(call[1].replace("\\\n", " "), comments=True) for call in calls if call]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_their_options_exist(page: Path) -> None:
    for called in _commands(page):
        words = list(itertools.takewhile(lambda each: each not in {"|", "&&", ">", "<"}, called))
        command: click.Command = app
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            context = click.Context(command)
            if (inner := command.get_command(context, words[0])) is None:
                assert command.invoke_without_command, f"{page.name}: no command {words[0]}"
                break
            command, words = inner, words[1:]
        known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {
            "--help",
            "-h",
        }
        if command.context_settings.get("ignore_unknown_options"):
            continue  # they are handed on
        for word in words:
            if re.match(r"--?[a-z]", word):
                assert word.partition("=")[0] in known, f"{page.name}: {command.name} has no {word}"


def test_every_extra_is_on_the_page_of_installation() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs" / "how-to" / "install.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE)) == set(
        project["optional-dependencies"]
    )


def test_figures_about_numbers_of_people_are_those_of_the_pictures() -> None:
    page = (ROOT / "docs" / "explanation" / "is-it-for-me.md").read_text(encoding="utf-8")
    measured = (ROOT / "docs" / "reference" / "pictures.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| ([\d,]+) \((.+?)\) \| (\w+) blocks? \| ([\d,.]*) ?(k?)m? *\|$", page, flags=re.MULTILINE
    )
    assert len(rows) == 5
    for people, city, blocks, width, kilo in rows:
        row = re.search(
            rf"^\| \S*{city.lower().replace(' ', '-')}\S* \(\w+\) \| {people} \| 1 \|(.*)\|$",
            measured,
            flags=re.M,
        )
        assert row, f"{city}, {people} people"
        found = [cell.strip() for cell in row[1].split("|")]
        assert round(float(found[0].replace(",", ""))) == (0 if blocks == "no" else int(blocks)), city
        if width:
            metres = float(found[-1].removesuffix(" m").replace(",", ""))
            digits = len(width.partition(".")[2])
            assert (round(metres / 1000, digits) if kilo else metres) == float(width), city


def test_pictures_of_the_gallery_are_outputs_of_its_commands() -> None:
    gallery = ROOT / "docs" / "reference" / "gallery.md"
    shown = re.findall(r"_static/gallery/([\w.-]+)", gallery.read_text(encoding="utf-8"))
    made = [word for words in _commands(gallery) for word in words if word.endswith(".png")]
    assert shown == made
    assert {path.name for path in (ROOT / "docs" / "_static" / "gallery").iterdir()} == set(shown)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_are_doctests(page: Path) -> None:
    # A Python block that is not a doctest is never run, so it would rot.
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL):
        assert block.lstrip().startswith(">>>"), f"{page.name}: {block[:60]!r}"
