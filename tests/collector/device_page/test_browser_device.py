"""The browser device, run under Node against the vectors of the Python client."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.node import MODULES as DEVICE
from tests.node import node

HERE = Path(__file__).resolve().parent
MODULES = sorted(DEVICE.glob("*.mjs"))


@pytest.mark.parametrize("path", sorted(HERE.glob("*.test.mjs")), ids=lambda path: path.stem)
def test_the_modules_do_as_the_python_client(path: Path) -> None:
    done = subprocess.run(
        [*node(), "--test", str(path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    passed = re.search(r"^\S pass (\d+)$", done.stdout, re.MULTILINE)
    assert passed is not None
    assert int(passed[1]) > 0


def test_the_page_has_nothing_from_elsewhere_and_nothing_inline() -> None:
    page = (DEVICE / "index.html").read_text("utf-8")
    style = (DEVICE / "device.css").read_text("utf-8")
    assert not re.search(r"(?i)\bhttps?:|//[a-z]|<style|\sstyle=|\son[a-z]+=|javascript:", page)
    assert re.findall(r"<script[^>]*>", page) == ['<script type="module" src="page.mjs">']
    assert not re.search(r"(?i)@import|url\(", style)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_modules_import_from_beside_them_and_write_no_markup(path: Path) -> None:
    source = path.read_text("utf-8")
    for name in re.findall(r"from \"([^\"]+)\"", source):
        assert (DEVICE / name).is_file(), name
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", source
    )
    assert not re.search(r"console\.|https?://", source)
    assert len(source.splitlines()) <= 350
    assert max(map(len, source.splitlines())) <= 140
