"""``mapveil methods``: the table of methods."""

from typing import Any

import click

from mapveil.cli.console import Console, console_options
from mapveil.mechanisms.methods import DEFAULT_METHODS, METHODS, Method


@click.command("methods")
@console_options
def command(console: Console) -> None:
    """List the methods, their parameters and sources.

    \b
    Examples:
      mapveil methods
      mapveil methods --json
    """
    records = [_record(method) for method in METHODS]
    blocks = []
    for record in records:
        mark = " (default)" if record["default"] else ""
        options = ", ".join(f"{key}={value}" for key, value in record["options"].items()) or "none"
        blocks.append(
            f"{record['name']}{mark}  [{record['trust']}]\n"
            f"  {record['summary']}\n"
            f"  options: {options}\n"
            f"  source:  {record['source']}"
        )
    console.result("\n".join(blocks), records)


def _record(method: Method) -> dict[str, Any]:
    kind = method.load()
    return {
        "name": method.name,
        "trust": method.trust,
        "summary": kind.summary,
        "source": kind.source,
        "options": method.options(),
        "default": method.name == DEFAULT_METHODS[method.trust],
    }
