"""State shared by the routes: the engine, the store, and access control."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import Path, Request, Security

from mapveil.collector.http.access import Access
from mapveil.collector.http.limits import Bodies
from mapveil.collector.http.prometheus import Metrics
from mapveil.collector.http.schemas import IDENTIFIER, ErrorBody
from mapveil.collector.http.settings import Settings
from mapveil.collector.refusals import MEANINGS
from mapveil.collector.roles import Loop
from mapveil.collector.store.database import Store
from mapveil.collector.store.device_certificates import Certification
from mapveil.collector.store.heartbeats import has_heartbeat
from mapveil.collector.store.principals import Accounts, Operator

if TYPE_CHECKING:
    from mapveil.collector.rounds.engine import Engine

T = TypeVar("T")

CollectionId = Annotated[str, Path(pattern=IDENTIFIER, description="32 hexadecimal digits")]
"""The part ``{id}`` of an address."""


@dataclass(frozen=True, eq=False)
class Service:
    """One service in one process."""

    engine: Engine
    store: Store
    accounts: Accounts
    certification: Certification
    access: Access
    settings: Settings
    metrics: Metrics
    pool: Executor
    bodies: Bodies
    alive: Callable[[], bool]  # whether the loops of its role run
    authority_only: bool = False  # whether it is an enrolment authority apart from any collector

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run something that reads the store, or computes, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, work, *arguments)

    def conducted(self) -> bool | None:
        """Whether some process, this or another, conducts; None at an enrolment authority, which has no collections."""
        if self.authority_only:
            return None
        if self.store.shareable:
            return has_heartbeat(self.store, Loop.CONDUCT.value)
        return self.alive() and Loop.CONDUCT.value not in self.engine.loops.stuck()

    def operator(self, role: str) -> Any:
        """A dependency: the operator who asks, of at least this role."""

        def asking(request: Request) -> Operator:
            return self.access.operator(request.scope, role)

        return Security(asking, scopes=[role])


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Refusals of a route beside those that every route of its kind may answer with."""
    return {status: {"model": ErrorBody, "description": MEANINGS[status]} for status in statuses}
