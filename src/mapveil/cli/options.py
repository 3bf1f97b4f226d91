"""Options that commands share: tables, regions and cells, the ledger, the mechanism."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from mapveil.cli.arguments import epsilon_list, name_list, read_options
from mapveil.cli.console import gathered
from mapveil_client.epsilon import as_epsilon
from mapveil_client.errors import InputError, ParameterError

if TYPE_CHECKING:
    from mapveil.geo.basemap import Basemap
    from mapveil.geo.context import Context
    from mapveil.geo.online_tiles import OnlineTiles
    from mapveil.geo.region import Region
    from mapveil.geo.zone_cells import ZoneCells
    from mapveil.maps.prior import Prior
    from mapveil.maps.released import ReleasedMap

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

READ = "mapveil.read"  # in a command's context: the texts of the parameters that were parsed

_COLUMNS = {
    "user": "Column of user ids. [default: the usual names]",
    "lon": "Column of longitudes. [default: the usual names]",
    "lat": "Column of latitudes. [default: the usual names]",
    "weight": "Column of weights: how much each row counts within its user. [default: none, rows count alike]",
    "label": "Column of labels, for methods that estimate proportions.",
    "rss": "Column of signal strength in dBm. [default: the usual names]",
    "time": "Column of times: dates, timestamps or texts such as 2026-01-31 08:30 or 2026-01-31T08:30:00Z.",
}


def note_read(context: click.Context, text: str) -> None:
    """Note a text that may name a file to read and that a callback replaces; no output may be that file."""
    context.meta.setdefault(READ, []).append(text)


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


class Drawing(NamedTuple):
    """The user's words and layers in pictures and pages."""

    title: str
    subtitle: str
    context: Context | None
    basemap: Basemap | None
    tiles: OnlineTiles | None

    def of(self, released: ReleasedMap) -> dict[str, Any]:
        """The fields of a map that they make."""
        context = self.context
        if self.basemap is not None and released.tiling.region.georeferenced:
            from mapveil.geo.basemap import joined

            context = joined(context, self.basemap.within(released.tiling.region.bbox))
        if self.tiles is not None:
            from mapveil.geo.context import Context

            context = (context or Context.nothing())._replace(tiles=self.tiles)
        return {"title": self.title, "subtitle": self.subtitle, "context": context}


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


_zones_crs_option = click.option(
    "--zones-crs", help="CRS of a file of zones that states none, such as EPSG:25832."
)
_repair_option = click.option(
    "--repair", is_flag=True, help="Repair invalid polygons of zones; they are refused by default."
)


def zone_cells_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--zones`` and how they are read; the command receives ``zones``, polygons as cells, None without any."""

    def given(
        zones: str | None, zone_name: str | None, zones_crs: str | None, repair: bool
    ) -> dict[str, Any]:
        if zones is None:
            for flag, value in (("--zone-name", zone_name), ("--zones-crs", zones_crs), ("--repair", repair)):
                if value:
                    raise ParameterError(f"{flag} is for --zones only")
            return {"zones": None}
        from mapveil.geo.zone_cells import ZoneCells
        from mapveil.geo.zones import Zones

        cells = ZoneCells(Zones.read(zones, name=zone_name, crs=zones_crs, repair=repair))
        cells.check_names()
        return {"zones": cells}

    return gathered(
        given,
        click.option(
            "--zones",
            help="Polygons as cells, public, that do not overlap: GeoJSON, GeoParquet, or what pyogrio reads; instead "
            "of --region and --tiling.",
        ),
        click.option(
            "--zone-name",
            help="Column of the zones' names. [default: name, zone, district, id, label or code]",
        ),
        _zones_crs_option,
        _repair_option,
    )(function)


def zones_or_tiling(
    zones: ZoneCells | None, region: Region | None, tiling: str | None
) -> ZoneCells | str | None:
    """The zones, or the specification of a region's cells; both together are refused."""
    if zones is None:
        return tiling
    if region is not None or tiling is not None:
        raise ParameterError("--zones bring their region and are the cells: leave out --region and --tiling")
    return zones


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


DECLARED_USERS: Final = ", such as users=N, a public number of users that is declared to a curator"
"""Words on the option that a curator's methods share."""


