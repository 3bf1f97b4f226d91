"""``mapveil enrol-authority``: the authority that certifies the devices of active secure sums."""

from __future__ import annotations

import time
from pathlib import Path

import click

from mapveil.cli.console import Console, console_options
from mapveil.secure_sum.enrolment_authority import DAYS, MOST_DAYS, EnrolmentAuthority
from mapveil_client.errors import InputError


@click.command("enrol-authority")
@click.argument("key_file", type=click.Path(dir_okay=False, path_type=Path), metavar="KEYFILE")
@click.option("--population", default="devices", show_default=True, metavar="NAME",
              help="Name of the devices that it certifies.")  # fmt: skip
@click.option("--create", is_flag=True, help="Draw the key, where there is no file yet.")
@click.option("--certify", "requests", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="Certify the device keys in FILE, one a line, each 64 hexadecimal digits.")  # fmt: skip
@click.option("--days", type=click.IntRange(1, MOST_DAYS), default=DAYS, show_default=True, metavar="DAYS",
              help="Lifetime of a certificate: a revoked device counts for so long.")  # fmt: skip
@console_options
def command(
    console: Console, key_file: Path, population: str, create: bool, requests: Path | None, days: int
) -> int:
    """Keep an enrolment authority: show it, draw its key, or certify devices.

    A device of an active secure sum believes only devices that the authority of its own policy has certified. Keep
    KEYFILE apart from the collector: whoever holds it can invent devices.

    Without --certify, prints the authority as policies and collectors name it, POPULATION:KEY, and on stderr its
    fingerprint. With --certify, prints one certificate a line: CBOR, hexadecimal.

    \b
    Examples:
      mapveil enrol-authority authority.key --population bikes.example --create
      mapveil enrol-authority authority.key --population bikes.example --certify keys.txt --days 7
    """
    authority = EnrolmentAuthority.open(key_file, population, make=create)
    if requests is not None:
        lines = _certificates(authority, requests, days)
        console.result("\n".join(lines), {"authority": str(authority.named), "certificates": lines})
        return 0
    named = authority.named
    console.note(f"Fingerprint: {named.fingerprint}")
    console.result(str(named), {"authority": str(named), "fingerprint": named.fingerprint})
    return 0


def _certificates(authority: EnrolmentAuthority, requests: Path, days: int) -> list[str]:
    try:
        lines = requests.read_text(encoding="ascii").split()
        keys = [bytes.fromhex(line) for line in lines]
    except (OSError, ValueError) as error:
        raise InputError(f"{requests}: device keys must be 64 hexadecimal digits a line ({error})") from None
    if len(set(keys)) < len(keys):
        raise InputError(f"{requests}: every key must stand once: a certificate is of one device")
    return [authority.certify(key, time.time(), days=days).encode().hex() for key in keys]
