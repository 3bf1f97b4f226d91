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
    root = _context(app, "mapveil", None)
    parts = [INTRODUCTION, _section(root)]
    for name in app.list_commands(root):
        command = app.get_command(root, name)
        if command is None:
            raise RuntimeError(f"no command {name}")
        context = _context(command, name, root)
        parts.append(_section(context))
        if isinstance(command, click.Group):
            for inner in command.list_commands(context):
                part = command.get_command(context, inner)
                if part is None:
                    raise RuntimeError(f"no command {name} {inner}")
                parts.append(_section(_context(part, inner, context), "###"))
    return "\n".join(parts)


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    settings = {**command.context_settings, "max_content_width": 100, "terminal_width": 100}
    return click.Context(command, info_name=name, parent=parent, **settings)


def _section(context: click.Context, head: str = "##") -> str:
    return f"{head} `{context.command_path}`\n\n```text\n{context.get_help()}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stderr.write(f"wrote {PAGE}\n")
