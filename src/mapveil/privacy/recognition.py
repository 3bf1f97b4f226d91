"""The account that the people of a table belong to: decided by reading, recorded with the first charge.

A request that is refused for whatever reason therefore leaves the ledger as it was.
"""

import re
import secrets
import shlex
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final

from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.privacy.ledger_accounts import (
    Balance,
    account_of,
    add_name,
    add_people,
    called,
    check_name,
    check_not_cut,
    default_budget,
    find_account,
    find_dataset,
    find_entries,
    find_regions,
    first_dataset,
    like_id,
    now,
    sketches,
    statements,
    together,
)
from mapveil.privacy.population import NOBODY, SHARED, Seen, Sketch
from mapveil_client.errors import InputError, ParameterError

_LONGEST: Final = 40  # characters of a name that is proposed


class PeopleInCommon(InputError):
    """The refusal of data about people whom other accounts know."""


@dataclass(frozen=True, eq=False)
class Asked:
    """The people of a request, and what is said of them.

    Parameters
    ----------
    data : Points or Counts, optional
        The data, whose ids are read.
    dataset : str, optional
        Name of the account that they join or open.
    other_people : str, optional
        Reason why the people are others than those of every other account.
    of_series : bool
        Whether the data are of a series, whose account is that of its start.

    Raises
    ------
    ParameterError
        Neither data nor a name; a statement without a name for the account, or without a reason.
    """

    data: Points | Counts | None = None
    dataset: str | None = None
    other_people: str | None = None
    of_series: bool = False

    def __post_init__(self) -> None:
        if self.dataset is None and (self.data is None or self.other_people is not None):
            example = (
                f", such as dataset={_word(self.source)} (--dataset {_word(self.source)})"
                if self.data is not None
                else ""
            )
            raise ParameterError(
                "dataset (--dataset NAME) is required with other_people (--other-people), or without data"
                + example
            )
        if self.other_people is not None and not self.other_people.strip():
            raise ParameterError("other_people (--other-people) must be a reason, got an empty text")

    @property
    def source(self) -> str:
        """Name of the data in messages."""
        return "" if self.data is None else self.data.source


@dataclass(frozen=True, eq=False, kw_only=True)
class Recognition:
    """A dataset and its account, as the ledger knows them or as the first charge will record them.

    Parameters
    ----------
    asked : Asked
        The people of the request.
    dataset : str
        The dataset's id; random where the dataset is new.
    account : int, optional
        The account in the ledger; a new one by default.
    new : bool
        Whether the dataset is to be recorded.
    digest : str, optional
        The dataset's digest, see :class:`~mapveil.privacy.population.Seen`.
    name : str, optional
        A name to be recorded for the account.
    people : Sketch
        People to be added to the account.
    others : tuple of int
        Accounts whose people are stated to be others, to be recorded.
    warnings : tuple of str
        What the curator should know before the charge.
    regions : tuple of str
        Regions of earlier releases about the account.
    state : bytes
        State of the ledger's accounts in which this was decided; see :func:`state_of`.
    """

    asked: Asked
    dataset: str
    account: int | None = None
    new: bool = False
    digest: str | None = None
    name: str | None = None
    people: Sketch
    others: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    state: bytes = b""

    def balance(self, connection: sqlite3.Connection) -> Balance:
        """The account as it stands, or as it will when it is opened."""
        if self.account is not None:
            return find_account(connection, first_dataset(connection, self.account))
        default, nothing = default_budget(connection), Fraction(0)
        return Balance(
            self.name, (), "user", default.owner, default.reason, default.budget, nothing, 0, (), ()
        )

    def proposed(self, connection: sqlite3.Connection) -> str | None:
        """A name for an account that has none and is not opened yet; None for any other."""
        return None if self.account or self.name else proposed_name(connection, self.asked.source)

    def record(self, connection: sqlite3.Connection) -> str:
        """Record what is not yet in the ledger, in a transaction of the same state; the dataset's id."""
        home = self.account
        if home is None:
            home = connection.execute(
                "INSERT INTO accounts (unit, owner, reason, sketch) VALUES ('user', '', '', x'')"
            ).lastrowid
            assert home is not None
        if self.name is not None:
            add_name(connection, home, self.name)
        if self.new:
            connection.execute("INSERT INTO datasets VALUES (?, ?, ?)", (self.dataset, home, self.digest))
        if self.people.size:
            add_people(connection, home, self.people)
        for other in self.others:
            row = (self.dataset, first_dataset(connection, other), now(), self.asked.other_people)
            connection.execute("INSERT INTO other_people VALUES (?, ?, ?, ?)", row)
        return self.dataset


def recorded(connection: sqlite3.Connection, dataset: str | Recognition) -> str:
    """The id of a dataset, which is recorded where it is not; or that of a name, or of leading digits."""
    return find_dataset(connection, dataset) if isinstance(dataset, str) else dataset.record(connection)


def state_of(connection: sqlite3.Connection) -> bytes:
    """The last line of the ledger's chain that is of no spend: whatever a recognition reads ends in such a line."""
    found = connection.execute(
        "SELECT value FROM chain WHERE source IN ('rest', 'other_people') ORDER BY number DESC LIMIT 1"
    ).fetchone()
    return bytes(found[0]) if found else b""


