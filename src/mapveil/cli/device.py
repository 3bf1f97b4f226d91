"""``mapveil device``: a fleet of devices that answer a collector."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from mapveil.cli.console import Console, console_options
from mapveil.cli.options import Parsed, table_source
from mapveil_client.device_account import Budget
from mapveil_client.epsilon import as_epsilon
from mapveil_client.errors import InputError, check_installed

if TYPE_CHECKING:
    from mapveil_client.secure_sum.certificate import Authority

_KEPT: Final = "what devices have charged stays charged; run again with the same --state"
_FORGOTTEN: Final = (
    "what devices have sent cannot be taken back, and without --state they forget what they charged"
)
_SLOW: Final = re.compile(r"(?P<part>[0-9]*\.?[0-9]+):(?P<time>[0-9]*\.?[0-9]+)(?P<unit>ms|s|m)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}


def _identifier(text: str) -> str:
    if not re.fullmatch("[0-9a-f]{32}", text):
        raise InputError(f"--collection must be 32 hexadecimal digits, got {text!r}")
    return text


def _slow(text: str) -> tuple[float, float]:
    """Read a fraction and seconds."""
    read = _SLOW.fullmatch(text)
    if read is None or float(read["part"]) >= 1:
        raise InputError(f"--slow must be a fraction below 1 and a time, such as 0.02:5s, got {text!r}")
    return float(read["part"]), float(read["time"]) * _UNITS[read["unit"]]


def _authority(text: str) -> Authority:
    from mapveil_client.secure_sum.certificate import Authority

    return Authority.parse(text)


def _epsilon_of(flag: str) -> Parsed:
    return Parsed("epsilon", lambda text: as_epsilon(text, flag))


@click.command("device")
@click.option("--fleet", "source", required=True, metavar="INPUT",
              help="A table of points: each user becomes a device that was at that user's rows.")  # fmt: skip
@click.option(
    "--server", required=True, metavar="URL", help="The collector, such as https://collector.example."
)
@click.option("--enrol", "token", envvar="MAPVEIL_ENROL", metavar="TOKEN",
              help="A token for enrolment, from 'mapveil serve --new-enrolment'. [$MAPVEIL_ENROL]")  # fmt: skip
@click.option("--collection", "collections", multiple=True, type=Parsed("id", _identifier), metavar="ID",
              help="Answer this collection. Repeatable. [default: those that are open]")  # fmt: skip
@click.option("--wait", type=click.FloatRange(0), default=0.0, show_default=True, metavar="SECONDS",
              help="Wait so long for a collection to open.")  # fmt: skip
@click.option("--state", "folder", type=click.Path(file_okay=False, path_type=Path),
              help="Folder of the devices' sealed memories. [default: forgotten at the end]")  # fmt: skip
@click.option("--key-file", type=click.Path(dir_okay=False, path_type=Path),
              help="File with the key that seals them: 64 hexadecimal digits.")  # fmt: skip
@click.option("--drop", type=float, default=0.0, show_default=True, metavar="FRACTION",
              help="Fraction of the devices that drop out of each round, before they send their vector.")  # fmt: skip
@click.option("--slow", type=Parsed("slow", _slow), default=(0.0, 0.0), metavar="FRACTION:TIME",
              help="Fraction of the devices that wait before each message, and how long: 0.02:5s.")  # fmt: skip
@click.option(
    "--seed", type=int, help="Choose who drops out and who is slow; nothing private is ever seeded."
)
@click.option("--budget", type=Parsed("budget", Budget.parse), default="4", show_default=True, metavar="BUDGET",
              help="Epsilon of all answers of a device together: ever, or such as '4 per 30 days'.")  # fmt: skip
@click.option("--most-per-collection", type=_epsilon_of("--most-per-collection"), default="2", show_default=True,
              metavar="EPSILON", help="Maximum epsilon of one collection.")  # fmt: skip
@click.option("--least-shard", type=int, default=20, show_default=True, metavar="DEVICES",
              help="Minimum number of devices per secure sum, and per collection.")  # fmt: skip
@click.option("--authority", "named", type=Parsed("authority", _authority), metavar="POPULATION:KEY",
              help="Enrolment authority of the devices' policy; no active sum is answered without.")  # fmt: skip
@click.option("--helper", metavar="KEY",
              help="Key of the helper of the devices' policy, as it says when it starts; no sum by two operators is "
              "answered without.")  # fmt: skip
@click.option("--authority-key", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Key of that authority: certify the devices here, not by the collector.")  # fmt: skip
@click.option("--authority-server", metavar="URL",
              help="Address of that authority, where 'mapveil enrol-authority --serve' runs.")  # fmt: skip
@click.option("--authority-enrol", envvar="MAPVEIL_AUTHORITY_ENROL", metavar="TOKEN",
              help="A token for enrolment at that address. [$MAPVEIL_AUTHORITY_ENROL]")  # fmt: skip
@click.option("--passive-too", is_flag=True,
              help="Answer sums too that are not safe against a malicious server.")  # fmt: skip
@table_source("user", "lon", "lat")
@click.option("--connections", type=click.IntRange(1, 1024), default=32, show_default=True, metavar="N",
              help="Maximum number of connections at once.")  # fmt: skip
@click.option("-j", "--threads", type=click.IntRange(1, 256), default=2, show_default=True, metavar="N",
              help="Number of threads for the devices' arithmetic.")  # fmt: skip
@click.option("--patience", "patience_s", type=click.FloatRange(0), default=60.0, show_default=True,
              metavar="SECONDS",
              help="Keep asking a silent server so long; waits that it asks for come on top.")  # fmt: skip
@click.option("--ca-file", "authority", type=click.Path(dir_okay=False, path_type=Path),
              help="Certificates (PEM) to trust instead of the system's.")  # fmt: skip
@click.option(
    "--plain-http",
    "plain",
    is_flag=True,
    help="Use plain HTTP to another machine too: everybody on the way sees who takes part.",
)
@console_options
def command(
    console: Console,
    source: str,
    columns: dict[str, Any],
    token: str | None,
    collections: tuple[str, ...],
    wait: float,
    folder: Path | None,
    key_file: Path | None,
    drop: float,
    slow: tuple[float, float],
    seed: int | None,
    budget: Budget,
    most_per_collection: Fraction,
    least_shard: int,
    passive_too: bool,
    named: Authority | None,
    helper: str | None,
    authority_key: Path | None,
    authority_server: str | None,
    authority_enrol: str | None,
    **connected: Any,
) -> int:
    """Answer a collector with a fleet of devices, one for each user of a table.

    Every device decides, spends and answers for itself, with the code of a real one; that they run in one process is
    the simulation. Exit 1 where a collection was aborted, or no device takes part.

    \b
    Examples:
      mapveil device --fleet checkins.parquet --server http://127.0.0.1:8321 --enrol mve_... \\
        --authority devices:8a88...
      mapveil device --fleet checkins.parquet --server http://127.0.0.1:8321 --drop 0.05 --slow 0.02:5s \\
        --state fleet/ --key-file fleet.key
    """
    import asyncio

    import mapveil as mv

    check_installed("h11", "device")
    from mapveil.collector.fleet.fleet import Fleet
    from mapveil.collector.fleet.fleet_table import whereabouts_of
    from mapveil.collector.fleet.lapses import Lapses
    from mapveil.secure_sum.enrolment_authority import EnrolmentAuthority
    from mapveil_client.policy import DevicePolicy
    from mapveil_client.vault import read_key

    if (folder is None) != (key_file is None):
        raise InputError("--state and --key-file go together")
    if (authority_server is None) != (authority_enrol is None):
        raise InputError("--authority-server and --authority-enrol go together")
    if named is None and (authority_server or authority_key):
        raise InputError("--authority-key and --authority-server need --authority")
    apart = None
    if authority_key is not None and named is not None:
        apart = EnrolmentAuthority.open(authority_key, named.population)
        if apart.named != named:
            raise InputError(f"{authority_key}: the key is of {apart.named}, not of --authority")
    lapses = Lapses(drop=drop, slow=slow[0], slow_s=slow[1], seed=seed)
    policy = DevicePolicy(
        budget=budget,
        most_per_collection=min(most_per_collection, budget.epsilon),
        least_shard=least_shard,
        active_only=not passive_too,
        authority=named,
        helper=helper,
    )
    key = None if key_file is None else read_key(key_file)
    whereabouts = whereabouts_of(mv.read_points(source, **columns))
    with console.progress() as progress:
        fleet = Fleet(
            whereabouts=whereabouts,
            policy=policy,
            lapses=lapses,
            folder=folder,
            key=key,
            authority_apart=apart,
            authority_server=None if authority_server is None else (authority_server, authority_enrol or ""),
            progress=progress,
            note=console.note,
            **connected,
        )
        try:
            summary = asyncio.run(fleet.run(token, collections, wait_s=wait))
        except KeyboardInterrupt as error:
            error.add_note(_KEPT if folder is not None else _FORGOTTEN)
            raise
    console.result("\n".join(summary.lines()), summary.to_record())
    return 0 if summary.good else 1
