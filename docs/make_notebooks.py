"""Execute the notebooks of the documentation and write their outputs into them; a test checks that they are current.

A cell's outputs are what it prints, the figures that it drew, and its last expression as text and as HTML.
"""

from __future__ import annotations

import ast
import base64
import code
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

NOTEBOOKS = sorted((Path(__file__).parent / "tutorial").glob("*.ipynb"))


def executed(notebook: Path) -> dict[str, Any]:
    """The notebook with fresh outputs, run in its own folder with an empty ledger."""
    os.environ.setdefault("MPLBACKEND", "agg")
    record: dict[str, Any] = json.loads(notebook.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in record["cells"] if cell["cell_type"] == "code"]
    with contextlib.chdir(notebook.parent), tempfile.TemporaryDirectory() as folder:
        before = os.environ.get("MAPVEIL_LEDGER")
        os.environ["MAPVEIL_LEDGER"] = f"{folder}/ledger.sqlite"
        try:
            for number, cell in enumerate(cells, start=1):
                cell |= {"execution_count": number, "outputs": _run("".join(cell["source"]), names, number)}
        finally:
            os.environ.pop("MAPVEIL_LEDGER")
            if before is not None:
                os.environ["MAPVEIL_LEDGER"] = before
    return record


def text(record: dict[str, Any]) -> str:
    """The notebook as its file holds it."""
    return json.dumps(record, indent=1, ensure_ascii=False) + "\n"


class _Interpreter(code.InteractiveInterpreter):
    """An interpreter that ends with the first error."""

    def showtraceback(self) -> None:
        """Raise the error that is being handled."""
        raise RuntimeError("a cell of the notebook failed") from sys.exception()


def _run(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    interpreter, printed, results = _Interpreter(names), io.StringIO(), list[Any]()
    shown, sys.displayhook = sys.displayhook, results.append
    try:
        with contextlib.redirect_stdout(printed):
            interpreter.runcode(compile(tree, f"cell {number}", "exec"))
            if last is not None:
                interpreter.runcode(compile(ast.Interactive([last]), f"cell {number}", "single"))
    finally:
        sys.displayhook = shown
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())})
    outputs += [
        {"output_type": "display_data", "metadata": {}, "data": {"image/png": each}} for each in _figures()
    ]
    for result in results:
        if result is None:
            continue
        data = {"text/plain": _lines(repr(result))}
        if hasattr(result, "_repr_html_"):
            data["text/html"] = _lines(result._repr_html_())
        outputs.append(
            {"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data}
        )
    return outputs


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _figures() -> list[str]:
    """The open figures as PNG in base64, then closed."""
    if "matplotlib.pyplot" not in sys.modules:
        return []
    from matplotlib import pyplot

    drawn = []
    for number in pyplot.get_fignums():
        picture = io.BytesIO()
        pyplot.figure(number).savefig(picture, format="png", dpi=80, bbox_inches="tight")
        drawn.append(base64.b64encode(picture.getvalue()).decode())
    pyplot.close("all")
    return drawn


if __name__ == "__main__":
    for path in NOTEBOOKS:
        path.write_text(text(executed(path)), encoding="utf-8")
        sys.stderr.write(f"wrote {path}\n")