def method_options(*, of: str = "method", such: str = "") -> Decorator:
    """Add ``--option K=V``, with words on one ``such`` option; the command receives one mapping, ``options``."""
    return click.option(
        "--option",
        "options",
        multiple=True,
        metavar="K=V",
        callback=lambda _context, _parameter, pairs: read_options(pairs),
        help=f"Set an option of the {of}{such}. Repeatable.",
    )


_LONGEST_TITLE: Final = 200


def _checked_title(_context: click.Context, parameter: click.Parameter, title: str) -> str:
    if len(title) > _LONGEST_TITLE or not title.isprintable():
        raise InputError(
            f"--{parameter.name} must be one line of at most {_LONGEST_TITLE} printable characters, "
            f"got {len(title):,}: {title[:40]!r}"
        )
    return title


def _context(text: str) -> Context:
    from mapveil.geo.context import read_context

    return read_context(_file_of("--context", text))


def _basemap(text: str) -> Basemap:
    from mapveil.geo.basemap import open_basemap

    return open_basemap(_file_of("--basemap", text))


def _file_of(flag: str, text: str) -> str:
    """The file that an option names; a flag that follows at once is none."""
    if not text or text.startswith("-"):
        raise InputError(f"{flag} needs a file, got {text!r}")
    return text


def _online_tiles(text: str) -> OnlineTiles:
    from mapveil.geo.online_tiles import parse_online_tiles

    return parse_online_tiles(text)


def _drawing(**named: Any) -> dict[str, Any]:
    drawing = Drawing(**named)
    outputs: tuple[Path, ...] = click.get_current_context().params.get("outputs") or ()
    if drawing.tiles is not None and not any(path.suffix.lower() == ".html" for path in outputs):
        raise InputError(
            "--online-basemap needs a page (-o FILE.html): only a page's reader fetches tiles, Mapveil does not"
        )
    return {"drawing": drawing}


drawing_options = gathered(
    _drawing,
    click.option(
        "--title",
        default="",
        callback=_checked_title,
        help="Title of pictures and pages, also in every file's metadata.",
    ),
    click.option("--subtitle", default="", callback=_checked_title, help="Line below the title."),
    click.option(
        "--context",
        type=Parsed("context", _context),
        metavar="FILE",
        help="Draw the lines, polygons and names (column 'name') of a GeoPackage or GeoJSON file in pictures and "
        "pages; pages answer for its polygons.",
    ),
    click.option(
        "--basemap",
        type=Parsed("basemap", _basemap),
        metavar="FILE.pmtiles",
        help="Draw the roads, waters and names of a file of vector tiles in pictures and pages.",
    ),
    click.option(
        "--online-basemap",
        "tiles",
        type=Parsed("tiles", _online_tiles),
        metavar="URL",
        help="Let pages fetch map tiles, such as https://tile.openstreetmap.org/{z}/{x}/{y}.png: the host learns who "
        "looks, and where. The page says so. [default: pages fetch nothing]",
    ),
)
"""Add the options of what pictures and pages show; the command receives one :class:`Drawing`."""


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


def zone_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--zones`` and the options that say how to read it; the command receives ``zones`` and ``read``."""

    def given(zones: str | None, name: str | None, zones_crs: str | None, repair: bool) -> dict[str, Any]:
        return {"zones": zones, "read": {"name": name, "crs": zones_crs, "repair": repair}}

    return gathered(
        given,
        click.option(
            "--zones",
            help="Polygons: GeoJSON, GeoParquet, or what pyogrio reads; flows have zones of their own.",
        ),
        click.option(
            "--name", help="Column of the zones' names. [default: name, zone, district, id, label or code]"
        ),
        _zones_crs_option,
        _repair_option,
    )(function)


def flags_of(read: dict[str, Any]) -> dict[str, Any]:
    """The values of ``read`` that :func:`zone_options` gives, by their flags."""
    return {"--name": read["name"], "--zones-crs": read["crs"], "--repair": read["repair"]}


def seed_option(what: str, *, name: str = "seed") -> Decorator:
    """Add ``--seed`` of an evaluation, which is never private; the command receives ``name``."""
    return click.option(
        "--seed", name, type=int, default=0, show_default=True, help=f"The same seed gives the same {what}."
    )
