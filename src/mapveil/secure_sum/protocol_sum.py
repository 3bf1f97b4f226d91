"""The protocol driver: every client and the server of every shard, with all the cryptography."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import closing
from functools import partial
from types import TracebackType

import numpy as np
import numpy.typing as npt

from mapveil.secure_sum.crew import Crew, Task
from mapveil.secure_sum.server import Server
from mapveil.secure_sum.shard_sum import (
    RUN_BYTES,
    BeforeReveal,
    ShardSum,
    check_promised,
    check_shards,
)
from mapveil_client.arrays import IntArray
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.parameters import SumSettings
from mapveil_client.secure_sum.states import Message
from mapveil_client.secure_sum.vectors import Leaves, SparseVectors

_CHUNK = 64
"""Clients whose messages travel together between processes, at most."""

_TURNS = 8
"""And each process gets at least so many such chunks, so that all end at about the same time."""


class ProtocolSum:
    """Runs the real clients and the real server, shard after shard.

    Memory holds one shard: a vector for each of its clients, and the shares. With several workers,
    clients run in processes of their own (key agreement holds the interpreter's lock) and the server
    in this one; a script that asks for them must be importable without side effects
    (``if __name__ == "__main__":``), as Python's ``spawn`` wants it. The processes are kept until
    :meth:`close`, the end of a ``with``, or that of the driver.

    Parameters
    ----------
    workers : int
        Processes for the clients, at least 1; with 1 everything runs in this one.
    active : bool
        Also against a server that lies about who dropped out, whatever the settings say.

    Raises
    ------
    ParameterError
        ``workers`` is below 1.
    """

    def __init__(self, workers: int = 1, *, active: bool = False) -> None:
        if workers < 1:
            raise ParameterError(f"workers must be 1 or more, got {workers}")
        self.workers = workers
        self.active = active
        self._crew: Crew | None = None

    def sums(
        self,
        vectors: SparseVectors,
        shards: IntArray,
        leaves: npt.NDArray[np.int8],
        settings: SumSettings,
        rng: Randomness,
        *,
        before_reveal: BeforeReveal,
    ) -> list[ShardSum]:
        """See :meth:`~mapveil.secure_sum.shard_sum.SecureSum.sums`.

        One shard follows another: ``before_reveal`` is called once for each, with the counts of all
        shards so far, and what it refuses is never revealed (those before it are known by then).
        """
        settings = dataclasses.replace(settings, active=settings.active or self.active)
        check_shards(vectors, shards, leaves, settings)
        counts: list[int] = []
        sizes = np.diff(shards)

        def tell(count: int) -> None:
            counts.append(count)
            known = np.array(counts, dtype=np.int64)
            before_reveal(known)
            check_promised(known, sizes[: known.size], settings)

        return [
            self._shard(vectors.between(first, last), leaves[first:last], settings, rng, tell)
            for first, last in zip(shards[:-1].tolist(), shards[1:].tolist(), strict=True)
        ]

    def _shard(
        self,
        vectors: SparseVectors,
        leaves: npt.NDArray[np.int8],
        settings: SumSettings,
        rng: Randomness,
        tell: Callable[[int], None],
    ) -> ShardSum:
        parameters = settings.parameters(vectors.clients, rng.words(RUN_BYTES, np.uint8).tobytes())
        server = Server(parameters, rng.words(32, np.uint8).tobytes())
        if self._crew is None:
            self._crew = Crew(self.workers)
        self._crew.open(parameters, rng)
        run = _Run(self._crew, server, vectors, leaves)
        run.advertise()
        run.exchange(Message.ROSTER, Message.SHARES, Leaves.SHARES)
        tell(run.exchange(Message.INBOX, Message.MASKED_INPUT, Leaves.INPUT))
        if parameters.active:
            run.exchange(Message.SURVIVORS, Message.CONSENT, Leaves.NEVER)
            run.exchange(Message.CONFIRMATIONS, Message.ANSWER, Leaves.NEVER)
        else:
            run.exchange(Message.SURVIVORS, Message.ANSWER, Leaves.NEVER)
        server.close_phase()
        return ShardSum(server.total, server.included, run.bytes_up, run.bytes_down)

    def close(self) -> None:
        """End the processes, if there are any; the next sum starts them anew."""
        if self._crew is not None:
            self._crew.close()

    def __enter__(self) -> ProtocolSum:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ProtocolSum(workers={self.workers})"


class _Run:
    """One shard under way: messages between the crew's clients and the server."""

    def __init__(
        self, crew: Crew, server: Server, vectors: SparseVectors, leaves: npt.NDArray[np.int8]
    ) -> None:
        self._crew, self._server, self._vectors, self._leaves = crew, server, vectors, leaves
        self.bytes_up: dict[str, int] = {}
        self.bytes_down: dict[str, int] = {}
        n = vectors.clients
        step = max(1, min(_CHUNK, n // (_TURNS * crew.workers)))
        self._chunks = [(first, min(first + step, n)) for first in range(0, n, step)]

    def advertise(self) -> None:
        """The first phase: clients start."""

        def task(first: int, last: int) -> Task:
            starting = first + np.flatnonzero(self._leaves[first:last] >= Leaves.KEYS)
            return Task("advertise", (first, self._vectors.between(first, last), starting.tolist()))

        self._collect(Message.ADVERTISE, task)

    def exchange(self, down: Message, up: Message, stays: Leaves) -> int:
        """Close the server's phase, deliver what it sends to the clients that stay, collect their answers.

        Returns
        -------
        int
            How many answered.
        """
        outbox = self._server.close_phase()
        sizes = self.bytes_down

        def task(first: int, last: int) -> Task:
            staying = first + np.flatnonzero(self._leaves[first:last] >= stays)
            mail = [(client, outbox[client]) for client in staying.tolist() if client in outbox]
            _count_bytes(sizes, down, mail)
            return Task("deliver", (mail,))

        return self._collect(up, task)

    def _collect(self, kind: Message, task: Callable[[int, int], Task]) -> int:
        answered = 0
        with closing(self._crew.run([partial(task, *chunk) for chunk in self._chunks])) as answers:
            for mail in answers:
                _count_bytes(self.bytes_up, kind, mail)
                answered += len(mail)
                for client, data in mail:
                    self._server.receive(client, data)
        return answered


def _count_bytes(sizes: dict[str, int], kind: Message, mail: list[tuple[int, bytes]]) -> None:
    """Remember the largest message of a phase."""
    name = kind.name.lower()
    sizes[name] = max([sizes.get(name, 0), *(len(data) for _, data in mail)])
