"""A fleet: thousands of devices in one process, each with its own identity, memory and policy. For simulations.

Every device runs the code of a single one. They share connections, the public documents, and a few threads for
arithmetic. Lapses are simulated, privacy never is: a seed chooses the devices that drop out, and no noise.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np

from mapveil.collector.fleet.fleet_summary import FleetSummary
from mapveil.collector.fleet.lapses import LapsePlan, Lapses
from mapveil.collector.fleet.wire import WirePool
from mapveil.secure_sum.enrolment_authority import EnrolmentAuthority
from mapveil_client.certification import certify
from mapveil_client.connection import Connection, Progress, Unreachable
from mapveil_client.device_client import DeviceClient, Documents, Work
from mapveil_client.device_locations import Whereabouts
from mapveil_client.errors import InputError, PromiseError
from mapveil_client.memory import DeviceMemory
from mapveil_client.method_parameters import OperatorParameters
from mapveil_client.policy import DevicePolicy
from mapveil_client.random_features.feature_policy import FourierParameters
from mapveil_client.randomness.random import Randomness
from mapveil_client.reports import sealed_reports
from mapveil_client.terms import CollectionTerms
from mapveil_client.vault import Vault, locked

Tell = Callable[[str, float], None]

_OVER: Final = ("done", "aborted")
_AGAIN_S: Final = 0.5
_TOGETHER: Final = 256  # reports that are made at once
_NUMBERS: Final = 1 << 20  # sites of all of them


class Fleet:
    """Devices that answer one collector.

    Parameters
    ----------
    server : str
        Address of the collector.
    whereabouts : sequence of Whereabouts
        Locations of each device.
    policy : DevicePolicy
        Of every device. Where the policy allows no random features and a collection asks for them, the fleet is one
        whose app was made for that collection: its policy is the one that the terms' own mechanism gives.
    lapses : Lapses
        Simulated lapses.
    folder, key : path-like and bytes, optional
        Folder of the devices' vaults and the key that seals them; their memory lasts as long as the process otherwise.
    authority_apart : EnrolmentAuthority, optional
        Certifies the devices in place of an authority apart from the collector; by default the collector's own does.
    authority_server : tuple of str and str, optional
        Address of an authority that is a service of its own, and its token for enrolment: certifies the devices.
    connections, threads : int
        Number of each that are used at once.
    patience_s : float
        Time for which a request is tried again, seconds.
    authority : path-like, optional
        Certificates to trust, see :class:`~mapveil_client.connection.Connection`.
    plain : bool
        Plain HTTP to other machines too.
    progress : callable, optional
        Called with the name and the finished fraction of each step.
    note : callable, optional
        Called once with each reason for which the server asks to wait.
    look_s : float
        Seconds between two requests for the progress of a collection.

    Raises
    ------
    InputError
        No devices, or a folder without a key.
    """

    def __init__(
        self,
        server: str,
        whereabouts: Sequence[Whereabouts],
        policy: DevicePolicy,
        *,
        lapses: Lapses | None = None,
        folder: str | PathLike[str] | None = None,
        key: bytes | None = None,
        authority_apart: EnrolmentAuthority | None = None,
        authority_server: tuple[str, str] | None = None,
        connections: int = 32,
        threads: int = 2,
        patience_s: float = 60.0,
        authority: str | PathLike[str] | None = None,
        plain: bool = False,
        progress: Tell | None = None,
        note: Callable[[str], None] | None = None,
        look_s: float = 0.2,
    ) -> None:
        if not whereabouts:
            raise InputError("whereabouts must hold at least one device, got none")
        if (folder is None) != (key is None):
            raise InputError("a folder of vaults and their key go together")
        self._server, self._whereabouts, self._policy = server, whereabouts, policy
        self._plan = LapsePlan(len(whereabouts), lapses or Lapses())
        self._slow_s = (lapses or Lapses()).slow_s
        self._folder, self._key = None if folder is None else Path(folder), key
        self._connections, self._threads, self._apart = connections, threads, authority_apart
        self._authority_server = authority_server
        self._wire: dict[str, Any] = {
            "connections": connections,
            "patience_s": patience_s,
            "authority": authority,
            "plain": plain,
            "waiting": self._note_wait,
        }
        self._note, self._noted = note, set[str]()
        self._tell: Tell = progress or (lambda step, done: None)
        self._look_s = look_s
        self._latest: dict[str, Progress] = {}
        self._reported: set[str] = set()  # collections of reports
        self._sent = self._given_up = 0
        self.clients: list[DeviceClient] = []

    async def run(
        self, token: str | None = None, collections: Sequence[str] = (), *, wait_s: float = 0.0
    ) -> FleetSummary:
        """Enrol, join, and answer until every collection is over.

        Parameters
        ----------
        token : str, optional
            For devices that are not enrolled yet.
        collections : sequence of str
            Identifiers; by default the collections that are open.
        wait_s : float
            Time to wait for an open collection, seconds.

        Raises
        ------
        PromiseError
            None is open, or the devices cannot be enrolled.
        Unreachable
            The server does not answer.
        """
        if self._folder is None:
            return await self._run(token, collections, wait_s)
        self._folder.mkdir(parents=True, exist_ok=True)
        with locked(self._folder):
            return await self._run(token, collections, wait_s)

    async def _run(self, token: str | None, collections: Sequence[str], wait_s: float) -> FleetSummary:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(self._threads, thread_name_prefix="fleet") as pool:

            def work(job: Callable[[], Any]) -> Awaitable[Any]:
                return loop.run_in_executor(pool, job)

            memories = await work(self._open)  # one that does not open is said before anybody is asked
            async with Connection(self._server, transport=WirePool, **self._wire) as connection:
                documents = Documents(connection)
                chosen = list(collections) or await self._find(documents, wait_s)
                policy = await self._rules(documents, chosen, work)
                self.clients = [
                    DeviceClient(connection, memory, policy, places, documents=documents, work=work)
                    for memory, places in zip(memories, self._whereabouts, strict=True)
                ]
                started = time.monotonic()
                if await self._any_accepted(documents, chosen, policy):
                    await self._enrol(token)
                follow = partial(self._follow, connection, documents, work)
                states = await asyncio.gather(*map(follow, chosen))
        return FleetSummary.of(
            self.clients,
            dict(zip(chosen, states, strict=True)),
            reasons={each: said for each in chosen if (said := self._latest[each].reason)},
            sent=self._sent,
            dropped=int(np.count_nonzero(self._plan.gone)),
            unreachable=self._given_up,
            seconds=time.monotonic() - started,
        )

    def _note_wait(self, reason: str) -> None:
        if self._note is not None and reason not in self._noted:
            self._noted.add(reason)
            self._note(f"waiting, as the server asks: {reason}")

    async def _find(self, documents: Documents, wait_s: float) -> list[str]:
        until = time.monotonic() + wait_s
        while True:
            found = await documents.open()
            if found:
                return found
            if time.monotonic() >= until:
                raise PromiseError(f"no collection is open at {self._server}")
            await asyncio.sleep(self._look_s)

    async def _rules(self, documents: Documents, chosen: Sequence[str], work: Work) -> DevicePolicy:
        """The policy of the devices, and the terms judged once for all of them."""
        policy = self._policy
        for collection in chosen:
            terms = await documents.terms(collection)
            if terms.trust != "distributed":
                self._reported.add(collection)
            if terms.trust == "random-features" and policy.random_features is None:
                features = terms.parameters
                if isinstance(features, FourierParameters):
                    least = min(1000.0, *terms.features_query.sides)
                    bounds = features.policy(terms.features_query.bandwidth[0], smallest_side=least)
                    policy = replace(policy, random_features=bounds)
            await work(partial(policy.refusal, terms))
        return policy

    @staticmethod
    async def _any_accepted(documents: Documents, chosen: Sequence[str], policy: DevicePolicy) -> bool:
        """Whether the policy allows any of the collections: else nobody need be known to the server."""
        return any([policy.refusal(await documents.terms(each)) is None for each in chosen])

    def _open(self) -> list[DeviceMemory]:
        made, count = [], len(self._whereabouts)
        for index in range(count):
            vault = None
            if self._folder is not None and self._key is not None:
                vault = Vault(self._folder / f"device-{index:06d}.vault", self._key, held=True)
            memory = DeviceMemory.open(vault)
            if self._apart is not None:
                memory.certificate = self._apart.certify(memory.identity.public, time.time())
                memory.revoked = self._apart.revoke((), time.time())
            made.append(memory)
            if index % 100 == 99 or index == count - 1:
                self._tell("open memories", (index + 1) / count)
        return made

    async def _each(self, step: str, devices: Iterable[int], act: Callable[[int], Awaitable[object]]) -> None:
        """Do something for each device, as many at once as there are connections."""
        waiting = list(devices)
        count, done = len(waiting), 0
        left = iter(waiting)

        async def worker() -> None:
            nonlocal done
            for device in left:
                await act(device)
                done += 1
                self._tell(step, done / count)

        if count:
            self._tell(step, 0.0)
            await _together(worker() for _ in range(min(self._connections, count)))

    async def _enrol(self, token: str | None) -> None:
        new = [index for index, client in enumerate(self.clients) if client.memory.device is None]
        if new and token is None:
            raise InputError(f"{len(new)} devices are not enrolled; expected a token for enrolment")
        try:
            await self._each(
                "enrol", new, lambda index: self.clients[index].enrol(token or "", simulated=True)
            )
        except PromiseError as error:
            known = sum(client.memory.device is not None for client in self.clients)
            raise PromiseError(f"{known} of {len(self.clients)} devices are enrolled; {error}") from None
        authority = self._policy.authority
        if self._authority_server is None or authority is None:
            return
        server, shown = self._authority_server
        async with Connection(server, transport=WirePool, **self._wire) as apart:
            await self._each(
                "certify",
                range(len(self.clients)),
                lambda index: certify(apart, shown, self.clients[index].memory, authority),
            )

    async def _follow(self, connection: Connection, documents: Documents, work: Work, collection: str) -> str:
        """Join a collection and answer until it is over; how it ended."""
        await self._each("join", range(len(self.clients)), lambda index: self._join(index, collection))
        terms = await documents.terms(collection)
        # A fleet reads no times: in a series each of its devices says so by itself, and leaves.
        if terms.trust == "operators" and terms.series is None:
            await self._share(terms, work)
        room = asyncio.Semaphore(self._connections)
        tasks: dict[int, asyncio.Task[None]] = {}
        rests: dict[int, tuple[int, str | None, float]] = {}
        step = ""

        async def act(index: int) -> None:
            if self._plan.slow[index]:
                await asyncio.sleep(self._slow_s)
            async with room:
                progress = self._latest[collection]
                try:
                    sent = await self.clients[index].act(collection, progress)
                    self._sent += sent
                    until = self._rests_until(index, collection, progress)
                    rests[index] = (progress.round, progress.phase, until)
                except Unreachable:
                    self._given_up += 1  # and tried again at the next look

        try:
            while True:
                progress = self._latest[collection] = await connection.progress(collection)
                step = self._show(step, progress)
                for index in [index for index, task in tasks.items() if task.done()]:
                    tasks.pop(index).result()  # an internal fault ends the fleet
                due = self._due(collection, progress)
                if progress.state in _OVER or not (due or tasks):
                    break
                for index in due:
                    *at, until = rests.get(index, (-1, None, 0.0))
                    rests_now = at == [progress.round, progress.phase] and time.monotonic() < until
                    if index not in tasks and not rests_now:
                        tasks[index] = asyncio.create_task(act(index))
                await asyncio.sleep(self._look_s)
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
        if progress.state in _OVER:
            for client in self.clients:
                if collection in client.memory.parts:
                    await client.act(collection, progress)
        return progress.state

    async def _join(self, index: int, collection: str) -> None:
        try:
            joined = await self.clients[index].consider(collection)
            self._sent += joined and collection not in self._reported
        except Unreachable:
            self._given_up += 1

    async def _share(self, terms: CollectionTerms, work: Work) -> None:
        """Make the devices' shares of many reports at once, which takes a fortieth of the time of one after another."""
        sums = terms.parameters
        if not isinstance(sums, OperatorParameters):
            raise AssertionError("sums by two operators have parameters of their own")
        parts = ((client, client.memory.parts.get(terms.identifier)) for client in self.clients)
        new = [client for client, part in parts if part is not None and part.state == "joined"]
        step = max(1, min(_TOGETHER, _NUMBERS // terms.sharding.sites))
        for first in range(0, len(new), step):
            some = new[first : first + step]
            places = [client.whereabouts for client in some]
            made = await work(partial(sealed_reports, terms, sums, places, time.time(), Randomness()))
            for client, report in zip(some, made, strict=True):
                client.shared[terms.identifier] = report
            self._tell("make reports", (first + len(some)) / len(new))

    def _due(self, collection: str, progress: Progress) -> list[int]:
        """The devices that may have something to say, those of a shard one after another."""
        found = []
        for index, client in enumerate(self.clients):
            part = client.memory.parts.get(collection)
            if part is None or not part.running or self._plan.gone[index]:
                continue
            number = progress.round if progress.state == "running" else 0
            if (number or collection in self._reported) and self._plan.drops(
                index, collection, number, progress.phase or ""
            ):
                continue
            found.append((part.shard, part.client, index))
        return [index for *_, index in sorted(found)]

    def _rests_until(self, index: int, collection: str, progress: Progress) -> float:
        """Until when a device that was just asked need not be: for ever, in this phase, once it has answered.

        One that has not may have been a moment too early, or was told about the phase before by a process of the
        service that is a moment behind; a device that was left out has nothing to say however often it is asked.
        """
        part = self.clients[index].memory.parts.get(collection)
        if part is None or not part.running:
            return math.inf
        at = (progress.round, progress.phase)
        said = collection in self._reported or (part.round, part.phase or None) == at
        return math.inf if said and part.sent else time.monotonic() + _AGAIN_S

    def _show(self, before: str, progress: Progress) -> str:
        """Tell how far a phase is; the step that is shown."""
        step = progress.state
        if progress.state == "running" and progress.phase is not None:
            step = f"round {progress.round}: {progress.phase}"
        if before and before != step:
            self._tell(before, 1.0)
        done = 1.0 if progress.state in _OVER else progress.present / max(progress.wanted, 1)
        self._tell(step, min(done, 1.0))
        return step


async def _together(jobs: Iterable[Awaitable[None]]) -> None:
    """Run all; the first failure ends the rest."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
