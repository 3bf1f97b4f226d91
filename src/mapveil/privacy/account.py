"""Accounts: the budgets of a ledger, as releases are charged to them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from os import PathLike
from typing import Any, ClassVar, Final

from mapveil.geo.box_order import swapped_against
from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil.privacy.charges import Charges, charged_note, written
from mapveil.privacy.claim import check_large_epsilon
from mapveil.privacy.guarantee import Guarantee
from mapveil.privacy.ledger import Ledger
from mapveil.privacy.ledger_accounts import Balance, Entry
from mapveil_client import __version__
from mapveil_client.epsilon import EpsilonLike, as_epsilon, readable
from mapveil_client.errors import CuratorWarning, InputError, ParameterError


@dataclass(frozen=True)
class Account:
    """A budget of a ledger, which releases are charged to.

    Parameters
    ----------
    name : str, optional
        The budget's name, which the data released under it join; without one the ledger recognises the data.
    ledger : Ledger or path, optional
        The ledger; the user's own by default (:func:`mapveil.privacy.ledger_records.default_ledger_path`).
    outputs : sequence of paths
        The files that will be written, recorded with each charge. With any, the release counts as unwritten, and its
        answer is kept, until :func:`writing` ends.
    resume : bool
        Continue the unwritten release of the same request, which is not charged again.
    other_people : str, optional
        Reason why the people are others than those of every other account; see :meth:`Ledger.recognise`.

    Examples
    --------
    >>> import tempfile
    >>> import mapveil as mv
    >>> city = mv.synthetic.city(users=500, seed=1)
    >>> account = mv.Account.open("city", budget=3, ledger=tempfile.mkdtemp() + "/ledger.sqlite")
    >>> heat = mv.release(city, mv.Quadtree(city.region, depth=4), epsilon=1, account=account)
    >>> account.spent, account.remaining, len(account.entries)
    (Fraction(1, 1), Fraction(2, 1), 1)
    """

    kind: ClassVar[type[Charges]] = Charges

    name: str | None = None
    ledger: Ledger | str | PathLike[str] | None = None
    outputs: Sequence[str | PathLike[str]] = ()
    resume: bool = False
    other_people: str | None = None

    @classmethod
    def open(
        cls,
        name: str,
        *,
        budget: EpsilonLike | None = None,
        ledger: Ledger | str | PathLike[str] | None = None,
        owner: str = "",
        reason: str = "",
    ) -> Account:
        """Open the budget of a name, a new one where the ledger has none of this name.

        Parameters
        ----------
        name : str
            The name, such as that of the population.
        budget : int, float, str, Decimal or Fraction, optional
            The whole budget of a new name; the ledger's default by default.
        ledger : Ledger or path, optional
            The ledger; the user's own by default.
        owner, reason : str
            Person who answers for a new budget, and why it is what it is; recorded where ``budget`` is given.

        Raises
        ------
        ParameterError
            The name cannot be one, or has another budget.
        """
        account = cls(name, ledger)
        opened = account._opened
        whole = None if budget is None else as_epsilon(budget, "budget")
        try:
            known = opened.account(name).budget
        except InputError:
            if whole is None:
                opened.recognise(None, dataset=name)
            else:
                opened.set_budget(name, whole, owner=owner, reason=reason)
            return account
        if whole not in (None, known):
            raise ParameterError(
                f"budget of account {name} must be {readable(known)}, which it has, got {budget}; to change it: "
                f"mapveil ledger budget {name} {budget}"
            )
        return account

    @property
    def budget(self) -> Fraction:
        """The whole budget."""
        return self._balance.budget

    @property
    def spent(self) -> Fraction:
        """The epsilon that was charged."""
        return self._balance.spent

    @property
    def remaining(self) -> Fraction:
        """The epsilon that is left."""
        return self._balance.remaining

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The charges, oldest first."""
        return self._opened.entries(self._required_name)

    def charges(self, data: Any, about: Mapping[str, Any], request: Mapping[str, Any]) -> Charges:
        """The charges of one release of the data, whose people the ledger recognises; see :class:`Charges`.

        Devices and exact sums carry no ids: they are charged to a name, which whoever gives it vouches for.

        Raises
        ------
        ParameterError
            Neither the data nor a name says which budget is charged.
        """
        if self.name is None and not isinstance(data, Points | Counts):
            raise ParameterError(
                "account must be named, or None, for data without the ids of people, such as Devices and UserSums: "
                'open one with Account.open("NAME"), or say account=None'
            )
        opened = self._opened
        try:
            found = opened.identify(
                data if isinstance(data, Points | Counts) else None,
                dataset=self.name,
                other_people=self.other_people,
            )
        except InputError:
            if isinstance(data, Points) and not data.table.elsewhere:
                data.check()  # names the row that cannot be used
            raise
        declared = (str(data.region),) if isinstance(data, Points) and data.region is not None else ()
        meant = swapped_against(about["region"], (*declared, *found.regions))
        if meant is not None:
            warnings.warn(
                f"the region {about['region']} does not meet {meant}, that of the data or of an earlier release, but "
                "would with longitude and latitude exchanged; expected west,south,east,north",
                CuratorWarning,
                stacklevel=2,
            )
        return self.kind(opened, found, about, request, self.outputs, resume=self.resume)

    def unaccounted(self, unit: str) -> Account | None:
        """The account of a release about a unit smaller than a user, which no account adds up: None.

        Raises
        ------
        ParameterError
            The account says more than the user's own, so that its release would be taken for charged.
        """
        if self.name or self.resume or self.other_people:
            raise ParameterError(
                f"unit {unit} is charged to no account, which adds up epsilon per user: leave out the account's name "
                "(--dataset), resume (--resume) and other_people (--other-people)"
            )
        return None

    def balance(self, guarantee: Guarantee) -> Balance | None:
        """The budget that a release was charged to, as it stands; None where nothing was charged."""
        if guarantee.account is None:
            return None
        opened, spend = self._opened, guarantee.account.entries[0]
        return opened.account(opened.release(spend)[0].dataset)

    @property
    def _opened(self) -> Ledger:
        return self.ledger if isinstance(self.ledger, Ledger) else Ledger(self.ledger)

    @property
    def _required_name(self) -> str:
        if self.name is None:
            raise ParameterError(
                "name is required: without it the account depends on the data; see Account.open"
            )
        return self.name

    @property
    def _balance(self) -> Balance:
        return self._opened.account(self._required_name)


