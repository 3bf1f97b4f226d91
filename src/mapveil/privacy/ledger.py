r"""The ledger: the epsilon spent on each dataset, and the refusal to spend more.

An account is a population and its budget. The ledger knows the people by a sample of keyed values of their ids
(:mod:`mapveil.privacy.population`), so a table belongs to the account of its people whatever its rows, weights, filters
or format. A raster of counts has no ids and is known by its content. The key lies in the file: whoever holds the file
can test whether an id is in a sketch, so the file is the curator's secret, readable by its owner only. Nothing else
that depends on the data is stored.

Budgets add up (basic composition): releases that are :math:`(\epsilon_i, \delta_i)`-DP for the same users are together
:math:`(\sum_i \epsilon_i, \sum_i \delta_i)`-DP, also where they concern disjoint regions, for one user may have been
in all of them. The ledger sums the epsilons, as exact fractions; it does not count the deltas, which each guarantee
states.

The ledger cannot see another ledger's spending; that its file was deleted or restored to an older state (a published
head shows it, :mod:`mapveil.privacy.ledger_chain`); the same people under new ids, or in another raster of counts (give
such data one name, and they share one budget); fewer common people than :data:`mapveil.privacy.population.SHARED`, who
then have a part in two budgets; and, where an account has more people than a sketch holds, a table so small that none
of its people are in the sample.
"""

import json
import os
import secrets
import sqlite3
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.privacy.file_hash import hashes_of
from mapveil.privacy.ledger_accounts import (
    Balance,
    SpendId,
    account_of,
    add_name,
    find_account,
    find_dataset,
    first_dataset,
    join_account,
    now,
    refusal,
    together,
)
from mapveil.privacy.ledger_file import transaction
from mapveil.privacy.ledger_records import LedgerRecords
from mapveil.privacy.population import Seen, see
from mapveil.privacy.recognition import Asked, Recognition, recognition, recorded, state_of
from mapveil_client.epsilon import EpsilonLike, as_epsilon
from mapveil_client.errors import BudgetExceeded, CuratorWarning, InputError, ParameterError, PromiseError


