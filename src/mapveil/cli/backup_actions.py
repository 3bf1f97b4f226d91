"""The options of 'mapveil serve' that look after its store: back it up, accept a restored one, upgrade it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from mapveil.cli.console import Console

if TYPE_CHECKING:
    from mapveil.collector.http.settings import Settings
    from mapveil.collector.store.database import Store


@dataclass(frozen=True)
class BackupAction:
    """An action that ends the command: at most one is given."""

    backup: Path | None
    restored: str | None
    upgrade: bool

    @property
    def count(self) -> int:
        """Number of actions that were given."""
        return (self.backup is not None) + (self.restored is not None) + self.upgrade

    def take(self, settings: Settings, console: Console) -> int:
        """Take the action; the exit code."""
        from mapveil.collector.clock import SystemClock
        from mapveil.collector.store.database import Store

        store = Store(settings.store, clock=SystemClock())
        try:
            if self.backup is not None:
                _back_up(store, self.backup, console)
            elif self.upgrade:
                _upgrade(store, console)
            else:
                _accept_restored(store, self.restored == "continue", console)
        finally:
            store.close()
        return 0


def backup_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a :class:`BackupAction`, given to the function as ``care``."""

    @functools.wraps(function)
    def command(
        *arguments: Any, backup: Path | None, restored: str | None, upgrade: bool, **given: Any
    ) -> Any:
        return function(*arguments, care=BackupAction(backup, restored, upgrade), **given)

    for add in reversed(_ACTIONS):
        command = add(command)
    return command


_ACTIONS: Final = (
    click.option(
        "--backup",
        type=click.Path(path_type=Path),
        metavar="FOLDER",
        help="Copy an SQLite store and the keys beside it into a new folder, while the service runs.",
    ),
    click.option(
        "--restored",
        type=click.Choice(["abort", "continue"]),
        help="Let a restored store serve: abort the collections in progress, or continue them where no answer can be "
        "given twice.",
    ),
    click.option(
        "--upgrade", is_flag=True, help="Upgrade the tables of an earlier version; back the store up before."
    ),
)


def _back_up(store: Store, folder: Path, console: Console) -> None:
    from mapveil.collector.store.backup import back_up

    copies = back_up(store, folder)
    console.note("The folder holds every key of the store and every report in progress: keep it as secret.")
    console.result(str(folder), {"files": [path.name for path in copies]})


def _accept_restored(store: Store, go_on: bool, console: Console) -> None:
    from mapveil.collector.rounds.restoration import accept_restored

    found = accept_restored(store, go_on=go_on)
    console.note(
        f"This store knows nothing after {found.until or 'its making'}: charges, enrolments and revocations since are "
        "not in it. Devices keep their own accounts; those that enrolled since must enrol again."
    )
    if found.operators:
        console.note(
            "It held sums by two operators. Those that had not ended are aborted, and a helper refuses the terms of "
            "collections that were created before now: create them anew."
        )
    console.result(
        f"aborted: {' '.join(found.aborted) or 'none'}; continued: {' '.join(found.continued) or 'none'}",
        found._asdict(),
    )


def _upgrade(store: Store, console: Console) -> None:
    from mapveil.collector.store.upgrade import upgrade

    with store.alone() as connection:
        before, after = upgrade(connection)
    done = f"schema version {before} -> {after}" if before != after else f"schema version {after} is current"
    console.result(done, {"before": before, "after": after})
