"""Charges of one release to a budget, and its answers, from before the noise to the written files."""

from __future__ import annotations

import json
import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from fractions import Fraction
from os import PathLike
from typing import Any, NamedTuple, TypeVar

from mapveil.privacy.answers import Answers, answers_files, delete_answers
from mapveil.privacy.claim import AccountReference, Assumes, Share
from mapveil.privacy.file_hash import hashes_of
from mapveil.privacy.guarantee import Guarantee
from mapveil.privacy.ledger import Ledger
from mapveil.privacy.ledger_accounts import Entry, SpendId
from mapveil.privacy.recognition import Recognition
from mapveil_client.epsilon import readable
from mapveil_client.errors import CuratorWarning, InputError, PromiseError

T = TypeVar("T")

_charged_here: ContextVar[str] = ContextVar("_charged_here", default="")
"""The note on the last release that this context charged and has not written."""


class Charges:
    """The charges of one release; without a ledger nothing is charged or kept.

    As a context manager it ends the release: an error says what was charged, and a release without output files is
    marked as written, for its answer is handed over.

    Parameters
    ----------
    ledger, dataset, about, outputs
        For the record, see :meth:`Ledger.spend`; a dataset that was only identified is recorded by the first charge.
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
        dataset: str | Recognition = "",
        about: Mapping[str, Any] | None = None,
        request: Mapping[str, Any] | None = None,
        outputs: Sequence[str | PathLike[str]] = (),
        *,
        resume: bool = False,
    ) -> None:
        self._ledger, self._dataset, self._about, self._outputs = ledger, dataset, dict(about or {}), outputs
        self._request = json.dumps({**self._about, **(request or {})}, sort_keys=True, default=str)
        self._spends: list[SpendId] = []
        self._answers: Answers | None = None
        self._answered = False
        self._paid: dict[str, Fraction] = {}
        if ledger is not None and resume:
            self._answers = _find(ledger, self._request, dataset)
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
            with _being_charged(spend):
                self._ledger.spend(
                    self._dataset, epsilon, **about, outputs=self._outputs, spend=spend, answers=True
                )
            self._dataset = self._ledger.release(first)[0].dataset
        elif self._paid[spend] != epsilon:
            paid = readable(self._paid[spend])
            raise PromiseError(f"spend {spend} is of epsilon {paid}, but {readable(epsilon)} is needed")
        self._spends.append(spend)
        _charged_here.set(charged_note(_charged(self._ledger, first), first))

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
        """The guarantee with the account that was charged; see :func:`with_account`."""
        if self._ledger is None or not self._spends:
            return guarantee
        return with_account(guarantee, self._ledger, self._spends)

    def answered(self, error: BaseException) -> None:
        """Note that an error is what the charge bought: it follows from the replies, and would come again."""
        if self._ledger is not None and self._spends:
            self._answered = True
            _charged_here.set("")
            charged = _charged(self._ledger, self._spends[0])
            error.add_note(f"epsilon {readable(charged)} is charged (spend {self._spends[0]})")

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
            for kept in delete_finished(self._ledger):
                if kept.answers_request(self._request, self._dataset):
                    text = (
                        f"an answer to this request is kept (spend {kept.spend}): --resume writes it, and charges "
                        "nothing"
                    )
                    warnings.warn(
                        f"{text} again", CuratorWarning, stacklevel=3
                    )  # at the caller of spend or keep
            self._answers = Answers.create(self._ledger.path, secrets.token_hex(8), self._request)
        return self._answers


def with_account(guarantee: Guarantee, ledger: Ledger, spends: Sequence[SpendId]) -> Guarantee:
    """The guarantee with the ledger's entries, by their random names, the budget as it stands, and what it assumes.

    A dataset's id would tell whether two releases are of one table, which no noise covers.
    """
    dataset = ledger.release(spends[0])[0].dataset
    balance = ledger.account(dataset)
    before = ledger.account(dataset, before=spends[0]).spent  # later rows are others'
    after = before + _charged(ledger, spends[0])
    reference = AccountReference(tuple(spends), balance.name, before, after, balance.budget)
    others = (Assumes.OTHER_PEOPLE(),) if balance.other_people else ()
    return replace(guarantee, account=reference, assumptions=(*guarantee.assumptions, *others))


@contextmanager
def _being_charged(spend: str) -> Iterator[None]:
    """An interrupt in this block, unlike a refusal, leaves open whether the spend is in the ledger."""
    before = _charged_here.get()
    _charged_here.set(
        f"{before}{'; ' * bool(before)}spend {spend} was being charged: 'mapveil ledger' tells whether it is"
    )
    try:
        yield
    except Exception:
        _charged_here.set(before)
        raise


def charged_here() -> str:
    """The note on the last release that was charged here, but not written; empty where there is none."""
    return _charged_here.get()


def charged_note(epsilon: Fraction, spend: str) -> str:
    """The note on an error after a charge."""
    return (
        f"epsilon {readable(epsilon)} is charged (spend {spend}) and its answer is kept: the same request with "
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
    hashes = hashes_of(outputs)
    for spend in reversed(spends):
        if status[spend] == "spent":
            ledger.written(spend, hashes)
    _charged_here.set("")
    delete_answers(ledger.path, spends[0])


class Kept(NamedTuple):
    """The answers of a release, as they lie beside the ledger."""

    spend: str  # the first of the release
    request: str  # empty where the process died before it was stored
    entry: Entry | None  # the line of the first spend; None where the process died before the charge

    def answers_request(self, request: str, dataset: str | Recognition) -> bool:
        """Whether it is a release of this request, of a dataset by its id."""
        identity = dataset if isinstance(dataset, str) else dataset.dataset
        return self.entry is not None and self.request == request and identity.startswith(self.entry.dataset)


def unwritten(ledger: Ledger) -> dict[str, str]:
    """The releases that can be resumed: the request of each first spend. One that is running now is left out."""
    return {kept.spend: kept.request for kept in _kept_answers(ledger) if _waits(kept)}


def delete_finished(ledger: Ledger) -> list[Kept]:
    """Delete the answers of releases that ended, or that died before the charge; no running one is touched.

    Returns
    -------
    list of Kept
        The answers that stay.
    """
    found = list(_kept_answers(ledger))
    for kept in found:
        if kept.request and not _waits(kept):
            delete_answers(ledger.path, kept.spend)
    return [kept for kept in found if _waits(kept)]


def _waits(kept: Kept) -> bool:
    return kept.entry is not None and kept.entry.status == "spent"


def _kept_answers(ledger: Ledger) -> Iterator[Kept]:
    """Each answers file; the line of its spend is read while no other process holds the file."""
    for path in answers_files(ledger.path):
        try:
            answers = Answers(path)
        except InputError:
            continue
        with closing(answers):
            found = Kept(answers.spend, answers.request, next(iter(ledger.release(answers.spend)), None))
        yield found


def _find(ledger: Ledger, request: str, dataset: str | Recognition) -> Answers:
    """The answers of the oldest unwritten release of a request."""
    waiting = [kept for kept in _kept_answers(ledger) if _waits(kept)]
    for kept in waiting:
        if kept.answers_request(request, dataset):
            return Answers.of(ledger.path, kept.spend)
    lines = [f"{kept.spend} ({_short(kept.request)})" for kept in waiting]
    raise InputError(
        "no unwritten release of this request can be resumed; "
        + (
            f"unwritten: {'; '.join(lines)}: repeat that request with resume (--resume)"
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
