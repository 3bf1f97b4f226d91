"""``mapveil ledger``: what was spent, and the budgets."""

from pathlib import Path
from types import NoneType
from typing import Any

import click

from mapveil.cli.console import Console, console_options
from mapveil.cli.options import ledger_option
from mapveil.privacy.ledger import Ledger
from mapveil.privacy.ledger_accounts import Balance, Entry


@click.group("ledger", invoke_without_command=True)
@ledger_option
@click.option("--dataset", help="Show one dataset only: its name or the first digits of its id.")
@console_options
@click.pass_context
def command(context: click.Context, console: Console, ledger: Path | None, dataset: str | None) -> None:
    """Show what was spent on each dataset, and set budgets.

    A ledger is one file. It knows a dataset by a keyed hash of its content and stores nothing else of it.

    \b
    Examples:
      mapveil ledger
      mapveil ledger budget default 2
      mapveil ledger budget 3f9a1c 5
      mapveil ledger name 3f9a1c checkins-2026
    """
    context.obj = ledger
    if context.invoked_subcommand is not None:
        return
    opened = Ledger(ledger)
    accounts = (opened.account(dataset),) if dataset else opened.accounts()
    entries = opened.entries(dataset)
    lines = [f"{opened.path}", f"default budget: {float(opened.budget()):g}"]
    lines += [_account_line(account) for account in accounts] or ["nothing was spent yet"]
    lines += [_entry_line(entry) for entry in entries]
    console.result(
        "\n".join(lines),
        {
            "ledger": str(opened.path),
            "default_budget": str(opened.budget()),
            "accounts": [_record(account) for account in accounts],
            "entries": [_record(entry) for entry in entries],
        },
    )


@command.command("budget")
@click.argument("dataset")
@click.argument("epsilon")
@click.pass_obj
def budget(ledger: Path | None, dataset: str, epsilon: str) -> None:
    """Set the whole budget of DATASET (a name, the first digits of an id, or 'default')."""
    opened = Ledger(ledger)
    budgeted = None if dataset == "default" else dataset
    opened.set_budget(budgeted, epsilon)
    click.echo(f"budget of {dataset}: {float(opened.budget(budgeted)):g}")


@command.command("name")
@click.argument("dataset")
@click.argument("name")
@click.pass_obj
def name(ledger: Path | None, dataset: str, name: str) -> None:
    """Call DATASET by NAME; a name that is taken joins both to one budget, for good."""
    opened = Ledger(ledger)
    opened.name(dataset, name)
    click.echo(_account_line(opened.account(name)))


@command.command("annul")
@click.argument("spend")
@click.option("--reason", required=True, help="Explanation why no output was released.")
@click.pass_obj
def annul(ledger: Path | None, spend: str, reason: str) -> None:
    """Take back a spend that revealed nothing. The entry stays, with the reason."""
    Ledger(ledger).annul(spend, reason=reason)
    click.echo(f"annulled {spend}")


def _account_line(account: Balance) -> str:
    spent, whole = float(account.spent), float(account.budget)
    called = account.name or ", ".join(account.datasets)
    return f"dataset {called}: {spent:g} of {whole:g} spent, {max(whole - spent, 0.0):g} left"


def _entry_line(entry: Entry) -> str:
    return (
        f"  {entry.time}  {entry.id}  {float(entry.epsilon):g}  {entry.method}  {entry.tiling}"
        f"  {entry.status}  {', '.join(entry.outputs)}".rstrip()
    )


def _record(row: Balance | Entry) -> dict[str, Any]:
    return {
        key: value if isinstance(value, (list, tuple, dict, int, NoneType)) else str(value)
        for key, value in row._asdict().items()
    }
