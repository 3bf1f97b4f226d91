"""Options of what a command writes: outputs, standard output, and the ledger that a release is charged to."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from fractions import Fraction
from glob import glob
from pathlib import Path
from typing import Any, Final

import click

from mapveil.cli.console import gathered, stream
from mapveil.cli.options import READ, Decorator, ledger_option
from mapveil.cli.rehearsal import rehearsable, rehearsal_account
from mapveil.cli.run_file import save_run_file
from mapveil.formats.atomic import check_writable
from mapveil.privacy.file_hash import files_written
from mapveil_client.errors import InputError, ParameterError, check_installed

_TEXTS: Final = (".csv", ".geojson", ".json", ".html")  # formats that a terminal can show
_NEEDED: Final = {
    **dict.fromkeys((".tif", ".tiff"), ("rasterio", "geo")),
    **dict.fromkeys((".gpkg", ".pmtiles"), ("pyogrio", "geo")),
    ".png": ("matplotlib", "viz"),
}
"""Package and extra of Mapveil that a format needs."""

_STREAM_HELP: Final = "; '-' for {0} on standard output, '-.csv' and the like for another format"


def outputs(
    suffixes: Sequence[str], help: str, *, required: bool = True, streamed: str | None = None
) -> Decorator:
    """Add ``-o``: files of these suffixes, checked before anything is read or spent.

    An output must be writable, and neither another output nor a file that the command reads. With the suffix
    ``streamed``, ``-`` is standard output in this format, and ``-.SUFFIX`` in another.
    """

    def checked(
        context: click.Context, _parameter: click.Parameter, given: tuple[Path, ...]
    ) -> tuple[Path, ...]:
        paths = tuple(_streamed_as(context, path, streamed, suffixes) if streamed else path for path in given)
        for path in (each for each in paths if each in given):
            if not str(path).isprintable():
                raise InputError(f"-o {str(path)!r}: the name must be printable text")
            if path.is_dir():
                raise InputError(f"-o {path}: is a folder; the name of a file in it is needed")
            if path.suffix.lower() not in suffixes:
                raise InputError(f"-o {path}: the suffix must be one of {', '.join(suffixes)}")
            needed = _NEEDED.get(path.suffix.lower())
            if needed is not None:
                check_installed(*needed)
            if not path.parent.is_dir():
                raise InputError(f"-o {path}: the folder {path.parent} must exist")
            for file in files_written(path):
                check_writable(file)
        return paths

    def apart(outputs: tuple[Path, ...]) -> dict[str, Any]:
        context = click.get_current_context()
        read = _files_read(context)
        written = [(path, file) for path in outputs for file in files_written(path)]
        for at, (path, file) in enumerate(written):
            beside = "" if file == path else f"its metadata file {file} "
            if any(_same_file(file, other) for _, other in written[:at]):
                raise InputError(f"-o {path}: {beside}is given twice; name another file")
            for what, other in read:
                if _same_file(file, other):
                    raise InputError(f"-o {path}: {beside}is the {what}; name another file")
        return {"outputs": outputs}

    return gathered(
        apart,
        click.option(
            "-o",
            "--output",
            "outputs",
            multiple=True,
            required=required,
            type=click.Path(path_type=Path),
            callback=checked,
            help=f"Write a file: {help}{_STREAM_HELP.format(streamed) if streamed else ''}. Repeatable.",
        ),
    )


def _streamed_as(context: click.Context, path: Path, suffix: str, suffixes: Sequence[str]) -> Path:
    """The file that stands for standard output, for ``-`` and ``-.SUFFIX``; any other path as it is."""
    name = str(path)
    if name != "-" and not name.startswith("-."):
        return path
    suffix = name[1:].lower() or suffix
    if suffix not in suffixes:
        raise InputError(f"-o {name}: the suffix must be one of {', '.join(suffixes)}")
    if suffix not in _TEXTS and sys.stdout.isatty():
        raise InputError(f"-o {name}: {suffix} is no text for a terminal; send it to a file or a program")
    return stream(context, suffix)


def _files_read(context: click.Context) -> list[tuple[str, str]]:
    """The texts of the command's parameters that may name a file, or files by a pattern; each with its noun."""
    from mapveil.privacy.ledger_records import default_ledger_path

    texts = [("input", text) for text in context.meta.get(READ, [])]
    for parameter, value in context.params.items():
        if parameter not in {"outputs", "title", "subtitle"} and isinstance(value, str | Path):
            texts.append(("ledger" if parameter == "ledger" else "input", str(value)))
    if "ledger" in context.params:
        texts.append(("ledger", str(default_ledger_path())))
    texts += [(what, text.partition(":")[2]) for what, text in texts if ":" in text]  # places:FILE
    matches = [(what, path) for what, text in texts for path in glob(text, recursive=True)]
    return [(what, text) for what, text in texts if text] + matches