def recognition(connection: sqlite3.Connection, asked: Asked, seen: Seen | None) -> Recognition:
    """The account of the people who were seen, which the ledger knows, which they join or which is new.

    See :meth:`Ledger.recognise`. Nothing is written. Run by: the curator.

    Raises
    ------
    InputError
        The people are in other accounts too.
    ParameterError
        There is nothing to state, or the name cannot be one.
    """
    dataset, other_people = asked.dataset, asked.other_people
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
    statements_of = statements(connection, at)
    stated = dict(statements_of)
    shares: dict[int, float] = {}
    least = 0 if seen is not None and seen.filtered else SHARED
    if seen is not None and (known is None or seen.filtered):
        shares = seen.shares(sketches(connection))
    if known is None:
        shares |= dict.fromkeys(alike, 1.0)
    shares = {
        account: share
        for account, share in sorted(shares.items())
        if share >= least and account not in stated and account != at
    }
    if shares and other_people is None:
        raise _people_in_common(connection, asked, shares, named, filtered=least == 0)
    if (
        other_people is not None
        and not shares
        and other_people not in [reason for _, reason in statements_of]
    ):
        raise ParameterError(
            "leave out other_people (--other-people), for there is nothing to state, and nothing is charged: these "
            f"people have too few ids in common with any other account than {dataset}"
        )
    told = tuple(
        f"{asked.source}: has exactly the people of account {called(connection, account)}, by their ids; another "
        "budget is charged for them only because other_people (--other-people) states that they are others: "
        f"{other_people if account in shares else stated[account]}"
        for account in sorted(alike.keys() & {*shares, *stated})  # stated now, or before
    )
    if seen is not None and seen.respelled and not asked.of_series:  # a live series counts them as one
        told += (
            f"{asked.source}: {seen.people:,} ids, as they are written, are {seen.people - seen.respelled:,} people, "
            "written in several ways (AB1 and ab1, 1 and 01); each way counts as a user, so such a person has epsilon "
            "for each: write every id in one way; keep this private",
        )
    home = at if known is not None else named
    name = dataset if named is None else None
    if name is not None:
        check_name(name)
        check_not_cut(connection, name)
    people, identity = NOBODY, known
    if identity is None:
        people = NOBODY if seen is None else seen.sketch
        if home in alike:
            identity = alike[home]
        elif seen is None and home is not None:
            identity = first_dataset(connection, home)
    return Recognition(
        asked=asked,
        dataset=identity or secrets.token_hex(16),
        account=home,
        new=identity is None,
        digest=None if seen is None else seen.digest,
        name=name,
        people=people,
        others=tuple(shares),
        warnings=told,
        regions=() if home is None else find_regions(connection, home),
        state=state_of(connection),
    )


def proposed_name(connection: sqlite3.Connection, source: str) -> str:
    """A name for a new account that the ledger does not have, after the data's file."""
    word, number = _word(source), 1
    while _find_named(connection, name := word if number == 1 else f"{word}-{number}") is not None:
        number += 1
    return name


def _word(source: str) -> str:
    """A word after the name of a file, which may be an account's name."""
    path = Path(source.split(", ")[0])
    word = re.sub(r"[^\w]+", "-", path.stem).strip("-_")[:_LONGEST] if path.suffix else ""
    return f"people-{word}" if like_id(word) or word == "default" else word or "people"


def _find_named(connection: sqlite3.Connection, text: str) -> int | None:
    """The account of a name or of an id's leading digits; None for a name that is new."""
    known = connection.execute("SELECT account FROM names WHERE name = ?", (text,)).fetchone()
    if known is None and not like_id(text):
        return None
    return account_of(connection, find_dataset(connection, text))


def _people_in_common(
    connection: sqlite3.Connection,
    asked: Asked,
    shares: Mapping[int, float],
    named: int | None,
    *,
    filtered: bool,
) -> PeopleInCommon:
    """The refusal of data about people whom other accounts know, with both ways out."""
    names = {account: shlex.quote(called(connection, account)) for account in shares}
    common = " and ".join(
        f"account {names[account]} (about {share:.0%} of the smaller of the two)"
        for account, share in shares.items()
    )
    first = names[next(iter(shares))] if named is None else shlex.quote(str(asked.dataset))
    more = [name for name in names.values() if name != first]
    joins = "".join(f"mapveil ledger name {name} {first}, then " for name in more)
    quoted = shlex.quote(asked.dataset or proposed_name(connection, asked.source))
    if asked.of_series:  # its account is that of its start
        again, apart = "the same request again", ""
    else:
        again, apart = f"dataset={first} (--dataset {first})", f"dataset={quoted} (--dataset {quoted}) with "
    joined = [*shares, *([] if named is None else [named])]
    return PeopleInCommon(
        f"{asked.source}: has people in common with {common}, so nothing is charged or released. If they are "
        f"the same people: {joins}{again}{_overspent(connection, joined) if more else ''}. If they are others whose "
        f"ids coincide, as ids such as 1 to n do by chance: {apart}"
        "other_people=REASON (--other-people REASON), and say why"
        f"{''.join(_last_release(connection, account) for account in shares)}"
        + (". Of rows that a filter left one common person is refused, else 10 %" if filtered else "")
    )


def _overspent(connection: sqlite3.Connection, accounts: Sequence[int]) -> str:
    """The reason why a join of accounts is refused, where it would overspend."""
    refusal = together(*(find_account(connection, first_dataset(connection, each)) for each in accounts))
    return "" if refusal is None else f" ({refusal})"


def _last_release(connection: sqlite3.Connection, account: int) -> str:
    """A sentence about the last release of an account without a name, by which its owner may know it."""
    entries = find_entries(connection, first_dataset(connection, account))
    if not entries or entries[-1].name:
        return ""
    last = entries[-1]
    files = f", to {', '.join(last.outputs)}" if last.outputs else ""
    return f". Account {called(connection, account)} last released by {last.method} on {last.time:%Y-%m-%d}{files}"