class Ledger(LedgerRecords):
    """A file of spends that refuses to exceed a budget. Run by: the curator.

    An ``account`` is called by its name, by the id of one of its datasets, or by leading digits of that id; so is the
    account of a ``dataset``.

    Parameters
    ----------
    path : str or PathLike, optional
        As for :class:`~mapveil.privacy.ledger_records.LedgerRecords`.

    Raises
    ------
    InputError
        The file is not a ledger, or cannot be made.

    Examples
    --------
    >>> import tempfile
    >>> ledger = Ledger(tempfile.mkdtemp() + "/ledger.sqlite")
    >>> city = ledger.recognise(Points.from_arrays(["ann", "bob"], [-73.9, -74.0], [40.7, 40.8]))
    >>> spend = ledger.spend(city, "0.5", method="laplace")
    >>> ledger.remaining(city)
    Fraction(5, 2)
    """

    def recognise(
        self,
        data: Points | Counts | None,
        *,
        dataset: str | None = None,
        other_people: str | None = None,
        of_series: bool = False,
    ) -> str:
        """The id of a dataset, in the account of its people: a known account, one that it joins, or a new one.

        A table with an estimated :data:`mapveil.privacy.population.SHARED` or more of its people in a known account,
        or of the account's people in the table, joins that account if ``dataset`` names it, and is refused otherwise;
        a table of exactly the people of an account is recognised. Run by: the curator.

        Parameters
        ----------
        data : Points or Counts, optional
            The data, whose ids are read once; without them, the account of a name.
        dataset : str, optional
            A new name opens an account, or names the one that knows exactly these people.
        other_people : str, optional
            Reason why the people are others than those of every other account, such as ids that coincide by chance;
            recorded. Needs ``dataset``.
        of_series : bool
            Whether the data are of a series, whose account is that of its start.

        Raises
        ------
        InputError
            The people are in other accounts too, or the source cannot be read: nothing was written.
        """
        found = self.identify(data, dataset=dataset, other_people=other_people, of_series=of_series)
        with self._writing(found) as (connection, current):
            return recorded(connection, current)

    def identify(
        self,
        data: Points | Counts | None,
        *,
        dataset: str | None = None,
        other_people: str | None = None,
        of_series: bool = False,
    ) -> Recognition:
        """The dataset that :meth:`recognise` would record, which :meth:`spend` records with the first charge.

        Nothing is written. Run by: the curator.

        Raises
        ------
        InputError
            As for :meth:`recognise`.
        """
        asked = Asked(data, dataset, other_people, of_series)
        with self._seen(asked) as seen, transaction(self.path) as connection:
            found = recognition(connection, asked, seen)
        for text in found.warnings:
            warnings.warn(text, CuratorWarning, stacklevel=2)
        return found

    def _seen(self, asked: Asked) -> AbstractContextManager[Seen | None]:
        if asked.data is None:
            return nullcontext()
        with transaction(self.path) as connection:
            key = connection.execute("SELECT key FROM ledger").fetchone()[0]
        return see(asked.data, key)

    @contextmanager
    def _writing(self, dataset: str | Recognition) -> Iterator[tuple[sqlite3.Connection, str | Recognition]]:
        """A transaction that writes, and the dataset, identified anew where the accounts have changed since."""
        with ExitStack() as held:
            connection = held.enter_context(transaction(self.path, write=True))
            if isinstance(dataset, Recognition) and dataset.state != state_of(connection):
                held.close()  # reading the people again takes long, and others write meanwhile
                seen = held.enter_context(self._seen(dataset.asked))
                connection = held.enter_context(transaction(self.path, write=True))
                dataset = recognition(connection, dataset.asked, seen)
            yield connection, dataset

    def spend(
        self,
        dataset: str | Recognition,
        epsilon: EpsilonLike,
        *,
        method: str,
        parameters: Mapping[str, Any] | None = None,
        tiling: str = "",
        region: str = "",
        outputs: Sequence[str | os.PathLike[str]] = (),
        spend: SpendId | None = None,
        answers: bool = False,
    ) -> SpendId:
        """Spend, or refuse. Durable on return: call it before any noise is drawn.

        A dataset that was only identified is recorded in the same transaction: a refusal changes nothing. Processes
        that spend at once are served one after the other.

        Parameters
        ----------
        dataset, epsilon, method, parameters, tiling, region
            Public facts of the release, for the record; nothing computed from the data.
        outputs : sequence of paths
            The files to be written; their names are kept, not their folders.
        spend : SpendId, optional
            Its id; a random one by default.
        answers : bool
            Whether a release draws noise for it and keeps its answers; recorded, and such a spend is never annulled.

        Returns
        -------
        SpendId
            For :meth:`written` and :meth:`annul`.

        Raises
        ------
        BudgetExceeded
            The account's budget does not allow it: nothing is spent and nothing may be released.
        PromiseError
            The spend cannot be recorded or its id is taken, so nothing may be released.
        """
        asked = as_epsilon(epsilon)
        spend = spend or SpendId(secrets.token_hex(8))
        record = (
            str(asked),
            method,
            json.dumps(dict(parameters or {}), sort_keys=True, default=str),
            tiling,
            region,
            _names(outputs),
            answers,
        )
        with self._writing(dataset) as (connection, current):
            if connection.execute("SELECT 1 FROM spends WHERE id = ?", (spend,)).fetchone():
                raise PromiseError(
                    f"{self.path}: spend {spend} is in the ledger already, so nothing is released; if it was annulled, "
                    "release anew, without resume (--resume)"
                )
            self._refuse(connection, current, asked)
            known = recorded(connection, current)
            connection.execute(
                "INSERT INTO spends (id, time, dataset, epsilon, method, parameters, tiling, region,"
                " outputs, answers) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (spend, now(), known, *record),
            )
        return spend

    def check(self, dataset: str | Recognition, epsilon: EpsilonLike) -> None:
        """Refuse a spend that the budget does not allow now; spend nothing. For a release of several rounds.

        Raises
        ------
        BudgetExceeded
            The account's budget does not allow it.
        """
        asked = as_epsilon(epsilon)
        with transaction(self.path) as connection:
            self._refuse(connection, dataset, asked)

    def written(
        self,
        spend: SpendId | str,
        outputs: Sequence[str | os.PathLike[str]] | Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Note that every output of a spend was written: these files, by default those recorded with it.

        Of files that are there their hashes are recorded too; a mapping is of names to hashes.

        Raises
        ------
        InputError
            No such spend, or it was marked before.
        """
        if outputs is not None and not isinstance(outputs, Mapping):
            outputs = hashes_of(outputs)
        self._mark(spend, "written", "", outputs)

    def annul(self, spend: SpendId | str, *, reason: str) -> None:
        """Take back a spend that revealed nothing: no bit of noise was drawn for it. The line stays, with the reason.

        Never annul once noise may have been drawn: a failure that depends on the data is an answer too.

        Raises
        ------
        InputError
            No such spend, it was written or annulled before, it is a release's, or no reason is given.
        """
        if not reason.strip():
            raise ParameterError("reason is required: explain why no output was released")
        self._mark(spend, "annulled", reason)

    def set_budget(
        self, account: str | None, epsilon: EpsilonLike, *, reason: str = "", owner: str = ""
    ) -> None:
        """Set the whole budget of an account (``None``: of every account without one of its own).

        A new name opens an account. A budget at or below what is spent already refuses everything further.

        Empty ``reason`` and ``owner`` (who answers for the budget) keep the recorded ones.
        """
        given = (str(as_epsilon(epsilon, "budget")), reason, owner)
        kept = "reason = COALESCE(NULLIF(?, ''), reason), owner = COALESCE(NULLIF(?, ''), owner)"
        with transaction(self.path, write=True) as connection:
            if account is None:
                connection.execute(f"UPDATE ledger SET default_budget = ?, {kept}", given)
            else:
                found = recognition(connection, Asked(dataset=account), None)
                number = account_of(connection, found.record(connection))
                connection.execute(
                    f"UPDATE accounts SET budget = ?, {kept} WHERE account = ?", (*given, number)
                )

    def name(self, account: str, name: str, *, accept_overspent: bool = False) -> tuple[Balance, ...]:
        """Name an account; a name that is taken joins the account to that one for good.

        Join accounts of the same people. The spend of both counts against the smaller budget of the two, which keeps
        its owner and its reason. An account may have several names; none is ever freed: that would be a fresh budget.

        Returns
        -------
        tuple of Balance
            The accounts that were joined, as they stood before; empty where none were.

        Raises
        ------
        ParameterError
            The name is empty, ``default``, or could be taken for an id.
        BudgetExceeded
            More than the smaller budget is spent of both, which ``accept_overspent`` allows.
        """
        with transaction(self.path, write=True) as connection:
            number = account_of(connection, find_dataset(connection, account))
            taken = connection.execute("SELECT account FROM names WHERE name = ?", (name,)).fetchone()
            if taken is None:
                add_name(connection, number, name)
            elif taken[0] != number:
                both = (
                    find_account(connection, first_dataset(connection, each)) for each in (number, taken[0])
                )
                refused = together(*both)
                if refused is not None and not accept_overspent:
                    hint = "accept_overspent=True (--accept-overspent)"
                    raise BudgetExceeded(f"{self.path}: {refused}; to join them all the same: {hint}")
                return join_account(connection, number, taken[0])
        return ()

    def _mark(
        self, spend: str, kind: str, reason: str, outputs: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        with transaction(self.path, write=True) as connection:
            found = connection.execute("SELECT answers FROM spends WHERE id = ?", (spend,)).fetchone()
            if found is None:
                raise InputError(f"{self.path}: no spend has the id {spend!r}")
            before = connection.execute("SELECT kind FROM events WHERE id = ?", (spend,)).fetchone()
            if before is not None:
                raise InputError(f"{self.path}: spend {spend} is {before[0]} already and cannot be {kind}")
            # By the ledger alone: the answers file may have been moved, or copied to somebody.
            if kind == "annulled" and found[0]:
                raise InputError(
                    f"{self.path}: spend {spend} is a release's, which has a kept answer or is being released now, and "
                    "cannot be annulled; repeat its request with resume (--resume) instead"
                )
            row = (spend, kind, now(), reason, None if outputs is None else json.dumps(outputs))
            connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?)", row)

    def _refuse(self, connection: sqlite3.Connection, dataset: str | Recognition, asked: Fraction) -> None:
        """Refuse a spend that the budget does not allow."""
        if isinstance(dataset, str):
            account = find_account(connection, find_dataset(connection, dataset))
        else:
            account = dataset.balance(connection)
        if account.spent + asked > account.budget:
            name = dataset.proposed(connection) if isinstance(dataset, Recognition) else None
            raise BudgetExceeded(refusal(account, asked, self.path, name), account.budget - account.spent)


def _names(outputs: Sequence[str | os.PathLike[str]]) -> str:
    return json.dumps([Path(output).name for output in outputs])
