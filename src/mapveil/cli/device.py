"""``mapveil device``: a fleet of devices that answer a collector."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from mapveil.cli.console import Console, console_options
from mapveil_client.epsilon import as_epsilon
from mapveil_client.errors import InputError

if TYPE_CHECKING:
    from mapveil.collector.fleet.fleet import Lapses
    from mapveil_client.policy import DevicePolicy

_IDENTIFIER: Final = re.compile("[0-9a-f]{32}")
_SLOW: Final = re.compile(r"(?P<part>[0-9.]+):(?P<time>[0-9.]+)(?P<unit>ms|s|m)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}


@click.command("device")
@click.option("--fleet", "source", required=True, metavar="INPUT",
              help="A table of points: each user becomes a device that was at that user's rows.")  # fmt: skip
@click.option(
    "--server", required=True, metavar="URL", help="The collector, such as https://collector.example."
)
@click.option("--enrol", "token", envvar="MAPVEIL_ENROL", metavar="TOKEN",
              help="A token for enrolment, from 'mapveil serve --new-enrolment'. [$MAPVEIL_ENROL]")  # fmt: skip
@click.option("--collection", "collections", multiple=True, metavar="ID",
              help="Which collection to answer. Repeatable. [default: those that are open]")  # fmt: skip
@click.option("--wait", type=click.FloatRange(0), default=0.0, show_default=True, metavar="SECONDS",
              help="Wait so long for a collection to be open.")  # fmt: skip
@click.option("--state", "folder", type=click.Path(file_okay=False, path_type=Path),
              help="Folder of the devices' sealed memories. [default: forgotten at the end]")  # fmt: skip
@click.option("--key-file", type=click.Path(dir_okay=False, path_type=Path),
              help="File with the key that seals them: 64 hexadecimal digits.")  # fmt: skip
@click.option("--drop", type=float, default=0.0, show_default=True, metavar="PART",
              help="Part of the devices that drop out of each round, before their vector is sent.")  # fmt: skip
@click.option(
    "--slow", metavar="PART:TIME", help="Part of the devices that wait before each message: 0.02:5s."
)
@click.option(
    "--seed", type=int, help="Chooses who drops out and who is slow; nothing private is ever seeded."
)
@click.option("--lifetime-epsilon", default="4", show_default=True, metavar="EPSILON",
              help="What all answers of a device may cost together.")  # fmt: skip
@click.option("--most-per-collection", default="2", show_default=True, metavar="EPSILON",
              help="What one collection may cost.")  # fmt: skip
@click.option("--least-shard", type=int, default=20, show_default=True, metavar="DEVICES",
              help="Devices of a secure sum, and of a collection, at least.")  # fmt: skip
@click.option("--passive-too", is_flag=True,
              help="Answer sums too that are not safe against a server that lies about who is in them.")  # fmt: skip
@click.option("--user", help="Column of user ids. [default: the usual names]")
@click.option("--lon", help="Column of longitudes.")
@click.option("--lat", help="Column of latitudes.")
@click.option("--connections", type=click.IntRange(1, 1024), default=32, show_default=True, metavar="N",
              help="Connections at once.")  # fmt: skip
@click.option("-j", "--threads", type=click.IntRange(1, 256), default=2, show_default=True, metavar="N",
              help="Threads for the devices' arithmetic.")  # fmt: skip
@click.option("--patience", type=click.FloatRange(0), default=60.0, show_default=True, metavar="SECONDS",
              help="Ask a server that does not answer again, so long.")  # fmt: skip
@click.option("--ca-file", type=click.Path(dir_okay=False, path_type=Path),
              help="Certificates (PEM) to trust instead of the system's.")  # fmt: skip
@click.option(
    "--plain-http",
    is_flag=True,
    help="Plain HTTP to another machine too: everybody on the way sees who takes part.",
)
@console_options
def command(
    console: Console,
    source: str,
    server: str,
    token: str | None,
    collections: tuple[str, ...],
    wait: float,
    folder: Path | None,
    key_file: Path | None,
    drop: float,
    slow: str | None,
    seed: int | None,
    lifetime_epsilon: str,
    most_per_collection: str,
    least_shard: int,
    passive_too: bool,
    user: str | None,
    lon: str | None,
    lat: str | None,
    connections: int,
    threads: int,
    patience: float,
    ca_file: Path | None,
    plain_http: bool,
) -> int:
    """Answer a collector with a fleet of devices, one for each user of a table.

    Every device decides, spends and answers for itself, with the code of a real one; that they run in one process is
    the simulation. Exit 1 where a collection was aborted, or no device takes part.

    \b
    Examples:
      mapveil device --fleet checkins.parquet --server http://127.0.0.1:8321 --enrol mve_...
      mapveil device --fleet checkins.parquet --server http://127.0.0.1:8321 --drop 0.05 --slow 0.02:5s \\
        --state fleet/ --key-file fleet.key
    """
    import asyncio

    import mapveil as mv
    from mapveil.collector.fleet.fleet import Fleet
    from mapveil.collector.fleet.fleet_table import whereabouts_of
    from mapveil_client.vault import read_key

    for each in collections:
        if not _IDENTIFIER.fullmatch(each):
            raise InputError(f"--collection must be 32 hexadecimal digits, got {each!r}")
    if (folder is None) != (key_file is None):
        raise InputError("--state and --key-file go together")
    lapses = _lapses(drop, slow, seed)
    policy = _policy(lifetime_epsilon, most_per_collection, least_shard, passive_too)
    key = None if key_file is None else read_key(key_file)
    points = mv.read_points(source, user=user, lon=lon, lat=lat)
    with console.progress() as progress:
        fleet = Fleet(
            server,
            whereabouts_of(points),
            policy,
            lapses=lapses,
            folder=folder,
            key=key,
            connections=connections,
            threads=threads,
            patience_s=patience,
            authority=ca_file,
            plain=plain_http,
            progress=progress,
        )
        made = asyncio.run(fleet.run(token, collections, wait_s=wait))
    console.result("\n".join(made.lines()), made.to_record())
    return 0 if made.good else 1


def _policy(lifetime: str, most: str, least_shard: int, passive_too: bool) -> DevicePolicy:
    from mapveil_client.policy import DevicePolicy

    whole = as_epsilon(lifetime, "--lifetime-epsilon")
    each: Fraction = as_epsilon(most, "--most-per-collection")
    return DevicePolicy(
        lifetime_epsilon=whole,
        most_per_collection=min(each, whole),
        least_shard=least_shard,
        active_only=not passive_too,
    )


def _lapses(drop: float, slow: str | None, seed: int | None) -> Lapses:
    from mapveil.collector.fleet.fleet import Lapses

    if slow is None:
        return Lapses(drop=drop, seed=seed)
    read = _SLOW.fullmatch(slow)
    try:
        if read is None:
            raise ValueError
        part, seconds = float(read["part"]), float(read["time"]) * _UNITS[read["unit"]]
    except ValueError:
        raise InputError(f"--slow must be a fraction and a time, such as 0.02:5s, got {slow!r}") from None
    return Lapses(drop=drop, slow=part, slow_s=seconds, seed=seed)
