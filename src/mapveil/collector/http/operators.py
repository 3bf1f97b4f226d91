"""What operators ask: collections, the ledger, the audit log, tokens, and one another."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Response

from mapveil.collector.http.models import (
    Aborting,
    AuditLine,
    Charge,
    CollectionDraft,
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
from mapveil.collector.store.accounts import Operator
from mapveil.collector.store.schema import MOST_NUMBER

Number = Annotated[int, Path(ge=1, le=MOST_NUMBER)]


def add_operator_routes(app: FastAPI, service: Service) -> None:
    """Add the addresses of operators."""
    _add_collections(app, service)
    _add_records(app, service)
    _add_devices(app, service)
    _add_accounts(app, service)


def _actor(who: Operator) -> str:
    return f"operator {who.id}"


def _add_collections(app: FastAPI, service: Service) -> None:
    engine = service.engine
    viewer, operator = service.operator("viewer"), service.operator("operator")
    one = "/v1/collections/{id}"
    tag: list[str | Enum] = ["collections"]

    @app.get("/v1/collections", tags=tag, responses=refusals(401), summary="All collections")
    def list_collections(who: Operator = viewer) -> list[CollectionRecord]:
        return _each(CollectionRecord, engine.collections())

    @app.post(
        "/v1/collections",
        status_code=201,
        tags=tag,
        responses=refusals(400, 401, 403, 413, 422),
        summary="Draft a collection: nobody is asked yet",
    )
    def draft(spec: CollectionDraft, who: Operator = operator) -> CollectionRecord:
        return CollectionRecord.model_validate(engine.draft(spec.model_dump(exclude_none=True), _actor(who)))

    @app.get(one, tags=tag, responses=refusals(401, 404, 422), summary="One collection")
    def show(id: CollectionId, who: Operator = viewer) -> CollectionRecord:
        return CollectionRecord.model_validate(engine.collection(id))

    @app.post(
        f"{one}/open",
        tags=tag,
        responses=refusals(401, 403, 404, 409, 422),
        summary="Open a draft to devices; its terms never change again",
    )
    def open_collection(id: CollectionId, who: Operator = operator) -> CollectionRecord:
        return CollectionRecord.model_validate(engine.open(id, _actor(who)))

    @app.post(
        f"{one}/begin",
        tags=tag,
        responses=refusals(401, 403, 404, 409, 422),
        summary="Stop waiting for more devices, now that the minimum is there",
    )
    def begin(id: CollectionId, who: Operator = operator) -> CollectionRecord:
        return CollectionRecord.model_validate(engine.begin(id, _actor(who)))

    @app.post(
        f"{one}/abort",
        tags=tag,
        responses=refusals(400, 401, 403, 404, 409, 413, 422),
        summary="Stop a collection; what was charged stays charged",
    )
    def abort(id: CollectionId, why: Aborting, who: Operator = operator) -> CollectionRecord:
        return CollectionRecord.model_validate(engine.abort(id, _actor(who), why.reason))


def _add_records(app: FastAPI, service: Service) -> None:
    engine, viewer = service.engine, service.operator("viewer")

    @app.get(
        "/v1/ledger",
        tags=["records"],
        responses=refusals(401),
        summary="What every collection cost each device",
    )
    def ledger(who: Operator = viewer) -> list[Charge]:
        return _each(Charge, engine.ledger())

    @app.get(
        "/v1/audit",
        tags=["records"],
        responses=refusals(401, 422),
        summary="Lines of the audit log, in order",
    )
    def audit(
        who: Operator = viewer,
        after: Annotated[int, Query(ge=0, le=MOST_NUMBER, description="Lines above this number")] = 0,
        limit: Annotated[int, Query(ge=1, le=1000, description="At most so many")] = 100,
        collection: Annotated[
            str | None, Query(pattern="^[0-9a-f]{32}$", description="Of this one only")
        ] = None,
    ) -> list[AuditLine]:
        return _each(AuditLine, engine.audit(after, limit, collection))


def _add_devices(app: FastAPI, service: Service) -> None:
    viewer, operator = service.operator("viewer"), service.operator("operator")
    tag: list[str | Enum] = ["accounts"]

    @app.get("/v1/devices", tags=tag, responses=refusals(401), summary="How many devices are enrolled")
    def devices(who: Operator = viewer) -> DeviceCount:
        return DeviceCount(devices=service.accounts.device_count())

    @app.delete(
        "/v1/devices/{n}",
        status_code=204,
        tags=tag,
        responses=refusals(401, 403, 404, 422),
        summary="Accept nothing from a device any more, within half a minute",
    )
    def revoke_device(n: Number, who: Operator = operator) -> Response:
        service.accounts.revoke_device(n, _actor(who))
        service.access.forget(n)
        return Response(status_code=204)


def _add_accounts(app: FastAPI, service: Service) -> None:
    accounts = service.accounts
    viewer, operator, admin = (service.operator(role) for role in ("viewer", "operator", "admin"))
    enrolments, operators = "/v1/enrolment-tokens", "/v1/operators"
    tag: list[str | Enum] = ["accounts"]

    @app.get("/v1/me", tags=tag, responses=refusals(401), summary="Whose token this is")
    def me(who: Operator = viewer) -> OperatorRecord:
        return OperatorRecord.model_validate(who, from_attributes=True)

    @app.get(
        enrolments, tags=tag, responses=refusals(401, 403), summary="Tokens for enrolment, without the tokens"
    )
    def list_enrolments(who: Operator = operator) -> list[EnrolmentRecord]:
        return _each(EnrolmentRecord, accounts.enrolments())

    @app.post(
        enrolments,
        status_code=201,
        tags=tag,
        responses=refusals(400, 401, 403, 413, 422),
        summary="Make a token with which devices enrol",
    )
    def make_enrolment(spec: EnrolmentSpec, who: Operator = operator) -> EnrolmentMade:
        lifetime = timedelta(days=spec.days)
        made = accounts.create_enrolment(spec.name, spec.uses, lifetime, who.id, _actor(who))
        found = next(each for each in accounts.enrolments() if each.id == made.id)
        return EnrolmentMade(token=made.token, **_fields(EnrolmentRecord, found))

    @app.delete(
        enrolments + "/{n}",
        status_code=204,
        tags=tag,
        responses=refusals(401, 403, 404, 422),
        summary="Revoke a token for enrolment",
    )
    def revoke_enrolment(n: Number, who: Operator = operator) -> Response:
        accounts.revoke_enrolment(n, _actor(who))
        return Response(status_code=204)

    @app.get(operators, tags=tag, responses=refusals(401, 403), summary="All operators, without their tokens")
    def list_operators(who: Operator = admin) -> list[OperatorRecord]:
        return _each(OperatorRecord, accounts.operators())

    @app.post(
        operators,
        status_code=201,
        tags=tag,
        responses=refusals(400, 401, 403, 413, 422),
        summary="Make an operator and their token",
    )
    def make_operator(spec: OperatorSpec, who: Operator = admin) -> OperatorMade:
        made = accounts.create_operator(spec.name, spec.role, timedelta(days=spec.days), _actor(who))
        found = next(each for each in accounts.operators() if each.id == made.id)
        return OperatorMade(token=made.token, **_fields(OperatorRecord, found))

    @app.delete(
        operators + "/{n}",
        status_code=204,
        tags=tag,
        responses=refusals(401, 403, 404, 409, 422),
        summary="Revoke an operator's token",
    )
    def revoke_operator(n: Number, who: Operator = admin) -> Response:
        accounts.revoke_operator(n, _actor(who))
        return Response(status_code=204)


def _each(model: Any, records: Any) -> list[Any]:
    """Records of the engine or of the accounts, as a model of the API; what it does not name is left out."""
    return [model.model_validate(record, from_attributes=True) for record in records]


def _fields(model: Any, record: Any) -> dict[str, Any]:
    found: dict[str, Any] = model.model_validate(record, from_attributes=True).model_dump()
    return found
