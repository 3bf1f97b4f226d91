"""One version, wherever it is said."""

from __future__ import annotations

import re
from pathlib import Path

from mapveil_client import __version__

ROOT = Path(__file__).resolve().parents[1]


def test_the_citation_and_the_changelog_name_the_version() -> None:
    assert f"version: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == __version__
