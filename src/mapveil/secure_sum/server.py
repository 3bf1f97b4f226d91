"""The server of a secure sum: messages as bytes, and at the end one sum.

The server keeps no secret of its own: the graph's seed and the accepted messages are its whole state, and replaying
them rebuilds it.

Source: Bell, Bonawitz, Gascon, Lepoint, Raykova, "Secure Single-Server Aggregation with
(Poly)Logarithmic Overhead" (2020), algorithm 2, and the consistency check of algorithm 3; the
deviations are those of :mod:`mapveil_client.secure_sum.client`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from operator import setitem
from typing import Final

import numpy as np
import numpy.typing as npt

from mapveil.secure_sum.dealt_shares import DealtShares
from mapveil.secure_sum.message_checks import check_keys, check_signature
from mapveil.secure_sum.outbox import Outbox
from mapveil.secure_sum.server_unmask import Collected, Fault, recover, unmask
from mapveil_client.arrays import BoolArray, IntArray
from mapveil_client.secure_sum import messages
from mapveil_client.secure_sum.certificate import Authority
from mapveil_client.secure_sum.graph import Ring, make_ring
from mapveil_client.secure_sum.keys import (
    Enrolled,
    draw_graph_seed,
    list_clients,
    receipt_statement,
    survivor_statement,
)
from mapveil_client.secure_sum.masks import word_type
from mapveil_client.secure_sum.messages import write_set
from mapveil_client.secure_sum.round_parameters import RoundParameters
from mapveil_client.secure_sum.states import (
    Abort,
    Message,
    OwnFault,
    PeerFault,
    ServerState,
    Signal,
    expected_messages,
    find_step,
)
from mapveil_client.secure_sum.vectors import unpack

_WRONG_RECEIPT: Final = "a receipt that does not sign the clients whose boxes it opened"
_WRONG_CONSENT: Final = "a consent that does not sign the survivors"


def any_identity(client: int, identity: bytes) -> bool:
    """Take every identity: for simulations, whose clients are this process's own."""
    return True


