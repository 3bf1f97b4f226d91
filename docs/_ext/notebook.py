"""Pages from executed notebooks: cells of Markdown as they are, code with the outputs that the file holds."""

from __future__ import annotations

import json
from typing import Any

from docutils import nodes
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata


class NotebookParser(MystParser):
    """A parser of ``.ipynb``."""

    supported = ("ipynb",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """Parse the notebook's Markdown."""
        super().parse(markdown(json.loads(inputstring)), document)


def markdown(notebook: dict[str, Any]) -> str:
    """The notebook as one Markdown text."""
    parts: list[str] = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += [_shown(output, cell["metadata"].get("alt", "")) for output in cell["outputs"]]
    return "\n\n".join(parts) + "\n"


def _shown(output: dict[str, Any], alt: str) -> str:
    """The output as Markdown."""
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text']).rstrip()}\n```"
    data = output["data"]
    if "image/png" in data:
        html = f'<img alt="{alt}" src="data:image/png;base64,{data["image/png"]}">'
    elif "text/html" in data:
        html = "".join(data["text/html"])
    else:
        return f"```text\n{''.join(data['text/plain']).rstrip()}\n```"
    return f'`````{{raw}} html\n<div class="output">{html}</div>\n`````'


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the suffix and its parser."""
    app.add_source_suffix(".ipynb", "ipynb")
    app.add_source_parser(NotebookParser)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
