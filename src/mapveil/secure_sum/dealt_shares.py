"""The shares that clients deal, as the server keeps them: who holds whose, who dealt wrong ones, what answers must be.

A client is left out before the boxes are delivered where the digest of its keys is not that of a neighbour's, and
before the sum is settled where a neighbour showed that its box is wrong. Of the latter only the mask key is needed
then, from those who opened its boxes. Where they are fewer than t they are left out too, since nobody could take their
masks with it off.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from mapveil.secure_sum.server_unmask import ByteArray, Fault, FaultKind
from mapveil_client.arrays import BoolArray, IntArray
from mapveil_client.secure_sum import messages
from mapveil_client.secure_sum.boxes import check_complaint, share_digests
from mapveil_client.secure_sum.graph import Ring
from mapveil_client.secure_sum.round_parameters import RoundParameters
from mapveil_client.secure_sum.shamir import PRIME
from mapveil_client.secure_sum.states import PeerFault


class DealtShares:
    """The shares dealt in one round. Every array has a row for each client and a column for each of its slots.

    Parameters
    ----------
    parameters : RoundParameters
        Parameters of the round.
    ring : Ring
        Its neighbour graph.
    """

    def __init__(self, parameters: RoundParameters, ring: Ring) -> None:
        shape = ring.neighbours.shape
        self._parameters, self._ring = parameters, ring
        self._mirror = np.arange(parameters.neighbours)[::-1]  # this client's slot in its neighbours'
        self._boxes = np.zeros((*shape, messages.BOX_BYTES), dtype=np.uint8)
        self._digests = np.zeros((0, 0, 2 * messages.DIGEST_BYTES), dtype=np.uint8)
        self.commitments = np.zeros((shape[0], messages.HASH_BYTES), dtype=np.uint8)
        self.held: BoolArray = np.zeros(
            shape, dtype=np.bool_
        )  # whether the client holds that neighbour's shares
        self._wrong: BoolArray = np.zeros(
            shape, dtype=np.bool_
        )  # whether that neighbour showed its box to be wrong

    def keep(self, client: int, commitment: bytes, boxes: ByteArray) -> None:
        """Keep what a client sent; ``boxes`` by slot, shape (k, 148)."""
        self.commitments[client] = np.frombuffer(commitment, dtype=np.uint8)
        self._boxes[client] = boxes

    def settle(self, arrived: BoolArray) -> tuple[BoolArray, list[Fault]]:
        """Leave clients out, the most contradicted first, until all pairs agree; those left, shape (n,), and the rest.

        Of two clients that contradict each other one lies, and both in one sum would have no mask in common.
        """
        neighbours, sharing = self._ring.neighbours, arrived.copy()
        digests = self._boxes[:, :, messages.PAIR_DIGEST]
        agree = np.empty(neighbours.shape, dtype=np.bool_)
        for slot in range(neighbours.shape[1]):  # column by column: the digests of all at once are large
            back = digests[neighbours[:, slot], self._mirror[slot]]
            agree[:, slot] = np.all(digests[:, slot] == back, axis=1)
        faults: list[Fault] = []
        contradicted = np.count_nonzero(arrived[:, None] & arrived[neighbours] & ~agree, axis=1)
        while contradicted.any():
            worst = int(np.argmax(contradicted))
            faults.append(Fault(worst, FaultKind.PAIRS, int(contradicted[worst])))
            sharing[worst] = False
            contradicted = np.count_nonzero(sharing[:, None] & sharing[neighbours] & ~agree, axis=1)
        self.held = sharing[:, None] & sharing[neighbours]
        return sharing, faults

    def inboxes(self) -> Callable[[int], tuple[BoolArray, bytes]]:
        """A function of a client: the slots whose boxes it is given, and the boxes, whatever it complains of later."""
        delivered, boxes = self.held.copy(), self._boxes

        def inbox(client: int) -> tuple[BoolArray, bytes]:
            held = delivered[client]
            peers = self._ring.neighbours[client, held]
            return held, boxes[peers, self._mirror[held], messages.PAIR_DIGEST.stop :].tobytes()

        return inbox

    def check_complaints(self, client: int, unopened: bytes, complaints: bytes) -> BoolArray:
        """Refuse false complaints, with a ``PeerFault``; the slots that a client complains of, shape (k,)."""
        slots = messages.read_set(unopened, self._mirror.size)
        if np.any(slots & ~self.held[client]):
            raise PeerFault("a complaint about a box that was not delivered")
        rows = messages.rows_by_slot(complaints, slots, messages.COMPLAINT_BYTES, "complaints")
        for slot in np.flatnonzero(slots).tolist():
            dealer = int(self._ring.neighbours[client, slot])
            box = self._boxes[dealer, self._mirror[slot]].tobytes()
            check_complaint(self._parameters, self._ring.seed, dealer, client, box, rows[slot].tobytes())
        return slots

    def accept(self, client: int, unopened: BoolArray) -> None:
        """Count complaints that were checked."""
        self.held[client] &= ~unopened
        self._wrong[self._ring.neighbours[client, unopened], self._mirror[unopened]] = True

    def leave_out(self, arrived: BoolArray) -> tuple[BoolArray, list[Fault]]:
        """Leave clients out whose boxes were shown to be wrong; those left, shape (n,), and those at fault."""
        wrong = np.any(self._wrong, axis=1)
        left = arrived & ~wrong
        holders = self._held_by() & left[self._ring.neighbours]
        count = np.count_nonzero(holders, axis=1)
        for dealer in np.flatnonzero(wrong & (count > 0) & (count < self._parameters.threshold)).tolist():
            left[self._ring.neighbours[dealer, holders[dealer]]] = False
        self._digests = self._boxes[:, :, messages.SHARE_DIGESTS].copy()
        self._boxes = self._boxes[:0]
        faults = [
            Fault(int(client), FaultKind.BOXES, int(np.count_nonzero(self._wrong[client])))
            for client in np.flatnonzero(wrong)
        ]
        return left, faults

    def _held_by(self) -> BoolArray:
        """Whether the neighbour in each slot holds shares of the client."""
        held: BoolArray = self.held[self._ring.neighbours, self._mirror]
        return held

    def holders(self, arrived: BoolArray) -> IntArray:
        """Count those who arrived among the holders of each client's shares, shape (n,)."""
        there = self._held_by() & arrived[self._ring.neighbours]
        counted: IntArray = np.count_nonzero(there, axis=1).astype(np.int64)
        return counted

    def check_answer(
        self, client: int, given: bytes, shares: bytes, included: BoolArray
    ) -> tuple[BoolArray, ByteArray]:
        """Refuse an answer without a share that the client holds, or with another share; shapes (k,), (k, 34)."""
        slots = messages.read_set(given, self._mirror.size)
        if np.any(slots & ~self.held[client]):
            raise PeerFault("a share of a client that sent none")
        rows = messages.rows_by_slot(shares, slots, messages.SHARE_BYTES, "shares")
        if np.any(rows.view("<u2") >= PRIME):
            raise PeerFault(f"a share with a number of {PRIME} or above")
        if np.any(slots != self.held[client]):
            raise PeerFault("an answer without a share that this client holds")
        dealers = self._ring.neighbours[client, slots]
        secrets = 1 - included[dealers].astype(np.int64)
        of_both = self._digests[dealers, self._mirror[slots]].reshape(-1, 2, messages.DIGEST_BYTES)
        dealt = of_both[np.arange(dealers.size), secrets]
        digests = share_digests(self._parameters, self._ring.seed, dealers, client, secrets, rows[slots])
        other = np.any(digests != dealt, axis=1)
        if np.any(other):
            raise PeerFault(f"another share of client {dealers[other][0]} than that client dealt")
        return slots, rows

    def arrays(self) -> tuple[npt.NDArray[np.generic], ...]:
        """Everything that is kept, for a fingerprint."""
        return self._boxes, self._digests, self.commitments, self.held, self._wrong