class Server:
    """The server of one round.

    Pass every message from a client to :meth:`receive`. When a phase is over (the caller has the clock) call
    :meth:`close_phase` and send the messages that it returns. Before the survivors are sent, ``included`` marks the
    clients whose vectors arrived, and :meth:`abort` still reveals nothing. After the last phase ``total`` is the sum of
    those vectors.

    Parameters
    ----------
    parameters : RoundParameters
        Parameters of the round.
    graph_seed : bytes
        32 uniform bytes, drawn for this round only. In an active round the graph also follows from everybody's keys.
    enrolled : callable (int, bytes) -> bool, optional
        Whether an identity belongs to the device enrolled as that client; a signed round needs it or ``authority``.
    authority : Authority, optional
        Authority that must have certified the identities, as the clients insist.
    reread : callable (int) -> bytes, optional
        Gives a MASKED_INPUT that was received once more. It is called for clients that others prove wrong, to take
        their vectors out of the sum; without it the round ends there.

    Raises
    ------
    OwnFault
        Nothing says whose identities a signed round takes; ``enrolled=any_identity`` says that it takes all.
    """

    def __init__(
        self,
        parameters: RoundParameters,
        graph_seed: bytes,
        *,
        enrolled: Enrolled | None = None,
        authority: Authority | None = None,
        reread: Callable[[int], bytes] | None = None,
    ) -> None:
        if parameters.signed and enrolled is None and authority is None:
            raise OwnFault(
                "a signed round needs authority or enrolled; any_identity takes all, for simulations"
            )
        n, k = parameters.clients, parameters.neighbours
        self.parameters = parameters
        self._graph_seed = graph_seed
        self._enrolled, self._authority, self._reread = enrolled, authority, reread
        self._graph = b""  # as the roster says it
        self._ring: Ring  # drawn when all keys are in
        self._committee: IntArray
        self._dealt: DealtShares
        self.faults: list[Fault] = []  # clients at fault, as far as the phases that were closed show
        self._state = ServerState.KEYS
        self._asked: BoolArray = np.ones(n, dtype=np.bool_)
        self._arrived: BoolArray = np.zeros(n, dtype=np.bool_)
        self._present = self._sharing = self._included = np.zeros(n, dtype=np.bool_)
        self.withdrawn: BoolArray = np.zeros(
            n, dtype=np.bool_
        )  # clients whose vectors were taken out of the sum again
        self._keys = np.zeros((n, messages.roster_entry_bytes(parameters)), dtype=np.uint8)
        self._distinct: set[tuple[str, bytes]] = set()  # parts of the keys that stand once in a signed round
        self._receipts = np.zeros((n, messages.SIGNATURE_BYTES), dtype=np.uint8)
        self._sum = np.zeros(parameters.length, dtype=word_type(parameters.bits))
        self._signatures = np.zeros((0, messages.SIGNATURE_BYTES), dtype=np.uint8)
        self._given: BoolArray = np.zeros((0, k), dtype=np.bool_)
        self._shares = np.zeros((0, k, messages.SHARE_BYTES), dtype=np.uint8)

    @property
    def state(self) -> ServerState:
        """The current phase, or the outcome of the round."""
        return self._state

    @property
    def included(self) -> BoolArray:
        """Mask of the clients in the sum, shape (n,); an ``OwnFault`` before the inputs are closed."""
        if self._state in (ServerState.KEYS, ServerState.SHARES, ServerState.INPUTS):
            raise OwnFault(f"included is known after phase INPUTS, not in {self._state.name}")
        return self._included.copy()

    @property
    def total(self) -> npt.NDArray[np.uint64]:
        """The sum modulo 2^b, shape (length,); an ``OwnFault`` before the round is done."""
        if self._state is not ServerState.DONE:
            raise OwnFault(f"total is known in state DONE, not in {self._state.name}")
        return self._sum.astype(np.uint64)

    def check(self, client: int, data: bytes, now: float | None = None) -> None:
        """Refuse a message as :meth:`receive` would, and keep nothing: messages are stored before they count.

        Also refuse a certificate that is not valid at ``now``, seconds since 1970: of a stored message it was.
        """
        self._checked(client, data, now)

    def receive(self, client: int, data: bytes) -> None:
        """Take one message from the client that the transport names.

        Raises
        ------
        PeerFault
            The message is malformed, repeated or late; the state is as before.
        OwnFault
            There is no such client.
        """
        self._checked(client, data)()
        self._arrived[client] = True

    def _checked(self, client: int, data: bytes, now: float | None = None) -> Callable[[], None]:
        """A function that stores a fully checked message."""
        if not 0 <= client < self.parameters.clients:
            raise OwnFault(f"a message from client {client}; expected 0 to {self.parameters.clients - 1}")
        expected = expected_messages(self._state, self.parameters.active)
        try:
            message, fields = messages.decode(self.parameters, data, client, expected)
            if not self._asked[client]:
                raise PeerFault(
                    f"{message.name} from a client that was not asked; those still in the round are"
                )
            if self._arrived[client]:
                raise PeerFault(f"{message.name} once more; expected one")
            return self._keeper(message, client, fields, now)
        except PeerFault as fault:
            raise PeerFault(f"client {client}: {fault}", client) from None

    def _keeper(
        self, message: Message, client: int, fields: list[bytes], now: float | None
    ) -> Callable[[], None]:
        p = self.parameters
        if message is Message.ADVERTISE:
            keys = check_keys(p, client, fields[0], self._enrolled)
            if p.signed and (name := messages.find_repeated(fields[0], self._distinct)):
                raise PeerFault(f"keys with the {name} of another client; expected one device for each")
            if p.signed and self._authority is not None:
                entry = fields[0][messages.CERTIFICATE]
                if fault := self._authority.fault(fields[0][messages.IDENTITY], entry, now):
                    raise PeerFault(f"keys of a device: {fault}")

            def advertise() -> None:
                self._keys[client] = keys
                if p.signed:
                    self._distinct.update(messages.distinct_parts(fields[0]))

            return advertise
        slots = self._ring.neighbours[client]
        if message is Message.SHARES:
            boxes = messages.rows_by_slot(fields[1], self._present[slots], messages.BOX_BYTES, "boxes")
            return partial(self._dealt.keep, client, fields[0], boxes)
        if message is Message.MASKED_INPUT:
            vector, unopened, complaints, receipt = fields
            row = unpack(vector, p.length, p.bits).astype(word_type(p.bits))
            wrong = self._dealt.check_complaints(client, unopened, complaints)
            if p.active:
                opened = write_set(self._dealt.held[client] & ~wrong)
                statement = receipt_statement(p, self._ring.seed, client, opened)
                check_signature(self._keys[client], receipt, statement, _WRONG_RECEIPT)

            def add() -> None:
                self._dealt.accept(client, wrong)
                self._receipts[client, : len(receipt)] = np.frombuffer(receipt, dtype=np.uint8)
                self._sum += row

            return add
        if message is Message.CONSENT:
            statement = survivor_statement(p, self._ring.seed, self._included)
            signature = check_signature(self._keys[client], fields[0], statement, _WRONG_CONSENT)
            return partial(setitem, self._signatures, client, signature)
        given, shares = self._dealt.check_answer(client, fields[0], fields[1], self._included)

        def keep() -> None:
            self._given[client], self._shares[client] = given, shares

        return keep

    def close_phase(self) -> Outbox:
        """End the phase: clients that have not answered have dropped out. Empty after the last phase.

        Raises
        ------
        Abort
            Too few clients are left, or the masks cannot be taken off: the round is over.
        OwnFault
            The round was over already.
        """
        step = find_step(self._state, Signal.CLOSE, self.parameters.active)
        if step is None:
            raise OwnFault(f"close_phase() in state {self._state.name}; expected a phase that is open")
        try:
            outbox = self._close()
        except Abort:
            self.abort()
            raise
        self._state = step.after
        self._asked = outbox.clients
        self._arrived = np.zeros_like(self._arrived)
        return outbox

    def _close(self) -> Outbox:
        state, n = self._state, self.parameters.clients
        if state is ServerState.KEYS:
            listed = list_clients(self.parameters, self._keys).tobytes() if self.parameters.active else b""
            self._graph = self._graph_seed + listed
            seed = draw_graph_seed(self.parameters, self._graph)
            self._ring = make_ring(n, self.parameters.neighbours, seed)
            self._committee = np.array(self._ring.committee(self.parameters.committee), dtype=np.int64)
            self._check_left("advertised keys", self._arrived)
            self._present = self._arrived
            self._dealt = DealtShares(self.parameters, self._ring)
            return Outbox(self._present, self._roster)
        if state is ServerState.SHARES:
            self._arrived, faults = self._dealt.settle(self._arrived)
            self.faults += faults
            self._check_left("sent shares", self._arrived)
            self._sharing = self._arrived
            return Outbox(self._sharing, self._inboxes())
        if state is ServerState.INPUTS:
            # The masks of a client that sent shares and dropped out since need its mask key.
            self._included, faults = self._dealt.leave_out(self._arrived)
            self.faults += faults
            self.withdrawn = self._arrived & ~self._included
            self._withdraw(self.withdrawn)
            self._arrived = self._included
            self._check_left("sent masked inputs", self._sharing)
            if not self._ring.connected(self._included):
                raise Abort("the clients in the sum are not connected, so that it would come apart")
            self._signatures = np.zeros((n, messages.SIGNATURE_BYTES), dtype=np.uint8)
            self._given = np.zeros(self._ring.neighbours.shape, dtype=np.bool_)
            self._shares = np.zeros((*self._ring.neighbours.shape, messages.SHARE_BYTES), dtype=np.uint8)
            return Outbox(self._included, self._survivors)
        if state is ServerState.CONSENTS:
            signed, needed = self._arrived[self._committee], self.parameters.quorum
            if (count := int(np.count_nonzero(signed))) < needed:
                raise Abort(
                    f"{count} of the committee of {signed.size} agreed to the sum; {needed} are needed"
                )
            quorum = signed & (np.cumsum(signed) <= needed)
            return Outbox(self._arrived, self._confirmations(quorum))
        collected = Collected(
            keys=self._keys,
            commitments=self._dealt.commitments,
            sharing=self._sharing,
            included=self._included,
            held=self._dealt.held,
            given=self._given,
            shares=self._shares,
        )
        recovered = recover(self.parameters, self._ring, collected)
        self.faults += recovered.faults
        self._sum = unmask(self.parameters, self._ring, self._sum, collected, recovered)
        return Outbox(np.zeros(n, dtype=np.bool_), self._roster)

    def _withdraw(self, clients: BoolArray) -> None:
        """Take vectors out of the sum again."""
        for client in np.flatnonzero(clients).tolist():
            if self._reread is None:
                raise Abort(f"client {client} must be left out, and its vector is added already", client)
            _, fields = messages.decode(
                self.parameters, self._reread(client), client, (Message.MASKED_INPUT,)
            )
            self._sum -= unpack(fields[0], self.parameters.length, self.parameters.bits).astype(
                self._sum.dtype
            )

    def _left(self) -> npt.NDArray[np.int64]:
        """Count the neighbours of each client that answered in this phase, shape (n,)."""
        left: npt.NDArray[np.int64] = np.count_nonzero(self._arrived[self._ring.neighbours], axis=1)
        return left

    def _check_left(self, done: str, needed: BoolArray) -> None:
        """Abort where fewer than the minimum are left, or fewer than t around a client that is ``needed``."""
        p = self.parameters
        left = self._left() if self._state is ServerState.KEYS else self._dealt.holders(self._arrived)
        count = int(np.count_nonzero(self._arrived))
        if count < p.minimum:
            raise Abort(f"{count} clients {done}; {p.minimum} are promised at least")
        poor = np.flatnonzero(needed & (left < p.threshold) & (self._arrived | (left > 0)))
        if poor.size:
            raise Abort(
                f"{left[poor[0]]} neighbours of client {poor[0]} {done}; {p.threshold} are needed",
                int(poor[0]),
            )

    def _write(self, message: Message, client: int, *fields: bytes) -> bytes:
        return messages.encode(self.parameters, message, client, *fields)

    def _roster(self, client: int) -> bytes:
        slots = self._ring.neighbours[client]
        there = self._present[slots]
        keys = self._keys[slots[there]].tobytes()
        known = self._present[self._committee]
        committee = (write_set(known), self._keys[self._committee[known]].tobytes())
        return self._write(Message.ROSTER, client, self._graph, write_set(there), keys, *committee)

    def _inboxes(self) -> Callable[[int], bytes]:
        delivered = self._dealt.inboxes()

        def write(client: int) -> bytes:
            sent, boxes = delivered(client)
            return self._write(Message.INBOX, client, write_set(sent), boxes)

        return write

    def _survivors(self, client: int) -> bytes:
        around = self._ring.neighbours[client]
        receipts = b"".join(
            write_set(self._dealt.held[peer]) + self._receipts[peer].tobytes()
            for peer in (around if self.parameters.active else ())
        )
        return self._write(Message.SURVIVORS, client, write_set(self._included), receipts)

    def _confirmations(self, signed: BoolArray) -> Callable[[int], bytes]:
        signatures = self._signatures[self._committee[signed]].tobytes()
        return lambda client: self._write(Message.CONFIRMATIONS, client, write_set(signed), signatures)

    def abort(self) -> None:
        """End the round without a sum, if it is not over."""
        step = find_step(self._state, Signal.ABORT, self.parameters.active)
        if step is not None:
            self._state = step.after

    def fingerprint(self) -> bytes:
        """SHA-256 of the whole state: equal for servers that accepted the same messages."""
        made = hashlib.sha256(self.parameters.digest + self._graph_seed + bytes([self._state.value]))
        for array in (
            *(self._asked, self._arrived, self._present, self._sharing, self._included, self._keys),
            *(self._receipts, self._sum, self._signatures, self._given, self._shares),
            *(self._dealt.arrays() if hasattr(self, "_dealt") else ()),
        ):
            made.update(np.ascontiguousarray(array).data)
        return made.digest()

    def __repr__(self) -> str:
        return f"Server({self.parameters.clients} clients, {self._state.name})"
