"""The ledger's accounts: datasets that share a budget, and how each stands by its lines alone."""

import json
import shlex
import sqlite3
from datetime import datetime
from fractions import Fraction
from typing import Any, Final, NamedTuple, NewType

from mapveil_client.epsilon import as_epsilon
from mapveil_client.errors import InputError

_SHOWN: Final = 12  # hexadecimal digits of a dataset's id on display
_SHORTEST: Final = 6  # and the fewest that are accepted for one
_NAME: Final = "(SELECT name FROM names WHERE names.account = accounts.account ORDER BY rowid LIMIT 1)"

SpendId = NewType("SpendId", str)
"""The id of one spend, random."""


class Entry(NamedTuple):
    """One line of the ledger."""

    id: SpendId
    time: datetime  # UTC
    dataset: str  # the leading digits of the dataset's id
    name: str | None  # of the dataset
    epsilon: Fraction
    method: str
    parameters: dict[str, Any]
    tiling: str
    region: str
    outputs: tuple[str, ...]
    status: str  # "spent"; "written" once every output was; "annulled"
    reason: str  # why it was annulled


class Balance(NamedTuple):
    """Datasets that share one budget, and how it stands."""

    name: str | None
    datasets: tuple[str, ...]
    budget: Fraction
    spent: Fraction
    releases: int

    @property
    def remaining(self) -> Fraction:
        """Remaining epsilon, never below zero."""
        return max(self.budget - self.spent, Fraction(0))


def like_id(text: str) -> bool:
    """Whether a text could be the leading digits of a dataset's id."""
    return len(text) >= _SHORTEST and set(text) <= set("0123456789abcdef")


def find_dataset(connection: sqlite3.Connection, text: str) -> str:
    """The full id of a name, or of an id's leading digits."""
    pattern = f"{text}*" if like_id(text) else None
    found = connection.execute(
        "SELECT MIN(dataset) FROM datasets JOIN names USING (account) WHERE name = ? GROUP BY account"
        " UNION SELECT dataset FROM datasets WHERE dataset GLOB ?",
        (text, pattern),
    ).fetchall()
    if len(found) != 1:
        raise InputError(
            f"{len(found) or 'no'} dataset{'s' * (len(found) > 1)} in the ledger called {text!r}; "
            f"expected a dataset's name or at least {_SHORTEST} leading digits of its id"
        )
    return str(found[0][0])


def default_budget(connection: sqlite3.Connection) -> Fraction:
    """The budget of a dataset without one of its own."""
    return as_epsilon(connection.execute("SELECT default_budget FROM ledger").fetchone()[0], "default budget")


def open_account(connection: sqlite3.Connection, digest: str) -> int:
    """The account of a dataset, a new one for a dataset the ledger has not seen."""
    found = connection.execute("SELECT account FROM datasets WHERE dataset = ?", (digest,)).fetchone()
    if found is not None:
        return int(found[0])
    account = connection.execute("INSERT INTO accounts (budget) VALUES (NULL)").lastrowid
    connection.execute("INSERT INTO datasets VALUES (?, ?)", (digest, account))
    assert account is not None
    return account


def find_account(connection: sqlite3.Connection, digest: str) -> Balance:
    """Compute the state of a dataset's budget from its lines alone."""
    found = connection.execute(
        f"SELECT account, {_NAME}, budget FROM datasets JOIN accounts USING (account) WHERE dataset = ?",
        (digest,),
    ).fetchone()
    if found is None:
        return Balance(None, (digest[:_SHOWN],), default_budget(connection), Fraction(0), 0)
    account, name, budget = found
    members = connection.execute(
        "SELECT dataset FROM datasets WHERE account = ? ORDER BY rowid", (account,)
    ).fetchall()
    spent = connection.execute(
        "SELECT epsilon FROM spends JOIN datasets USING (dataset) LEFT JOIN events USING (id)"
        " WHERE account = ? AND kind IS NOT 'annulled'",
        (account,),
    ).fetchall()
    return Balance(
        name,
        tuple(member[:_SHOWN] for (member,) in members),
        default_budget(connection) if budget is None else as_epsilon(budget, "budget"),
        sum((as_epsilon(epsilon) for (epsilon,) in spent), Fraction(0)),
        len(spent),
    )


def find_entries(connection: sqlite3.Connection, digest: str | None) -> tuple[Entry, ...]:
    """Every line, oldest first; or those that share a dataset's budget."""
    rows = connection.execute(
        f"SELECT id, spends.time, dataset, {_NAME}, epsilon, method, parameters, tiling, region, outputs,"
        " COALESCE(kind, 'spent'), COALESCE(reason, '')"
        " FROM spends JOIN datasets USING (dataset) JOIN accounts USING (account)"
        " LEFT JOIN events USING (id)"
        " WHERE ?1 IS NULL OR account = (SELECT account FROM datasets WHERE dataset = ?1)"
        " ORDER BY spend",
        (digest,),
    ).fetchall()
    return tuple(_entry(row) for row in rows)


def _entry(row: tuple[Any, ...]) -> Entry:
    read = Entry(*row)  # the columns are the fields, as SQLite holds them
    return read._replace(
        time=datetime.fromisoformat(row[1]),
        dataset=read.dataset[:_SHOWN],
        epsilon=as_epsilon(read.epsilon),
        parameters=json.loads(row[6]),
        outputs=tuple(json.loads(row[9])),
    )


def refusal(account: Balance, digest: str, asked: Fraction) -> str:
    """One line: the reason of a refusal, and the command that would allow the spend."""
    known = account.name or digest[:_SHOWN]
    enough = account.spent + asked
    return (
        f"dataset {known}: epsilon {_plain(asked)} asked, {_plain(account.spent)} of "
        f"{_plain(account.budget)} spent, {_plain(account.remaining)} left, so nothing is released; "
        f"to allow it, raise the budget: mapveil ledger budget {shlex.quote(known)} {_plain(enough)}"
    )


def _plain(epsilon: Fraction) -> str:
    """A decimal where it is exact, else the fraction: what is shown can be typed back."""
    decimal = f"{float(epsilon):.12g}"
    return decimal if Fraction(decimal) == epsilon else str(epsilon)
