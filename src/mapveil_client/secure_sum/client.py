"""The client of a secure sum: bytes in, bytes out, one step at a time.

Source: Bell, Bonawitz, Gascon, Lepoint, Raykova, "Secure Single-Server Aggregation with
(Poly)Logarithmic Overhead" (2020), algorithm 2, and the consistency check of algorithm 3.

Deviation: the consistency check signs the whole set of survivors, as Bonawitz et al. (2017) do,
instead of each neighbour's presence; a bit per client is cheap at the size of a shard, and every
client can then count the survivors and check that their graph is connected. A committee signs for all clients, not
the neighbours of each: these let a server name different survivors to different parts of the graph.

Deviation: in an active round the graph is that of algorithm 2 too, from a hash of everybody's keys; clients do not
choose their neighbours, as in algorithm 3.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from mapveil_client.errors import Secret, check
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum import messages
from mapveil_client.secure_sum.certificate import Credentials
from mapveil_client.secure_sum.client_steps import ClientSteps, Memory, Outcome, read_state, write_state
from mapveil_client.secure_sum.masks import word_type
from mapveil_client.secure_sum.round_parameters import RoundParameters
from mapveil_client.secure_sum.states import (
    Abort,
    ClientState,
    Event,
    Message,
    OwnFault,
    Signal,
    expected_messages,
    find_step,
)
from mapveil_client.secure_sum.vectors import pack, unpack

_NEEDS_VECTOR = (ClientState.FRESH, ClientState.ADVERTISED, ClientState.SHARED)


class Client(Secret):
    """One device's part in one round.

    Send the message of :meth:`advertise`, and answer every message from the server with that of :meth:`receive`, until
    ``state`` is ``DONE``.

    Parameters
    ----------
    parameters : RoundParameters
        The parameters of the round.
    client : int
        This client's number, 0 .. n - 1.
    vector : ndarray of integers, shape (length,)
        Its contribution to the sum, taken modulo 2^b.
    rng : Randomness
        The source of its keys, seed and shares.
    credentials : Credentials, optional
        Sign its keys and its consent, and say by which authority the others' keys must be certified; given exactly
        where the round is signed.

    Raises
    ------
    ParameterError
        The vector, number or credentials do not fit the parameters.
    """

    def __init__(
        self,
        parameters: RoundParameters,
        client: int,
        vector: npt.NDArray[np.integer],
        rng: Randomness,
        *,
        credentials: Credentials | None = None,
    ) -> None:
        check(0 <= client < parameters.clients, "client", f"0 to {parameters.clients - 1}", client)
        signed, shape = parameters.signed, (parameters.length,)
        check(signed == (credentials is not None), "credentials", "given in a signed round only", credentials)
        good = vector.shape == shape and vector.dtype.kind in "iu"
        check(good, "vector", f"integers of shape {shape}", (vector.shape, vector.dtype))
        self.parameters = parameters
        self.client = int(client)
        self._steps = ClientSteps(parameters, self.client, rng, credentials)
        self._state = ClientState.FRESH
        self._memory = Memory()
        word = word_type(parameters.bits)
        # Negative numbers wrap around, at the word's width and then at 2^b.
        self._vector = vector.astype(word) & word.type((1 << parameters.bits) - 1)

    @property
    def state(self) -> ClientState:
        """The state of this client."""
        return self._state

    def advertise(self) -> bytes:
        """Start: draw the keys and the seed, and return the first message.

        Raises
        ------
        OwnFault
            It was called before.
        """
        if self._state is not ClientState.FRESH:
            raise OwnFault(f"advertise() of a client that is {self._state.name}; expected one call, at first")
        return self._done(Signal.START, self._steps.advertise())

    def receive(self, data: bytes) -> bytes:
        """Take the server's next message and return the answer to it.

        Save :meth:`to_state` (if at all) before the answer is sent, and never run the same saved
        state twice: two answers about different survivors would undo a neighbour's masks.

        Raises
        ------
        PeerFault
            The message breaks the protocol; this client is where it was.
        Abort
            Too few are left; this client is at its end and tells nothing more.
        """
        memory, expected = self._memory, expected_messages(self._state, self.parameters.active)
        message, fields = messages.decode(self.parameters, data, self.client, expected)
        try:
            if message is Message.ROSTER:
                made = self._steps.share(memory, *fields)
            elif message is Message.INBOX:
                made = self._steps.mask(memory, self._vector, *fields)
            elif message is Message.SURVIVORS:
                made = self._steps.survivors(memory, *fields)
            else:
                made = self._steps.confirm(memory, *fields)
        except Abort:
            self.abort()
            raise
        return self._done(message, made)

    def _done(self, event: Event, made: Outcome) -> bytes:
        step = find_step(self._state, event, self.parameters.active)
        if step is None or step.sends is None:
            raise OwnFault(f"{event.name} has no answer in state {self._state.name}")
        self._memory, self._state = made.memory, step.after
        self._forget()
        return messages.encode(self.parameters, step.sends, self.client, *made.fields)

    def abort(self) -> None:
        """Leave the round: everything secret is forgotten. At the end already, nothing happens."""
        step = find_step(self._state, Signal.ABORT, self.parameters.active)
        if step is not None:
            self._memory, self._state = Memory(), step.after
            self._forget()

    def _forget(self) -> None:
        if self._state not in _NEEDS_VECTOR:
            self._vector = np.zeros(0, dtype=self._vector.dtype)

    def to_state(self) -> bytes:
        """The bytes from which a device goes on after a restart; they hold secrets, so whoever stores them encrypts."""
        memory = self._memory
        if self._state in _NEEDS_VECTOR:
            memory = replace(memory, vector=pack(self._vector, self.parameters.bits))
        return write_state(self.parameters, self.client, self._state, memory)

    @classmethod
    def from_state(
        cls,
        parameters: RoundParameters,
        data: bytes,
        rng: Randomness,
        *,
        credentials: Credentials | None = None,
    ) -> Client:
        """Go on from the bytes of :meth:`to_state`.

        Raises
        ------
        InputError
            They are no state of this round.
        ParameterError
            The credentials do not go with the round.
        """
        client, state, memory = read_state(parameters, data)
        vector = np.zeros(parameters.length, dtype=np.uint64)
        if memory.vector:
            vector = unpack(memory.vector, parameters.length, parameters.bits)
        made = cls(parameters, client, vector, rng, credentials=credentials)
        made._memory, made._state = replace(memory, vector=b""), state
        made._forget()
        return made

    def __repr__(self) -> str:
        return f"Client({self.client} of {self.parameters.clients}, {self._state.name})"
