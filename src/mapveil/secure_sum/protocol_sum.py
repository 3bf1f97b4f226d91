"""The protocol driver: every client and the server of every shard, with all the cryptography."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from mapveil.secure_sum.client_pool import ClientPool, Messages, Task
from mapveil.secure_sum.drivers import RUN_BYTES, BeforeReveal, ShardSum, check_promised, check_shards
from mapveil.secure_sum.server import Server, any_identity
from mapveil_client.arrays import IntArray
from mapveil_client.errors import check
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.round_parameters import SumSettings
from mapveil_client.secure_sum.states import Message
from mapveil_client.secure_sum.vectors import Leaves, SparseVectors

_CHUNK = 64  # largest number of clients whose messages travel together between processes
_TURNS = 8  # least number of such chunks for each process, so that all end at about the same time


class ProtocolSum:
    """Runs the real clients and the real server, shard after shard.

    Memory holds one shard: a vector for each of its clients, and the shares. With several workers, clients run in
    processes of their own (key agreement holds the interpreter's lock) and the server in this one; a script that uses
    them must guard its entry (``if __name__ == "__main__":``) for Python's ``spawn``. The processes are kept until
    :meth:`close`, the end of a ``with``, or the end of the driver.

    Parameters
    ----------
    workers : int
        Processes for the clients, at least 1; with 1 everything runs in this one.
    active : bool
        Whether to run the checks against a malicious server also where the settings do not ask for them.
    """

    def __init__(self, workers: int = 1, *, active: bool = False) -> None:
        check(workers >= 1, "workers", "at least 1", workers)
        self.workers, self.active = workers, active
        self._pool = ClientPool(workers)

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
        """See :meth:`~mapveil.secure_sum.drivers.SecureSum.sums`; ``before_reveal`` is called once for each shard.

        A refused shard is never revealed; the shards before it are known by then.
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
        server = Server(parameters, rng.words(32, np.uint8).tobytes(), enrolled=any_identity)
        self._pool.open(parameters, rng)
        run = _Run(self._pool, server, vectors, leaves)
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
        """End the processes, if there are any; the next sum starts new ones."""
        self._pool.close()

    def __enter__(self) -> ProtocolSum:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ProtocolSum(workers={self.workers})"


class _Run:
    """The run of one shard: messages between the pool's clients and the server."""

    def __init__(
        self, pool: ClientPool, server: Server, vectors: SparseVectors, leaves: npt.NDArray[np.int8]
    ) -> None:
        self._pool, self._server, self._vectors, self._leaves = pool, server, vectors, leaves
        self.bytes_up: dict[str, int] = {}
        self.bytes_down: dict[str, int] = {}
        n = vectors.clients
        step = max(1, min(_CHUNK, n // (_TURNS * pool.workers)))
        self._chunks = [(first, min(first + step, n)) for first in range(0, n, step)]

    def advertise(self) -> None:
        """The first phase: clients start."""

        def task(first: int, last: int) -> Task:
            starting = first + np.flatnonzero(self._leaves[first:last] >= Leaves.KEYS)
            return Task("advertise", (first, self._vectors.between(first, last), starting.tolist()))

        self._collect(Message.ADVERTISE, task)

    def exchange(self, down: Message, up: Message, stays: Leaves) -> int:
        """Close the server's phase, deliver its messages to the clients that stay, and count their answers."""
        outbox = self._server.close_phase()

        def task(first: int, last: int) -> Task:
            staying = first + np.flatnonzero(self._leaves[first:last] >= stays)
            messages = [(client, outbox[client]) for client in staying.tolist() if client in outbox]
            _count_bytes(self.bytes_down, down, messages)
            return Task("deliver", (messages,))

        return self._collect(up, task)

    def _collect(self, kind: Message, task: Callable[[int, int], Task]) -> int:
        answered = 0
        for messages in self._pool.run([partial(task, *chunk) for chunk in self._chunks]):
            _count_bytes(self.bytes_up, kind, messages)
            answered += len(messages)
            for client, data in messages:
                self._server.receive(client, data)
        return answered


def _count_bytes(sizes: dict[str, int], kind: Message, messages: Messages) -> None:
    """Remember the largest message of a phase."""
    name = kind.name.lower()
    sizes[name] = max([sizes.get(name, 0), *(len(data) for _, data in messages)])
