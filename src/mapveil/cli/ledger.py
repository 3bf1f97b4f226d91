"""``mapveil ledger``: what was spent, and the budgets."""

from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any

import click

from mapveil.cli.console import Console, console_options
from mapveil.cli.options import ledger_option
from mapveil.formats.atomic import all_or_none, atomic_path
from mapveil.pictures.release_sheet import inspect
from mapveil.privacy.chain_head import ChainHead
from mapveil.privacy.charges import unwritten
from mapveil.privacy.ledger import Ledger
from mapveil.privacy.ledger_accounts import Balance, Default, Entry, SpendId
from mapveil.privacy.ledger_chain import value_at, verify
from mapveil.privacy.ledger_file import transaction
from mapveil.privacy.ledger_records import DEFAULT_BUDGET, default_ledger_path
from mapveil.privacy.signed_release import SIGNATURE_SUFFIX, SignedRelease
from mapveil.privacy.signing_key import signing_key
from mapveil_client.epsilon import readable
from mapveil_client.errors import InputError, PromiseError
from mapveil_client.secure_sum.keys import Identity


@click.group("ledger", invoke_without_command=True)
@ledger_option
@click.option("--dataset", help="Show one account only: its name, or the first digits of a dataset's id.")
@console_options
@click.pass_context
def command(context: click.Context, console: Console, ledger: Path | None, dataset: str | None) -> None:
    """Show what was spent on each population, and set budgets.

    A ledger is one file. It knows people by a sample of keyed hashes of their ids, and stores nothing else of them.

    \b
    Examples:
      mapveil ledger
      mapveil ledger budget default 2
      mapveil ledger budget 3f9a1c 5 --owner 'A. Nowak' --reason 'weekly maps of 2026, ticket 481'
      mapveil ledger name 3f9a1c checkins-2026
      mapveil ledger head > head.json
      mapveil ledger check --head head.json
      mapveil ledger sign nyc.parquet nyc.html
    """
    context.obj = ledger
    if context.invoked_subcommand is not None:
        return
    if ledger is None and not default_ledger_path().exists():
        path = str(default_ledger_path())
        empty: dict[str, Any] = {"accounts": [], "entries": []}
        said = f"{path}: there is no ledger at this path, nothing was spent yet"
        console.result(said, {"ledger": path, "default_budget": str(DEFAULT_BUDGET), **empty})
        return
    opened = _existing(ledger)
    with transaction(opened.path) as connection:
        problems = verify(connection).problems
    if problems:
        console.warn(f"{opened.path}: another program changed the ledger: {'; '.join(problems)}")
    try:
        accounts = (opened.account(dataset),) if dataset else opened.accounts()
        entries = opened.entries(dataset)
    except (TypeError, ValueError) as error:
        if not problems:
            raise
        raise PromiseError(f"{opened.path}: cannot be read as it was changed ({error})") from error
    waiting = {
        spend: "--resume" if request else "its answer is lost" for spend, request in unwritten(opened).items()
    }
    default = opened.default()
    lines = [
        f"{opened.path}",
        "\n    ".join([f"default budget: {readable(default.budget)}", *_whose(default)]),
    ]
    for account in accounts:
        lines.append(_account_line(account))
        lines += [
            _entry_line(entry, waiting.get(entry.id))
            for entry in entries
            if entry.dataset in account.datasets
        ]
    lines += [] if entries else ["nothing was spent yet"]
    console.result(
        "\n".join(lines),
        {
            "ledger": str(opened.path),
            "problems": problems,
            "default_budget": str(default.budget),
            "accounts": [_record(account) for account in accounts],
            "entries": [_record(entry) for entry in entries],
        },
    )


@command.command("budget", context_settings={"ignore_unknown_options": True})
@click.argument("account")
@click.argument("epsilon")
@click.option("--reason", default="", help="Reason for the budget. [default: as it is]")
@click.option("--owner", default="", help="Who answers for the budget. [default: as it is]")
@click.pass_obj
def budget(ledger: Path | None, account: str, epsilon: str, reason: str, owner: str) -> None:
    """Set the whole budget of ACCOUNT: a name, which may be new, 6 or more digits of a dataset's id, or 'default'."""
    opened = Ledger(ledger)
    known = len(opened.accounts())
    default = account == "default"
    opened.set_budget(None if default else account, epsilon, reason=reason, owner=owner)
    whole = (opened.default() if default else opened.account(account)).budget
    new = " (a new account: --dataset charges it)" * (len(opened.accounts()) - known)
    click.echo(f"budget of {account}: {readable(whole)}{new}")


@command.command("name")
@click.argument("account")
@click.argument("name")
@click.option(
    "--accept-overspent", is_flag=True, help="Join accounts that have spent more than the smaller budget."
)
@click.pass_obj
def name(ledger: Path | None, account: str, name: str, accept_overspent: bool) -> None:
    """Call ACCOUNT by NAME; a name that is taken joins both accounts under the smaller budget, for good."""
    opened = Ledger(ledger)
    joined = opened.name(account, name, accept_overspent=accept_overspent)
    for each in joined:
        click.echo(f"joined {_account_line(each)}")
    if joined:
        click.echo("the smaller budget holds for both now, with its reason:")
    click.echo(_account_line(opened.account(name)))


@command.command("annul")
@click.argument("spend")
@click.option("--reason", required=True, help="Explanation why no output was released.")
@click.pass_obj
def annul(ledger: Path | None, spend: str, reason: str) -> None:
    """Take back a spend that revealed nothing. The entry stays, with the reason."""
    Ledger(ledger).annul(spend, reason=reason)
    click.echo(f"annulled {spend}")


