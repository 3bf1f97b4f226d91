"""The ledger's accounts: people who share a budget, how each account stands, and which one a table belongs to."""

import json
import secrets
import shlex
import sqlite3
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, NamedTuple, NewType

import numpy as np

from mapveil.privacy.population import SHARED, Seen, Sketch, merge
from mapveil_client.epsilon import as_epsilon, plain
from mapveil_client.errors import CuratorWarning, InputError, ParameterError, PromiseError

_SHOWN: Final = 12  # hexadecimal digits of a dataset's id on display
_SHORTEST: Final = 6  # and the fewest that are accepted for one
_LONGEST: Final = 200  # characters of an account's name
_NAME: Final = "(SELECT name FROM names WHERE names.account = accounts.account ORDER BY rowid LIMIT 1)"

SpendId = NewType("SpendId", str)
"""The id of one spend, random."""


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
        """One line: what is spent and what is left, exactly."""
        spent, whole, left = map(plain, (self.spent, self.budget, self.remaining))
        return f"{spent} of {whole} spent per {self.unit}, {left} left"


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


def recognise(
    connection: sqlite3.Connection,
    seen: Seen | None,
    source: str,
    dataset: str | None,
    other_people: str | None,
) -> str:
    """The id of the dataset that was seen, opened or joined to an account; see :meth:`Ledger.recognise`."""
    named = None if dataset is None else _find_named(connection, dataset)
    alike: dict[int, str] = {}  # the accounts that know these very people
    if seen is not None:
        alike = dict(
            connection.execute(
                "SELECT account, dataset FROM datasets WHERE digest = ?", (seen.digest,)
            ).fetchall()
        )
    at = next(iter(alike)) if named is None and other_people is None and len(alike) == 1 else named
    known = alike.get(at) if other_people is None and at is not None else None
    statements = _statements(connection, at)
    stated = {account for account, _ in statements}
    shares: dict[int, float] = {}
    least = 0 if seen is not None and seen.filtered else SHARED
    if seen is not None and (known is None or seen.filtered):
        shares = seen.shares(_sketches(connection))
    if known is None:
        shares |= dict.fromkeys(alike, 1.0)
    shares = {
        account: share
        for account, share in sorted(shares.items())
        if share >= least and account not in stated and account != at
    }
    if shares and other_people is None:
        raise _people_in_common(connection, source, shares, named, dataset)
    if other_people is not None and not shares and other_people not in [reason for _, reason in statements]:
        raise ParameterError(
            "leave out other_people (--other-people), for there is nothing to state, and nothing is charged: these "
            f"people have too few ids in common with any other account than {dataset}"
        )
    for account in sorted(alike.keys() & {*shares, *stated}):  # stated now, or before
        reason = other_people if account in shares else dict(statements)[account]
        text = (
            f"{source}: has exactly the people of account {_called(connection, account)}, by their ids; another budget "
            f"is charged for them only because --other-people states that they are others: {reason}"
        )
        warnings.warn(text, CuratorWarning, stacklevel=2)
    if known is not None and at is not None and seen is not None:
        if named is None and dataset is not None:
            add_name(connection, at, dataset)
        return known
    home = _open_account(connection, dataset) if named is None else named
    if home in alike:
        identity = alike[home]
    elif seen is None and named is not None:
        identity = _first_dataset(connection, home)
    else:
        identity = secrets.token_hex(16)
        digest = None if seen is None else seen.digest
        connection.execute("INSERT INTO datasets VALUES (?, ?, ?)", (identity, home, digest))
    if seen is not None:
        _add_people(connection, home, seen.sketch)
    for other in shares:
        connection.execute(
            "INSERT INTO other_people VALUES (?, ?, ?, ?)",
            (identity, _first_dataset(connection, other), now(), other_people),
        )
    return identity


def add_name(connection: sqlite3.Connection, account: int, name: str) -> None:
    """Name an account; refuse a name that could be taken for something else, or that a terminal would not show."""
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
    connection.execute("INSERT INTO names VALUES (?, ?)", (name, account))


def join_account(connection: sqlite3.Connection, account: int, other: int) -> tuple[Balance, Balance]:
    """Join an account to another, under the smaller budget with its owner and reason; both as they stood before."""
    columns = "SELECT budget, owner, reason FROM accounts WHERE account = ?"
    rows = [connection.execute(columns, (each,)).fetchone() for each in (other, account)]
    default = default_budget(connection).budget
    (budget, owner, reason), (_, second, _) = sorted(
        rows, key=lambda row: (default if row[0] is None else as_epsilon(row[0]), row[0] is None)
    )
    joined, joining = (
        find_account(connection, _first_dataset(connection, each)) for each in (account, other)
    )
    connection.execute(
        "UPDATE accounts SET budget = ?, owner = ?, reason = ? WHERE account = ?",
        (budget, owner or second, reason, other),
    )
    _add_people(connection, other, _sketches(connection)[account])
    connection.execute("UPDATE datasets SET account = ? WHERE account = ?", (other, account))
    connection.execute("UPDATE names SET account = ? WHERE account = ?", (other, account))
    connection.execute("DELETE FROM accounts WHERE account = ?", (account,))
    return joined, joining


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
        " WHERE account = ?1 AND id NOT IN (SELECT id FROM events WHERE kind = 'annulled')"
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
        tuple(f"{_called(connection, other)}: {why}" for other, why in _statements(connection, account)),
        tuple(each for (each,) in names),
    )


