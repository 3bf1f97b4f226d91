"""The clients of one shard, run in this process or in a pool of worker processes."""

import signal
import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import NamedTuple

import numpy as np

from mapveil.secure_sum.enrolment_authority import EnrolmentAuthority
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.certificate import Credentials
from mapveil_client.secure_sum.client import Client
from mapveil_client.secure_sum.keys import Identity
from mapveil_client.secure_sum.round_parameters import RoundParameters
from mapveil_client.secure_sum.states import Abort, OwnFault
from mapveil_client.secure_sum.vectors import SparseVectors

_SIMULATED_AT = 0.0  # seconds since 1970: the same bytes whenever a seeded run is repeated
Messages = list[tuple[int, bytes]]
"""Messages from or to clients, by their numbers in the shard."""


class ShardClients:
    """Some of a shard's clients, run one after another."""

    def __init__(self) -> None:
        self._clients: dict[int, Client] = {}

    def open(self, parameters: RoundParameters, seed: int | None, authority: bytes) -> Messages:
        """Forget the last shard and prepare for the next; ``authority`` is the key that certifies its clients."""
        self._clients = {}
        self._parameters = parameters
        self._authority = EnrolmentAuthority("simulated", Identity(authority))
        self._rng = Randomness(seed)
        return []

    def advertise(self, first: int, vectors: SparseVectors, starting: Sequence[int]) -> Messages:
        """Start the clients ``starting`` of the slice of vectors that begins with client ``first``."""
        messages = []
        for client in starting:
            rng = self._rng.child(f"client {client}")
            credentials = self._enrol(rng, client) if self._parameters.signed else None
            vector = vectors.dense(client - first)
            made = self._clients[client] = Client(
                self._parameters, client, vector, rng, credentials=credentials
            )
            messages.append((client, made.advertise()))
        return messages

    def _enrol(self, rng: Randomness, client: int) -> Credentials:
        """Draw a device's identity and certify it."""
        identity = Identity.draw(rng)
        certificate = self._authority.certify(identity.public, _SIMULATED_AT, serial=client)
        return Credentials(identity, certificate, self._authority.named, lambda: _SIMULATED_AT)

    def deliver(self, messages: Messages) -> Messages:
        """Give each client its message; a client that leaves the round does not answer."""
        answers = []
        for client, data in messages:
            try:
                answers.append((client, self._clients[client].receive(data)))
            except Abort:
                del self._clients[client]
        return answers


class Task(NamedTuple):
    """A call of a method of :class:`ShardClients`."""

    method: str
    arguments: tuple[object, ...]

    def on(self, clients: ShardClients) -> Messages:
        """The messages that the call returns."""
        answer: Messages = getattr(clients, self.method)(*self.arguments)
        return answer


_of_worker = ShardClients()  # of this process, where it is a worker


def _in_worker(task: Task) -> Messages:
    return task.on(_of_worker)


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt ends the parent, which ends its workers


def _shut_down(workers: list[ProcessPoolExecutor]) -> None:
    for worker in workers:
        worker.shutdown(cancel_futures=True)
    workers.clear()


class ClientPool:
    """Workers that share a shard's clients; their processes are kept from one shard to the next.

    Parameters
    ----------
    workers : int
        Processes; with 1, everything runs in this one.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._here = ShardClients()
        # A client's state is in one process, so each worker is an executor of its own.
        self._staff: list[ProcessPoolExecutor] = []
        weakref.finalize(self, _shut_down, self._staff)

    def close(self) -> None:
        """End the processes; the next shard starts new ones."""
        _shut_down(self._staff)

    def open(self, parameters: RoundParameters, rng: Randomness) -> None:
        """Prepare for a shard."""
        # A process makes its own randomness; that of a seeded run is derived, so that it repeats.
        seeds = rng.words(self.workers, np.uint64).tolist() if rng.seeded else [None] * self.workers
        authority = rng.child("authority").words(32, np.uint8).tobytes()
        if self.workers == 1:
            self._here.open(parameters, seeds[0], authority)
            return
        if not self._staff:
            import multiprocessing

            # A forked process could inherit locks that nobody in it will ever release.
            spawn = multiprocessing.get_context("spawn")
            self._staff += [
                ProcessPoolExecutor(1, spawn, initializer=_ignore_interrupts) for _ in range(self.workers)
            ]
        opened = [
            self._submit(i, Task("open", (parameters, seed, authority))) for i, seed in enumerate(seeds)
        ]
        for each in opened:
            self._result(each)

    def run(self, tasks: Iterable[Callable[[], Task]]) -> Generator[Messages, None, None]:
        """Run tasks in any order, the n-th by worker n modulo their number; yields the messages of each."""
        if self.workers == 1:
            for make in tasks:
                yield make().on(self._here)
            return
        every = list(tasks)
        left = [iter(every[i :: self.workers]) for i in range(self.workers)]
        busy: dict[Future[Messages], int] = {}

        def send_next(i: int) -> None:
            if (make := next(left[i], None)) is not None:
                busy[self._submit(i, make())] = i

        for i in range(self.workers):
            send_next(i)
        while busy:
            for done in wait(busy, return_when=FIRST_COMPLETED).done:
                send_next(busy.pop(done))  # before the answer is read: no worker waits for the server
                yield self._result(done)

    def _submit(self, worker: int, task: Task) -> Future[Messages]:
        try:
            return self._staff[worker].submit(_in_worker, task)
        except BrokenProcessPool:
            raise self._ended() from None

    def _result(self, future: Future[Messages]) -> Messages:
        try:
            return future.result()
        except BrokenProcessPool:
            raise self._ended() from None

    def _ended(self) -> OwnFault:
        self.close()
        return OwnFault("a process of the secure sum ended by itself; its own output says why")
