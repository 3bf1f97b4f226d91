"""``--dry-run``: a release is checked and described; no release is charged, drawn or written."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from mapveil.cli.console import Console
from mapveil.privacy.ledger_records import default_ledger_path
from mapveil.privacy.rehearsal import RehearsalAccount, Rehearsed
from mapveil_client.epsilon import readable
from mapveil_client.errors import BudgetExceeded

if TYPE_CHECKING:
    from mapveil.evaluation.coverage_design import CoverageDesign

_USERS: Final = (1_000, 10_000, 100_000)
"""Numbers of users that an error is predicted for, where none is declared: the table's own is not public."""

_UNITS: Final = (30, 100, 1_000, 10_000)
"""Numbers of units that coverage by sums is described for."""

_TRIALS: Final = 2  # synthetic cities
_MOST_CELLS: Final = 1 << 16  # that an error is predicted on


def rehearsal_account(
    name: str | None,
    ledger: Path | None,
    outputs: Sequence[Path],
    other_people: str | None,
    *,
    accounted: bool,
) -> RehearsalAccount:
    """The account of a rehearsal; a ledger that does not exist yet is made in a temporary folder."""
    path = default_ledger_path() if ledger is None else ledger
    if not path.exists():
        folder = click.get_current_context().with_resource(tempfile.TemporaryDirectory(prefix="mapveil-"))
        path = Path(folder) / "ledger.sqlite"
    return RehearsalAccount(name, path, outputs, other_people=other_people, accounted=accounted)


def rehearsable(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command that ends well where its rehearsal ends, with a description of the release."""

    @functools.wraps(command)
    def run(*arguments: Any, **given: Any) -> Any:
        account = given["account"]
        if not isinstance(account, RehearsalAccount):
            return command(*arguments, **given)
        try:
            command(*arguments, **given)
        except Rehearsed as found:
            _report(Console.current(), found, account)
            return 0
        except BudgetExceeded as error:
            named = click.get_current_context().params.get("ledger") or default_ledger_path()
            refused = BudgetExceeded(error.in_flags().replace(str(account.ledger), str(named)))
            for note in getattr(error, "__notes__", ()):
                refused.add_note(note)
            raise refused from None
        raise AssertionError("a rehearsal ends before the charge")

    return run


def _report(console: Console, found: Rehearsed, account: RehearsalAccount) -> None:
    context = click.get_current_context()
    about, balance = found.about, found.balance
    where = context.params.get("region") or about["region"] or "a region that a tenth of epsilon finds"
    spec = about["tiling"] or "quadtree"
    cells = f"{spec} as deep as the number of users allows" if spec == "quadtree" else spec
    rows = {"method": about["method"], "cells": f"{cells}, in {where}"}
    given = context.params.get("options") or {}
    chosen = {name: value for name, value in about["parameters"].items() if name in given}
    if chosen:
        # As the command line would set them.
        rows["options"] = " ".join(f"--option {name}={value}" for name, value in chosen.items())
    if about["parameters"].get("aim"):
        rows["aim"] = about["parameters"]["aim"]
    prior = about["parameters"].get("prior")
    if prior is not None:
        rows["prior"] = f"{prior['name']} ({prior['basis']}); not in the predicted error"
    names = [str(path) for path in account.outputs]
    record: dict[str, Any] = {"dry_run": True, **about, "charge": None, "outputs": names}
    if found.epsilon is None:
        rows["charge"] = "none: the method has no privacy budget"
    elif balance is None:
        rows["charge"] = f"none; epsilon {readable(found.epsilon)} would enter no ledger"
    else:
        named = balance.name or next(iter(balance.datasets), None)
        after = balance._replace(spent=balance.spent + found.epsilon)
        rows["charge"] = (
            f"epsilon {readable(found.epsilon)} to {f'account {named}' if named else 'a new account'}"
        )
        rows["account"] = f"{balance.amounts}; after the release {after.amounts}"
        amounts = {
            "account": named,
            "spent": balance.spent,
            "spent_after": after.spent,
            "budget": balance.budget,
        }
        record["charge"] = {name: None if value is None else str(value) for name, value in amounts.items()}
    if account.outputs:
        rows["outputs"] = ", ".join(str(path) for path in account.outputs)
    single = "windows" not in about["parameters"]  # synthetic cities have no time
    known = context.params.get("region") is not None
    if context.info_name == "release" and found.epsilon is not None and known and single:
        with console.progress() as progress:
            predicted = _predicted(about, found.epsilon, context.params, progress)
        rows |= {f"at {users:,} users": text for users, text in predicted.items()}
        record["predicted"] = predicted
    if context.info_name == "sums" and found.epsilon is not None:
        with console.progress() as progress:
            designs = _designs(about, found.epsilon, context.params, progress)
        rows |= {f"at {each.users:,} {context.params['unit']}s": each.in_words() for each in designs}
        record["design"] = [each._asdict() for each in designs]
    width = max(map(len, rows))
    lines = ["dry run: everything was checked; no release was charged, drawn or written"]
    lines += [f"  {name:<{width}}  {text}" for name, text in rows.items()]
    if context.info_name == "release":
        lines.append(
            "whether anybody is in the region cannot be told without epsilon; 'mapveil describe' tells you alone"
        )
    console.result("\n".join(lines), record)


def _designs(
    about: Mapping[str, Any], epsilon: Fraction, given: dict[str, Any], progress: Any
) -> list[CoverageDesign]:
    """The design of coverage by sums, by number of units."""
    from mapveil.evaluation.coverage_design import coverage_design
    from mapveil.geo.parse_tiling import parse_tiling
    from mapveil.mechanisms.methods import signal_sums

    cells = parse_tiling(about["tiling"], given["region"])
    asked = {**given["options"], "unit": given["unit"]}
    sums = signal_sums(epsilon, given["trust"], asked, accept_large_epsilon=True)
    made = []
    for at, users in enumerate(_UNITS):
        progress("predict", at / len(_UNITS))
        made.append(coverage_design(sums, cells, users))
    progress("predict", 1.0)
    return made


def _predicted(
    about: Mapping[str, Any], epsilon: Fraction, given: dict[str, Any], progress: Any
) -> dict[int, str]:
    """The predicted error, by number of users; nothing where it cannot be predicted."""
    from mapveil.evaluation.predicted_errors import plan
    from mapveil.geo.parse_tiling import parse_tiling
    from mapveil.mechanisms.default_tiling import declared_tiling

    region, trust = given["region"], given["trust"]
    declared = about["parameters"].get("users")
    made: dict[int, str] = {}
    for users in _USERS if declared is None else (declared,):
        spec = about["tiling"] if given["tiling"] else declared_tiling(users, epsilon).spec
        cells = parse_tiling(spec, region)
        if trust not in ("central", "distributed"):
            continue
        if cells.size > _MOST_CELLS:
            made[users] = f"{spec}: not predicted, for the map has more than {_MOST_CELLS:,} cells"
            continue
        aim = about["parameters"].get("aim")
        method = [f"{trust}/{about['method']}" + (f":aim={aim}" if aim else "")]
        (advice,) = plan(users, cells, [epsilon], method, trials=_TRIALS, progress=progress).recommendations
        useful = "no resolution is useful"
        if advice.finest_cell_m is not None:
            useful = f"useful down to cells {advice.finest_cell_m:,.0f} m wide"
        made[users] = (
            f"{spec}: error of a cell about {advice.typical_error:.2g} users; {useful} ({_TRIALS} synthetic cities)"
        )
    return made
