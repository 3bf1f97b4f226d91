"""``mapveil methods``: the table of methods."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from mapveil.cli.console import Console, console_options
from mapveil.methods import DEFAULT_METHOD, METHODS

__all__ = ["command"]


@click.command("methods")
@console_options
def command(console: Console) -> None:
    """List the methods, their parameters and sources.

    \b
    Examples:
      mapveil methods
      mapveil methods --json
    """
    records = [_record(method.name, method.trust, method.load()) for method in METHODS]
    blocks = []
    for record in records:
        mark = " (default)" if record["name"] == DEFAULT_METHOD else ""
        options = ", ".join(f"{key}={value}" for key, value in record["options"].items()) or "none"
        blocks.append(
            f"{record['name']}{mark}  [{record['trust']}]\n"
            f"  {record['summary']}\n"
            f"  options: {options}\n"
            f"  source:  {record['source']}"
        )
    console.result("\n".join(blocks), records)


def _record(name: str, trust: str, kind: Any) -> dict[str, Any]:
    options = {
        item.name: None if item.default is dataclasses.MISSING else item.default
        for item in dataclasses.fields(kind)
        if item.name != "epsilon"
    }
    return {
        "name": name,
        "trust": trust,
        "summary": kind.summary,
        "source": kind.source,
        "options": options,
        "default": name == DEFAULT_METHOD,
    }
