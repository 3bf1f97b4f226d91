"""The published document is complete and true: schemathesis asks everything it names, and believes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import positive_data_acceptance

from mapveil.collector.api.devices import ENDPOINTS

EXAMPLES = int(
    os.environ.get("MAPVEIL_API_EXAMPLES", "6")
)  # of each operation and kind; raise it to search longer
PUBLIC = {
    *("/healthz", "/metrics", "/v1/open", "/v1/openapi.json", "/v1/devices"),
    *("/v1/collections/{id}/terms", "/v1/collections/{id}/progress", "/v1/collections/{id}/rounds/{n}"),
}


# Of bodies of CBOR the document says that they are bytes.
schemathesis.serializer.alias("application/cbor", "application/octet-stream")


@pytest.fixture
def document(api: Any) -> dict[str, Any]:
    found: dict[str, Any] = api.client.get("/v1/openapi.json").json()
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_every_endpoint_is_described_with_its_refusals(document: dict[str, Any]) -> None:
    seen = set()
    for path, method, operation in operations(document):
        assert operation["summary"], (path, method)
        assert operation["tags"]
        assert operation["operationId"] not in seen
        seen.add(operation["operationId"])
        statuses = set(operation["responses"])
        if path != "/healthz":
            assert {"429", "500", "503"} <= statuses, (path, method)
        if "{" in path:
            assert statuses & {"404", "422"}
        if "requestBody" in operation:
            assert "413" in statuses
        guarded = "security" in operation
        assert guarded is not (path in PUBLIC and method in ("get", "post") and "{n}" not in path[:13]) or (
            path == "/v1/devices" and method == "get"
        ), (path, method)
        assert ("401" in statuses) is (guarded or path in ("/v1/devices", "/metrics")), (path, method)
        for status, response in operation["responses"].items():
            if status >= "400" and path != "/healthz":
                schema = response["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/ErrorBody"}, (path, method, status)
    described = {(path, method.upper()) for path, method, _ in operations(document)}
    assert {(each.route, each.method) for each in ENDPOINTS} <= described


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    def references(part: Any) -> Iterator[str]:
        if isinstance(part, dict):
            if isinstance(part.get("$ref"), str):
                yield part["$ref"]
            for each in part.values():
                yield from references(each)
        elif isinstance(part, list):
            for each in part:
                yield from references(each)

    for reference in references(document):
        found: Any = document
        for key in reference.removeprefix("#/").split("/"):
            found = found[key]
        assert found


def test_no_endpoint_takes_a_person_s_coordinates(document: dict[str, Any]) -> None:
    """Of JSON bodies only drafts hold degrees: of a region and of public sites."""
    taking = [
        path
        for path, _, operation in operations(document)
        if "application/json" in operation.get("requestBody", {}).get("content", {})
        and "CollectionDraft" in str(operation["requestBody"])
    ]
    assert taking == ["/v1/collections"]
    for name, schema in document["components"]["schemas"].items():
        if name not in ("PlacesRecord", "CollectionDraft", "CollectionRecord", "BoxGeometry"):
            assert not {"lon", "lat", "longitude", "latitude", "coordinates"} & set(
                schema.get("properties", ())
            )


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_everything_answers_as_described(api: Any, document: dict[str, Any], mode: GenerationMode) -> None:
    """Bodies that fit and bodies that do not; that a draft fits its schema does not make it one that can be held."""
    schema = schemathesis.openapi.from_dict(document)
    schema.config.base_url = api.address
    known = {"Authorization": f"Bearer {api.tokens['admin']}"}
    collection = api.opened()
    failures = []
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.method.upper() == "DELETE" and operation.path.startswith("/v1/operators"):
            continue  # it would revoke whoever asks

        @given(operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck)
        )
        def ask(case: Any) -> None:
            if mode is GenerationMode.POSITIVE and "id" in (case.path_parameters or {}):
                case.path_parameters["id"] = collection
            case.call_and_validate(headers=known, excluded_checks=[positive_data_acceptance])

        try:
            ask()
        except Unsatisfiable:
            continue  # nothing about such a request can be wrong
        except AssertionError as failure:
            failures.append(f"{operation.method} {operation.path}: {failure}")
        except BaseExceptionGroup as group:
            failures += [f"{operation.method} {operation.path}: {failure}" for failure in group.exceptions]
    assert not failures, "\n\n".join(failures)
    assert api.client.get("/healthz").status_code == 200