def _same_file(one: Path, other: str | Path) -> bool:
    """Whether two paths lead to one file, which need not exist yet."""
    try:
        return os.path.realpath(one) == os.path.realpath(other) or os.path.samefile(one, other)
    except (OSError, ValueError):
        return False


def release_options(suffixes: Sequence[str], help: str, *, required: bool = True) -> Decorator:
    """Add ``-o``, the ledger's options, ``--seed`` and ``--accept-large-epsilon``, with ``account`` for the ledger's.

    A seeded answer is not for release and charges nothing.
    """

    def given(
        outputs: tuple[Path, ...],
        ledger: Path | None,
        no_ledger: bool,
        dataset: str | None,
        resume: bool,
        other_people: str | None,
        seed: int | None,
        accept_large_epsilon: bool,
        dry_run: bool,
        save: Path | None,
    ) -> dict[str, Any]:
        from mapveil.privacy.account import Account
        from mapveil.privacy.claim import check_large_epsilon

        epsilon = click.get_current_context().params.get("epsilon")
        if seed is not None and epsilon is not None:  # a rehearsal is refused what the release will be
            check_large_epsilon(epsilon, Fraction(0), accepted=accept_large_epsilon)
        if resume and (no_ledger or seed is not None):
            raise ParameterError(
                "--resume continues a release that was charged: leave out --no-ledger and --seed"
            )
        if dry_run and resume:
            raise ParameterError("--dry-run charges and writes no release: leave out --resume")
        if save is not None:
            save_run_file(save)
            if not click.get_current_context().params.get("quiet"):
                click.echo(f"wrote {save}", err=True)
        accounted = not no_ledger and seed is None
        account = Account(dataset, ledger, outputs, resume, other_people) if accounted else None
        if dry_run:
            account = rehearsal_account(dataset, ledger, outputs, other_people, accounted=accounted)
        return {
            "outputs": outputs,
            "account": account,
            "seed": None if dry_run else seed,
            "accept_large_epsilon": accept_large_epsilon,
        }

    added = gathered(
        given,
        outputs(suffixes, help, required=required, streamed=".geojson"),
        click.option(
            "--dry-run",
            is_flag=True,
            help="Check everything, and print the design, the predicted error, the charge and the account; charge "
            "nothing, and write nothing but the file of --save.",
        ),
        click.option(
            "--save",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="Write these options to a YAML file for 'mapveil run'.",
        ),
        ledger_option,
        click.option(
            "--no-ledger",
            is_flag=True,
            help="Do not record this release in the ledger. It still satisfies DP, but its epsilon is not added to the "
            "total.",
        ),
        click.option(
            "--dataset",
            help="Charge the account of this name, which the table joins. [default: recognised by the people]",
        ),
        click.option(
            "--other-people",
            metavar="REASON",
            help="State that these people are others than those of accounts with the same ids. Needs --dataset.",
        ),
        click.option(
            "--resume",
            is_flag=True,
            help="Write the answer of this command that was charged before, but not written; charge nothing again.",
        ),
        click.option("--seed", type=int, help="Repeat a run exactly. The answer is marked NOT FOR RELEASE."),
        click.option(
            "--accept-large-epsilon",
            is_flag=True,
            help="Release with an epsilon above 20 (proved odds above 4.8*10^8 to 1), or a delta above 0.01.",
        ),
    )
    return lambda function: added(rehearsable(function))
