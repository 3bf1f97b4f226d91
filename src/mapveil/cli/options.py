"""Options that commands share: tables, regions and cells, outputs, the ledger, the mechanism."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from mapveil.cli.arguments import epsilon_list, name_list, read_options
from mapveil.cli.console import gathered
from mapveil.formats.atomic import check_writable
from mapveil.formats.csv import files_written
from mapveil_client.epsilon import as_epsilon
from mapveil_client.errors import InputError, ParameterError

if TYPE_CHECKING:
    from mapveil.geo.context import Context
    from mapveil.geo.region import Region
    from mapveil.maps.prior import Prior

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_READ = "mapveil.read"  # in a command's context: the texts of the parameters that were parsed

_COLUMNS = {
    "user": "Column of user ids. [default: the usual names]",
    "lon": "Column of longitudes. [default: the usual names]",
    "lat": "Column of latitudes. [default: the usual names]",
    "weight": "Column of weights: how much each row counts within its user. [default: none, rows count alike]",
    "label": "Column of labels, for methods that estimate proportions.",
    "rss": "Column of signal strength in dBm. [default: the usual names]",
    "time": "Column of times, UTC.",
}


def note_read(context: click.Context, text: str) -> None:
    """Note a text that may name a file to read and that a callback replaces; no output may be that file."""
    context.meta.setdefault(_READ, []).append(text)


class Parsed(click.ParamType[Any]):
    """A parameter that ``parse`` reads from text; its errors are the command's."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value that the text stands for."""
        if not isinstance(value, str):
            return value
        if ctx is not None:
            note_read(ctx, value)
        return self._parse(value)


def _region(text: str) -> Region:
    from mapveil.geo.region import Region

    return Region.parse(text)


def column_option(name: str) -> Decorator:
    """Add the option that names one column."""
    return click.option(f"--{name}", help=_COLUMNS[name])


_where_option = click.option(
    "--where", help="Use the rows that hold this SQL condition only, such as 'hour(time) < 12'."
)
_bad_rows_option = click.option(
    "--on-bad-rows",
    type=click.Choice(["fail", "drop"]),
    default="fail",
    show_default=True,
    help="Refuse a table with rows that cannot be used, or leave them out and say how many on stderr.",
)


_crs_option = click.option(
    "--crs", help="Reference system of the coordinates, such as EPSG:32618. [default: the file's, or degrees]"
)
_encoding_option = click.option(
    "--encoding",
    type=click.Choice(["utf-8", "latin-1", "utf-16"]),
    default="utf-8",
    show_default=True,
    help="Encoding of CSV.",
)


def table_source(*columns: str) -> Decorator:
    """Add an option for each named column, and where one is of users those that choose rows.

    The command receives one mapping, ``columns``: keywords of :func:`mapveil.read_points`.
    """
    options = [column_option(name) for name in columns]
    if "user" in columns:
        options += [_where_option, _bad_rows_option]
    if {"user", "lon"} <= set(columns):
        options += [_crs_option, _encoding_option]
    return gathered(lambda **named: {"columns": named}, *options)


def region_option(
    help: str = "W,S,E,N in degrees, or a polygon file.", *, required: bool = False
) -> Decorator:
    """Add ``--region``."""
    return click.option("--region", type=Parsed("region", _region), required=required, help=help)


CHOSEN_TILING: Final = "a quadtree as deep as users and epsilon allow"
"""Text of the default of commands whose cells follow from the number of users."""


def tiling_option(default: str = "quadtree:8") -> Decorator:
    """Add ``--tiling``; the command fills in the default."""
    kinds = "quadtree:8, grid:300x300, h3:8, tiles:15, places:FILE or places:COLUMN."
    return click.option("--tiling", help=f"Cells: {kinds} [default: {default}]")


places_option = click.option(
    "--places-are-public",
    is_flag=True,
    help="State that the places in places:COLUMN are a public list: which they are is not protected.",
)
"""Add ``--places-are-public``."""


def epsilon_option(help: str, *, required: bool = False) -> Decorator:
    """Add ``--epsilon``, exact."""
    return click.option("--epsilon", type=Parsed("epsilon", as_epsilon), required=required, help=help)


def names_option(flag: str, default: str | None, help: str, *, shown: str | None = None) -> Decorator:
    """Add an option that is a list of names separated by commas."""
    if shown is not None:
        help = f"{help} [default: {shown}]"
    kind = Parsed("names", lambda text: name_list(text, flag))
    return click.option(flag, default=default, show_default=shown is None, type=kind, help=help)


epsilons_option = click.option(
    "--epsilon",
    "epsilons",
    type=Parsed("epsilons", epsilon_list),
    default="0.5,1,2",
    show_default=True,
    help="Budgets, separated by commas.",
)
"""Add ``--epsilon`` of several budgets."""


