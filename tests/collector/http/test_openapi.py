"""The published document is complete and true: schemathesis asks everything it names, and believes nothing."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import positive_data_acceptance

from mapveil.collector.http.device_routes import ENDPOINTS
from mapveil.collector.rounds.validation import validation_text

EXAMPLES = int(
    os.environ.get("MAPVEIL_API_EXAMPLES", "6")
)  # of each operation and kind; raise it to search longer
PUBLIC = {
    *(
        ("get", path)
        for path in (
            "/healthz",
            "/metrics",
            "/v1/authority",
            "/v1/open",
            "/v1/openapi.json",
            "/v1/revocation-list",
        )
    ),
    *(("get", f"/v1/collections/{{id}}/{path}") for path in ("terms", "progress", "account", "rounds/{n}")),
    ("post", "/v1/devices"),
}
ROOT = Path(__file__).resolve().parents[3]


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


def test_what_a_text_must_be_is_told_in_words(document: dict[str, Any]) -> None:
    def patterns(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            found = node.get("pattern")
            yield from [found] if isinstance(found, str) else []
        for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            yield from patterns(each)

    found = set(patterns({name: document[name] for name in ("paths", "components")}))
    assert len(found) > 5
    for each in found:
        problem = {"loc": ("x",), "type": "string_pattern_mismatch", "ctx": {"pattern": each}}
        told = validation_text([problem])
        assert told.startswith("x must be ")
        assert "another form" not in told, each
        assert "[" not in told


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
        assert guarded is not ((method, path) in PUBLIC), (path, method)
        assert ("401" in statuses) is (guarded or path in ("/v1/devices", "/metrics")), (path, method)
        for status, response in operation["responses"].items():
            if status >= "400" and path != "/healthz":
                schema = response["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/ErrorBody"}, (path, method, status)
    described = {(path, method.upper()) for path, method, _ in operations(document)}
    assert {(each.route, each.method) for each in ENDPOINTS} <= described


def test_the_roles_that_are_published_are_the_ones_that_are_tested(document: dict[str, Any]) -> None:
    """What test_access asks of every role covers every endpoint that wants one."""
    published = {
        (method.upper(), path): roles[0]
        for path, method, operation in operations(document)
        for each in operation.get("security", [])
        if (roles := each.get("operator"))
    }
    source = (Path(__file__).parent / "test_access.py").read_text(encoding="utf-8")
    listed = re.findall(r'\("(GET|POST|PUT|DELETE)", f?"([^"]+)", "(viewer|operator|admin)"\)', source)
    shaped = {(method, path.replace("{ABSENT}", "{id}")): role for method, path, role in listed}
    for (method, path), role in published.items():
        pattern = re.sub(r"\\\{(?!id)\w+\\\}", "[^/]+", re.escape(path))
        matching = {
            each for (asked, at), each in shaped.items() if asked == method and re.fullmatch(pattern, at)
        }
        assert matching == {role}, (method, path, role, matching)


def test_the_page_of_the_documentation_is_current() -> None:
    spec = importlib.util.spec_from_file_location(
        "make_collector_api", ROOT / "docs" / "make_collector_api.py"
    )
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    written = (ROOT / "docs" / "reference" / "collector-api.md").read_text(encoding="utf-8")
    assert written == made.page(), "run: python docs/make_collector_api.py"


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
        and "CollectionSpec" in str(operation["requestBody"])
    ]
    assert sorted(taking) == ["/v1/collections", "/v1/forecasts"]
    for name, schema in document["components"]["schemas"].items():
        if name not in ("PlacesRecord", "CollectionSpec", "CollectionRecord", "BoxGeometry"):
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
