"""The routes of operators: collections, the ledger, the audit log, tokens, and other operators."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, Final

from fastapi import FastAPI, Path, Query, Response

from mapveil.collector.http.pace import Pace
from mapveil.collector.http.schemas import (
    IDENTIFIER,
    Aborting,
    Charge,
    CollectionRecord,
    Devices,
    EnrolmentSpec,
    ForecastBody,
    OperatorSpec,
    TrustModels,
)
from mapveil.collector.http.service import CollectionId, Service, refusals
from mapveil.collector.refusals import TooMany
from mapveil.collector.rounds.specification import CollectionSpec
from mapveil.collector.rounds.validation import worded
from mapveil.collector.store.audit_log import AuditLine
from mapveil.collector.store.principals import Enrolment, NewEnrolment, NewOperator, Operator
from mapveil.collector.store.schema import MOST_NUMBER
from mapveil.collector.store.watched_devices import barred_devices, device_faults
from mapveil.geo.region import Region
from mapveil.pictures.ground_record import mercator_ground

_LOG: Final = logging.getLogger("mapveil.collector")
Number = Annotated[int, Path(ge=1, le=MOST_NUMBER)]
After = Annotated[int, Query(ge=0, le=MOST_NUMBER, description="Lines above this number")]
Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of lines")]
_BUSY_SECONDS: Final = 5.0  # until whoever waits for a forecast, or to create a collection, may ask again
_NUMBER = r"-?[0-9]{1,3}(\.[0-9]{1,15})?"
Box = Annotated[
    str,
    Query(
        pattern=worded(f"^{_NUMBER}(,{_NUMBER}){{3}}$", "four numbers of degrees between commas"),
        description="West, south, east, north, degrees",
    ),
]
OfCollection = Annotated[str | None, Query(pattern=IDENTIFIER, description="Of this collection only")]


def add_operator_routes(app: FastAPI, service: Service) -> None:
    """Add the routes of operators: at an enrolment authority those about devices, tokens and the audit log only."""
    if not service.authority_only:
        _add_collections(app, service)
        _add_ground(app, service)
        _add_ledger(app, service)
    _add_audit(app, service)
    _add_accounts(app, service)


@contextmanager
def _alone(lock: threading.Lock, what: str) -> Iterator[None]:
    """Make one at a time, which takes a processor and memory; a second is refused: waiting would hold a thread."""
    if not lock.acquire(blocking=False):
        raise TooMany(f"another {what} is being made", retry_after=_BUSY_SECONDS)
    try:
        yield
    finally:
        lock.release()


def _add_collections(app: FastAPI, service: Service) -> None:
    engine = service.engine
    viewer, operator = service.operator("viewer"), service.operator("operator")
    one = "/v1/collections/{id}"
    get = partial(app.get, tags=["collections"], response_model=CollectionRecord)
    post = partial(app.post, tags=["collections"], response_model=CollectionRecord)
    act = partial(post, responses=refusals(409))
    pace = Pace(service.settings.device_requests)
    # Apart: an operator's own forecast, which the form asks for, must not refuse the collection.
    forecasting, creating = threading.Lock(), threading.Lock()

    def short_phases(spec: CollectionSpec) -> str:
        return pace.short_phases(spec.devices, spec.phase_seconds) if spec.trust == "distributed" else ""

    @get("/v1/collections", response_model=list[CollectionRecord], summary="All collections")
    def list_collections(who: Operator = viewer) -> Any:
        return engine.collections()

    @post("/v1/collections", status_code=201, summary="Create a pending collection: no device is asked yet")
    def create(spec: CollectionSpec, who: Operator = operator) -> Any:
        with _alone(creating, "collection"):
            made = engine.create(spec, who.actor)
        if said := short_phases(spec):
            _LOG.warning("collection %s: %s", made["id"], said)
        return made

    @app.get("/v1/trust-models", tags=["collections"], summary="Trust models of new collections here")
    def trust_models(who: Operator = viewer) -> TrustModels:
        return TrustModels(trusts=list(engine.trusts))

    @app.post(
        "/v1/forecasts",
        tags=["collections"],
        summary="Predict a collection's error and traffic from a synthetic city; nothing is created",
    )
    def predict(spec: CollectionSpec, who: Operator = operator) -> ForecastBody:
        with _alone(forecasting, "forecast"):
            found = engine.forecast(spec)
        if not found.refused and (said := short_phases(spec)):
            found = found._replace(note=f"{found.note} {said[0].upper()}{said[1:]}.")
        return ForecastBody(**found._asdict())

    @get(one, summary="One collection")
    def show(id: CollectionId, who: Operator = viewer) -> Any:
        return engine.collection(id)

    @act(f"{one}/open", summary="Open a pending collection to devices; fixes its terms")
    def open_collection(id: CollectionId, who: Operator = operator) -> Any:
        return engine.open(id, who.actor)

    @act(f"{one}/begin", summary="Stop waiting for more devices than the minimum")
    def begin(id: CollectionId, who: Operator = operator) -> Any:
        return engine.begin(id, who.actor)

    @act(f"{one}/abort", summary="Stop a collection; what was charged stays charged")
    def abort(id: CollectionId, why: Aborting, who: Operator = operator) -> Any:
        return engine.abort(id, who.actor, why.reason)


def _add_ground(app: FastAPI, service: Service) -> None:
    viewer, summary = (
        service.operator("viewer"),
        "Coast, borders and names within a box, to choose a region by",
    )

    @app.get("/v1/ground", tags=["collections"], summary=summary)
    def ground(box: Box, who: Operator = viewer) -> dict[str, Any]:
        return mercator_ground(Region.from_bbox(*map(float, box.split(","))))


def _add_ledger(app: FastAPI, service: Service) -> None:
    viewer, summary = service.operator("viewer"), "Epsilon that collections charged each device"

    @app.get("/v1/ledger", tags=["records"], response_model=list[Charge], summary=summary)
    def ledger(who: Operator = viewer) -> Any:
        return service.engine.ledger()


def _add_audit(app: FastAPI, service: Service) -> None:
    engine, viewer = service.engine, service.operator("viewer")

    @app.get("/v1/audit", tags=["records"], summary="Lines of the audit log, in order")
    def audit(
        who: Operator = viewer, after: After = 0, limit: Limit = 100, collection: OfCollection = None
    ) -> list[AuditLine]:
        return engine.audit(after, limit, collection)


def _add_accounts(app: FastAPI, service: Service) -> None:
    accounts = service.accounts
    viewer, operator, admin = (service.operator(role) for role in ("viewer", "operator", "admin"))
    get, post = (partial(method, tags=["accounts"]) for method in (app.get, app.post))
    put, delete = (partial(method, tags=["accounts"], status_code=204) for method in (app.put, app.delete))
    enrolments, operators = "/v1/enrolment-tokens", "/v1/operators"

    @get("/v1/me", summary="The operator of the token")
    def me(who: Operator = viewer) -> Operator:
        return who

    @get("/v1/devices", summary="Number of enrolled devices, and those that take part in nothing")
    def devices(who: Operator = viewer) -> Devices:
        named, barred = device_faults(service.store), barred_devices(service.store)
        return Devices(devices=accounts.device_count(), faults=named, barred=barred)

    @put(
        "/v1/devices/{n}/quarantine",
        summary="Put a device in quarantine; takes effect within half a minute",
        responses=refusals(409),
    )
    def quarantine_device(n: Number, who: Operator = operator) -> Response:
        accounts.quarantine_device(n, who.actor)
        service.access.forget()
        return Response(status_code=204)

    @delete("/v1/devices/{n}/quarantine", summary="Release a device from quarantine", responses=refusals(409))
    def release_device(n: Number, who: Operator = operator) -> Response:
        accounts.release_device(n, who.actor)
        service.access.forget()
        return Response(status_code=204)

    @delete(
        "/v1/devices/{n}",
        summary="Revoke a device, and the token that it enrolled with; takes effect within half a minute",
    )
    def revoke_device(n: Number, who: Operator = operator) -> Response:
        accounts.revoke_device(n, who.actor)
        service.access.forget()
        service.certification.forget()
        return Response(status_code=204)

    @get(enrolments, summary="Tokens for enrolment, without the tokens")
    def list_enrolments(who: Operator = operator) -> list[Enrolment]:
        return accounts.enrolments()

    @post(enrolments, status_code=201, summary="Make a token with which devices enrol")
    def make_enrolment(spec: EnrolmentSpec, who: Operator = operator) -> NewEnrolment:
        return accounts.create_enrolment(spec.name, spec.uses, timedelta(days=spec.days), who.id, who.actor)

    @delete(enrolments + "/{n}", summary="Revoke a token for enrolment")
    def revoke_enrolment(n: Number, who: Operator = operator) -> Response:
        accounts.revoke_enrolment(n, who.actor)
        return Response(status_code=204)

    @get(operators, summary="All operators, without their tokens")
    def list_operators(who: Operator = admin) -> list[Operator]:
        return accounts.operators()

    @post(operators, status_code=201, summary="Make an operator and their token")
    def make_operator(spec: OperatorSpec, who: Operator = admin) -> NewOperator:
        return accounts.create_operator(spec.name, spec.role, timedelta(days=spec.days), who.actor)

    @delete(operators + "/{n}", summary="Revoke an operator's token")
    def revoke_operator(n: Number, who: Operator = admin) -> Response:
        accounts.revoke_operator(n, who.actor)
        return Response(status_code=204)
