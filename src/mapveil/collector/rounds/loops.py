"""The loops of a process: each takes the steps of its kind that are due, and is stuck where one comes to no end."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Final

from mapveil.collector.refusals import StoreUnavailable
from mapveil.collector.roles import LOOPS, Loop, Role
from mapveil.collector.rounds.conductor import LANES, Conductor
from mapveil.collector.rounds.worker import Worker
from mapveil.collector.store.database import Store
from mapveil.collector.store.heartbeats import STUCK_SECONDS
from mapveil.collector.store.work_queue import MOST_SECONDS, Task

_TICK_SECONDS: Final = 0.2
_UNHURRIED: Final = {Loop.MAPS: 0.5, Loop.EXPORTS: 0.5}
"""Seconds between looks for work that takes longer than that, and whose order wakes this process."""

_OF_TASK: Final = {Task.SHARD: Loop.SHARDS, Task.EXPORT: Loop.EXPORTS}  # the others are of the loop of maps


class Loops:
    """The loops of one process; each takes every step of its kind that is due, in a thread.

    Parameters
    ----------
    store : Store
        With its tables created.
    conductor, worker : Conductor and Worker
        Of this process.
    """

    def __init__(self, store: Store, conductor: Conductor, worker: Worker) -> None:
        self._store, self._conductor, self._worker = store, conductor, worker
        self._acts: Mapping[Loop, Callable[[], object]] = {
            Loop.CONDUCT: conductor.tick,
            Loop.LEAD: conductor.lead,
            Loop.SHARDS: worker.close_shards,
            Loop.MAPS: worker.make_maps,
            Loop.EXPORTS: worker.make_exports,
        }
        # Shards that this process alone orders wake it.
        self._rests = _UNHURRIED if worker.shares_work else {**_UNHURRIED, Loop.SHARDS: _UNHURRIED[Loop.MAPS]}
        self._stopping = False
        self._begun: dict[Loop, float] = {}
        self._beats: dict[Loop, float] = {}
        # A long queue is no work without an end.
        conductor.on_step = self._beat
        worker.on_work = lambda task: self._beat(_OF_TASK.get(task, Loop.MAPS))

    async def run(self, role: Role = Role.ALL) -> None:
        """Do whatever is due of a role, until :meth:`stop`. A store that fails is asked again."""
        self._stopping = self._worker.stopping = False
        self._begun = dict.fromkeys(LOOPS[role], time.monotonic())
        wakes = {loop: asyncio.Event() for loop in LOOPS[role]}
        async with asyncio.TaskGroup() as tasks:
            for loop in wakes:
                tasks.create_task(self._repeat(loop, wakes))

    async def _repeat(self, loop: Loop, wakes: Mapping[Loop, asyncio.Event]) -> None:
        while not self._stopping:
            wakes[loop].clear()
            if await asyncio.to_thread(self._act, loop):
                for other in wakes.keys() - {loop}:
                    wakes[other].set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(wakes[loop].wait(), self._rests.get(loop, _TICK_SECONDS))

    def stop(self) -> None:
        """Let :meth:`run` end after the steps that are being taken; a file that is being made is given up."""
        self._stopping = True
        self._worker.stop()

    def tick(self) -> None:
        """Take every step that is due now, one after another."""
        self._act(Loop.CONDUCT)
        if self._act(Loop.LEAD):
            self._act(Loop.CONDUCT)
        while self._act(Loop.SHARDS):
            self._act(Loop.CONDUCT)
        self._act(Loop.MAPS)

    def _act(self, loop: Loop) -> bool:
        """Take every step of a loop that is due now; whether there may be more for the others.

        Of a lane that another process has, there is none: this loop goes round all the same.
        """
        steps, done = self._conductor.steps, None
        with contextlib.suppress(StoreUnavailable):
            done = self._acts[loop]()
            self._beat(loop)
        return self._conductor.steps > steps if loop in LANES else done is True

    def _beat(self, loop: Loop) -> None:
        """Note that a loop goes on."""
        self._beats[loop] = time.monotonic()

    def stuck(self) -> list[str]:
        """Names of the loops that do not come to an end of what they do, or cannot reach the store."""
        now = time.monotonic()
        patience = dict.fromkeys((Loop.MAPS, Loop.EXPORTS), MOST_SECONDS)
        return [
            loop.value
            for loop, begun in self._begun.items()
            if now - self._beats.get(loop, begun) > patience.get(loop, STUCK_SECONDS)
        ]
