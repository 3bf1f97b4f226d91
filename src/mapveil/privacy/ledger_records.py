"""The records of a ledger: its accounts, their budgets, and every spend. Reading charges nothing."""

import os
import sys
from fractions import Fraction
from pathlib import Path
from typing import Final

from mapveil.privacy.ledger_accounts import (
    Balance,
    Default,
    Entry,
    SpendId,
    default_budget,
    find_account,
    find_dataset,
    find_entries,
)
from mapveil.privacy.ledger_file import create_ledger, transaction

DEFAULT_BUDGET: Final = Fraction(3)
"""Budget of an account whose ledger says nothing else.

Under a total of 3 and add-or-remove neighbours, an adversary with even odds can come to believe that one person is in
the table, or is not, to at most e^3 / (1 + e^3) = 95.3 %; that the person was at one of two places rather than the
other, to at most e^6 / (1 + e^6) = 99.76 %. A larger budget is a decision for a person to take and to record.
"""


def default_ledger_path() -> Path:
    """Path of the ledger: ``$MAPVEIL_LEDGER``, or in the user's data folder of the platform."""
    named = os.environ.get("MAPVEIL_LEDGER")
    if named:
        return Path(named).expanduser()
    if sys.platform == "darwin":
        folder = Path.home() / "Library" / "Application Support"
    elif sys.platform == "win32":
        folder = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        folder = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return folder / "mapveil" / "ledger.sqlite"


class LedgerRecords:
    """Accounts and spends of a ledger, to read; :class:`mapveil.privacy.ledger.Ledger` spends too. Run by: the curator.

    Parameters
    ----------
    path : str or PathLike, optional
        The file, made if missing; :func:`default_ledger_path` by default.

    Raises
    ------
    InputError
        The file is not a ledger, or cannot be made.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        # One file has one path, so that every process keeps answers at one place.
        self.path = Path(os.path.realpath(default_ledger_path() if path is None else path))
        create_ledger(self.path, str(DEFAULT_BUDGET))
        with transaction(self.path):  # refuse a foreign file now, not after the heavy work
            pass

    def entries(self, dataset: str | None = None) -> tuple[Entry, ...]:
        """Every line, oldest first; or those of one dataset and what shares its budget."""
        with transaction(self.path) as connection:
            return find_entries(connection, None if dataset is None else find_dataset(connection, dataset))

    def release(self, first: SpendId | str) -> tuple[Entry, ...]:
        """The lines of one release, oldest first, by the id of its first spend; none where it is unknown."""
        with transaction(self.path) as connection:
            return find_entries(connection, None, first)

    def accounts(self) -> tuple[Balance, ...]:
        """Every budget the ledger keeps, in the order in which they were opened."""
        with transaction(self.path) as connection:
            firsts = connection.execute("SELECT MIN(dataset) FROM datasets GROUP BY account ORDER BY account")
            return tuple(find_account(connection, dataset) for (dataset,) in firsts.fetchall())

    def account(self, account: str, *, before: SpendId | None = None) -> Balance:
        """An account, its budget and what is spent of it, or was before a spend."""
        with transaction(self.path) as connection:
            return find_account(connection, find_dataset(connection, account), before)

    def default(self) -> Default:
        """The budget of an account without one of its own, its owner and its reason."""
        with transaction(self.path) as connection:
            return default_budget(connection)

    def remaining(self, account: str) -> Fraction:
        """Remaining epsilon of an account."""
        return self.account(account).remaining

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"
