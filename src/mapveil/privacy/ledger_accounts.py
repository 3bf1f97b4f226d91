"""The ledger's accounts: people who share a budget, and how each account stands."""

import json
import shlex
import sqlite3
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, NamedTuple, NewType

import numpy as np

from mapveil.privacy.population import Sketch, merge
from mapveil_client.epsilon import as_epsilon, plain, readable
from mapveil_client.errors import InputError, ParameterError, PromiseError

_SHOWN: Final = 12  # hexadecimal digits of a dataset's id on display
_SHORTEST: Final = 6  # and the fewest that are accepted for one
_CUT: Final = 3  # digits from which a new name is no chance beginning of a known id
_LONGEST: Final = 200  # characters of an account's name
_NAME: Final = "(SELECT name FROM names WHERE names.account = accounts.account ORDER BY rowid LIMIT 1)"

SpendId = NewType("SpendId", str)
"""The id of one spend, random."""

FILES: Final = """CREATE TABLE IF NOT EXISTS files (
    id TEXT NOT NULL REFERENCES spends (id),
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (id, name, digest)
)"""
"""Files of live series, which are written long after their spend was; made with the first of them."""


class Entry(NamedTuple):
    """One line of the ledger."""

    id: SpendId
    time: datetime  # UTC
    dataset: str  # the leading digits of the dataset's id
    name: str | None  # of the account
    epsilon: Fraction
    method: str
    parameters: dict[str, Any]
    tiling: str
    region: str
    outputs: tuple[str, ...]  # names of the files: those written, or else those that were to be
    status: str  # "spent"; "written" once every output was; "annulled"
    reason: str  # why it was annulled
    hashes: tuple[str, ...] = ()  # SHA-256 of the files that were written, where they were recorded


class Balance(NamedTuple):
    """A population that has one budget, and how it stands."""

    name: str | None  # the first of its names
    datasets: tuple[str, ...]  # leading digits of the ids of the tables and rasters that were charged to it
    unit: str  # whose epsilon is counted
    owner: str  # who answers for the budget
    reason: str  # for the budget
    budget: Fraction
    spent: Fraction
    releases: int
    other_people: tuple[str, ...]  # datasets that were stated to be of others, each with the reason
    names: tuple[str, ...]

    @property
    def remaining(self) -> Fraction:
        """Remaining epsilon, never below zero."""
        return max(self.budget - self.spent, Fraction(0))

    @property
    def standing(self) -> str:
        """One line: amounts spent per unit, and left."""
        return self.amounts.replace(" spent", f" spent per {self.unit}")

    @property
    def amounts(self) -> str:
        """Amounts spent of the budget, and left."""
        spent, whole, left = map(readable, (self.spent, self.budget, self.remaining))
        return f"{spent} of {whole} spent, {left} left"


def like_id(text: str) -> bool:
    """Whether a text could be the leading digits of a dataset's id."""
    return len(text) >= _SHORTEST and set(text) <= set("0123456789abcdef")


def check_not_cut(connection: sqlite3.Connection, name: str) -> None:
    """Refuse a new name that is the beginning of a known id, cut too short: it would open another account."""
    if len(name) < _CUT or not set(name) <= set("0123456789abcdef"):
        return
    if connection.execute("SELECT 1 FROM datasets WHERE dataset GLOB ?", (f"{name}*",)).fetchone():
        raise InputError(
            f"name must not be the first digits of a known dataset's id, got {name!r}; name that account by at least "
            f"{_SHORTEST} of them"
        )


def find_dataset(connection: sqlite3.Connection, text: str) -> str:
    """The full id of a name, or of an id's leading digits."""
    pattern = f"{text}*" if like_id(text) else None
    found = connection.execute(
        "SELECT MIN(dataset) FROM datasets JOIN names USING (account) WHERE name = ? GROUP BY account"
        " UNION SELECT dataset FROM datasets WHERE dataset GLOB ?",
        (text, pattern),
    ).fetchall()
    if len(found) != 1:
        short = 0 < len(text) < _SHORTEST and set(text) <= set("0123456789abcdef")
        raise InputError(
            f"{len(found) or 'no'} account{'s' * (len(found) > 1)} in the ledger called {text!r}; "
            f"expected an account's name or at least {_SHORTEST} leading digits of a dataset's id"
            + f", for which {len(text)} are too short"
            * short
        )
    return str(found[0][0])


class Default(NamedTuple):
    """The budget of an account without one of its own."""

    budget: Fraction
    owner: str
    reason: str


def default_budget(connection: sqlite3.Connection) -> Default:
    """The ledger's default budget."""
    row = connection.execute("SELECT default_budget, owner, reason FROM ledger").fetchone()
    return Default(as_epsilon(row[0], "default budget"), *row[1:])


