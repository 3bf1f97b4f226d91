"""Clients of one shard, run side by side in this process or in processes of their own."""

from __future__ import annotations

import signal
import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.client import Client
from mapveil_client.secure_sum.keys import Identity
from mapveil_client.secure_sum.parameters import RoundParameters
from mapveil_client.secure_sum.states import Abort, OwnFault, ProtocolError
from mapveil_client.secure_sum.vectors import SparseVectors

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

Mail = list[tuple[int, bytes]]
"""Messages from or to clients, by their numbers in the shard."""


class Task(NamedTuple):
    """Work for one hand: a method of :class:`Hand`, and what it is called with."""

    method: str
    arguments: tuple[object, ...]


class Hand:
    """Runs some of a shard's clients, one after another."""

    def __init__(self) -> None:
        self._clients: dict[int, Client] = {}

    def open(self, parameters: RoundParameters, seed: int | None) -> Mail:
        """Forget the last shard and make ready for the next."""
        self._clients = {}
        self._parameters = parameters
        self._rng = Randomness(seed)
        return []

    def advertise(self, first: int, vectors: SparseVectors, starting: Sequence[int]) -> Mail:
        """Start the clients ``starting`` of the slice of vectors that begins with client ``first``."""
        mail = []
        for client in starting:
            rng = self._rng.child(f"client {client}")
            identity = Identity.draw(rng) if self._parameters.signed else None
            made = Client(self._parameters, client, vectors.dense(client - first), rng, identity=identity)
            self._clients[client] = made
            mail.append((client, made.advertise()))
        return mail

    def deliver(self, mail: Mail) -> Mail:
        """Hand each client its message; a client that leaves the round answers nothing."""
        answers = []
        for client, data in mail:
            try:
                answers.append((client, self._clients[client].receive(data)))
            except Abort:
                del self._clients[client]
        return answers


def _serve(connection: Connection) -> None:
    """A hand in its own process: tasks in, mail out, until the connection closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt ends the parent, and that ends this
    hand = Hand()
    try:
        while True:
            task: Task = connection.recv()
            try:
                answer: Mail | ProtocolError = getattr(hand, task.method)(*task.arguments)
            except ProtocolError as error:
                answer = error
            connection.send(answer)
    except (EOFError, OSError):
        return


class _Worker(NamedTuple):
    process: BaseProcess
    connection: Connection


def _dismiss(workers: list[_Worker]) -> None:
    """Let the processes end: their connections close."""
    for worker in workers:
        worker.connection.close()
    for worker in workers:
        worker.process.join()
    workers.clear()


class Crew:
    """Hands that share a shard's clients; its processes are kept from one shard to the next.

    Parameters
    ----------
    workers : int
        Processes; with 1, everything runs in this one.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._staff: list[_Worker] = []
        self._here = Hand()
        weakref.finalize(self, _dismiss, self._staff)

    def close(self) -> None:
        """End the processes; the next shard starts them anew."""
        _dismiss(self._staff)

    def open(self, parameters: RoundParameters, rng: Randomness) -> None:
        """Make ready for a shard."""
        # A process makes its own randomness; a seeded run's is derived, so that it repeats.
        seeds = rng.words(self.workers, np.uint64).tolist() if rng.seeded else []
        if self.workers == 1:
            self._here.open(parameters, seeds[0] if seeds else None)
            return
        self._start()
        for i, worker in enumerate(self._staff):
            self._send(worker, Task("open", (parameters, seeds[i] if seeds else None)))
            self._receive(worker)

    def run(self, tasks: Iterable[Callable[[], Task]]) -> Generator[Mail, None, None]:
        """Run tasks in any order, the n-th by hand n modulo their number; yields what each gives."""
        if self.workers == 1:
            for make in tasks:
                task = make()
                yield getattr(self._here, task.method)(*task.arguments)
            return
        yield from self._run_apart(list(tasks))

    def _run_apart(self, tasks: list[Callable[[], Task]]) -> Generator[Mail, None, None]:
        from multiprocessing.connection import wait

        left = [iter(tasks[i :: self.workers]) for i in range(self.workers)]
        busy: dict[Connection, int] = {}

        def send_next(i: int) -> None:
            if (make := next(left[i], None)) is not None:
                self._send(self._staff[i], make())
                busy[self._staff[i].connection] = i

        try:
            for i in range(self.workers):
                send_next(i)
            while busy:
                for ready in wait(list(busy)):
                    i = next(i for connection, i in busy.items() if connection is ready)
                    del busy[self._staff[i].connection]
                    answer = self._receive(self._staff[i])
                    send_next(i)  # before the answer is looked at: no hand waits for the server
                    yield answer
        finally:
            if busy:  # answers to tasks that nobody asks for any more
                self.close()

    def _send(self, worker: _Worker, task: Task) -> None:
        try:
            worker.connection.send(task)
        except OSError:
            raise self._ended() from None

    def _receive(self, worker: _Worker) -> Mail:
        try:
            answer = worker.connection.recv()
        except (EOFError, OSError):
            raise self._ended() from None
        if isinstance(answer, ProtocolError):
            raise answer
        mail: Mail = answer
        return mail

    def _ended(self) -> OwnFault:
        self.close()
        return OwnFault("a process of the secure sum ended by itself; its own output says why")

    def _start(self) -> None:
        if self._staff:
            return
        import multiprocessing

        # A forked process could inherit locks that nobody in it will ever release.
        context = multiprocessing.get_context("spawn")
        for _ in range(self.workers):
            mine, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self._staff.append(_Worker(process, mine))
