"""The application: devices by plain routes, operators by FastAPI, pages from files, and one way in for all of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy import func, select
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse
from starlette.routing import Match
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mapveil.collector.http.access import Access
from mapveil.collector.http.device_routes import AUTHORITY_ENDPOINTS, ENDPOINTS, DeviceRoutes, Endpoint
from mapveil.collector.http.exchange import Exchange, read_body, require_json
from mapveil.collector.http.gate import PAGE_POLICY, Gate, refusal_of
from mapveil.collector.http.limits import Bodies
from mapveil.collector.http.operators import add_operator_routes
from mapveil.collector.http.peer_routes import PeerRoutes
from mapveil.collector.http.prometheus import Metrics
from mapveil.collector.http.public_routes import add_public_routes
from mapveil.collector.http.result_routes import add_result_routes
from mapveil.collector.http.service import Service
from mapveil.collector.http.settings import Settings
from mapveil.collector.operators.operator_keys import PeerKey
from mapveil.collector.operators.peer import PEER_ROUTES
from mapveil.collector.refusals import NotFound
from mapveil.collector.roles import LOOPS, Role
from mapveil.collector.store.database import Store
from mapveil.collector.store.device_certificates import Certification, Lifetimes
from mapveil.collector.store.principals import Accounts
from mapveil.collector.store.schema import collections
from mapveil.collector.store.work_queue import waiting
from mapveil_client.errors import MapveilError

if TYPE_CHECKING:
    from mapveil.collector.rounds.engine import Engine

_LOG: Final = logging.getLogger("mapveil.collector")
_COLLECTOR: Final = Path(__file__).parent.parent
_RESTART_SECONDS: Final = 1.0
_LIST_SECONDS: Final = 15.0
_MEASURE_SECONDS: Final = 15.0  # as often as deploy/prometheus.yml scrapes
_QUERY: Final = "/retrieval/query"
_OF_EVERY_ROLE: Final = ("/healthz", "/metrics")


def create_app(
    engine: Engine,
    store: Store,
    settings: Settings | None = None,
    *,
    conduct: bool = True,
    authority_only: bool = False,
    closing: Callable[[], None] | None = None,
    peer_key: PeerKey | None = None,
) -> ASGIApp:
    """The whole service as one ASGI application.

    Parameters
    ----------
    engine : Engine
        The collector without HTTP.
    store : Store
        With its tables created.
    settings : Settings, optional
        The defaults by default.
    conduct : bool
        Whether the engine's conductor runs from the application's start to its end; tests may rather tick.
    authority_only : bool
        Serve the engine's enrolment authority alone: devices enrol and are certified, operators revoke them; there are
        no collections and no pages.
    closing : callable, optional
        Called at the very end, such as ``store.close``.
    peer_key : PeerKey, optional
        Authenticates the leader whom the engine helps.
    """
    closing = closing or (lambda: None)
    return _Collector(
        engine,
        store,
        settings or Settings(),
        conduct and not authority_only,
        closing,
        authority_only,
        peer_key,
    ).gate


class _Collector:
    """The service of one process."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        settings: Settings,
        conduct: bool,
        closing: Callable[[], None],
        authority_only: bool,
        peer_key: PeerKey | None,
    ) -> None:
        self._engine, self._closing = engine, closing
        self._conduct = conduct and bool(LOOPS[Role(settings.role)])  # an intake has no loop
        self._answers = settings.role in (Role.ALL, Role.INTAKE)
        self._task: asyncio.Task[None] | None = None
        self._parsing = asyncio.Lock()
        self._pool = ThreadPoolExecutor(settings.threads, thread_name_prefix="mapveil-api")
        pace = ((settings.enrol_minute, 60), (settings.enrol_day, 24 * 3600))
        accounts, metrics = Accounts(store, pace), Metrics(partial(_states, store), partial(waiting, store))
        listed = None if settings.revocation_list is None else Path(settings.revocation_list)
        lifetimes = Lifetimes(certificate=settings.certificate_days, revocations=settings.list_days)
        self._service = Service(
            engine=engine,
            store=store,
            accounts=accounts,
            certification=Certification(store, engine.authority, lifetimes, listed),
            access=Access(store, accounts, settings, self._pool),
            settings=settings,
            metrics=metrics,
            pool=self._pool,
            bodies=Bodies(settings.waiting_bytes),
            alive=self._conducting,
            authority_only=authority_only,
        )
        store.on_commit = lambda batch: metrics.commit_seconds.observe(batch.seconds)
        engine.observe_phases(lambda phase, seconds: metrics.phase_seconds.labels(phase).observe(seconds))
        self._devices = DeviceRoutes(self._service, _endpoints(self._service))
        self._peers = PeerRoutes(self._service, engine.helper, peer_key)
        self._api = self._fastapi()
        shared: list[str | tuple[str, str]] = [("mapveil.pictures", "shared")]
        self._console = _Pages(directory=_COLLECTOR / "console", packages=shared, html=True)
        self._device_page = _Pages(directory=_COLLECTOR / "device_page", html=True)
        self.gate = Gate(self._answer, settings, metrics)

    def _conducting(self) -> bool:
        """Whether the loops of this process's role run."""
        return not self._conduct or (self._task is not None and not self._task.done())

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._api(scope, receive, send)
            return
        path = scope["path"]
        if not self._answers and path not in _OF_EVERY_ROLE:
            raise NotFound
        if self._devices.takes(scope["method"], path):
            await self._devices(scope, receive, send)
        elif path.startswith(PEER_ROUTES + "/"):
            await self._peers(scope, receive, send)
        elif path.startswith("/v1/") or path in ("/v1", "/healthz", "/metrics"):
            try:
                await self._api(scope, await self._buffered(scope, receive), send)
            finally:
                route = scope.get("route")
                if route is not None:
                    Exchange.of(scope).route = route.path
        else:
            Exchange.of(scope).route = "page"
            await self._page(path, scope)(scope, receive, send)

    def _page(self, path: str, scope: Scope) -> ASGIApp:
        """The application that serves a page's files: the browser device below ``/device/``, else the console."""
        if self._service.authority_only:
            raise NotFound
        if path == "/device" and scope["method"] in ("GET", "HEAD"):
            return RedirectResponse("/device/")
        if not path.startswith("/device/"):
            return self._console
        scope["root_path"] = scope.get("root_path", "") + "/device"
        return self._device_page

    async def _buffered(self, scope: Scope, receive: Receive) -> Receive:
        """Read the body before anything else looks at the request, within its limit."""
        if scope["method"] in ("GET", "HEAD", "OPTIONS"):
            return receive
        settings = self._service.settings
        most = settings.query_bytes if scope["path"].endswith(_QUERY) else settings.json_bytes
        body: bytes | None = await read_body(scope, receive, most, self._service.bodies)
        routed = any(route.matches(scope)[0] is Match.FULL for route in self._api.routes)
        if body and routed and not scope["path"].endswith(_QUERY):
            # FastAPI asks for the token last, and parsing holds the event loop up. No body is parsed of a stranger,
            # or of a viewer, who has no route that takes one; of many bodies one is parsed in each turn of the loop.
            await self._service.run(self._service.access.operator, scope, "operator")
            async with self._parsing:
                require_json(body)  # FastAPI would keep what it cannot read in a circle of frames
                await asyncio.sleep(0)

        async def replay() -> Message:
            nonlocal body
            if body is None:
                return await receive()
            message: Message = {"type": "http.request", "body": body, "more_body": False}
            body = None
            return message

        return replay

    def _fastapi(self) -> FastAPI:
        app = FastAPI(
            lifespan=self._lifespan, openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False
        )
        _add_handlers(app)
        add_operator_routes(app, self._service)
        if not self._service.authority_only:
            add_result_routes(app, self._service)
        add_public_routes(app, self._service, _endpoints(self._service))
        return app

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        import anyio.to_thread

        anyio.to_thread.current_default_thread_limiter().total_tokens = self._service.settings.threads
        if self._conduct:
            self._task = asyncio.create_task(self._keep_conducting())
        tasks = [asyncio.create_task(each) for each in (self._keep_looking(), self._keep_measuring())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            if self._task is not None:
                self._engine.loops.stop()
                await asyncio.wait([self._task], timeout=self._service.settings.shutdown_seconds)
                self._task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await self._task
            await self._service.access.checks.close()
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._closing()

    async def _keep_looking(self) -> None:
        """Look for a new revocation list, by which no round asks whoever it revokes, and for what has ended."""
        while True:
            with contextlib.suppress(MapveilError):
                await self._service.run(self._service.certification.revocation_list)
                if self._answers and not self._service.authority_only:
                    await self._service.run(self._engine.let_go)
            await asyncio.sleep(_LIST_SECONDS)

    async def _keep_measuring(self) -> None:
        """Set what this process knows of itself, in every process: a scrape is answered by one of several."""
        service = self._service
        while True:
            service.metrics.bodies.set(service.bodies.held)
            service.metrics.stuck.set(len(service.engine.loops.stuck()))
            with contextlib.suppress(MapveilError):
                service.metrics.set_conducted(await service.run(service.conducted))
            await asyncio.sleep(_MEASURE_SECONDS)

    async def _keep_conducting(self) -> None:
        """Run the loops of this process's role; whatever they stumble over, collections must go on."""
        while True:
            try:
                await self._engine.loops.run(Role(self._service.settings.role))
                return
            except Exception as error:  # the outermost frame of the loops
                _LOG.error("the loops failed and are started again", exc_info=error)
            await asyncio.sleep(_RESTART_SECONDS)


def _endpoints(service: Service) -> tuple[Endpoint, ...]:
    return AUTHORITY_ENDPOINTS if service.authority_only else ENDPOINTS


def _add_handlers(app: FastAPI) -> None:
    def refused(request: Request, error: Exception) -> Response:
        refusal = refusal_of(error, Exchange.of(request.scope))
        if refusal.status == 405:
            refusal.allow = _allowed(app, request.scope)
        return Response(refusal.body(), refusal.status, refusal.headers, "application/json")

    # Answers; the error itself goes on to the gate, which logs it.
    for kind in (Exception, MapveilError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, refused)


def _allowed(app: FastAPI, scope: Scope) -> str:
    """The methods of an address, over all of its routes."""
    methods: set[str] = set()
    for route in app.routes:
        pattern = getattr(route, "path_regex", None)
        if pattern is not None and pattern.fullmatch(scope["path"]):
            methods |= getattr(route, "methods", set())
    return ", ".join(sorted(methods))


def _states(store: Store) -> dict[str, int]:
    """Number of collections in each state."""
    counted = select(collections.c.state, func.count()).group_by(collections.c.state)
    with store.read() as connection:
        return {row.state: row[1] for row in connection.execute(counted)}


class _Pages(StaticFiles):
    """The console and the browser device, with the policy that a browser holds them to."""

    def file_response(self, *arguments: Any, **options: Any) -> Response:
        response = super().file_response(*arguments, **options)
        response.headers["content-security-policy"] = PAGE_POLICY.decode()
        response.headers["cache-control"] = "no-cache"
        if str(arguments[0]).endswith((".js", ".mjs")):
            response.headers["content-type"] = "text/javascript; charset=utf-8"
        return response
