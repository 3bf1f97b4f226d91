"""The routes of operators: collections, the ledger, the audit log, tokens, and other operators."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Path, Query, Response
from pydantic import BaseModel

from mapveil.collector.http.schemas import (
    Aborting,
    AuditLine,
    Charge,
    CollectionRecord,
    DeviceCount,
    EnrolmentMade,
    EnrolmentRecord,
    EnrolmentSpec,
    OperatorMade,
    OperatorRecord,
    OperatorSpec,
)
from mapveil.collector.http.service import CollectionId, Service, refusals
from mapveil.collector.rounds.specification import CollectionSpec
from mapveil.collector.store.principals import Operator
from mapveil.collector.store.schema import MOST_NUMBER

Number = Annotated[int, Path(ge=1, le=MOST_NUMBER)]
After = Annotated[int, Query(ge=0, le=MOST_NUMBER, description="Lines above this number")]
Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of lines")]
OfCollection = Annotated[str | None, Query(pattern="^[0-9a-f]{32}$", description="Of this collection only")]
Model = TypeVar("Model", bound=BaseModel)


def add_operator_routes(app: FastAPI, service: Service) -> None:
    """Add the routes of operators."""
    _add_collections(app, service)
    _add_records(app, service)
    _add_accounts(app, service)


def _add_collections(app: FastAPI, service: Service) -> None:
    engine = service.engine
    viewer, operator = service.operator("viewer"), service.operator("operator")
    get, post = (partial(method, tags=["collections"]) for method in (app.get, app.post))
    record, one = CollectionRecord.model_validate, "/v1/collections/{id}"

    @get("/v1/collections", summary="All collections")
    def list_collections(who: Operator = viewer) -> list[CollectionRecord]:
        return _each(CollectionRecord, engine.collections())

    @post("/v1/collections", status_code=201, summary="Create a pending collection: no device is asked yet")
    def create(spec: CollectionSpec, who: Operator = operator) -> CollectionRecord:
        return record(engine.create(spec, who.actor))

    @get(one, summary="One collection")
    def show(id: CollectionId, who: Operator = viewer) -> CollectionRecord:
        return record(engine.collection(id))

    @post(
        f"{one}/open",
        responses=refusals(409),
        summary="Open a pending collection to devices; fixes its terms",
    )
    def open_collection(id: CollectionId, who: Operator = operator) -> CollectionRecord:
        return record(engine.open(id, who.actor))

    @post(f"{one}/begin", responses=refusals(409), summary="Stop waiting for more devices than the minimum")
    def begin(id: CollectionId, who: Operator = operator) -> CollectionRecord:
        return record(engine.begin(id, who.actor))

    @post(
        f"{one}/abort", responses=refusals(409), summary="Stop a collection; what was charged stays charged"
    )
    def abort(id: CollectionId, why: Aborting, who: Operator = operator) -> CollectionRecord:
        return record(engine.abort(id, who.actor, why.reason))


def _add_records(app: FastAPI, service: Service) -> None:
    engine, viewer = service.engine, service.operator("viewer")
    get = partial(app.get, tags=["records"])

    @get("/v1/ledger", summary="Epsilon that every collection charged each device")
    def ledger(who: Operator = viewer) -> list[Charge]:
        return _each(Charge, engine.ledger())

    @get("/v1/audit", summary="Lines of the audit log, in order")
    def audit(
        who: Operator = viewer, after: After = 0, limit: Limit = 100, collection: OfCollection = None
    ) -> list[AuditLine]:
        return _each(AuditLine, engine.audit(after, limit, collection))


def _add_accounts(app: FastAPI, service: Service) -> None:
    accounts = service.accounts
    viewer, operator, admin = (service.operator(role) for role in ("viewer", "operator", "admin"))
    get, post = (partial(method, tags=["accounts"]) for method in (app.get, app.post))
    delete = partial(app.delete, tags=["accounts"], status_code=204)
    enrolments, operators = "/v1/enrolment-tokens", "/v1/operators"

    @get("/v1/me", summary="The operator of the token")
    def me(who: Operator = viewer) -> OperatorRecord:
        return OperatorRecord.model_validate(who, from_attributes=True)

    @get("/v1/devices", summary="Number of enrolled devices")
    def devices(who: Operator = viewer) -> DeviceCount:
        return DeviceCount(devices=accounts.device_count())

    @delete("/v1/devices/{n}", summary="Revoke a device; takes effect within half a minute")
    def revoke_device(n: Number, who: Operator = operator) -> Response:
        accounts.revoke_device(n, who.actor)
        service.access.forget(n)
        return Response(status_code=204)

    @get(enrolments, summary="Tokens for enrolment, without the tokens")
    def list_enrolments(who: Operator = operator) -> list[EnrolmentRecord]:
        return _each(EnrolmentRecord, accounts.enrolments())

    @post(enrolments, status_code=201, summary="Make a token with which devices enrol")
    def make_enrolment(spec: EnrolmentSpec, who: Operator = operator) -> EnrolmentMade:
        made = accounts.create_enrolment(spec.name, spec.uses, timedelta(days=spec.days), who.id, who.actor)
        found = next(each for each in accounts.enrolments() if each.id == made.id)
        return EnrolmentMade.model_validate({**found._asdict(), "token": made.token})

    @delete(enrolments + "/{n}", summary="Revoke a token for enrolment")
    def revoke_enrolment(n: Number, who: Operator = operator) -> Response:
        accounts.revoke_enrolment(n, who.actor)
        return Response(status_code=204)

    @get(operators, summary="All operators, without their tokens")
    def list_operators(who: Operator = admin) -> list[OperatorRecord]:
        return _each(OperatorRecord, accounts.operators())

    @post(operators, status_code=201, summary="Make an operator and their token")
    def make_operator(spec: OperatorSpec, who: Operator = admin) -> OperatorMade:
        made = accounts.create_operator(spec.name, spec.role, timedelta(days=spec.days), who.actor)
        found = next(each for each in accounts.operators() if each.id == made.id)
        return OperatorMade.model_validate({**found._asdict(), "token": made.token})

    @delete(operators + "/{n}", summary="Revoke an operator's token")
    def revoke_operator(n: Number, who: Operator = admin) -> Response:
        accounts.revoke_operator(n, who.actor)
        return Response(status_code=204)


def _each(model: type[Model], records: Iterable[Any]) -> list[Model]:
    """Records of the engine or of the accounts as a model of the API; fields that it does not name are left out."""
    return [model.model_validate(record, from_attributes=True) for record in records]
