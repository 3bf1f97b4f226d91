"""``mapveil enrol-authority``: the authority that certifies the devices of active secure sums, and revokes them."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any, Final

import click

from mapveil.cli.console import Console, console_options
from mapveil.cli.store_actions import (
    StoreAction,
    is_missing,
    open_store,
    read_settings,
    settings_options,
    store_options,
)
from mapveil.collector.http.settings import SETTINGS, Settings
from mapveil.secure_sum.enrolment_authority import DAYS, LIST_DAYS, MOST_DAYS, EnrolmentAuthority
from mapveil_client.errors import InputError

_SETTINGS: Final = (
    "store", "host", "port", "tls_cert", "tls_key", "trusted_proxies", "log_format", "log_level", "enrol_minute",
    "enrol_day",
)  # fmt: skip
"""Settings of the service that are options here; the others are variables of the environment."""


@click.command("enrol-authority")
@click.argument("key_file", type=click.Path(dir_okay=False, path_type=Path), metavar="KEYFILE")
@click.option("--population", default="devices", show_default=True, metavar="NAME",
              help="Name of the devices that it certifies.")  # fmt: skip
@click.option("--create", is_flag=True, help="Draw the key, where there is no file yet.")
@click.option("--certify", "requests", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="Certify the device keys in FILE, one a line, each 64 hexadecimal digits.")  # fmt: skip
@click.option("--revoke", "revoked", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="Sign the list of revoked keys: all of FILE, which is only ever added to.")  # fmt: skip
@click.option("--serve", "served", is_flag=True,
              help="Serve: devices enrol with a token, and fetch certificate and list.")  # fmt: skip
@click.option("--days", type=click.IntRange(1, MOST_DAYS), metavar="DAYS",
              help=f"Lifetime of a certificate, or of a revocation list: how long a server can withhold a newer one. "
                   f"[default: {DAYS}, of a list {LIST_DAYS}]")  # fmt: skip
@store_options
@settings_options(_SETTINGS)
@console_options
def command(
    console: Console,
    key_file: Path,
    population: str,
    create: bool,
    requests: Path | None,
    revoked: Path | None,
    served: bool,
    days: int | None,
    action: StoreAction,
    **given: Any,
) -> int:
    """Keep an enrolment authority: show it, draw its key, certify and revoke devices, or serve.

    A device of an active secure sum believes only devices that the authority of its own policy has certified. Keep
    KEYFILE apart from the collector: whoever holds it can invent devices.

    Without more, prints the authority as policies and collectors name it, POPULATION:KEY, and on stderr its
    fingerprint. With --certify, prints one certificate a line (CBOR, hexadecimal), and adds a line for each to
    KEYFILE.log. With --revoke, prints the revocation list (CBOR, hexadecimal): the collector's --revocation-list.
    The service keeps its own store, with tokens and revoked devices of its own (--new-enrolment, --device).

    \b
    Examples:
      mapveil enrol-authority authority.key --population bikes.example --create
      mapveil enrol-authority authority.key --population bikes.example --certify keys.txt --days 7
      mapveil enrol-authority authority.key --population bikes.example --revoke revoked.txt > list.hex
      mapveil enrol-authority authority.key --new-enrolment 2000:pilot --store authority.sqlite
      mapveil enrol-authority authority.key --population bikes.example --serve --store authority.sqlite --port 8322
    """
    if sum((requests is not None, revoked is not None, served)) + action.count > 1:
        raise InputError(
            "give only one of --certify, --revoke, --serve, --new-operator, --new-enrolment and --device"
        )
    if action.count:
        return action.take(_own_store(given, console), console)
    authority = EnrolmentAuthority.open(key_file, population, make=create)
    if served:
        from mapveil.cli.serve import run_service

        settings = _own_store(given, console)
        settings = dataclasses.replace(
            settings,
            authority=None,
            revocation_list=None,
            authority_key=str(key_file),
            population=population,
            workers=1,
        )
        return run_service(settings, console, authority_only=True)
    if requests is not None:
        lines = _certificates(authority, key_file, requests, days or DAYS)
        console.result("\n".join(lines), {"authority": str(authority.named), "certificates": lines})
        return 0
    if revoked is not None:
        made = authority.revoke(_keys(revoked), time.time(), days=days or LIST_DAYS)
        console.note(f"Revocation list {made.number}, for {days or LIST_DAYS} days.")
        text = made.encode().hex()
        console.result(text, {"authority": str(authority.named), "number": made.number, "list": text})
        return 0
    named = authority.named
    console.note(f"Fingerprint: {named.fingerprint}")
    console.result(str(named), {"authority": str(named), "fingerprint": named.fingerprint})
    return 0


def _own_store(given: dict[str, Any], console: Console) -> Settings:
    """Settings with a store of the authority's own: a collector's would tie the two together again."""
    from mapveil.collector.rounds.collection import listed

    settings = read_settings(given, console)
    if settings.store == SETTINGS[0].default:
        raise InputError("--store must name a store of the authority's own, got none")
    if is_missing(settings):  # whoever makes it says so
        return settings
    store = open_store(settings)
    with store.read() as connection:
        collections = len(listed(connection))
    store.close()
    if collections:
        raise InputError(
            f"--store must name a store of the authority's own, got one with {collections} collections"
        )
    return settings


def _keys(path: Path) -> list[bytes]:
    """Read device keys, one a line."""
    try:
        keys = [bytes.fromhex(line) for line in path.read_text(encoding="ascii").split()]
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: device keys must be 64 hexadecimal digits a line ({error})") from None
    if len(set(keys)) < len(keys):
        raise InputError(f"{path}: every key must stand once: a certificate is of one device")
    return keys


def _certificates(authority: EnrolmentAuthority, key_file: Path, requests: Path, days: int) -> list[str]:
    """Certify keys; what was certified is in the log before anybody has it."""
    made = [authority.certify(key, time.time(), days=days) for key in _keys(requests)]
    log = key_file.with_name(f"{key_file.name}.log")
    lines = [json.dumps({"at": int(time.time()), **each.summary}) + "\n" for each in made]
    try:
        with log.open("a", encoding="utf-8") as file:
            file.writelines(lines)
    except OSError as error:
        raise InputError(f"{log}: cannot be written ({error.strerror}); nothing is certified") from None
    return [each.encode().hex() for each in made]
