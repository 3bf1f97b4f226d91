"""The OpenAPI document: FastAPI's part of it and the devices' plain routes, as one."""

import re
from collections.abc import Sequence
from typing import Any, Final, Literal

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

from mapveil.collector.http.device_routes import ENDPOINTS, Endpoint
from mapveil.collector.http.exchange import JSON
from mapveil.collector.refusals import MEANINGS
from mapveil_client import __version__
from mapveil_client.secure_sum.states import phase_name, server_phases

_ABOUT: Final = (
    "Collections of locations from devices, which need not trust the collector. No address accepts a "
    "person's coordinates. A refusal has one shape everywhere: an `error` with a `code` for programs and a `message` "
    "for people. Bodies of protocol messages are canonical CBOR."
)
_BINARY: Final = {"type": "string", "format": "binary"}
_PARAMETERS: Final[dict[str, dict[str, Any]]] = {
    "id": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
    "n": {"type": "integer", "minimum": 1, "maximum": 999_999},
    "phase": {"type": "string", "enum": [phase_name(phase) for phase in server_phases(active=True)]},
    "seconds": {"type": "number"},
}
_Mode = Literal["serialization", "validation"]  # of answers, and of bodies
_ANYWHERE: Final = (429, 500, 503)
_SCHEMES: Final = {
    "operator": {"type": "http", "scheme": "bearer", "description": "An operator's token"},
    "device": {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "description": "`Mapveil-Device <id> <signature>`: Ed25519 over method, address and body",
    },
}


def document(app: FastAPI, endpoints: Sequence[Endpoint] = ENDPOINTS) -> dict[str, Any]:
    """The whole document, of an application and the devices' routes."""
    made = get_openapi(
        title="Mapveil collector",
        version=__version__,
        summary="Private maps from phones",
        description=_ABOUT,
        routes=app.routes,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
    )
    typed: list[tuple[str, _Mode, TypeAdapter[Any]]] = [
        (each.route, mode, TypeAdapter(kind))
        for each in endpoints
        for mode, kind in _typed(each)
        if kind is not None
    ]
    described, definitions = TypeAdapter.json_schemas(typed, ref_template="#/components/schemas/{model}")
    schemas = made.setdefault("components", {}).setdefault("schemas", {})
    schemas.update(definitions.get("$defs", {}))
    made["components"]["securitySchemes"] = _SCHEMES
    roles = _roles(app)
    for path, operations in made["paths"].items():
        for method, operation in operations.items():
            _complete(path, operation, roles.get((path, method)))
    for endpoint in endpoints:
        answer, body = (described.get((endpoint.route, mode), _BINARY) for mode, _ in _typed(endpoint))
        operation = _operation(endpoint, answer, body)
        made["paths"].setdefault(endpoint.route, {})[endpoint.method.lower()] = operation
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    made["paths"] = dict(sorted(made["paths"].items()))
    return made


def _typed(endpoint: Endpoint) -> tuple[tuple[_Mode, Any], tuple[_Mode, Any]]:
    """The types of an endpoint's answer and of its body; None for bytes."""
    return ("serialization", endpoint.answer), ("validation", endpoint.takes)


def _operation(endpoint: Endpoint, answer: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    """A plain route as an operation; ``answer`` and ``body`` are the schemas of both."""
    success: dict[str, Any] = {"description": endpoint.about}
    if endpoint.gives is not None:
        success["content"] = {endpoint.gives.decode(): {"schema": answer}}
    if endpoint.headers:
        success["headers"] = {name: {"schema": _PARAMETERS[like]} for name, like in endpoint.headers}
    operation: dict[str, Any] = {
        "tags": ["devices"],
        "summary": endpoint.summary,
        "operationId": f"{endpoint.handler.__name__}_{endpoint.method}".lower(),
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": _PARAMETERS[name]}
            for name in re.findall(r"\{(\w+)\}", endpoint.route)
        ],
        "responses": {str(endpoint.status) if endpoint.gives else "204": success},
    }
    if endpoint.signed:
        operation["security"] = [{"device": []}]
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {each.decode(): {"schema": body} for each in endpoint.media},
        }
    for status in (*endpoint.refusals, *_ANYWHERE):
        operation["responses"][str(status)] = _refusal(status)
    return operation


def _roles(app: FastAPI) -> dict[tuple[str, str], str]:
    """The least role for each address and method that wants an operator."""
    found: dict[tuple[str, str], str] = {}
    for route in app.routes:
        if isinstance(route, APIRoute):
            for dependency in route.dependant.dependencies:
                for role in dependency.own_oauth_scopes or ():
                    found |= {(route.path, method.lower()): role for method in route.methods or ()}
    return found


def _complete(path: str, operation: dict[str, Any], role: str | None) -> None:
    """Say who may ask, and what may be refused beside what the route says of its own."""
    if role is not None:
        operation["security"] = [{"operator": [role]}]
    responses = operation["responses"]
    checked = "HTTPValidationError" in str(responses.get("422"))
    if checked:
        del responses["422"]
    when = {
        401: "security" in operation,
        403: role not in (None, "viewer"),
        404: "{" in path,
        400: "requestBody" in operation,
        413: "requestBody" in operation,
        422: checked or "requestBody" in operation,
    }
    for status in (*(status for status, needed in when.items() if needed), *_ANYWHERE):
        responses.setdefault(str(status), _refusal(status))
    operation["responses"] = dict(sorted(responses.items()))


def _refusal(status: int) -> dict[str, Any]:
    content = {JSON.decode(): {"schema": {"$ref": "#/components/schemas/ErrorBody"}}}
    return {"description": MEANINGS[status], "content": content}
