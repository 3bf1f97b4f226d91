"""Every operation of the published document, as a request that lacks nothing but the right to make it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import httpx

from mapveil.collector.store.schema import METADATA

__all__ = ["ABSENT", "Operation", "operations", "shaped", "snapshot"]

ABSENT: Final = "f" * 32
CBOR: Final = {"Content-Type": "application/cbor"}
_SPECIFICATION: Final[dict[str, Any]] = {
    "json": {
        "title": "t",
        "trust": "local",
        "epsilon": "1",
        "region": [-74.03, 40.69, -73.9, 40.83],
        "tiling": "quadtree:3",
        "devices": 3,
        "accept_custom_policy": True,
    }
}
_BODIES: Final[dict[str, dict[str, Any]]] = {
    "/v1/collections": _SPECIFICATION,
    "/v1/forecasts": _SPECIFICATION,
    "/v1/collections/{id}/abort": {"json": {"reason": "r"}},
    "/v1/enrolment-tokens": {"json": {"name": "n"}},
    "/v1/operators": {"json": {"name": "n", "role": "admin"}},
    "/v1/devices": {"json": {"token": "mve_" + "x" * 43, "public_key": "ab" * 32, "signature": "cd" * 64}},
    "/v1/collections/{id}/retrieval/query": {"content": b"q", "headers": CBOR},
    "/v1/collections/{id}/report": {"content": b"r", "headers": CBOR},
    "/v1/collections/{id}/rounds/{n}/messages/{phase}": {"content": b"m", "headers": CBOR},
}
_VALUES: Final = {
    "n": "1",
    "phase": "keys",
    "part": "0",
    "form": "png",
    "z": "0",
    "x": "0",
    "y": "0",
}


class Operation(NamedTuple):
    """One operation."""

    method: str
    route: str
    schemes: frozenset[str]  # who may ask: operator, device; empty for anybody
    role: str  # the least of operators; empty where they have none there
    options: dict[str, Any]  # of the request

    def path(self, id: str) -> str:
        """Its address, for a collection."""
        return self.route.format(id=id, **_VALUES)

    @property
    def body(self) -> bytes:
        """What it sends."""
        return httpx.Request(self.method, "http://x/", **self.options).content


def operations(document: dict[str, Any]) -> Iterator[Operation]:
    """All operations of an OpenAPI document."""
    for route, methods in sorted(document["paths"].items()):
        for method, operation in methods.items():
            security = {name: kept for each in operation.get("security", ()) for name, kept in each.items()}
            role = "".join(security.get("operator", ()))
            options = _BODIES.get(route, {}) if "requestBody" in operation else {}
            assert bool(options) == ("requestBody" in operation), (route, method)
            yield Operation(method.upper(), route, frozenset(security), role, options)


def shaped(answer: httpx.Response) -> str:
    """The code of a refusal, which has the one shape of errors and tells nothing of the inside."""
    assert 400 <= answer.status_code < 500, (answer.request.method, answer.request.url, answer.text)
    error = answer.json()["error"]
    assert set(error) <= {"code", "message", "expected"}
    text = answer.text.lower()
    for word in ("traceback", "sqlalchemy", "sqlite", "select ", "insert ", ".py", "/src/", "pydantic"):
        assert word not in text, text
    code: str = error["code"]
    return code


def snapshot(store: Any) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table."""
    with store.read() as connection:
        return {
            table.name: sorted(map(tuple, connection.execute(table.select())), key=repr)
            for table in METADATA.sorted_tables
        }
