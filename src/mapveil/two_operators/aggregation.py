r"""The two operators of a collection, without I/O: reports in, a verification between them, noisy shares of sums out.

.. math:: \tilde{s} = (S_0 + \nu_0) + (S_1 + \nu_1), \qquad \nu_0, \nu_1 \sim \mathrm{DLap}(\epsilon / \Delta)

where: :math:`S_j` is operator j's share of the exact sums of a query, :math:`\nu_j` its own noise, drawn afresh for
every query, and :math:`\Delta` the most that one client moves the sums by. Of operator 1's sums operator 0
sees :math:`S_1 + \nu_1` only, so that the sums are :math:`(\epsilon, \delta)`-DP against each operator alone, where
:math:`\delta` is that of the other's sampler, and against everybody else.

A report counts once in its collection, however often it is sent: operators know it by its nonce. Each operator verifies
a report once, holds its own budget, counts its samples of noise, and refuses queries of batches that are too small.
A report of another collection is refused: the id of the collection is in the context of its shares and of their check.

Verifying one report under one id with two verify keys tells the location exactly; the service derives one key per id.
With one key a second time puts the report into a second sum, whose noise is another. An :class:`Operator` keeps nonces
in memory only: whoever runs an operator makes no second one for the same id, unless the nonces are durable before any
share is sent.

Verification takes three messages: :class:`Opening` of the leader, :class:`Response` of the helper, :class:`Closing` of
the leader. A message that is malformed as a whole is a :class:`~mapveil_client.secure_sum.states.PeerFault` and changes
nothing; a report that is refused is dropped by both.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any, Final, NamedTuple

import numpy as np

from mapveil.privacy.claim import Share
from mapveil.privacy.discrete_laplace import check_noise, discrete_laplace
from mapveil.privacy.sampling import MOST_SAMPLES
from mapveil.two_operators.sum_schemes import Batch, Scheme, Step
from mapveil.two_operators.verification_messages import (
    Closing,
    InputShares,
    Opening,
    Response,
    check_decisions,
    check_shape,
)
from mapveil_client.arrays import BoolArray
from mapveil_client.contribution import sensitivity
from mapveil_client.encodings import Encoding
from mapveil_client.epsilon import plain
from mapveil_client.errors import BudgetExceeded, PromiseError, check
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.states import OwnFault, PeerFault
from mapveil_client.two_operators.finite_fields import Elements, Octets
from mapveil_client.two_operators.xofs import NONCE_BYTES

LEADER: Final = 0
HELPER: Final = 1


class Standing(NamedTuple):
    """The state that an operator keeps between two steps of a collection."""

    sums: bytes  # its share of the sites' sums; empty before the first verification. Secret
    accepted: int  # number of reports in them
    answered: tuple[Share, ...] = ()
    drawn: int = 0  # samples of noise in its answers


class _Pending(NamedTuple):
    step: Step
    held: BoolArray  # which reports of the opening are in the step


class Operator:
    """One operator of a collection.

    Parameters
    ----------
    scheme : Scheme
        What clients send.
    number : int
        ``LEADER`` or ``HELPER``.
    collection : bytes
        The id that this operator agreed on with the other one and never verified reports of before; the scheme's.
    verify_key : bytes
        32 random bytes that both operators know and no client.
    budget : Fraction
        Epsilon of all answers together.
    minimum_batch : int
        Least number of accepted reports of an answer.

    Raises
    ------
    ParameterError
        The scheme is of another collection.
    """

    def __init__(
        self,
        scheme: Scheme,
        number: int,
        collection: bytes,
        verify_key: bytes,
        budget: Fraction,
        minimum_batch: int,
    ) -> None:
        check(
            collection == scheme.collection,
            "collection",
            f"the scheme's id {scheme.collection.hex()}",
            collection.hex(),
        )
        self._scheme, self._number, self._key = scheme, number, verify_key
        self._budget, self._minimum = budget, minimum_batch
        self._waiting: dict[bytes, InputShares] = {}
        self._seen: set[bytes] = set()
        self._pending: _Pending | None = None
        self._drawn = 0
        self._share: Elements = scheme.field.zeros(scheme.sites)
        self.accepted = 0
        """Number of reports in the sum."""
        self.answered: list[Share] = []
        """Purpose and epsilon of each answer: this operator's own account."""

    @property
    def standing(self) -> Standing:
        """The state that :meth:`resume` goes on from."""
        sums = self._scheme.field.encode(self._share[None])[0].tobytes()
        return Standing(sums, self.accepted, tuple(self.answered), self._drawn)

    def resume(self, standing: Standing) -> None:
        """Add the sums and answers of an operator that stood so."""
        if standing.sums:
            stored = np.frombuffer(standing.sums, dtype=np.uint8)[None]
            self._share = self._scheme.field.add(self._share, self._scheme.field.decode(stored)[0][0])
        self.accepted += standing.accepted
        self.answered += standing.answered
        self._drawn += standing.drawn

    @property
    def waiting(self) -> list[bytes]:
        """Nonces of the reports that are not verified yet."""
        return list(self._waiting)

    def receive(self, reports: Iterable[InputShares]) -> int:
        """Keep reports whose sizes are right and whose nonces are new; returns their number."""
        public, private = self._scheme.sizes(self._number)
        kept = 0
        for report in reports:
            sizes = len(report.nonce), len(report.public), len(report.input)
            if sizes == (NONCE_BYTES, public, private) and report.nonce not in self._seen:
                self._seen.add(report.nonce)
                self._waiting[report.nonce] = report
                kept += 1
        return kept

    def open(self, nonces: list[bytes]) -> Opening:
        """Begin to verify reports, which are not waiting from now on. Run by: the leader.

        Raises
        ------
        OwnFault
            A verification is under way, answers have been given, or a report is not waiting.
        """
        self._ready(LEADER)
        if not nonces or len(set(nonces)) != len(nonces) or not set(nonces) <= self._waiting.keys():
            raise OwnFault("a verification needs reports that wait, each of them once")
        step = self._begun(nonces)
        self._take(nonces, step, np.ones(len(nonces), dtype=np.bool_))
        return Opening(_rows(nonces), step.share)

    def respond(self, opening: Opening) -> Response:
        """Verify the leader's shares beside one's own. Run by: the helper.

        A report that is not waiting here, or named twice, is refused.

        Raises
        ------
        PeerFault
            The message has another shape.
        """
        self._ready(HELPER)
        count = opening.reports
        named = [nonce.tobytes() for nonce in opening.nonces]
        fresh = set(self._waiting)
        held = np.zeros(count, dtype=np.bool_)
        for at, nonce in enumerate(named):
            held[at] = nonce in fresh
            fresh.discard(nonce)
        known = [nonce for nonce, here in zip(named, held, strict=True) if here]
        if not known:
            raise PeerFault("an opening names no report that waits here")
        own = self._begun(known)
        check_shape(opening.shares, count, own.share.shape[1])
        message, formed = self._scheme.combine((opening.shares[held], own.share))
        second = self._scheme.answer(own.state, message)
        second = _told(second._replace(accepted=own.accepted & formed & second.accepted))
        accepted = second.accepted
        self._take(known, second, held)
        decided = np.zeros(count, dtype=np.bool_)
        decided[held] = accepted
        return Response(_spread(message, held), _spread(second.share, held), decided)

    def close(self, response: Response) -> Closing:
        """Verify the helper's answer, and add what both accept. Run by: the leader.

        Raises
        ------
        PeerFault
            The message has another shape.
        """
        pending = self._under_way(LEADER)
        count = pending.held.size
        check_decisions(response.accepted, count, "response")
        size = self._message_bytes(pending)
        check_shape(response.message, count, size)
        second = self._scheme.answer(pending.step.state, response.message)
        check_shape(response.shares, count, second.share.shape[1])
        passed = self._scheme.decide((second.share, response.shares))
        accepted = pending.step.accepted & second.accepted & response.accepted & passed
        self._add(second.state, accepted)
        return Closing(_told(second._replace(accepted=accepted)).share, accepted)

    def settle(self, closing: Closing) -> BoolArray:
        """Add what both accept; which reports those are. Run by: the helper.

        Raises
        ------
        PeerFault
            The message has another shape.
        """
        pending = self._under_way(HELPER)
        count, step = pending.held.size, pending.step
        check_decisions(closing.accepted, count, "closing")
        check_shape(closing.shares, count, step.share.shape[1])
        passed = self._scheme.decide((closing.shares[pending.held], step.share))
        accepted = step.accepted & closing.accepted[pending.held] & passed
        self._add(step.state, accepted)
        return _spread(accepted[:, None].astype(np.uint8), pending.held)[:, 0].astype(np.bool_)

    def answer(self, purpose: str, encoding: Encoding, epsilon: Fraction, rng: Randomness) -> Octets:
        """This operator's share of noisy sums of groups of sites, as bytes. Run by: each operator.

        The epsilon is charged to this operator's account before the noise is drawn. After the first answer no report is
        taken any more.

        Parameters
        ----------
        purpose : str
            Name of the answer in the account.
        encoding : Encoding
            The groups.
        epsilon : Fraction
            Cost of the answer to every client.
        rng : Randomness
            The source of this operator's noise.

        Raises
        ------
        BudgetExceeded
            The answers would cost more than the budget.
        PromiseError
            Fewer reports than the minimum batch were accepted, or all answers would draw more than
            :data:`~mapveil.privacy.sampling.MOST_SAMPLES` samples of noise.
        OwnFault
            A verification is under way.
        """
        if self._pending is not None:
            raise OwnFault("a verification is under way; answers come after it")
        if self.accepted < self._minimum:
            raise PromiseError(
                f"{self.accepted} reports were accepted and {self._minimum} are needed, so nothing is answered"
            )
        moves = sensitivity(encoding, self._scheme.most, "largest-remainder")
        check_noise(epsilon, moves)
        spent = sum((share.epsilon for share in self.answered), Fraction(0))
        if epsilon <= 0 or spent + epsilon > self._budget:
            raise BudgetExceeded(
                f"operator {self._number}: {purpose} costs epsilon {plain(epsilon)}, and {plain(self._budget - spent)} "
                "is left, so nothing is answered"
            )
        if (drawn := self._drawn + encoding.length) > MOST_SAMPLES:
            raise PromiseError(
                f"operator {self._number}: {purpose} would be its sample {drawn} of noise, and its delta allows "
                f"{MOST_SAMPLES}, so nothing is answered"
            )
        self._drawn = drawn
        self.answered.append(Share(purpose, epsilon))
        field = self._scheme.field
        total = field.zeros(encoding.length)
        for group in encoding.positions(np.arange(self._scheme.sites)).T:
            total = field.add(total, field.grouped(self._share, group, encoding.length))
        noise = discrete_laplace(encoding.length, epsilon, moves, rng)
        return field.encode(field.add(total, field.small(noise))[None])

    def _ready(self, number: int) -> None:
        if self._number != number or self._pending is not None or self.answered:
            raise OwnFault(
                f"operator {self._number} cannot verify: not its step, one runs, or it has answered"
            )

    def _under_way(self, number: int) -> _Pending:
        if self._number != number or self._pending is None:
            raise OwnFault(f"operator {self._number} has no verification under way")
        return self._pending

    def _begun(self, nonces: list[bytes]) -> Step:
        reports = [self._waiting[nonce] for nonce in nonces]
        batch = Batch(*(_rows([report[part] for report in reports]) for part in range(3)))
        return _told(self._scheme.start(self._key, self._number, batch))

    def _take(self, nonces: list[bytes], step: Step, held: BoolArray) -> None:
        for nonce in nonces:
            del self._waiting[nonce]
        self._pending = _Pending(step, held)

    def _message_bytes(self, pending: _Pending) -> int:
        share = pending.step.share
        return int(self._scheme.combine((share[:1], share[:1]))[0].shape[1])

    def _add(self, state: Any, accepted: BoolArray) -> None:
        outputs = self._scheme.outputs(state)[accepted]
        if outputs.shape[0]:
            self._share = self._scheme.field.add(self._share, self._scheme.field.total(outputs, axis=0))
        self.accepted += int(accepted.sum())
        self._pending = None


def _rows(strings: list[bytes]) -> Octets:
    """Strings of one length as rows."""
    return np.frombuffer(b"".join(strings), dtype=np.uint8).reshape(len(strings), -1)


def _told(step: Step) -> Step:
    """A step whose share is zero for the reports that are refused: nothing is told of them."""
    return step._replace(share=step.share * step.accepted[:, None])


def _spread(rows: Octets, held: BoolArray) -> Octets:
    """Rows of the reports that are held, among zeros for the others."""
    made = np.zeros((held.size, rows.shape[1]), dtype=np.uint8)
    made[held] = rows
    return made


def verify_together(leader: Operator, helper: Operator, batch: int = 256) -> None:
    """Verify every report that waits at both operators, in batches, in one process. Run by: a simulation."""
    both = set(helper.waiting)
    shared = [nonce for nonce in leader.waiting if nonce in both]
    for first in range(0, len(shared), batch):
        nonces = shared[first : first + batch]
        helper.settle(leader.close(helper.respond(leader.open(nonces))))
