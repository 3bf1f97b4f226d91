"""``mapveil verify``: checks of a released file by a stranger."""

from __future__ import annotations

from pathlib import Path

import click

from mapveil.cli.console import Console, console_options

_FILE = click.Path(path_type=Path)
_UNKNOWN_SIGNER = 3  # exit code


@click.command("verify")
@click.argument("path", metavar="FILE", type=_FILE)
@click.option("--signature", type=_FILE, help="The file of the signature. [default: FILE.sig]")
@click.option(
    "--key", help="The curator's public key, 64 hexadecimal digits. [default: that of --ledger-head]"
)
@click.option("--ledger-head", type=_FILE, help="A head of the ledger that the curator published.")
@console_options
def command(
    console: Console, path: Path, signature: Path | None, key: str | None, ledger_head: Path | None
) -> int:
    """Check a released file: its signature, its text, the parts of epsilon, and its noise by redundant sums.

    Exit code 0 where the signature is by the curator's key and nothing failed; 1 where a check failed; 3 where none
    failed but nobody is known to have signed: no signature, or one by an unknown key. The checks show that the
    arithmetic is as stated and, where sums were measured twice, that their noise is not far smaller than stated. They
    cannot show that the data were true.

    \b
    Examples:
      mapveil verify map.parquet --key 5f0c...
      mapveil verify map.parquet --key 5f0c... --ledger-head head.json
    """
    from mapveil.analysis.verify_release import verify_release

    found = verify_release(path, signature=signature, key=key, ledger_head=ledger_head)
    console.findings(found.findings)
    return 0 if found.ok else 1 if found.failed else _UNKNOWN_SIGNER