@contextmanager
def writing(account: Account | None, guarantee: Guarantee) -> Iterator[None]:
    """Write the outputs of a release in this block: an error says what was charged, else the answer is not kept on."""
    charged = guarantee.account if account is not None and account.outputs else None
    try:
        yield
    except BaseException as error:
        if charged is not None:
            error.add_note(charged_note(guarantee.epsilon or Fraction(0), charged.entries[0]))
        raise
    if account is not None and charged is not None:
        written(account._opened, charged.entries, account.outputs)


OWN: Final = Account()
"""The user's own ledger, which recognises the people of the data: what a release is charged to by default."""


def check_account(account: object) -> None:
    """Refuse what is neither an account nor None, such as an account's name."""
    if account is not None and not isinstance(account, Account):
        hint = f"mv.Account({account!r})" if isinstance(account, str) else 'such as mv.Account("NAME")'
        raise ParameterError(f"account must be an Account ({hint}), or None (not accounted), got {account!r}")


def charges_of(
    account: Account | None,
    data: Any,
    epsilon: Fraction,
    method: str,
    parameters: Mapping[str, Any],
    cells: Tiling | str,
    *,
    delta: Fraction = Fraction(0),
    seeded: bool,
    accept_large_epsilon: bool,
) -> Charges:
    """Recognise the people of the data and check their budget; nothing for ``None`` or a seeded run.

    Nothing is written: the first charge records the people too.

    Call it before anything else about the data can be told: with an exhausted budget every region answers alike. The
    cells are a specification where the region is not known yet; delta is stated, not charged.

    Raises
    ------
    ParameterError
        The account is none, or epsilon or delta is too large and not accepted, for a run that is not seeded.
    BudgetExceeded
        The account does not allow the epsilon.
    """
    check_account(account)
    check_large_epsilon(epsilon, delta, accepted=accept_large_epsilon or seeded)
    if account is None or seeded:
        return Charges()
    about = {
        "method": method,
        "parameters": parameters,
        "tiling": cells if isinstance(cells, str) else cells.spec,
        "region": "" if isinstance(cells, str) or isinstance(data, Counts) else str(cells.region),
    }
    exact = None if isinstance(cells, str) else cells.to_dict()
    table = None
    if isinstance(data, Points):
        read = ("source", "columns", "where", "on_bad_rows")
        table = {name: getattr(data, name) for name in read}
    charges = account.charges(data, about, {"cells": exact, "table": table, "version": __version__})
    charges.check(epsilon)
    return charges
