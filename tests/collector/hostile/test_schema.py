"""Schemathesis over the whole API as those ask who are not the admin: nobody, a viewer, and devices that sign rightly.

The admin's part is tests/collector/http/test_openapi.py; ``MAPVEIL_API_EXAMPLES`` makes both search longer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from requests.auth import AuthBase
from schemathesis import GenerationMode
from schemathesis.checks import positive_data_acceptance

from mapveil_client.secure_sum.keys import authorization

from .addresses import snapshot

EXAMPLES: Final = int(os.environ.get("MAPVEIL_API_EXAMPLES", "4"))
CERTIFICATE: Final = "/v1/devices/me/certificate"
SILENT: Final = ("enrolments", "operators", "devices", "audit", "charges", "collections")

# Of bodies of CBOR the document says that they are bytes.
schemathesis.serializer.alias("application/cbor", "application/octet-stream")


class Signed(AuthBase):
    """Signs a request as a device does: what is sent, whatever that is."""

    def __init__(self, phone: Any) -> None:
        self.phone = phone

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        body = request.body or b""
        content = body.encode() if isinstance(body, str) else bytes(body)
        path = request.path_url
        header = authorization(self.phone.identity, self.phone.number, str(request.method), path, content)
        request.headers["Authorization"] = header
        return request


def bearer(token: str) -> dict[str, Any]:
    """What shows an operator's token; an empty one is nobody's."""
    return {"headers": {"Authorization": f"Bearer {token}".strip()}}


def searched(
    api: Any, mode: GenerationMode, known: dict[str, Any], scheme: str | None, id: str
) -> Iterator[Any]:
    """Ask every operation that names ``scheme`` (every guarded one where None); yields every answer."""
    document = api.client.get("/v1/openapi.json").json()
    schema = schemathesis.openapi.from_dict(document)
    schema.config.base_url = api.address
    failures: list[str] = []
    answers: list[Any] = []
    for found in schema.get_all_operations():
        operation = found.ok()
        told = document["paths"][operation.path][operation.method.lower()].get("security", [])
        if not told or (scheme is not None and not any(scheme in each for each in told)):
            continue
        if mode is GenerationMode.NEGATIVE and "auth" in known and operation.path == CERTIFICATE:
            continue  # it has no parameter but the signature, which is added

        @given(operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck)
        )
        def ask(case: Any) -> None:
            if mode is GenerationMode.POSITIVE and "id" in (case.path_parameters or {}):
                case.path_parameters["id"] = id
            answers.append(case.call_and_validate(**known, excluded_checks=[positive_data_acceptance]))

        try:
            ask()
        except Unsatisfiable:
            continue  # nothing about such a request can be wrong
        except AssertionError as failure:
            failures.append(f"{operation.method} {operation.path}: {failure}")
        except BaseExceptionGroup as group:
            failures += [f"{operation.method} {operation.path}: {failure}" for failure in group.exceptions]
    assert not failures, "\n\n".join(failures)
    assert len(answers) > 5
    yield from answers


MODES: Final = pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])


@MODES
def test_nobody_gets_anything_and_changes_nothing(api: Any, mode: GenerationMode) -> None:
    id = api.opened()
    before = snapshot(api.store)
    for answer in searched(api, mode, bearer(""), None, id):
        assert 400 <= answer.status_code < 500, answer.request.url
    assert snapshot(api.store) == before
    assert api.client.get("/healthz").status_code == 200


@MODES
def test_a_viewer_changes_nothing(api: Any, mode: GenerationMode) -> None:
    id = api.opened()
    before = snapshot(api.store)
    for answer in searched(api, mode, bearer(api.tokens["viewer"]), "operator", id):
        assert answer.status_code < 500, answer.request.url
    assert snapshot(api.store) == before
    assert api.client.get("/healthz").status_code == 200


@MODES
@pytest.mark.parametrize("trust", ["local", "distributed", "random-features"])
def test_a_device_that_signs_whatever_it_sends_breaks_nothing(
    api: Any, mode: GenerationMode, trust: str
) -> None:
    """All it can do is join, and be certified, once; no bytes that it makes up are a report or a message."""
    kinds: dict[str, dict[str, Any]] = {
        "local": {},
        "distributed": {"options": {"shard_size": 12, "corrupt": 0}, "devices": 24, "minimum": 20},
        "random-features": {"epsilon": None, "tiling": "grid:16x16", "options": {"least_signal": 0}},
    }
    id = api.opened(**{"trust": trust, **kinds[trust]})
    phones = api.phones(25)
    if trust == "distributed":  # a round is under way, with this device in it
        for phone in phones[:24]:
            assert phone.ask("PUT", f"/v1/collections/{id}/members/me").status_code == 204
        api.tick(2)
        assert api.engine.devices.progress(id).phase == "keys"
    assert (
        phones[0].ask("GET", CERTIFICATE).status_code == 200
    )  # one line of the audit log, however often it asks
    before = snapshot(api.store)
    for answer in searched(api, mode, {"auth": Signed(phones[0])}, "device", id):
        assert answer.status_code < 500, answer.request.url
        assert answer.status_code != 401, answer.text
    after = snapshot(api.store)
    assert {name: after[name] for name in SILENT} == {name: before[name] for name in SILENT}
    assert after == before
