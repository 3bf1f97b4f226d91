r"""The ledger: the epsilon spent on each dataset, and the refusal to spend more.

A dataset is known by the HMAC-SHA256 of its content's fingerprint under a key of the ledger's own: the ledger
recognises a dataset, but its ids cannot be compared with another ledger's. The key lies in the file, so the file is
the curator's secret, readable by its owner only. Nothing else that depends on the data is stored.

Budgets add up (basic composition): releases that are :math:`(\epsilon_i, \delta_i)`-DP for the same users are together
:math:`(\sum_i \epsilon_i, \sum_i \delta_i)`-DP, also where they concern disjoint regions, for one user may have been
in all of them. The ledger sums the epsilons, as exact fractions; it does not count the deltas, which each guarantee
states.

The ledger cannot see another ledger's spending, the same users in a file of other content (give both files one name
with :meth:`Ledger.name` and they share one budget), or that its file was deleted or restored to an older state.
"""

import hmac
import json
import os
import secrets
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, Protocol

from mapveil.privacy.ledger_accounts import (
    Balance,
    Entry,
    SpendId,
    default_budget,
    find_account,
    find_dataset,
    find_entries,
    like_id,
    open_account,
    refusal,
)
from mapveil.privacy.ledger_file import create_ledger, transaction
from mapveil_client.epsilon import EpsilonLike, as_epsilon
from mapveil_client.errors import BudgetExceeded, InputError, ParameterError

DEFAULT_BUDGET: Final = Fraction(3)
"""Budget of a dataset whose ledger says nothing else.

Under a total of 3 and add-or-remove neighbours, an adversary with even odds can come to believe that one person is in
the table, or is not, to at most e^3 / (1 + e^3) = 95.3 %; that the person was at one of two places rather than the
other, to at most e^6 / (1 + e^6) = 99.76 %. A larger budget is a decision for a person to take and to record.
"""


class Fingerprinted(Protocol):
    """Data with a fingerprint of its content, such as ``Points`` and ``Counts``."""

    def fingerprint(self) -> bytes:
        """32 bytes that depend on the content only."""
        ...


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


