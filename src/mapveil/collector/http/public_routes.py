"""Public routes: the service's health, its numbers, its document, its authority and its own account of sums."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from typing import Final, Literal

from fastapi import FastAPI, Request, Response

from mapveil.collector.http.device_routes import Endpoint
from mapveil.collector.http.openapi import document
from mapveil.collector.http.prometheus import CONTENT_TYPE
from mapveil.collector.http.schemas import Health, NamedAuthority, OperatorAccount
from mapveil.collector.http.service import CollectionId, Service, refusals
from mapveil.collector.roles import Loop
from mapveil.collector.store.work_queue import waits_in_vain
from mapveil.secure_sum.enrolment_authority import EnrolmentAuthority
from mapveil_client.errors import MapveilError

_HEALTH_SECONDS: Final = 3.0
_VAIN_SECONDS: Final = 60.0  # that work waits for a worker: a lease of one that was killed, and some more


def add_public_routes(app: FastAPI, service: Service, endpoints: Sequence[Endpoint]) -> None:
    """Add the routes that need no token, but for the metrics where the settings ask for a viewer's."""
    authority = service.engine.authority
    if authority is not None:
        named = authority.named if isinstance(authority, EnrolmentAuthority) else authority
        told = NamedAuthority(authority=str(named), fingerprint=named.fingerprint)

        @app.get("/v1/authority", tags=["public"], summary="The enrolment authority of active sums")
        def enrolment_authority() -> NamedAuthority:
            return told

    if not service.authority_only:

        @app.get(
            "/v1/collections/{id}/account",
            tags=["public"],
            responses=refusals(404),
            summary="This operator's own account of sums by two operators: what it answered, and of how many reports",
        )
        def account(id: CollectionId) -> OperatorAccount:
            return OperatorAccount.model_validate(service.engine.account(id))

    described: list[bytes] = []

    @app.get("/v1/openapi.json", tags=["public"], summary="This document")
    def openapi() -> Response:
        if not described:
            made = document(app, endpoints)
            described.append(json.dumps(made, ensure_ascii=False, separators=(",", ":")).encode())
        return Response(described[0], media_type="application/json")

    @app.get(
        "/healthz",
        tags=["public"],
        summary="Whether the service works",
        responses={503: {"model": Health, "description": "It does not"}},
    )
    async def healthz(response: Response) -> Health:
        workers, conductor, store = None, None, False
        with contextlib.suppress(TimeoutError, MapveilError):
            async with asyncio.timeout(_HEALTH_SECONDS):
                waits = await service.run(waits_in_vain, service.store, _VAIN_SECONDS)
                workers, conductor = not waits, await service.run(service.conducted)
                store = True
        stuck = service.engine.loops.stuck()
        if not service.alive() or Loop.CONDUCT.value in stuck:
            conductor = False
        good = store and service.alive() and not stuck
        response.status_code = 200 if good else 503
        status: Literal["ok", "degraded", "failing"] = "failing"
        if good:  # this process does its part, and would do it no better after a restart
            status = "degraded" if False in (workers, conductor) else "ok"
        return Health(status=status, store=store, conductor=conductor, stuck=stuck, workers=workers)

    if service.settings.metrics == "off":
        return
    text = {"text/plain": {"schema": {"type": "string"}}}

    @app.get(
        "/metrics",
        tags=["public"],
        summary="Numbers for Prometheus",
        response_class=Response,
        responses={200: {"description": "Prometheus' text format", "content": text}, **refusals(401)},
    )
    def metrics(request: Request) -> Response:
        if service.settings.metrics == "viewer":
            service.access.operator(request.scope)
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)
