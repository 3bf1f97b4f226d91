"""Every address, asked with everything that is no right to ask: 401, and nothing has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Final

import pytest

from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.keys import SCHEME, Identity, authorization

from .addresses import ABSENT, Operation, operations, shaped, snapshot

Header = Callable[[Operation, str], str | None]
ROLES: Final = ("viewer", "operator", "admin")


def bearers(api: Any) -> dict[str, str]:
    """Tokens that are none, of nobody, or of somebody who may no longer."""
    accounts, month = api.accounts, timedelta(days=30)
    brief = accounts.create_operator("brief", "admin", timedelta(minutes=1), "command line").token
    revoked = accounts.create_operator("revoked", "admin", month, "command line")
    accounts.revoke_operator(revoked.id, "command line")
    right = api.tokens["admin"]
    api.clock.advance(61)
    return {
        "expired": brief,
        "revoked": revoked.token,
        "unknown": "mvo_" + "A" * 43,
        "for enrolment": api.enrolment(),
        "almost": right[:-1] + ("A" if right[-1] != "A" else "B"),
        "cut": right[:-1],
        "longer": right + "A",
        "in capitals": right.upper(),
        "a digest": "mvo_" + "ab" * 32,
        "quoted": f"'{right}' OR '1'='1",
        "long": "mvo_" + "A" * 8000,
        "no text": "mvo_" + "\x80" * 43,
        "the scheme again": f"Bearer {right}",
    }


def credentials(api: Any) -> Iterator[tuple[str, Header]]:
    """Everything that opens no address at all."""
    yield "nothing", lambda operation, path: None
    for name, token in bearers(api).items():
        yield name, lambda operation, path, token=token: f"Bearer {token}"
    right = api.tokens["admin"]
    for scheme in ("Basic", "bearer:", "Token", SCHEME, "Mapveil"):
        yield f"as {scheme}", lambda operation, path, scheme=scheme: f"{scheme} {right}"
    device, gone, other = api.phones(3, seed=4)
    api.accounts.revoke_device(gone.number, "command line")
    stranger = Identity.draw(Randomness(99))

    def signed(identity: Identity, number: int, **changed: Any) -> Header:
        def header(operation: Operation, path: str) -> str:
            given = {"method": operation.method, "path": path, "body": operation.body, **changed}
            return authorization(identity, number, **given)

        return header

    yield "a key that never enrolled", signed(stranger, device.number)
    yield "a revoked device", signed(gone.identity, gone.number)
    yield "another's number", signed(device.identity, other.number)
    yield "another method", signed(device.identity, device.number, method="OPTIONS")
    yield "another address", signed(device.identity, device.number, path="/v1/open")
    yield "another body", signed(device.identity, device.number, body=b"x")
    for number in ("0", "-1", "1.0", "1 OR 1=1", "\u0661".encode().decode("latin-1"), "9" * 18, "9" * 400):
        yield f"device {number[:9]}", lambda operation, path, number=number: f"{SCHEME} {number} {'ab' * 64}"


def test_no_address_opens_to_whoever_has_no_right(api: Any) -> None:
    collection = api.opened()
    listed = list(operations(api.client.get("/v1/openapi.json").json()))
    given = list(credentials(api))
    api.phones(1, seed=6)
    before, guarded = snapshot(api.store), 0
    for operation in listed:
        for id in {operation.path(collection), operation.path(ABSENT)}:
            for name, header in given:
                text = header(operation, id)
                headers = {**operation.options.get("headers", {})}
                if text is not None:
                    headers["Authorization"] = text.encode("latin-1")
                options = {**operation.options, "headers": headers}
                answer = api.client.request(operation.method, id, **options)
                if operation.schemes:
                    assert (answer.status_code, shaped(answer)) == (401, "unauthorized"), (name, operation)
                    assert "www-authenticate" in answer.headers
                    guarded += 1
                else:
                    # What anybody may ask is answered alike, whatever is said of oneself.
                    assert answer.status_code < 500
    assert guarded > 1000
    assert snapshot(api.store) == before


def test_a_right_to_one_kind_of_address_opens_no_other_kind(api: Any) -> None:
    """Operators' tokens, even of the admin, do not speak for devices; nor do devices' signatures for operators."""
    collection = api.opened()
    (device,) = api.phones(1)
    before = snapshot(api.store)
    for operation in operations(api.client.get("/v1/openapi.json").json()):
        path = operation.path(collection)
        given = operation.options.get("headers", {})
        if operation.schemes == {"device"}:
            for role in ROLES:
                answer = api.ask(operation.method, path, role, **operation.options)
                assert (answer.status_code, shaped(answer)) == (401, "unauthorized"), operation
        elif operation.schemes == {"operator"}:
            header = authorization(device.identity, device.number, operation.method, path, operation.body)
            options = {**operation.options, "headers": {**given, "Authorization": header}}
            answer = api.client.request(operation.method, path, **options)
            assert (answer.status_code, shaped(answer)) == (401, "unauthorized"), operation
    assert snapshot(api.store) == before


def test_a_lesser_role_is_told_so_and_changes_nothing(api: Any) -> None:
    """Every operation with every role below the one that the document names; and with that one it is not forbidden."""
    collection = api.opened()
    before, refused = snapshot(api.store), 0
    for operation in operations(api.client.get("/v1/openapi.json").json()):
        if "operator" not in operation.schemes:
            continue
        least = ROLES.index(operation.role or "viewer")
        for role in ROLES[:least]:
            answer = api.ask(operation.method, operation.path(collection), role, **operation.options)
            assert (answer.status_code, shaped(answer)) == (403, "forbidden"), operation
            refused += 1
        if operation.method == "GET":
            answer = api.ask(operation.method, operation.path(collection), ROLES[least], **operation.options)
            assert answer.status_code in (200, 404, 422), operation  # 422: its box is missing
    assert refused >= 12
    assert snapshot(api.store) == before


def test_of_two_authorizations_the_first_counts_and_nothing_is_added_up(api: Any) -> None:
    wrong, right = "Bearer mvo_" + "A" * 43, f"Bearer {api.tokens['admin']}"
    asked = [[wrong, right], [wrong + ", " + right], [right + ", " + wrong], [right[:30], right[30:]]]
    for values in asked:
        headers = [("Authorization", value) for value in values]
        answer = api.client.get("/v1/operators", headers=headers)
        assert (answer.status_code, shaped(answer)) == (401, "unauthorized"), values


@pytest.mark.parametrize("where", ["query", "cookie", "body"])
def test_a_token_counts_in_the_header_only(api: Any, where: str) -> None:
    token = api.tokens["admin"]
    options: dict[str, Any] = {
        "query": {"params": {"token": token, "access_token": token, "authorization": f"Bearer {token}"}},
        "cookie": {"headers": {"Cookie": f"token={token}; Authorization=Bearer {token}"}},
        "body": {"json": {"name": "n", "role": "admin", "token": token}},
    }[where]
    answer = api.client.request("POST" if where == "body" else "GET", "/v1/operators", **options)
    assert (answer.status_code, shaped(answer)) == (401, "unauthorized")
    assert token not in answer.text
