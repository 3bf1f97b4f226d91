"""Charges of one release to a budget, and its answers, from before the noise to the written files."""

from __future__ import annotations

import json
import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from os import PathLike
from typing import Any, TypeVar

from mapveil.privacy.answers import Answers, answers_files, delete_answers
from mapveil.privacy.claim import AccountReference, Assumes, Share
from mapveil.privacy.guarantee import Guarantee
from mapveil.privacy.ledger import Ledger
from mapveil.privacy.ledger_accounts import SpendId
from mapveil_client.epsilon import plain
from mapveil_client.errors import CuratorWarning, InputError, PromiseError

T = TypeVar("T")


class Charges:
    """The charges of one release; without a ledger nothing is charged or kept.

    As a context manager it ends the release: an error says what was charged, and a release without output files is
    marked as written, for its answer is handed over.

    Parameters
    ----------
    ledger, dataset, about, outputs
        For the record, see :meth:`Ledger.spend`.
    request : mapping
        What tells this request from others beside ``about``, JSON-ready.
    resume : bool
        Continue the unwritten release of the same request: its charges and replies count.

    Raises
    ------
    InputError
        There is nothing to resume.
    """

    def __init__(
        self,
        ledger: Ledger | None = None,
        dataset: str = "",
        about: Mapping[str, Any] | None = None,
        request: Mapping[str, Any] | None = None,
        outputs: Sequence[str | PathLike[str]] = (),
        *,
        resume: bool = False,
    ) -> None:
        self._ledger, self._dataset, self._about, self._outputs = ledger, dataset, dict(about or {}), outputs
        self._request = json.dumps(
            {"dataset": dataset, **self._about, **(request or {})}, sort_keys=True, default=str
        )
        self._spends: list[SpendId] = []
        self._answers: Answers | None = None
        self._answered = False
        self._paid: dict[str, Fraction] = {}
        if ledger is not None and resume:
            self._answers = _find(ledger, self._request)
            self._paid = _paid(ledger, self._answers.spend)

    def check(self, epsilon: Fraction) -> None:
        """Refuse an epsilon that the budget does not allow now; charge nothing."""
        due = epsilon - sum(self._paid.values())
        if self._ledger is not None and due > 0:
            self._ledger.check(self._dataset, due)

    def spend(self, epsilon: Fraction, purpose: str = "") -> None:
        """Charge an epsilon, or refuse; durable on return. A charge of the release that is resumed is not repeated."""
        if self._ledger is None:
            return
        first = self._kept().spend
        spend = SpendId(f"{first}-{len(self._spends) + 1}" if self._spends else first)
        if spend not in self._paid:
            about = dict(self._about)
            if purpose:
                about["parameters"] = {**about["parameters"], "round": purpose}
            self._ledger.spend(
                self._dataset, epsilon, **about, outputs=self._outputs, spend=spend, answers=True
            )
        elif self._paid[spend] != epsilon:
            paid = plain(self._paid[spend])
            raise PromiseError(f"spend {spend} is of epsilon {paid}, but {plain(epsilon)} is needed")
        self._spends.append(spend)

    @property
    def charged(self) -> bool:
        """Whether the release was charged, now or before it was resumed."""
        return bool(self._spends or self._paid)

    def each(self, share: Share) -> None:
        """Charge the share of one round, before its sums are revealed."""
        self.spend(share.epsilon, share.purpose)

    def at_first(self, epsilon: Fraction, purpose: str = "") -> Callable[[Share], None]:
        """Charge this epsilon whole when the first share is about to be revealed, and nothing at the others."""
        due = [epsilon]

        def spend(share: Share) -> None:
            while due:
                self.spend(due[0], purpose)
                due.clear()

        return spend

    def keep(self, purpose: str, kind: type[T], draw: Callable[[], T], /) -> T:
        """The kept reply to the next query, or a new one; see :meth:`Answers.keep`."""
        return draw() if self._ledger is None else self._kept().keep(purpose, kind, draw)

    def with_account(self, guarantee: Guarantee) -> Guarantee:
        """The guarantee with the ledger's entries, by their random names, the budget as it stands, and what it assumes.

        A dataset's id would tell whether two releases are of one table, which no noise covers.
        """
        if self._ledger is None or not self._spends:
            return guarantee
        balance = self._ledger.account(self._dataset)
        before = self._ledger.account(self._dataset, before=self._spends[0]).spent  # later rows are others'
        after = before + _charged(self._ledger, self._spends[0])
        reference = AccountReference(tuple(self._spends), balance.name, before, after, balance.budget)
        others = (Assumes.OTHER_PEOPLE(),) if balance.other_people else ()
        return replace(guarantee, account=reference, assumptions=(*guarantee.assumptions, *others))

    def answered(self, error: BaseException) -> None:
        """Note that an error is what the charge bought: it follows from the replies, and would come again."""
        if self._ledger is not None and self._spends:
            self._answered = True
            charged = _charged(self._ledger, self._spends[0])
            error.add_note(f"epsilon {float(charged):.6g} is charged (spend {self._spends[0]})")

    def __enter__(self) -> Charges:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._ledger is None or self._answers is None:
            return
        self._answers.close()
        charged = _charged(self._ledger, self._answers.spend)
        if not charged:
            delete_answers(self._ledger.path, self._answers.spend)
        elif error is not None and not self._answered:
            error.add_note(charged_note(charged, self._answers.spend))
        elif not self._outputs or self._answered:
            written(self._ledger, self._spends, self._outputs)

    def _kept(self) -> Answers:
        if self._answers is None:
            assert self._ledger is not None
            for spend, request in delete_finished(self._ledger).items():
                if request == self._request:
                    text = f"an answer to this request is kept (spend {spend}): --resume writes it, and charges nothing"
                    warnings.warn(
                        f"{text} again", CuratorWarning, stacklevel=3
                    )  # at the caller of spend or keep
            self._answers = Answers.create(self._ledger.path, secrets.token_hex(8), self._request)
        return self._answers


