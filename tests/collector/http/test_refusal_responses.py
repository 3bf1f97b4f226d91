"""Responses to errors: one JSON shape, no text of an internal fault, nothing that was sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from mapveil.collector import refusals
from mapveil.collector.http.exchange import Exchange
from mapveil.collector.http.gate import refusal_of
from mapveil.collector.refusals import CODES, Refusal
from mapveil.collector.rounds import validation
from mapveil.collector.rounds.specification import CollectionSpec, read_specification
from mapveil.collector.rounds.validation import StrictModel, validation_text
from mapveil_client.errors import BudgetExceeded, InputError, ParameterError, PromiseError

SHORT = {"type": "Polygon", "coordinates": [[[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]]}
BOX = {"type": "Polygon", "coordinates": [[[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.0, 0.0]]]}
GOOD = {"title": "a", "trust": "local", "epsilon": "1", "region": [0.0, 0.0, 1.0, 1.0],
        "tiling": "quadtree:4", "devices": 10}  # fmt: skip
REFUSALS = [
    refusals.Conflict,
    refusals.Forbidden,
    refusals.Invalid,
    refusals.NotFound,
    refusals.StoreUnavailable,
    refusals.TooLarge,
    refusals.TooLate,
    refusals.Unauthorized,
]


def made(error: Exception) -> Refusal:
    return refusal_of(error, Exchange("192.0.2.1"))


@pytest.mark.parametrize("kind", REFUSALS)
def test_a_refusal_keeps_its_status_code_and_what_is_accepted(kind: type[refusals.Refusal]) -> None:
    refusal = made(kind("it is not", "something else"))
    assert (refusal.status, refusal.code) == (kind.status, CODES[kind.status])
    error = json.loads(refusal.body())["error"]
    assert error == {
        "code": refusal.code,
        "message": "it is not; expected something else",
        "expected": "something else",
    }


def test_too_many_says_when_to_ask_again() -> None:
    assert made(refusals.TooMany("slowly", 2.4)).headers == {"retry-after": "3"}
    assert made(refusals.TooMany("slowly", 0.01)).headers == {"retry-after": "1"}


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
    refusal = made(error)
    assert (refusal.status, refusal.code) == (status, CODES[status])


@pytest.mark.parametrize("error", [ValueError("secret"), KeyError("secret"), RuntimeError("secret")])
def test_of_a_fault_of_ours_nothing_is_told(error: Exception) -> None:
    refusal = made(error)
    assert refusal.status == 500
    assert b"secret" not in refusal.body()


def test_http_exceptions_keep_their_headers_and_lose_their_text() -> None:
    refusal = made(HTTPException(405, "secret", headers={"Allow": "GET"}))
    assert (refusal.status, refusal.code, refusal.headers) == (405, "not-allowed", {"allow": "GET"})
    assert b"secret" not in refusal.body()


def test_a_body_is_json_whatever_stands_in_it() -> None:
    body = refusals.Invalid('a "quote", \ud800 and \x00').body()
    assert json.loads(body)["error"]["code"] == "invalid"


def test_a_message_is_one_line_of_bounded_length() -> None:
    message = json.loads(made(InputError("a\nb\n" + "c" * 100_000)).body())["error"]["message"]
    assert "\n" not in message
    assert len(message) <= 2000


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
        "body.epsilon must be a number; body.field_a Extra inputs; body.field_b Extra inputs; and 3 more"
    )


def test_a_name_that_is_no_field_s_is_not_repeated() -> None:
    def told(*place: object) -> str:
        return validation_text([{"loc": place, "msg": "not accepted"}])

    assert told("body", "tilling") == "body.tilling not accepted"
    assert told("body", "region", "|bounds", 3) == "body.region.3 not accepted"
    for secret in ("mve_" + "Qz7-" * 10, "-73.9857", "40.7", "a b", "x" * 60, ""):
        assert told("body", secret) == "body.a name not accepted"
    unknown = {"loc": ("body", "12345"), "type": "extra_forbidden", "msg": "Extra inputs"}
    assert validation_text([unknown]) == "body.a name is no field here"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"title": "a\n"}, "title must be one line of printable text"),
        ({"devices": 1}, "devices must be greater than or equal to 3"),
        ({"epsilon": "x"}, "epsilon must be a number as text, such as 0.5 or 1/3, or must be a valid number"),
        ({"tiling": "x"}, "tiling must be quadtree:DEPTH, grid:ROWSxCOLUMNS or tiles:ZOOM, or must be an object"),
        ({"region": [0.0, 1.0]}, "region must have at least 4 items, not 2"),
        *(
            ({"region": region},
             "region must be four numbers, or a GeoJSON Polygon or Feature; of a FeatureCollection, give the one "
             "feature")
            for region in ("x", {"type": "FeatureCollection", "features": []})
        ),
        ({"region": SHORT}, "region.coordinates.0 must have at least 5 items, not 3"),
        ({"region": {"type": "Feature", "properties": {}, "geometry": SHORT}},
         "region.geometry.coordinates.0 must have at least 5 items, not 3"),
        ({"region": BOX | {"crs": {}}}, "region must be in degrees of WGS 84, without the member crs"),
        ({"region": {"type": "Feature", "geometry": BOX | {"crs": None}}},
         "region.geometry must be in degrees of WGS 84, without the member crs"),
        ({"options": {"Shard_size": "\n"}},
         "options.Shard_size must be a valid boolean, or must be a valid integer, or must be a valid number, or must "
         "be printable text"),
        ({"tiling": {"kind": "places", "lat": []}},
         "tiling.lon is required; tiling.lat must have at least 2 items, not 0"),
        ({"tilling": 1}, "tilling is no field here"),
    ],
)  # fmt: skip
def test_a_body_that_is_not_accepted_is_told_in_words(given: dict[str, object], told: str) -> None:
    with pytest.raises(ValidationError) as caught:
        CollectionSpec.model_validate(GOOD | given)
    assert validation_text(caught.value.errors(include_url=False)) == told


NAMES = {f"{each:x}": {} for each in range(10_000)}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (NAMES, "body must have at most 64 members, not"),
        ({"options": NAMES}, "options must have at most 64 members, not 10000"),
        ({"region": {"type": "Polygon"} | NAMES}, "region must have at most 64 members, not 10001"),
        ({"windows": NAMES}, "windows must have at most 64 members, not 10000"),
        ({"tiling": NAMES}, "tiling must be a valid string, or must have at most 64 members, not 10000"),
        *(
            ({"tiling": {"kind": "places", "lon": [0.0, 1.0], "lat": [0.0, 1.0], name: [None] * 10_000}},
             f"tiling.{name}.0 must be a valid {kind}")
            for name, kind in (("lon", "number"), ("lat", "number"), ("names", "string"))
        ),
    ],
)  # fmt: skip
def test_a_long_body_makes_few_errors(given: dict[str, object], told: str) -> None:
    with pytest.raises(ValidationError) as caught:
        CollectionSpec.model_validate(GOOD | given)
    assert caught.value.error_count() <= 2  # one of each alternative of a tiling
    assert validation_text(caught.value.errors(include_url=False)).startswith(told)


def test_of_geojson_the_members_that_say_nothing_of_a_box_are_accepted() -> None:
    feature = {"type": "Feature", "id": 7, "bbox": [0, 0, 1, 1], "properties": {"name": "a"}, "geometry": BOX}
    regions = [BOX, BOX | {"bbox": [0, 0, 1, 1]}, feature, feature | {"properties": None}]
    regions += [BOX | {"foreign": 1}, feature | {"geometry": BOX | {"foreign": {}}, "foreign": []}]
    asked = GOOD | {"devices": 100}
    read = {
        read_specification(asked | {"region": each}, "5a" * 16).terms.cells.region.bbox for each in regions
    }
    assert read == {(0.0, 0.0, 1.0, 1.0)}


def test_alternatives_of_a_field_have_marks_that_no_sender_s_key_is_taken_for() -> None:
    def labels(node: Any) -> Iterator[str | None]:
        if isinstance(node, dict) and node.get("type") == "union":
            yield from (each[1] if isinstance(each, tuple) else None for each in node["choices"])
        if isinstance(node, dict) and node.get("type") == "tagged-union":
            yield from node["choices"]
        for each in (
            node.values() if isinstance(node, dict) else node if isinstance(node, list | tuple) else ()
        ):
            yield from labels(each)

    found = {
        each for model in StrictModel.__subclasses__() for each in labels(model.__pydantic_core_schema__)
    }
    assert found == {"|", "|bounds", "|Polygon", "|Feature"}


def test_faults_are_not_compared_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0

    class Place(tuple[str, ...]):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return tuple.__eq__(self, other)

        __hash__ = tuple.__hash__

    monkeypatch.setattr(validation, "_place", lambda problem: Place((problem["name"],)))
    told = validation_text([{"name": f"n{each}", "msg": "Extra"} for each in range(1000)])
    assert told == "n0 Extra; n1 Extra; n2 Extra; and 997 more"
    assert compared < 1000


def test_of_errors_without_end_the_first_are_read() -> None:
    unread: Any = None
    problems = [{"loc": (f"field_{letter}",), "msg": "Extra"} for letter in "abcd"] * 250
    told = validation_text([*problems, unread])
    assert told == "field_a Extra; field_b Extra; field_c Extra; and many more"