class Ledger:
    """A file of spends that refuses to exceed a budget. Run by: the curator.

    A ``dataset`` is the data themselves (``Points``, ``Counts``), the 32 bytes of a fingerprint, its whole id, or, for
    a dataset the ledger knows, its name or the leading digits of its id.

    Parameters
    ----------
    path : str or PathLike, optional
        The file, made if missing; :func:`default_ledger_path` by default.

    Raises
    ------
    InputError
        The file is not a ledger, or cannot be made.

    Examples
    --------
    >>> import tempfile
    >>> ledger = Ledger(tempfile.mkdtemp() + "/ledger.sqlite")
    >>> spend = ledger.spend(bytes(32), "0.5", method="laplace")
    >>> ledger.remaining(bytes(32))
    Fraction(5, 2)
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = default_ledger_path() if path is None else Path(path)
        create_ledger(self.path, str(DEFAULT_BUDGET))
        with transaction(self.path):  # refuse a foreign file now, not after the heavy work
            pass

    def dataset_id(self, dataset: Fingerprinted | bytes | str) -> str:
        """The dataset's id in this ledger, 64 hexadecimal digits.

        Raises
        ------
        InputError
            A name or leading digits that no dataset, or more than one, has.
        """
        if isinstance(dataset, str):
            if len(dataset) == 64 and like_id(dataset):
                return dataset
            with transaction(self.path) as connection:
                return find_dataset(connection, dataset)
        content = dataset if isinstance(dataset, bytes) else dataset.fingerprint()
        if len(content) != 32:
            raise ParameterError(f"a fingerprint must have 32 bytes, got {len(content)}")
        with transaction(self.path) as connection:
            key = connection.execute("SELECT key FROM ledger").fetchone()[0]
        return hmac.digest(key, content, "sha256").hex()

    def spend(
        self,
        dataset: Fingerprinted | bytes | str,
        epsilon: EpsilonLike,
        *,
        method: str,
        parameters: Mapping[str, Any] | None = None,
        tiling: str = "",
        region: str = "",
        outputs: Sequence[str | os.PathLike[str]] = (),
        spend: SpendId | None = None,
    ) -> SpendId:
        """Spend, or refuse. Durable on return: call it before any noise is drawn.

        Processes that spend at once are served one after the other. Only public facts are recorded, never anything
        computed from the data.

        Parameters
        ----------
        dataset
            Subject of the release.
        epsilon : int, float, str, Decimal or Fraction
            The whole epsilon of the release.
        method : str
            The mechanism's name.
        parameters : mapping, optional
            Its parameters, JSON-ready.
        tiling, region : str
            The cells and the region, as the command line writes them.
        outputs : sequence of paths
            The files to be written; their names are kept, not their folders.
        spend : SpendId, optional
            Its id; a random one by default.

        Returns
        -------
        SpendId
            For :meth:`written` and :meth:`annul`.

        Raises
        ------
        BudgetExceeded
            The dataset's budget does not allow it: nothing is spent and nothing may be released.
        PromiseError
            The spend cannot be recorded, so nothing may be released.
        """
        asked = as_epsilon(epsilon)
        digest = self.dataset_id(dataset)
        spend = spend or SpendId(secrets.token_hex(8))
        record = (
            str(asked),
            method,
            json.dumps(dict(parameters or {}), sort_keys=True, default=str),
            tiling,
            region,
            json.dumps([Path(output).name for output in outputs]),
        )
        with transaction(self.path, write=True) as connection:
            refused = _refused(connection, digest, asked)
            if refused is None:
                connection.execute(
                    "INSERT INTO spends (id, time, dataset, epsilon, method, parameters, tiling, region,"
                    " outputs) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (spend, _now(), digest, *record),
                )
        if (
            refused is not None
        ):  # after the transaction: the dataset stays known, so that its budget can be raised
            raise refused
        return spend

    def check(self, dataset: Fingerprinted | bytes | str, epsilon: EpsilonLike) -> None:
        """Refuse a spend that the budget does not allow now; spend nothing. For a release of several rounds.

        Raises
        ------
        BudgetExceeded
            The dataset's budget does not allow it.
        """
        asked = as_epsilon(epsilon)
        digest = self.dataset_id(dataset)
        with transaction(self.path, write=True) as connection:
            refused = _refused(connection, digest, asked)
        if refused is not None:
            raise refused

    def written(self, spend: SpendId | str) -> None:
        """Note that every output of a spend was written.

        Raises
        ------
        InputError
            No such spend, or it was marked before.
        """
        self._mark(spend, "written", "")

    def annul(self, spend: SpendId | str, *, reason: str) -> None:
        """Take back a spend that revealed nothing: no bit of noise was drawn for it. The line stays, with the reason.

        Never annul once noise may have been drawn: a failure that depends on the data is an answer too. The caller is
        the program that spent, when it failed before it began to measure, or the ledger's keeper. A spend whose
        outputs were written is never taken back.

        Parameters
        ----------
        spend : SpendId
            The spend.
        reason : str
            Evidence that nothing was revealed; not empty.

        Raises
        ------
        InputError
            No such spend, it was written or annulled before, or no reason is given.
        """
        if not reason.strip():
            raise ParameterError("reason is required: explain why no output was released")
        self._mark(spend, "annulled", reason)

    def entries(self, dataset: Fingerprinted | bytes | str | None = None) -> tuple[Entry, ...]:
        """Every line, oldest first; or those of one dataset and what shares its budget."""
        digest = None if dataset is None else self.dataset_id(dataset)
        with transaction(self.path) as connection:
            return find_entries(connection, digest)

    def accounts(self) -> tuple[Balance, ...]:
        """Every budget the ledger keeps, in the order in which they were opened."""
        with transaction(self.path) as connection:
            firsts = connection.execute(
                "SELECT MIN(dataset) FROM datasets GROUP BY account ORDER BY account"
            ).fetchall()
            return tuple(find_account(connection, digest) for (digest,) in firsts)

    def account(self, dataset: Fingerprinted | bytes | str) -> Balance:
        """State of a dataset's budget; the default budget where nothing was spent on it."""
        digest = self.dataset_id(dataset)
        with transaction(self.path) as connection:
            return find_account(connection, digest)

    def budget(self, dataset: Fingerprinted | bytes | str | None = None) -> Fraction:
        """The dataset's whole budget; without a dataset, the ledger's default."""
        if dataset is not None:
            return self.account(dataset).budget
        with transaction(self.path) as connection:
            return default_budget(connection)

    def remaining(self, dataset: Fingerprinted | bytes | str) -> Fraction:
        """Remaining epsilon of the dataset."""
        return self.account(dataset).remaining

    def set_budget(self, dataset: Fingerprinted | bytes | str | None, epsilon: EpsilonLike) -> None:
        """Set the whole budget of a dataset (``None``: of every dataset without one of its own).

        A budget at or below what is spent already refuses everything further.
        """
        budget = str(as_epsilon(epsilon, "budget"))
        digest = None if dataset is None else self.dataset_id(dataset)
        with transaction(self.path, write=True) as connection:
            if digest is None:
                connection.execute("UPDATE ledger SET default_budget = ?", (budget,))
            else:
                connection.execute(
                    "UPDATE accounts SET budget = ? WHERE account = ?",
                    (budget, open_account(connection, digest)),
                )

    def name(self, dataset: Fingerprinted | bytes | str, name: str) -> None:
        """Name a dataset; a name that is taken joins the dataset to that name's budget for good.

        Join datasets of the same users: a table and its later version, two cuts of one table. The joined spend counts
        against the budget of the name. A dataset may have several names; none is ever freed, for a freed name would
        lead to a fresh budget.

        Raises
        ------
        ParameterError
            The name is empty, ``default``, or could be taken for an id.
        """
        if not name.strip() or name == "default" or like_id(name):
            raise ParameterError(
                f"name must be a word other than 'default' and no row of hexadecimal digits, got {name!r}"
            )
        digest = self.dataset_id(dataset)
        with transaction(self.path, write=True) as connection:
            account = open_account(connection, digest)
            taken = connection.execute("SELECT account FROM names WHERE name = ?", (name,)).fetchone()
            if taken is None:
                connection.execute("INSERT INTO names VALUES (?, ?)", (name, account))
            elif taken[0] != account:
                connection.execute("UPDATE datasets SET account = ? WHERE account = ?", (taken[0], account))
                connection.execute("UPDATE names SET account = ? WHERE account = ?", (taken[0], account))
                connection.execute("DELETE FROM accounts WHERE account = ?", (account,))

    def _mark(self, spend: str, kind: str, reason: str) -> None:
        with transaction(self.path, write=True) as connection:
            if connection.execute("SELECT 1 FROM spends WHERE id = ?", (spend,)).fetchone() is None:
                raise InputError(f"{self.path}: no spend has the id {spend!r}")
            before = connection.execute("SELECT kind FROM events WHERE id = ?", (spend,)).fetchone()
            if before is not None:
                raise InputError(f"{self.path}: spend {spend} is {before[0]} already and cannot be {kind}")
            connection.execute("INSERT INTO events VALUES (?, ?, ?, ?)", (spend, kind, _now(), reason))

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"


def _refused(connection: sqlite3.Connection, digest: str, asked: Fraction) -> BudgetExceeded | None:
    """The refusal of a spend that the budget does not allow; opens the dataset's account."""
    open_account(connection, digest)
    account = find_account(connection, digest)
    if account.spent + asked <= account.budget:
        return None
    return BudgetExceeded(refusal(account, digest, asked))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
