from __future__ import annotations

import json

import pytest
from starlette.exceptions import HTTPException

from mapveil.collector import refusals as faults
from mapveil.collector.http.error_responses import Failure, failure_of
from mapveil.collector.refusals import CODES
from mapveil.collector.rounds.specification import validation_text
from mapveil_client.errors import BudgetExceeded, InputError, ParameterError, PromiseError

REFUSALS = [
    faults.Conflict,
    faults.Forbidden,
    faults.Invalid,
    faults.NotFound,
    faults.StoreUnavailable,
    faults.TooLarge,
    faults.TooLate,
    faults.Unauthorized,
]


@pytest.mark.parametrize("kind", REFUSALS)
def test_a_refusal_keeps_its_status_code_and_what_is_accepted(kind: type[faults.Refusal]) -> None:
    failure = failure_of(kind("it is not", "something else"))
    assert failure is not None
    assert (failure.status, failure.code) == (kind.status, kind.code) == (kind.status, CODES[kind.status])
    error = json.loads(failure.body())["error"]
    assert error == {
        "code": kind.code,
        "message": "it is not; expected something else",
        "expected": "something else",
    }


def test_too_many_says_when_to_ask_again() -> None:
    failure = failure_of(faults.TooMany("slowly", 2.4))
    assert failure is not None
    assert dict(failure.headers)[b"retry-after"] == b"3"
    waits = failure_of(faults.TooMany("slowly", 0.01))
    assert waits is not None
    assert dict(waits.headers)[b"retry-after"] == b"1"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InputError("x"), 422),
        (ParameterError("x"), 422),
        (PromiseError("x"), 409),
        (BudgetExceeded("x"), 409),
    ],
)
def test_what_mapveil_reports_is_told(error: Exception, status: int) -> None:
    failure = failure_of(error)
    assert failure is not None
    assert (failure.status, failure.code) == (status, CODES[status])


@pytest.mark.parametrize("error", [ValueError("secret"), KeyError("secret"), RuntimeError("secret")])
def test_of_a_fault_of_ours_nothing_is_told(error: Exception) -> None:
    assert failure_of(error) is None


def test_http_exceptions_keep_their_headers_and_lose_their_text() -> None:
    failure = failure_of(HTTPException(405, "secret", headers={"Allow": "GET"}))
    assert failure is not None
    assert (failure.status, failure.code, failure.headers) == (405, "not-allowed", ((b"Allow", b"GET"),))
    assert b"secret" not in failure.body()


def test_a_body_is_json_whatever_stands_in_it() -> None:
    body = Failure(422, "invalid", 'a "quote", \ud800 and \x00').body()
    assert json.loads(body)["error"]["code"] == "invalid"


def test_a_message_is_one_line_of_bounded_length() -> None:
    failure = failure_of(InputError("a\nb\n" + "c" * 100_000))
    assert failure is not None
    assert "\n" not in failure.message
    assert len(failure.message) <= 2000


def test_what_was_sent_is_never_repeated() -> None:
    problems: list[dict[str, object]] = [
        {"loc": ("body", "epsilon"), "msg": "Input should be a number", "input": "secret"},
        *(
            {"loc": ("body", f"field_{letter}"), "msg": "Extra inputs", "input": "secret"}
            for letter in "abcde"
        ),
    ]
    text = validation_text(problems)
    assert "secret" not in text
    assert text == (
        "body.epsilon: Input should be a number; body.field_a: Extra inputs; body.field_b: Extra inputs; and 3 more"
    )


def test_a_name_that_is_no_field_s_is_not_repeated() -> None:
    def told(*place: object) -> str:
        return validation_text([{"loc": place, "msg": "not accepted"}])

    assert told("body", "tilling") == "body.tilling: not accepted"
    assert told("body", "region", 3, "list[float]") == "body.region.3.list[float]: not accepted"
    for secret in ("mve_" + "Qz7-" * 10, "-73.9857", "40.7", "a b", "x" * 60, ""):
        assert told("body", secret) == "body.a name: not accepted"