def now() -> str:
    """The time of a line."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _open_account(connection: sqlite3.Connection, name: str | None) -> int:
    account = connection.execute(
        "INSERT INTO accounts (unit, owner, reason, sketch) VALUES ('user', '', '', x'')"
    ).lastrowid
    assert account is not None
    if name is not None:
        add_name(connection, account, name)
    return account


def _find_named(connection: sqlite3.Connection, text: str) -> int | None:
    """The account of a name or of an id's leading digits; None for a name that is new."""
    known = connection.execute("SELECT account FROM names WHERE name = ?", (text,)).fetchone()
    if known is None and not like_id(text):
        return None
    return account_of(connection, find_dataset(connection, text))


def account_of(connection: sqlite3.Connection, dataset: str) -> int:
    """The account that a dataset belongs to."""
    return int(connection.execute("SELECT account FROM datasets WHERE dataset = ?", (dataset,)).fetchone()[0])


def _first_dataset(connection: sqlite3.Connection, account: int) -> str:
    found = connection.execute("SELECT dataset FROM datasets WHERE account = ? ORDER BY rowid", (account,))
    return str(found.fetchone()[0])


def _called(connection: sqlite3.Connection, account: int) -> str:
    """The account's name, or the leading digits of its first dataset's id."""
    named = connection.execute(f"SELECT {_NAME} FROM accounts WHERE account = ?", (account,)).fetchone()[0]
    return named or _first_dataset(connection, account)[:_SHOWN]


def _sketches(connection: sqlite3.Connection) -> dict[int, Sketch]:
    found = connection.execute("SELECT account, sketch FROM accounts").fetchall()
    return {account: np.frombuffer(sketch, dtype="<u8").astype(np.uint64) for account, sketch in found}


def _add_people(connection: sqlite3.Connection, account: int, people: Sketch) -> None:
    before = _sketches(connection)[account]
    after = merge(before, people)
    if not np.array_equal(before, after):
        sketch = after.astype("<u8").tobytes()
        connection.execute("UPDATE accounts SET sketch = ? WHERE account = ?", (sketch, account))


def _statements(connection: sqlite3.Connection, account: int | None) -> list[tuple[int, str]]:
    """The accounts that were stated to be of other people than this one, and each reason."""
    return connection.execute(
        "WITH pairs AS (SELECT mine.account AS mine, theirs.account AS theirs, reason, other_people.rowid AS line"
        " FROM other_people JOIN datasets AS mine ON mine.dataset = other_people.dataset"
        " JOIN datasets AS theirs ON theirs.dataset = other)"
        " SELECT theirs, reason FROM (SELECT * FROM pairs UNION ALL SELECT theirs, mine, reason, line FROM pairs)"
        " WHERE mine = ?1 AND theirs <> ?1 ORDER BY line",
        (account,),
    ).fetchall()


def _people_in_common(
    connection: sqlite3.Connection,
    source: str,
    shares: Mapping[int, float],
    named: int | None,
    dataset: str | None,
) -> InputError:
    """The refusal of data about people whom other accounts know, with both ways out."""
    names = {account: shlex.quote(_called(connection, account)) for account in shares}
    common = " and ".join(
        f"account {names[account]} (about {share:.0%})" for account, share in shares.items()
    )
    first = names[next(iter(shares))] if named is None else shlex.quote(str(dataset))
    more = [name for name in names.values() if name != first]
    joins = "".join(f"mapveil ledger name {name} {first}, then " for name in more)
    return InputError(
        f"{source}: has people in common with {common} of the smaller of both, so nothing is charged or released; "
        f"if they are the same people: {joins}--dataset {first}; if they are others whose ids coincide, as ids such "
        "as 1 to n do by chance: --dataset NEW-NAME --other-people REASON (in Python dataset=, other_people=)"
    )


def find_entries(
    connection: sqlite3.Connection, dataset: str | None, release: str | None = None
) -> tuple[Entry, ...]:
    """Every line, oldest first; or those of a dataset's account; or those of a release, by its first spend."""
    given = dataset if release is None else release
    if release is not None:
        some = "id = ?1 OR id > ?1 || '-' AND id < ?1 || '.'"
    else:
        some = "?1 IS NULL OR account = (SELECT account FROM datasets WHERE dataset = ?1)"
    rows = connection.execute(
        f"SELECT id, spends.time, dataset, {_NAME}, epsilon, method, parameters, tiling, region,"
        " COALESCE(events.outputs, spends.outputs), COALESCE(kind, 'spent'), COALESCE(events.reason, '')"
        " FROM spends JOIN datasets USING (dataset) JOIN accounts USING (account)"
        " LEFT JOIN events USING (id)"
        f" WHERE {some} ORDER BY spend",
        (given,),
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


def refusal(account: Balance, asked: Fraction, ledger: Path) -> str:
    """One line: the reason of a refusal, and the command that would allow the spend."""
    known = account.name or account.datasets[0]
    enough = account.spent + asked
    owner = f" (its owner is {account.owner})" if account.owner else ""
    return (
        f"{ledger}: account {known}: epsilon {plain(asked)} asked, {plain(account.spent)} of "
        f"{plain(account.budget)} spent, {plain(account.remaining)} left, so nothing is released; "
        f"the owner of the budget decides; to allow it, raise the budget{owner}: "
        f"mapveil ledger --ledger {shlex.quote(str(ledger))} budget "
        f"{shlex.quote(known)} {plain(enough)}"
    )