def method_options(*, of: str = "method") -> Decorator:
    """Add ``--option K=V``; the command receives one mapping, ``options``."""
    return click.option(
        "--option",
        "options",
        multiple=True,
        metavar="K=V",
        callback=lambda _context, _parameter, pairs: read_options(pairs),
        help=f"Set an option of the {of}. Repeatable.",
    )


def outputs(suffixes: Sequence[str], help: str, *, required: bool = True) -> Decorator:
    """Add ``-o``: files of these suffixes, checked before anything is read or spent.

    An output must be writable, and neither another output nor a file that the command reads.
    """

    def checked(
        _context: click.Context, _parameter: click.Parameter, paths: tuple[Path, ...]
    ) -> tuple[Path, ...]:
        for path in paths:
            if not str(path).isprintable():
                raise InputError(f"-o {str(path)!r}: the name must be printable text")
            if path.suffix.lower() not in suffixes:
                raise InputError(f"-o {path}: the suffix must be one of {', '.join(suffixes)}")
            if path.is_dir() or not path.parent.is_dir():
                raise InputError(f"-o {path}: the folder {path.parent} must exist, and the name be a file's")
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
            help=f"Write a file: {help}. Repeatable.",
        ),
    )


def _files_read(context: click.Context) -> list[tuple[str, str]]:
    """The texts of the command's parameters that may name a file, or files by a pattern; each with its noun."""
    from mapveil.privacy.ledger import default_ledger_path

    texts = [("input", text) for text in context.meta.get(_READ, [])]
    for parameter, value in context.params.items():
        if parameter not in {"outputs", "title"} and isinstance(value, str | Path):
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


_LONGEST_TITLE: Final = 200


def _checked_title(_context: click.Context, _parameter: click.Parameter, title: str) -> str:
    if len(title) > _LONGEST_TITLE or not title.isprintable():
        raise InputError(
            f"--title must be one line of at most {_LONGEST_TITLE} printable characters, got {len(title):,}: "
            f"{title[:40]!r}"
        )
    return title


title_option = click.option(
    "--title",
    default="",
    callback=_checked_title,
    help="Title of pictures and pages, also in every file's metadata.",
)
"""Add ``--title``."""


def _context(text: str) -> Context:
    from mapveil.geo.context import read_context

    return read_context(text)


context_option = click.option(
    "--context",
    type=Parsed("context", _context),
    metavar="FILE",
    help="Draw the lines, polygons and names (column 'name') of a GeoPackage or GeoJSON file in pictures and pages.",
)
"""Add ``--context``."""


def _prior(text: str) -> Prior:
    from mapveil.formats.read_prior import read_prior

    return read_prior(text)


prior_option = click.option(
    "--prior",
    type=Parsed("prior", _prior),
    metavar="FILE",
    help="Lean on a public raster (.tif, .npz) or an earlier release as far as the noisy sums agree with it. You state "
    "that it is public; the guarantee is the same.",
)
"""Add ``--prior``."""

evaluate_option = click.option(
    "--evaluate", is_flag=True, help="Compare with the true data too. These figures are NOT private."
)
"""Add ``--evaluate``."""

ledger_option = click.option(
    "--ledger", type=click.Path(path_type=Path), help="Ledger file. [default: $MAPVEIL_LEDGER or yours]"
)
"""Add ``--ledger``."""


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
    ) -> dict[str, Any]:
        from mapveil.privacy.account import Account

        if resume and (no_ledger or seed is not None):
            raise ParameterError(
                "--resume continues a release that was charged: leave out --no-ledger and --seed"
            )
        account = None
        if not no_ledger and seed is None:
            account = Account(dataset, ledger, outputs, resume, other_people)
        return {
            "outputs": outputs,
            "account": account,
            "seed": seed,
            "accept_large_epsilon": accept_large_epsilon,
        }

    return gathered(
        given,
        outputs(suffixes, help, required=required),
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


def zone_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--zones`` and the options that say how to read it; the command receives ``zones`` and ``read``."""

    def given(zones: str, name: str | None, zones_crs: str | None, repair: bool) -> dict[str, Any]:
        return {"zones": zones, "read": {"name": name, "crs": zones_crs, "repair": repair}}

    return gathered(
        given,
        click.option("--zones", required=True, help="Polygons: GeoJSON, GeoParquet, or what pyogrio reads."),
        click.option(
            "--name", help="Column of the zones' names. [default: name, zone, district, id, label or code]"
        ),
        click.option("--zones-crs", help="CRS of a file that states none, such as EPSG:25832."),
        click.option("--repair", is_flag=True, help="Repair invalid polygons; they are refused by default."),
    )(function)


def seed_option(what: str, *, name: str = "seed") -> Decorator:
    """Add ``--seed`` of an evaluation, which is never private; the command receives ``name``."""
    return click.option(
        "--seed", name, type=int, default=0, show_default=True, help=f"The same seed gives the same {what}."
    )
