"""The outputs in the documentation's notebooks are those of their code today."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
NOTEBOOKS = sorted((DOCS / "tutorial").glob("*.ipynb"))


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_notebooks", DOCS / "make_notebooks.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def _words(record: dict[str, Any]) -> list[list[str]]:
    """The outputs of each cell as text: of pictures, that there is one."""
    found = []
    for cell in record["cells"]:
        for output in cell.get("outputs", []):
            data = output.get("data", {"text/plain": output.get("text")})
            found.append(
                [
                    re.sub(r"base64,[^\"]+", "", "".join(data[kind]))
                    for kind in sorted(data)
                    if kind != "image/png"
                ]
            )
            found[-1] += ["a picture"] * ("image/png" in data)
    return found


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_current(notebook: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    written = json.loads(notebook.read_text(encoding="utf-8"))
    fresh = _script().executed(notebook)
    assert [cell["source"] for cell in fresh["cells"]] == [cell["source"] for cell in written["cells"]]
    assert _words(fresh) == _words(written), "run: python docs/make_notebooks.py"


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_relative_links_point_to_files(notebook: Path) -> None:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    text = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    links = re.findall(r"\]\(([^)#\s]+)", text)
    assert links
    for target in links:
        assert (notebook.parent / target).exists(), target


def test_the_page_on_asking_shows_the_totals_of_the_notebook() -> None:
    page = (DOCS / "how-to" / "ask-a-map.md").read_text(encoding="utf-8")
    shown = re.findall(r"^([A-Z][\w ]+?) {2,}([\d,.]+) +([\d,.]+) +([\d,.]+) ", page, flags=re.MULTILINE)
    assert len(shown) == 8
    text = (DOCS / "tutorial" / "analyst.ipynb").read_text(encoding="utf-8")
    for zone, *numbers in shown:
        row = re.search(rf"{zone}\w* +([\d.]+) +([\d.]+) +([\d.]+) ", text)
        assert row, zone
        for number, rounded in zip(numbers, row.groups(), strict=True):
            # The notebook rounds to users; the file that the page asks keeps a 32nd of each noise's deviation.
            assert abs(float(number.replace(",", "")) - float(rounded)) < 1, zone