def check_name(name: str) -> None:
    """Refuse a name that could be taken for something else, or that a terminal would not show."""
    if not name or name.strip() != name or name == "default" or like_id(name):
        raise ParameterError(
            "name must be a word other than 'default', without blanks at its ends and no row of hexadecimal digits, "
            f"got {name!r}"
        )
    if len(name) > _LONGEST or not name.isprintable():
        raise ParameterError(
            f"name must be at most {_LONGEST} characters without line breaks or control characters, got "
            f"{name[:_LONGEST]!r}"
        )


def add_name(connection: sqlite3.Connection, account: int, name: str) -> None:
    """Name an account."""
    check_name(name)
    connection.execute("INSERT INTO names VALUES (?, ?)", (name, account))


def join_account(connection: sqlite3.Connection, account: int, other: int) -> tuple[Balance, Balance]:
    """Join an account to another, under the smaller budget with its owner and reason; both as they stood before."""
    columns = "SELECT budget, owner, reason FROM accounts WHERE account = ?"
    rows = [connection.execute(columns, (each,)).fetchone() for each in (other, account)]
    default = default_budget(connection).budget
    (budget, owner, reason), (_, second, _) = sorted(
        rows, key=lambda row: (default if row[0] is None else as_epsilon(row[0]), row[0] is None)
    )
    joined, joining = (find_account(connection, first_dataset(connection, each)) for each in (account, other))
    connection.execute(
        "UPDATE accounts SET budget = ?, owner = ?, reason = ? WHERE account = ?",
        (budget, owner or second, reason, other),
    )
    add_people(connection, other, sketches(connection)[account])
    connection.execute("UPDATE datasets SET account = ? WHERE account = ?", (other, account))
    connection.execute("UPDATE names SET account = ? WHERE account = ?", (other, account))
    connection.execute("DELETE FROM accounts WHERE account = ?", (account,))
    return joined, joining


def together(*accounts: Balance) -> str | None:
    """The reason against a join of accounts, if more than the smallest budget would be spent; None without any."""
    spent, budget = sum((each.spent for each in accounts), Fraction(0)), min(each.budget for each in accounts)
    if spent <= budget:
        return None
    return (
        f"joined, {readable(spent)} of {readable(budget)} would be spent, the smallest of their budgets, and nothing "
        "more released: raise the budgets first (mapveil ledger budget)"
    )


def find_account(connection: sqlite3.Connection, dataset: str, before: str | None = None) -> Balance:
    """The account of a dataset; what is spent is added up from the lines alone, or from those before a spend."""
    found = connection.execute(
        f"SELECT account, {_NAME}, unit, owner, reason, budget FROM datasets JOIN accounts USING (account)"
        " WHERE dataset = ?",
        (dataset,),
    ).fetchone()
    if found is None:  # an altered index
        raise PromiseError(f"dataset {dataset[:_SHOWN]} has no account; run mapveil ledger check")
    account, name, unit, owner, reason, budget = found
    members = connection.execute(
        "SELECT dataset FROM datasets WHERE account = ? ORDER BY rowid", (account,)
    ).fetchall()
    spent = connection.execute(
        "SELECT epsilon, count(*) FROM spends JOIN datasets USING (dataset)"
        " WHERE account = ?1"
        " AND NOT EXISTS (SELECT 1 FROM events WHERE events.id = spends.id AND kind = 'annulled')"
        " AND (?2 IS NULL OR spend < (SELECT spend FROM spends WHERE id = ?2)) GROUP BY epsilon",
        (account, before),
    ).fetchall()
    held = default_budget(connection)
    if budget is not None:
        held = Default(as_epsilon(budget, "budget"), "", "")
    names = connection.execute(
        "SELECT name FROM names WHERE account = ? ORDER BY rowid", (account,)
    ).fetchall()
    return Balance(
        name,
        tuple(member[:_SHOWN] for (member,) in members),
        unit,
        owner or held.owner,
        reason or held.reason,
        held.budget,
        sum((as_epsilon(epsilon) * number for epsilon, number in spent), Fraction(0)),
        sum(number for _, number in spent),
        tuple(f"{called(connection, other)}: {why}" for other, why in statements(connection, account)),
        tuple(each for (each,) in names),
    )


def find_regions(connection: sqlite3.Connection, account: int) -> tuple[str, ...]:
    """The regions of an account's spends, public facts."""
    found = connection.execute(
        "SELECT DISTINCT region FROM spends JOIN datasets USING (dataset) WHERE account = ? AND region <> ''",
        (account,),
    ).fetchall()
    return tuple(region for (region,) in found)


def now() -> str:
    """The time of a line."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def account_of(connection: sqlite3.Connection, dataset: str) -> int:
    """The account that a dataset belongs to."""
    return int(connection.execute("SELECT account FROM datasets WHERE dataset = ?", (dataset,)).fetchone()[0])


def first_dataset(connection: sqlite3.Connection, account: int) -> str:
    """The id of the account's oldest dataset."""
    found = connection.execute("SELECT dataset FROM datasets WHERE account = ? ORDER BY rowid", (account,))
    return str(found.fetchone()[0])