@command.command("head")
@click.option("--json", "_", is_flag=True, help="Print one JSON document, as without it.")
@click.pass_obj
def head(ledger: Path | None, _: bool) -> None:
    """Print the signed head of the ledger's chain: publish it, and a later check shows what was cut or rewritten."""
    _key, signed = _signed_head(ledger or default_ledger_path())
    click.echo(signed.encode().decode())


@command.command("sign")
@click.argument("paths", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@console_options
@click.pass_obj
def sign(ledger: Path | None, console: Console, paths: tuple[Path, ...]) -> None:
    """Sign released files whose entries this ledger has: FILE.sig, for 'mapveil verify'.

    A file whose bytes are not those that were written is refused. Of releases by older versions the ledger knows the
    name alone, so sign what you released yourself.
    """
    opened = _existing(ledger)
    lines = {entry.id: entry for entry in opened.entries() if entry.status != "annulled"}
    charged: dict[str, Fraction] = {name: entry.epsilon for name, entry in lines.items()}
    named = {name for entry in lines.values() if entry.status == "written" for name in entry.outputs}
    sheets = []
    for path in paths:
        if path.name not in named:
            raise InputError(f"{path}: {opened.path} knows of no release that wrote a file of this name")
        sheet = inspect(path)
        account = sheet.guarantee.account
        if account is None or not charged.keys() >= set(account.entries):
            raise InputError(
                f"{path}: {opened.path} was not charged for this release; sign it by its own ledger"
            )
        hashes = {each for entry in account.entries for each in lines[SpendId(entry)].hashes}
        if hashes and sheet.sha256 not in hashes:
            raise InputError(
                f"{path}: its bytes are not those that the release wrote; sign a file as it was written"
            )
        sheets.append((Path(f"{path}{SIGNATURE_SUFFIX}"), sheet, account.entries))
    key, signed = _signed_head(opened.path)
    with all_or_none():
        for place, sheet, entries in sheets:
            epsilon = sum((charged[entry] for entry in entries), Fraction(0))
            made = SignedRelease.sign(key, bytes.fromhex(sheet.sha256), entries, epsilon, signed)
            with atomic_path(place) as draft:
                draft.write_bytes(made.encode())
    places = [place for place, _, _ in sheets]
    console.result(f"by the key {key.public.hex()}", {"key": key.public.hex()}, places)


@command.command("check")
@click.option("--head", type=click.Path(path_type=Path), help="File with a head that was published before.")
@console_options
@click.pass_obj
def check(ledger: Path | None, console: Console, head: Path | None) -> None:
    """Compare every line of the ledger with its hash chain, and the chain with a published head."""
    path = ledger or default_ledger_path()
    published = None if head is None else ChainHead.read(head)
    with transaction(path) as connection:
        found = verify(connection)
        problems = list(found.problems)
        if published is not None and not problems:
            key, value = signing_key(_key_path(path)), partial(value_at, connection)
            fault = published.fault("ledger", found.lines, value, key)
            problems += [] if fault is None else [fault]
    if problems:
        raise PromiseError(f"{path}: {'; '.join(problems)}")
    since = "" if published is None else f"; line {published.count} is that of the head of {published.time}"
    chain = found.head.hex()
    record = {"lines": found.lines, "chain": chain, "head": None if published is None else published.count}
    console.result(f"ok: {found.lines} lines, chain {chain}{since}", record)


def _existing(ledger: Path | None) -> Ledger:
    """The ledger of a command that reads, and must not make one where a path was given."""
    if ledger is not None and not ledger.exists():
        raise InputError(
            f"{ledger}: there is no ledger at this path; the first release charged to it makes one"
        )
    return Ledger(ledger)


def _signed_head(path: Path) -> tuple[Identity, ChainHead]:
    """The key of a ledger, made where there is none, and its signature of the ledger's head as it is."""
    with transaction(path) as connection:
        found = verify(connection)
    if found.problems:
        raise PromiseError(f"{path}: no head is signed: {'; '.join(found.problems)}")
    key = signing_key(_key_path(path), make=True)
    assert key is not None
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return key, ChainHead.sign(key, "ledger", found.lines, found.head, now)


def _key_path(ledger: Path) -> Path:
    return ledger.with_name(f"{ledger.name}.key")


def _account_line(account: Balance) -> str:
    lines = [f"account {', '.join(account.names or account.datasets)}: {account.standing}"]
    lines += _whose(account)
    lines += [f"other people than account {statement}" for statement in account.other_people]
    return "\n    ".join(lines)


def _whose(budget: Balance | Default) -> list[str]:
    lines = [f"owner: {budget.owner}"] if budget.owner else []
    return lines + ([f"reason for the budget: {budget.reason}"] if budget.reason else [])


def _entry_line(entry: Entry, waiting: str | None) -> str:
    return (
        f"  {entry.time}  {entry.id}  epsilon {readable(entry.epsilon)}  {entry.method}  {entry.tiling}"
        f"  {entry.status}  {', '.join(entry.outputs)}".rstrip()
    ) + (f"  unwritten: {waiting}" if waiting else "")


def _record(row: Balance | Entry) -> dict[str, Any]:
    return {
        key: value if isinstance(value, (list, tuple, dict, int, NoneType)) else str(value)
        for key, value in row._asdict().items()
    }
