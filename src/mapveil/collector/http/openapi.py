"""The OpenAPI document: FastAPI's part of it and the devices' plain routes, as one."""

from __future__ import annotations

import re
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from mapveil.collector.http.devices import ENDPOINTS, Endpoint
from mapveil.collector.http.media import JSON
from mapveil.collector.http.models import OpenCollection, ProgressRecord, SeatRecord
from mapveil.collector.http.service import refusals
from mapveil.maps.software import software_version

_ABOUT: Final = (
    "Collections of where people are, from devices that nobody has to trust the collector with. No address accepts a "
    "person's coordinates. A refusal has one shape everywhere: an `error` with a `code` for programs and a `message` "
    "for people. Bodies of protocol messages are canonical CBOR."
)
_BINARY: Final = {"type": "string", "format": "binary"}
_PARAMETERS: Final[dict[str, dict[str, Any]]] = {
    "id": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
    "n": {"type": "integer", "minimum": 1, "maximum": 999_999},
    "phase": {"type": "string", "enum": ["keys", "shares", "inputs", "consents", "answers"]},
}
_SCHEMES: Final = {
    "operator": {
        "type": "http",
        "scheme": "bearer",
        "description": "An operator's token, mvo_ and 43 characters",
    },
    "device": {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "description": "`Mapveil-Device <id> <signature>`: Ed25519 over method, address and body",
    },
}


def document(app: FastAPI) -> dict[str, Any]:
    """The whole document.

    Parameters
    ----------
    app : FastAPI
        With all of its routes.
    """
    made = get_openapi(
        title="Mapveil collector",
        version=software_version(),
        summary="Private maps from phones",
        description=_ABOUT,
        routes=app.routes,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
    )
    schemas = made.setdefault("components", {}).setdefault("schemas", {})
    for model in (OpenCollection, ProgressRecord, SeatRecord):
        schemas.setdefault(
            model.__name__, model.model_json_schema(ref_template="#/components/schemas/{model}")
        )
    for endpoint in ENDPOINTS:
        made["paths"].setdefault(endpoint.route, {})[endpoint.method.lower()] = _operation(endpoint)
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    made["components"]["securitySchemes"] = _SCHEMES
    roles = _roles(app)
    for path, operations in made["paths"].items():
        for method, operation in operations.items():
            _complete(operation, roles.get((path, method)))
    made["paths"] = dict(sorted(made["paths"].items()))
    return made


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    """A plain route as an operation."""
    success: dict[str, Any] = {"description": endpoint.about}
    if endpoint.gives is not None:
        success["content"] = {endpoint.gives.decode(): {"schema": _schema(endpoint)}}
    if endpoint.handler == "_mail":
        phase = {"description": "Which phase the message is of", "schema": _PARAMETERS["phase"]}
        success["headers"] = {"Mapveil-Phase": phase}
    operation: dict[str, Any] = {
        "tags": ["devices"],
        "summary": endpoint.summary,
        "operationId": (endpoint.handler.strip("_") + "_" + endpoint.method).lower(),
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": _PARAMETERS[name]}
            for name in re.findall(r"\{(\w+)\}", endpoint.route)
        ],
        "responses": {"200" if endpoint.gives else "204": success},
    }
    if endpoint.signed:
        operation["security"] = [{"device": []}]
    if endpoint.takes is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {endpoint.takes.decode(): {"schema": _BINARY}},
        }
    for status, told in refusals(*endpoint.refusals).items():
        operation["responses"][str(status)] = {
            "description": told["description"],
            "content": {JSON.decode(): {"schema": {"$ref": "#/components/schemas/ErrorBody"}}},
        }
    return operation


def _schema(endpoint: Endpoint) -> dict[str, Any]:
    if endpoint.handler == "_open":
        return {"type": "array", "items": {"$ref": "#/components/schemas/OpenCollection"}}
    named = {"_progress": "ProgressRecord", "_seat": "SeatRecord"}.get(endpoint.handler)
    if named is not None:
        return {"$ref": f"#/components/schemas/{named}"}
    return {"type": "object"} if endpoint.gives == JSON else dict(_BINARY)


def _roles(app: FastAPI) -> dict[tuple[str, str], str]:
    """The least role for each address and method that wants an operator."""
    found: dict[tuple[str, str], str] = {}
    for route in app.routes:
        if isinstance(route, APIRoute):
            for dependency in route.dependant.dependencies:
                for role in dependency.own_oauth_scopes or ():
                    found |= {(route.path, method.lower()): role for method in route.methods or ()}
    return found


def _complete(operation: dict[str, Any], role: str | None) -> None:
    """Say who may ask, and drop what FastAPI says of its own error shape."""
    if role is not None:
        operation["security"] = [{"operator": [role]}]
    told = operation["responses"].get("422")
    if told is not None and "HTTPValidationError" in str(told):
        del operation["responses"]["422"]
