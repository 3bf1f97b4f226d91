"""``mapveil run``: a release whose options stand in a file."""

from __future__ import annotations

from pathlib import Path

import click

from mapveil.cli import flows, neighbours, release
from mapveil.cli.run_file import note_run, read_run_file
from mapveil_client.errors import MapveilError

_COMMANDS = {"release": release.command, "flows": flows.command, "neighbours": neighbours.command}


@click.command("run", context_settings={"ignore_unknown_options": True})
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.argument("more", metavar="[OPTIONS]", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(context: click.Context, file: Path, more: tuple[str, ...]) -> int:
    """Release what a YAML file describes, again and again: each run is charged.

    The keys of FILE are the options of 'release' without dashes, 'input', and 'command' for 'flows' or 'neighbours'. A
    repeatable option is a list, and 'option' a mapping. Paths are relative to the folder that the command runs in.
    OPTIONS replace those of the file. The record of the release states the file's SHA-256, and the OPTIONS by name.

    \b
    Examples:
      mapveil release checkins.parquet --region -74.03,40.69,-73.90,40.83 --epsilon 1 -o map.html \\
          --dry-run --save release.yaml
      mapveil run release.yaml --dry-run
      mapveil run release.yaml -o week34.parquet
    """
    described = read_run_file(file, tuple(_COMMANDS))
    target = _COMMANDS[described.command]
    arguments = described.arguments(target, list(more))
    note_run(context, described.sha256, described.replaced(target, list(more)))
    try:
        made = target.make_context(described.command, arguments, parent=context.parent)
    except (click.UsageError, MapveilError) as error:
        raise described.blamed(target, error) from error
    with made:
        done = target.invoke(made)
    return done if isinstance(done, int) else 0