def charged_note(epsilon: Fraction, spend: str) -> str:
    """The note on an error after a charge."""
    return (
        f"epsilon {float(epsilon):.6g} is charged (spend {spend}) and its answer is kept: the same request with "
        "--resume (in Python Account(..., resume=True)) continues it, and is not charged again"
    )


def written(ledger: Ledger, spends: Sequence[str], outputs: Sequence[str | PathLike[str]] = ()) -> None:
    """Note that every output of a release was written: these files; and delete its kept answers.

    The first spend is marked last: until then the release can be resumed.

    Raises
    ------
    PromiseError
        A spend was annulled, so nothing may be released.
    """
    status: dict[str, str] = {entry.id: entry.status for entry in ledger.release(spends[0])}
    for spend in spends:
        if status[spend] == "annulled":
            raise PromiseError(
                f"{ledger.path}: spend {spend} was annulled, so nothing may be released for it"
            )
    for spend in reversed(spends):
        if status[spend] == "spent":
            ledger.written(spend, outputs)
    delete_answers(ledger.path, spends[0])


def unwritten(ledger: Ledger) -> dict[str, str]:
    """The releases that can be resumed: the request of each first spend. One that is running now is left out."""
    return {spend: request for spend, request, status in _kept_answers(ledger) if status == "spent"}


def delete_finished(ledger: Ledger) -> dict[str, str]:
    """Delete the answers of releases that ended, or that died before the charge; no running one is touched.

    Returns
    -------
    dict of str to str
        The requests of the releases whose answers stay, by first spend.
    """
    waiting = {}
    for spend, request, status in _kept_answers(ledger):
        if status == "spent":
            waiting[spend] = request
        elif request:
            delete_answers(ledger.path, spend)
    return waiting


def _kept_answers(ledger: Ledger) -> Iterator[tuple[str, str, str | None]]:
    """Spend, request and status of each answers file, whose status is read while no other process holds the file."""
    for path in answers_files(ledger.path):
        try:
            answers = Answers(path)
        except InputError:
            continue
        with closing(answers):
            first = next(iter(ledger.release(answers.spend)), None)
            found = answers.spend, answers.request, first and first.status
        yield found


def _find(ledger: Ledger, request: str) -> Answers:
    """The answers of the oldest unwritten release of a request."""
    waiting = unwritten(ledger)
    for spend, known in waiting.items():
        if known == request:
            return Answers.of(ledger.path, spend)
    lines = [f"{spend} ({_short(known)})" for spend, known in waiting.items()]
    raise InputError(
        "no unwritten release of this request can be resumed; "
        + (
            f"unwritten: {'; '.join(lines)}: repeat that command with --resume"
            if lines
            else "nothing is unwritten, or another process writes it"
        )
    )


def _short(request: str) -> str:
    if not request:
        return "its answers file is empty, so that its answer is lost"
    about = json.loads(request)
    epsilon, table = about["parameters"].get("epsilon"), about.get("table")
    shown = [about["method"], about["tiling"], about["region"], f"epsilon {epsilon}" if epsilon else ""]
    shown.append(f"where {table['where']}" if table and table["where"] else "")
    return " ".join(filter(None, shown))


def _paid(ledger: Ledger, first: str) -> dict[str, Fraction]:
    """The spends of a release that count against the budget."""
    return {entry.id: entry.epsilon for entry in ledger.release(first) if entry.status != "annulled"}


def _charged(ledger: Ledger, first: str) -> Fraction:
    return sum(_paid(ledger, first).values(), Fraction(0))