def called(connection: sqlite3.Connection, account: int) -> str:
    """The account's name, or the leading digits of its first dataset's id."""
    named = connection.execute(f"SELECT {_NAME} FROM accounts WHERE account = ?", (account,)).fetchone()[0]
    return named or first_dataset(connection, account)[:_SHOWN]


def sketches(connection: sqlite3.Connection) -> dict[int, Sketch]:
    """The people of each account."""
    found = connection.execute("SELECT account, sketch FROM accounts").fetchall()
    return {account: np.frombuffer(sketch, dtype="<u8").astype(np.uint64) for account, sketch in found}


def add_people(connection: sqlite3.Connection, account: int, people: Sketch) -> None:
    """Add people to those of an account."""
    held = connection.execute("SELECT sketch FROM accounts WHERE account = ?", (account,)).fetchone()[0]
    before = np.frombuffer(held, dtype="<u8").astype(np.uint64)
    after = merge(before, people)
    if not np.array_equal(before, after):
        sketch = after.astype("<u8").tobytes()
        connection.execute("UPDATE accounts SET sketch = ? WHERE account = ?", (sketch, account))


def statements(connection: sqlite3.Connection, account: int | None) -> list[tuple[int, str]]:
    """The accounts that were stated to be of other people than this one, and each reason."""
    return connection.execute(
        "WITH pairs AS (SELECT mine.account AS mine, theirs.account AS theirs, reason, other_people.rowid AS line"
        " FROM other_people JOIN datasets AS mine ON mine.dataset = other_people.dataset"
        " JOIN datasets AS theirs ON theirs.dataset = other)"
        " SELECT theirs, reason FROM (SELECT * FROM pairs UNION ALL SELECT theirs, mine, reason, line FROM pairs)"
        " WHERE mine = ?1 AND theirs <> ?1 ORDER BY line",
        (account,),
    ).fetchall()


def find_entries(
    connection: sqlite3.Connection, dataset: str | None, release: str | None = None
) -> tuple[Entry, ...]:
    """Every line, oldest first; or those of a dataset's account; or those of a release, by its first spend."""
    some, given = "TRUE", list[str]()
    if release is not None:
        some, given = "id = ?1 OR id > ?1 || '-' AND id < ?1 || '.'", [release]
    elif dataset is not None:
        some, given = "account = (SELECT account FROM datasets WHERE dataset = ?1)", [dataset]
    rows = connection.execute(
        f"SELECT id, spends.time, dataset, {_NAME}, epsilon, method, parameters, tiling, region,"
        " COALESCE(events.outputs, spends.outputs), COALESCE(kind, 'spent'), COALESCE(events.reason, '')"
        " FROM spends JOIN datasets USING (dataset) JOIN accounts USING (account)"
        " LEFT JOIN events USING (id)"
        f" WHERE {some} ORDER BY spend",
        given,
    ).fetchall()
    later: dict[str, list[tuple[str, str]]] = {}
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'files'").fetchone():
        for spend, name, digest in connection.execute("SELECT id, name, digest FROM files ORDER BY rowid"):
            later.setdefault(spend, []).append((name, digest))
    return tuple(_with_files(_entry(row), later.get(row[0], [])) for row in rows)


def _with_files(entry: Entry, files: list[tuple[str, str]]) -> Entry:
    """The line with files that were written after it was marked."""
    names = dict.fromkeys((*entry.outputs, *(name for name, _ in files)))
    hashes = (*entry.hashes, *(digest for _, digest in files))
    return entry._replace(outputs=tuple(names), hashes=hashes)


def _entry(row: tuple[Any, ...]) -> Entry:
    read = Entry(*row)  # the columns are the fields, as SQLite holds them
    outputs = json.loads(row[9])  # a list of names, or once they were written their hashes by name
    hashes = [each for held in outputs.values() for each in held] if isinstance(outputs, dict) else []
    return read._replace(
        time=datetime.fromisoformat(row[1]),
        dataset=read.dataset[:_SHOWN],
        epsilon=as_epsilon(read.epsilon),
        parameters=json.loads(row[6]),
        outputs=tuple(outputs),
        hashes=tuple(hashes),
    )


def refusal(account: Balance, asked: Fraction, ledger: Path, proposed: str | None = None) -> str:
    """One line: the reason of a refusal, and the command that would allow the spend.

    An account that is not opened yet has neither a name nor a dataset: it is opened under the proposed name.
    """
    called = account.name or next(iter(account.datasets), None)
    known = called or proposed or ""
    owner = f" (its owner is {account.owner})" if account.owner else ""
    raised = f"mapveil ledger --ledger {shlex.quote(str(ledger))} budget {shlex.quote(known)} "
    return (
        f"{ledger}: {f'account {called}' if called else 'a new account'}: epsilon {readable(asked)} asked, "
        f"{account.amounts}, so nothing is released; the owner of the budget decides; to allow it, "
        f"{'raise the budget' if called else 'open an account with that budget'}{owner}: "
        f"{raised}{plain(account.spent + asked)}"
        + f", and release with --dataset {shlex.quote(known)}"
        * (called is None)
    )
