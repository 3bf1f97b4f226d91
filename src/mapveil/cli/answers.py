"""What the commands that answer questions share: outputs, mechanisms of the local trust, the ledger, the last words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from mapveil_client.errors import InputError

if TYPE_CHECKING:
    from mapveil.cli.console import Console
    from mapveil.local.mechanism import LocalMechanism
    from mapveil.privacy.guarantee import Guarantee
    from mapveil.privacy.ledger import Account


def answer_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``-o``, ``--title``, the ledger's options and ``--seed``."""
    for option in (
        click.option("--seed", type=int, help="Repeat a run exactly. The answer is marked NOT FOR RELEASE."),
        click.option(
            "--dataset", help="Name of the dataset whose budget is spent. [default: told by its content]"
        ),
        click.option("--no-ledger", is_flag=True, help="Do not account for this answer."),
        click.option(
            "--ledger",
            type=click.Path(path_type=Path),
            help="The ledger file. [default: $MAPVEIL_LEDGER or yours]",
        ),
        click.option("--title", help="Head of pictures and pages."),
    ):
        function = option(function)
    return function


def check_outputs(outputs: tuple[Path, ...], accepted: tuple[str, ...]) -> None:
    """Refuse what could not be written before anything is read or spent."""
    for output in outputs:
        if output.suffix.lower() not in accepted:
            raise InputError(f"-o {output}: no format has that suffix; accepted: {', '.join(accepted)}")
        if output.is_dir() or not output.parent.is_dir():
            raise InputError(f"-o {output}: the folder {output.parent} must exist, and the name be a file's")


def local_mechanism(name: str | None, epsilon: Fraction, options: Mapping[str, Any]) -> LocalMechanism:
    """A mechanism whose reports are randomized on the device; the default of the local trust without a name.

    Raises
    ------
    ParameterError
        No local method has the name, or an option does not fit it.
    """
    from mapveil.mechanisms.methods import find_method

    return cast("LocalMechanism", find_method(name, "local").make(epsilon, options))


def ledger_of(path: Path | None, *, wanted: bool) -> Any:
    """The ledger, or None where nothing is to be entered."""
    from mapveil.privacy.ledger import Ledger

    return Ledger(path) if wanted else None


def say(
    console: Console,
    lines: list[str],
    record: dict[str, Any],
    guarantee: Guarantee,
    receipt: Account | None,
    seed: int | None,
) -> None:
    """The last words of a command: what was written, the promise, and how the budget stands."""
    if seed is not None:
        console.warn("seeded: this answer is NOT FOR RELEASE, and nothing was charged for it")
    lines = [*lines, repr(guarantee)]
    if receipt is None:
        console.warn("not entered in a ledger: nobody adds this to other answers about the same people")
    else:
        spent, budget = float(receipt.spent), float(receipt.budget)
        lines.append(f"  ledger      {spent:g} of {budget:g} spent on these data, {budget - spent:g} left")
        record = {**record, "ledger": {"spent": str(receipt.spent), "budget": str(receipt.budget)}}
    console.result("\n".join(lines), record)
