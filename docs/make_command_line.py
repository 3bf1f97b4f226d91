"""Write reference/command-line.md from the commands' own help; a test checks that it is current."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mapveil.cli.app import app

PAGE = Path(__file__).parent / "reference" / "command-line.md"
INTRODUCTION = """# Command line

Results go to stdout, progress and remarks to stderr. `--json` prints one JSON document, `-q` is quiet,
`-v` says more. Exit codes: 0 done, 1 a failure or a promise that cannot be kept, 2 bad input. Nothing
partial is ever written.

This page is made from the commands' own help by `docs/make_command_line.py`.
"""


def page() -> str:
    """The page as Markdown."""
    parts = [INTRODUCTION, _section(app, "mapveil", None)]
    context = click.Context(app, info_name="mapveil")
    for name in app.list_commands(context):
        command = app.get_command(context, name)
        if command is None:
            raise RuntimeError(f"no command {name}")
        parts.append(_section(command, name, context))
    return "\n".join(parts)


def _section(command: click.Command, name: str, parent: click.Context | None) -> str:
    context = click.Context(command, info_name=name, parent=parent, max_content_width=100, terminal_width=100)
    return f"## `{context.command_path}`\n\n```text\n{command.get_help(context)}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stderr.write(f"wrote {PAGE}\n")
